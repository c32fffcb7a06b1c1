"""Options of the whole test suite."""

import signal
from typing import Any

import pytest

from tests.scheduling import OneMachine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="write the text snapshots of the screen anew instead of comparing with them",
    )


def pytest_configure() -> None:
    """A suite started in the background ignores ctrl-c, and its children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneMachine:
    """Used where the suite has several workers."""
    return OneMachine(config, log)
