"""The harness itself: the same seed gives the same schedule, and each kind of wrong is noticed."""

import msgspec
import pytest

from node.core.replica.durable import Recovered
from node.model.errors import Failure
from node.model.event import Event, ProposalRejected
from node.model.ids import CommandId, NodeId
from node.model.session import Entry, EventId
from node.model.state import State
from tests.chaos.load import Asked, Outcome
from tests.chaos.schedule import OF_NETWORK, Kind, make_schedule
from tests.chaos.verdict import Logs, check_commands, check_logs
from tests.fakes.fleet import decided, entry, fold

ACCEPTED = Asked("c-1", "CordonNode", Outcome.ACCEPTED, index=1, tries=1)
REFUSED = Asked("c-2", "CordonNode", Outcome.REFUSED, tries=1)
UNKNOWN = Asked("c-3", "CordonNode", tries=9)


def rejected(command: str, sequence: int = 50) -> Event:
    return ProposalRejected(
        id=EventId(NodeId("b"), 1, sequence),
        asked_by=NodeId("a"),
        failure=Failure(code="no_fit", message="no"),
        command=CommandId(command),
    )


def logs_of(*logs: list[Entry]) -> Logs:
    """What was read from so many disks."""
    states = [fold(State()) for _ in logs]
    for number, log in enumerate(logs):
        for each in log:
            states[number] = fold(states[number], msgspec.msgpack.decode(each.payload, type=Event))
    hashes = [str(hash(msgspec.msgpack.encode(state))) for state in states]
    return Logs([Recovered(incarnation=1, entries=tuple(log)) for log in logs], states, hashes)


def same(*events: Event) -> Logs:
    """Three disks with the same entries."""
    log = [entry(event, index) for index, event in enumerate(events)]
    return logs_of(log, log, log)


def faults_with(asked: list[Asked], logs: Logs) -> str:
    faults: list[str] = []
    check_logs(logs, faults)
    check_commands(asked, logs, faults)
    return "; ".join(faults)


def test_what_is_there_once_or_rejected_once_or_unknown_is_fine() -> None:
    assert not faults_with([ACCEPTED, REFUSED, UNKNOWN], same(decided((), "c-1")))
    assert not faults_with([ACCEPTED, REFUSED, UNKNOWN], same(rejected("c-1")))


@pytest.mark.parametrize(
    ("logs", "words"),
    [
        (same(decided((), "c-9")), "0 times in the log"),
        (same(decided((), "c-1"), decided((), "c-1")), "decided 2 times"),
        (same(decided((), "c-1"), rejected("c-1")), "1 times rejected"),
        (same(rejected("c-1"), rejected("c-1", 51)), "rejected 2 times"),
        (same(decided((), "c-1"), decided((), "c-2")), "refused"),
    ],
)
def test_what_is_lost_or_doubled_or_both_is_named(logs: Logs, words: str) -> None:
    assert words in faults_with([ACCEPTED, REFUSED], logs)


def test_logs_that_differ_are_named() -> None:
    one = [entry(decided((), "c-1"), 0), entry(decided((), "c-4"), 1)]
    two = [one[0], entry(decided((), "c-5"), 1)]
    found = faults_with([ACCEPTED], logs_of(one, one, two))
    assert "entry 1 of three is not that of one" in found
    assert "the states differ" in found


def test_an_event_twice_a_hole_and_a_writer_s_order_are_named() -> None:
    first, second = entry(decided((), "c-1"), 0), entry(decided((), "c-4"), 1)
    twice = [first, msgspec.structs.replace(second, id=first.id)]
    assert "is in the log twice" in faults_with([ACCEPTED], logs_of(twice, twice, twice))
    hole = [first, msgspec.structs.replace(second, index=2)]
    assert "2 (" in faults_with([ACCEPTED], logs_of(hole, hole, hole))
    swapped = [
        msgspec.structs.replace(first, id=second.id),
        msgspec.structs.replace(second, id=first.id),
    ]
    order = faults_with([ACCEPTED], logs_of(swapped, swapped, swapped))
    assert "before an earlier one of its writer" in order
    marked = [swapped[0], msgspec.structs.replace(swapped[1], resubmitted=True)]
    assert not faults_with([ACCEPTED], logs_of(marked, marked, marked))


def test_a_seed_is_a_schedule() -> None:
    assert make_schedule(7, 600, network=True) == make_schedule(7, 600, network=True)
    assert make_schedule(7, 600, network=True) != make_schedule(8, 600, network=True)
    kinds = {fault.kind for seed in range(5) for fault in make_schedule(seed, 600, network=True)}
    assert kinds == set(Kind)
    without = {fault.kind for fault in make_schedule(7, 600, network=False)}
    assert not without & OF_NETWORK
