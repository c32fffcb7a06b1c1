"""Missing system tools: a skip with the reason for a person, a failure in CI."""

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test for want of a tool; fail it where everything has to be there."""
    if os.environ.get("EXOCTL_REQUIRE_TOOLS") == "1":
        pytest.fail(f"needed here: {reason}")
    pytest.skip(reason)
