"""Whether the cluster kept its word: read from its nodes, and from their logs after the end."""

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from node.core.apply import read_event
from node.core.replica.durable import Recovered
from node.io.log_file import open_log
from node.model.command import Accepted
from node.model.event import CommandDecided, ProposalRejected
from node.model.session import Entry
from node.model.state import State
from node.services.state_store import StateStore, decode_state
from tests.chaos.field import MODEL, NAMES, SPLIT_MODEL, Field
from tests.chaos.load import QUESTIONS, Asked, Load, Outcome
from tests.chaos.schedule import NODES
from tests.fakes.http_call import CallFailed

SETTLE_SECONDS = 90.0
RUNNERS = 3
"""One of the single model, two of the split one."""


class Settled(msgspec.Struct):
    """What all nodes agree on at the end."""

    index: int = -1
    state_hash: str = ""
    seconds: float = 0.0


class Logs(msgspec.Struct):
    """What lies on the disks of stopped nodes."""

    recovered: list[Recovered]
    states: list[State]
    hashes: list[str]


def settle(field: Field, faults: list[str]) -> Settled:
    """Wait until all nodes have the same state at the same index, and both models are ready."""
    begin = time.monotonic()
    seen = ""
    while time.monotonic() - begin < SETTLE_SECONDS:
        try:
            routers = [field.router(number) for number in range(NODES)]
            views = field.ask(0, "/v1/cluster/instances").body["items"]
        except (CallFailed, KeyError, ValueError) as error:
            seen = repr(error)
            time.sleep(0.5)
            continue
        ready = {view["instance"]["model"] for view in views if view["status"] == "ready"}
        places = {(router.get("index_applied"), router.get("state_hash")) for router in routers}
        seen = f"positions {sorted(map(str, places))}, ready {sorted(ready)}"
        if len(places) == 1 and ready == {MODEL, SPLIT_MODEL}:
            ((index, state_hash),) = places
            return Settled(int(str(index)), str(state_hash), time.monotonic() - begin)
        time.sleep(0.5)
    faults.append(f"not one state with both models ready within {SETTLE_SECONDS:g} s: {seen}")
    return Settled(seconds=SETTLE_SECONDS)


def check_chats(load: Load, references: dict[str, str], faults: list[str]) -> None:
    """Whoever got a whole answer got the right one; and all is well again at the end."""
    faults += [
        f"a chat with {chat.model} at {NAMES[chat.node]} should have said"
        f" {references[chat.question]!r} and said {chat.text!r}"
        for chat in load.chats
        if not chat.failure and chat.text != references[chat.question]
    ]
    for number in range(NODES):
        for model in (MODEL, SPLIT_MODEL):
            chat = load.chat(number, model, QUESTIONS[0])
            if chat.failure or chat.text != references[QUESTIONS[0]]:
                faults.append(
                    f"at the end {model} does not answer at {NAMES[number]}:"
                    f" {chat.failure or repr(chat.text)}"
                )


def check_runners(field: Field, faults: list[str]) -> None:
    """Each shard has its process, and there is no other."""
    deadline = time.monotonic() + 15
    while len(field.live_runners()) != RUNNERS and time.monotonic() < deadline:
        time.sleep(0.5)
    found = field.live_runners()
    if len(found) != RUNNERS:
        lines = "; ".join(" ".join(process.cmdline()[-3:]) for process in found)
        faults.append(f"{len(found)} runners live where {RUNNERS} should: {lines}")


def check_end(field: Field, faults: list[str]) -> None:
    """End every node; no process, port, socket or lock is left."""
    for number, node in enumerate(field.nodes):
        code = node.stop()
        if code != 0:
            faults.append(f"{NAMES[number]} ended with {code}")
    left = field.processes.processes()
    faults += [f"left running: {' '.join(process.cmdline())}" for process in left]
    if field.lan is not None:
        for number in range(NODES):
            ports = field.lan.listening(number)
            if ports:
                faults.append(f"left listening on {NAMES[number]}: {ports}")
    for node in field.nodes:
        runners = node.state_directory / "r"
        files = sorted(path.name for path in runners.iterdir()) if runners.is_dir() else []
        if files:
            faults.append(f"left in {node.name}/r: {files}")
        if (node.state_directory / "node.lock").read_bytes():
            faults.append(f"{node.name} left its lock")


def read_logs(field: Field) -> Logs:
    """Replay every node's log from a copy of its disk, as far as all have it: those that ended last
    wrote down that the others were gone.
    """
    recovered: list[Recovered] = []
    for node in field.nodes:
        copy = field.processes.root / f"copy-{node.name}"
        shutil.copytree(node.state_directory / "log", copy)
        log, found = open_log(copy)
        log.close()
        recovered.append(found)
    end = min(each.entries[-1].index for each in recovered)
    stores = [_replayed(each, end) for each in recovered]
    return Logs(recovered, [each.state for each in stores], [each.digest() for each in stores])


def _replayed(recovered: Recovered, end: int) -> StateStore:
    store = StateStore()
    if recovered.snapshot is not None:
        store.install(decode_state(recovered.snapshot.state))
    entries = [entry for entry in recovered.entries if entry.index <= end]
    store.state = store.fold(store.state, entries)
    return store


def check_logs(logs: Logs, faults: list[str]) -> None:
    """At equal positions the same entry; no event twice; each writer's in its order."""
    first = {entry.index: entry for entry in logs.recovered[0].entries}
    for name, recovered in zip(NAMES[1:], logs.recovered[1:], strict=True):
        for entry in recovered.entries:
            other = first.get(entry.index)
            if other is not None and other != entry:
                faults.append(f"entry {entry.index} of {name} is not that of {NAMES[0]}")
                break
    ends = {state.index for state in logs.states}
    if len(ends) != 1 or len(set(logs.hashes)) != 1:
        faults.append(f"at index {sorted(ends)} the states differ: {logs.hashes}")
    for name, recovered in zip(NAMES, logs.recovered, strict=True):
        faults += [f"{name}: {each}" for each in _faults_of_one(recovered.entries)]


def _faults_of_one(entries: Sequence[Entry]) -> Iterable[str]:
    seen: set[object] = set()
    last: dict[object, int] = {}
    for before, entry in pairwise(entries):
        if entry.index != before.index + 1 or entry.session < before.session:
            yield f"{entry.index} ({entry.session}) follows {before.index} ({before.session})"
    for entry in entries:
        if entry.id in seen:
            yield f"{entry.id} is in the log twice"
        seen.add(entry.id)
        writer = (entry.id.origin, entry.id.incarnation)
        if not entry.resubmitted and entry.id.sequence > 0:  # below: a master's own, of its session
            if entry.id.sequence <= last.get(writer, 0):
                yield f"{entry.id} at {entry.index} stands before an earlier one of its writer"
            last[writer] = entry.id.sequence


def check_commands(asked: Sequence[Asked], logs: Logs, faults: list[str]) -> Counter[str]:
    """Every accepted command is there once, or one `ProposalRejected` names it."""
    counts: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    for entry in logs.recovered[0].entries:
        event = read_event(entry.payload)
        if isinstance(event, CommandDecided):
            decided[event.command] += 1
        elif isinstance(event, ProposalRejected) and event.command is not None:
            rejected[event.command] += 1
    state = logs.states[0]
    chunks = (*state.answers_before, state.answers)
    answers: dict[str, Accepted] = {id_: chunk[id_] for chunk in chunks for id_ in chunk}
    for each in asked:
        counts[each.outcome.value] += 1
        there = max(decided[each.id], int(each.id in answers))
        name = f"{each.kind} {each.id} ({each.tries} tries)"
        if there > 1 or rejected[each.id] > 1:
            faults.append(f"{name}: decided {there} times, rejected {rejected[each.id]} times")
        if each.outcome is Outcome.ACCEPTED:
            if there + rejected[each.id] != 1:
                faults.append(
                    f"{name}: accepted at {each.index}, but it is {there} times in the log and"
                    f" {rejected[each.id]} times rejected"
                )
            counts["rejected later"] += rejected[each.id]
            moved = there and each.id in answers and answers[each.id].index != each.index
            counts["moved in the log"] += int(bool(moved))
        if each.outcome is Outcome.REFUSED and each.tries == 1 and there:
            faults.append(f"{name}: refused ({each.detail}), but it is in the log")
    return counts


def keep(field: Field, target: Path) -> None:
    """Keep what tells why: the nodes' logs, both kinds."""
    target.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        for source in (field.processes.root / f"{name}.log", field.processes.root / name / "logs"):
            if source.is_dir():
                shutil.copytree(source, target / f"{name}-logs", dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, target)
        copy = field.processes.root / f"copy-{name}"
        if copy.is_dir():
            shutil.copytree(copy, target / f"{name}-log", dirs_exist_ok=True)
