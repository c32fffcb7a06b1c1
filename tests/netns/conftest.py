from collections.abc import Generator

import pytest

from tests.fakes.network import Network, reason_to_skip
from tests.fakes.tools import missing


@pytest.fixture
def network() -> Generator[Network]:
    reason = reason_to_skip()
    if reason:
        missing(reason)
    network = Network()
    try:
        yield network
    finally:
        network.remove()
