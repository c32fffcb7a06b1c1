"""Three real nodes: how long a command takes to be applied on all, and how many events a second."""

import statistics
from typing import Any

from tests.benchmarks.measure import line, load
from tests.benchmarks.members import MemberProcess, master_of, members, settle

COMMANDS = 500
COMMANDS_PER_SECOND = 100.0
EVENTS = 30_000
ROUNDS = 3


def latencies(asker: MemberProcess, everybody: list[MemberProcess]) -> list[float]:
    """Milliseconds from submit until the last of the nodes has it applied, of each command."""
    asked: list[tuple[float, int]] = asker.ask(
        "commands", count=COMMANDS, per_second=COMMANDS_PER_SECOND
    )["asked"]
    indices = [index for _, index in asked]
    settle(everybody)
    times: list[list[float]] = [
        member.ask("applied", indices=indices)["times"] for member in everybody
    ]
    return [
        (max(each[place] for each in times) - began) * 1000
        for place, (began, _) in enumerate(asked)
    ]


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def throughput(writers: list[MemberProcess], everybody: list[MemberProcess]) -> float:
    """Committed events per second, from the first publish until all nodes have applied the last."""
    share = EVENTS // len(writers)
    before = [processor(member) for member in everybody]
    for writer in writers:
        writer.order("events", count=share)
    runs: list[dict[str, Any]] = [writer.answer() for writer in writers]
    last = max(run["last"] for run in runs)
    ended = max(member.ask("reach", index=last)["at"] for member in everybody)
    spent = [processor(member) - one for member, one in zip(everybody, before, strict=True)]
    print("    processor µs per event, by node:", [f"{s / EVENTS * 1e6:.0f}" for s in spent])
    return share * len(writers) / (ended - min(run["began"] for run in runs))


def processor(member: MemberProcess) -> float:
    return member.ask("look")["processor_seconds"]


def run() -> None:
    line("load of this box before", load())
    with members() as started:
        everybody = started.cluster("one", "two", "three")
        master = master_of(everybody)
        other = next(member for member in everybody if member is not master)
        for name, asker in (("master", master), ("another node", other)):
            rounds = [latencies(asker, everybody) for _ in range(ROUNDS)]
            best = min(rounds, key=lambda values: percentile(values, 50))
            line(
                f"submit at the {name} -> applied on all, p50",
                f"{percentile(best, 50):.1f} ms",
                "<= 5 ms",
            )
            best = min(rounds, key=lambda values: percentile(values, 99))
            line(
                f"submit at the {name} -> applied on all, p99",
                f"{percentile(best, 99):.1f} ms",
                "<= 50 ms",
            )
        for name, writers in (("master", [master]), ("another node", [other]), ("all", everybody)):
            best_rate = max(throughput(writers, everybody) for _ in range(ROUNDS))
            line(f"events a second, written by {name}", f"{best_rate:,.0f}", ">= 5,000")
    line("load of this box after", load())
