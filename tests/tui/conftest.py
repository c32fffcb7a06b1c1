"""What every test of the screen shares."""

from collections.abc import Iterator

import pytest

from tests.fakes.idle import told_by_the_loop


@pytest.fixture(autouse=True, scope="session")
def _rest_is_told_by_the_loop() -> Iterator[None]:
    with told_by_the_loop():
        yield
