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

    def summary(self, results: list[Result | str], cpu_seconds: float) -> str:
        """Figures in a few lines."""
        good = [result for result in results if isinstance(result, Result)]
        simulated = sum(result.seconds for result in good)
        failovers = sorted(seconds for result in good for seconds in result.failovers)
        sums = {
            name: sum(getattr(result, name) for result in good)
            for name in (
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
        }
        without = f", without {self.without}" if self.without else ""
        lines = [
            (
                f"{self.nodes} nodes, {self.mode}{without}: {len(results)} seeds, "
                f"{len(results) - len(good)} violations, {simulated:.0f} s simulated, "
                f"{simulated / max(cpu_seconds, 0.001):.0f} per CPU second"
            ),
            ", ".join(f"{name} {count}" for name, count in sums.items()),
        ]
        if failovers:
            p50, p99 = (failovers[int(len(failovers) * part)] for part in (0.5, 0.99))
            lines.append(
                f"failover p50 {p50:.2f} s, p99 {p99:.2f} s, max {failovers[-1]:.2f} s "
                f"({len(failovers)} masters lost)"
            )
        return "\n".join(lines)


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
