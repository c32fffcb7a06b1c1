"""Options of the whole test suite."""

import signal

import pytest

STARTS_PROCESSES = ("e2e", "mlx", "netns")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="write the text snapshots of the screen anew instead of comparing with them",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes go one after the other beside the others; a file stays whole."""
    for item in items:
        starts = any(item.get_closest_marker(name) for name in STARTS_PROCESSES)
        item.add_marker(pytest.mark.xdist_group("processes" if starts else item.path.name))


def pytest_configure() -> None:
    """A suite started in the background ignores ctrl-c, and its children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
