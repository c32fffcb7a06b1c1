"""Many seeds of one kind, and what they came to."""

import msgspec

from tests.simulation.checker import ViolationError
from tests.simulation.faults import Mode
from tests.simulation.rules import removed
from tests.simulation.simulation import Result, Simulation


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs have in common."""

    nodes: int
    mode: Mode = Mode.ALL
    seconds: float = 60.0
    without: str = ""


MIXTURE: tuple[tuple[Campaign, int], ...] = (
    *(
        (Campaign(nodes=nodes, mode=mode), share)
        for mode in (Mode.WILD, Mode.ALL)
        for nodes, share in ((8, 50), (5, 200), (3, 2050), (2, 2700))
    ),
    *(
        (Campaign(nodes=nodes, mode=mode), 40)
        for mode in Mode
        for nodes in (2, 3, 4)
        if mode not in (Mode.WILD, Mode.ALL, Mode.IDLE) and (mode, nodes) != (Mode.CUT, 2)
    ),
)
"""Of every 10,000 seeds of the two modes with every fault, and on top of them the other modes."""
SHARES = 10_000
_SUMS = (
    "steps",
    "messages",
    "published",
    "acknowledged",
    "sessions",
    "rewinds",
    "moved",
    "resubmissions",
    "snapshots_installed",
    "history_dropped",
)


class Tally:
    """What runs came to, without keeping them."""

    def __init__(self) -> None:
        self.seeds = 0
        self.violations = 0
        self.simulated_seconds = 0.0
        self._sums = dict.fromkeys(_SUMS, 0)
        self._failovers: list[float] = []

    def add(self, result: Result | str) -> None:
        """Count a run."""
        self.seeds += 1
        if isinstance(result, str):
            self.violations += 1
            return
        self.simulated_seconds += result.seconds
        self._failovers.extend(result.failovers)
        for name in _SUMS:
            self._sums[name] += getattr(result, name)

    def include(self, other: "Tally") -> None:
        """Count what another counted."""
        self.seeds += other.seeds
        self.violations += other.violations
        self.simulated_seconds += other.simulated_seconds
        self._failovers.extend(other._failovers)
        for name in _SUMS:
            self._sums[name] += other._sums[name]

    def summary(self, title: str, cpu_seconds: float) -> str:
        """Figures in a few lines."""
        speed = self.simulated_seconds / max(cpu_seconds, 0.001)
        lines = [
            (
                f"{title}: {self.seeds} seeds, {self.violations} violations, "
                f"{self.simulated_seconds:.0f} s simulated, {speed:.0f} per CPU second"
            ),
            "  " + ", ".join(f"{name} {count}" for name, count in self._sums.items()),
        ]
        failovers = sorted(self._failovers)
        if failovers:
            p50, p99 = (failovers[int(len(failovers) * part)] for part in (0.5, 0.99))
            lines.append(
                f"  failover p50 {p50:.2f} s, p99 {p99:.2f} s, max {failovers[-1]:.2f} s "
                f"({len(failovers)} masters lost)"
            )
        return "\n".join(lines)


def title_of(campaign: Campaign) -> str:
    """A campaign in words."""
    without = f", without {campaign.without}" if campaign.without else ""
    return f"{campaign.nodes} nodes, {campaign.mode}{without}"


def mixture(seeds: int) -> list[tuple[Campaign, int]]:
    """The mixture for so many seeds, at least one of each kind."""
    return [(campaign, -(-share * seeds // SHARES)) for campaign, share in MIXTURE]


def run_seed(campaign: Campaign, seed: int) -> Result | str:
    """One run; what was violated, in words, where something was."""
    with removed(campaign.without):
        try:
            return Simulation(seed, campaign.nodes, campaign.mode, campaign.seconds).run()
        except ViolationError as violation:
            return str(violation)
        except AssertionError as failure:
            return f"assertion: {failure!r}"


def replay_command(campaign: Campaign, seed: int) -> str:
    """The command that runs one seed again."""
    without = f" --without {campaign.without}" if campaign.without else ""
    return (
        f"python -m tests.simulation --nodes {campaign.nodes} --seeds 1 --first {seed} "
        f"--mode {campaign.mode} --seconds {campaign.seconds:g}{without}"
    )
