"""A cluster with a million events behind it: its log on disk, a joiner, a laggard, a restart."""

import time
from collections import Counter
from pathlib import Path

from tests.benchmarks.measure import line, load
from tests.benchmarks.members import MemberProcess, Members, master_of, members, settle

EVENTS = 1_000_000
LAGGARD_EVENTS = 9_000
"""Below the tail that every node keeps in entries."""
ROUNDS = 3
MB = 1_000_000


def disk_bytes(member: MemberProcess) -> int:
    files: list[Path] = [path for path in (member.directory / "log").rglob("*") if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files)


def write(started: list[MemberProcess], count: int) -> None:
    master = master_of(started)
    began = time.monotonic()
    run = master.ask("events", count=count)
    for member in started:
        member.ask("reach", index=run["last"])
    rate = count / (time.monotonic() - began)
    line(f"{count:,} events, on all of {len(started)}, a second", f"{rate:,.0f}")


def joiner(started: Members, everybody: list[MemberProcess]) -> None:
    """What a new member costs, and whom."""
    other = started.start("joiner")
    index = max(member.ask("look")["index"] for member in everybody)
    for member in everybody:
        member.ask("count_sent")
    run = started.join(master_of(everybody), other)
    head = other.ask("reach", index=index)["at"]
    line("a joiner: from `join` to the head, s", f"{head - run['began']:.2f}", "<= 2")
    to_joiner, to_others = 0, Counter[str]()
    for member in everybody:
        for what, size in member.ask("look")["sent"].items():
            peer, kind = what.split()
            if peer == other.ready["node"]:
                to_joiner += size
            else:
                to_others[kind] += size
    line("a joiner: sent to it, MB", f"{to_joiner / MB:.2f}", "<= 5")
    line("a joiner: snapshot sent to others, bytes", f"{to_others['SnapshotChunk']}", "0")
    line(
        "a joiner: entries sent to others, kB", f"{to_others['Append'] / 1000:.1f}", "its admission"
    )
    everybody.append(other)
    settle(everybody)


def catch_up(started: Members, everybody: list[MemberProcess]) -> None:
    """Entries a second that a node takes which was away."""
    best = 0.0
    for _ in range(ROUNDS):
        laggard = next(m for m in everybody if m is not master_of(everybody))
        everybody.remove(laggard)
        laggard.stop()
        run = master_of(everybody).ask("events", count=LAGGARD_EVENTS)
        laggard = started.start(laggard.name)
        everybody.append(laggard)
        laggard.ask("reach", index=run["last"])
        times = laggard.ask("span", last=run["last"])
        best = max(best, times["count"] / max(1e-6, times["seconds"]))
        settle(everybody)
    line("a laggard: entries it takes a second", f"{best:,.0f}", ">= 50,000")


def restart(started: Members, everybody: list[MemberProcess]) -> None:
    """A node of the cluster, restarted while the others stand; and the lone one of them all."""
    seconds: list[float] = []
    heads: list[float] = []
    for _ in range(ROUNDS):
        member = next(m for m in everybody if m is not master_of(everybody))
        index = member.ask("look")["index"]
        everybody.remove(member)
        member.kill()
        member = started.start(member.name)
        everybody.append(member)
        heads.append(member.ask("reach", index=index)["at"] - member.spawned_at)
        seconds.append(member.ready["ready"] - member.spawned_at)
        settle(everybody)
    line("a restart: process begun -> it is up, s", f"{min(seconds):.2f}", "<= 2")
    line("a restart: process begun -> state at the head, s", f"{min(heads):.2f}", "<= 2")


def run() -> None:
    line("load of this box before", load())
    with members() as started:
        everybody = started.cluster("one", "two", "three")
        write(everybody, EVENTS)
        for member in everybody:
            line(f"log on disk of {member.name}, MB", f"{disk_bytes(member) / MB:.1f}", "<= 64")
        joiner(started, everybody)
        catch_up(started, everybody)
        restart(started, everybody)
        for member in everybody:
            look = member.ask("look")
            line(f"most memory of {member.name}, MB", f"{look['rss_bytes'] / MB:.0f}")
    line("load of this box after", load())
