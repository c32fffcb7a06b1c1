"""Two workers for the suite: one has the tests that need the machine, the other those that compute.

Tests that start processes wait for them, with deadlines; two such files beside each other on two
cores miss theirs, and both would speak on the machine's one multicast group.
"""

from xdist.scheduler.loadscope import (  # pyright: ignore[reportMissingTypeStubs]
    LoadScopeScheduling,
)

MACHINE = frozenset({"benchmarks", "chaos", "clients", "e2e", "fuzz", "io", "mlx", "netns"})
"""Folders whose tests start processes, or use the network or the engine."""


class OneMachine(LoadScopeScheduling):
    """Hands out whole files, and everything that needs the machine as one piece."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.removeprefix("tests/").partition("/")[0]
        return "machine" if folder in MACHINE else file
