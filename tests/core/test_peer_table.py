"""Who is dialled, where and when."""

import pytest

from node.core.backoff import Backoff
from node.core.peer_table import Dial, HeardTable, PeerPolicy, PeerTable
from node.model.errors import Failure
from node.model.ids import NodeId
from node.model.machine import Address

LOW, OWN, HIGH = NodeId("a" * 52), NodeId("m" * 52), NodeId("z" * 52)
HOME = Address("10.0.0.1", 52416)
AWAY = Address("10.0.0.2", 52416)
OTHER = Address("10.0.0.3", 52416)


@pytest.fixture
def table() -> PeerTable:
    """A table that has been running for a while."""
    table = PeerTable(OWN)
    table.set_admitted({HIGH: ()}, 0.0)
    table.set_admitted({}, 0.0)
    return table


def test_the_lower_id_dials_at_once(table: PeerTable):
    table.set_admitted({HIGH: (HOME,)}, 10.0)
    assert table.due(10.0) == (Dial(HIGH, (HOME,)),)


def test_the_higher_id_waits_three_seconds_then_dials_too(table: PeerTable):
    table.set_admitted({LOW: (HOME,)}, 10.0)
    assert table.due(12.9) == ()
    assert table.due(13.0) == (Dial(LOW, (HOME,)),)


def test_a_node_that_has_just_started_dials_lower_ids_soon():
    table = PeerTable(OWN)
    table.set_admitted({LOW: (HOME,)}, 10.0)
    assert table.due(10.1) == (Dial(LOW, (HOME,)),)


def test_a_dial_under_way_is_not_started_twice(table: PeerTable):
    table.set_admitted({HIGH: (HOME,)}, 10.0)
    assert table.due(10.0)
    assert table.due(99.0) == ()


def test_dials_back_off_to_two_seconds(table: PeerTable):
    table.set_admitted({HIGH: (HOME,)}, 0.0)
    now, waits = 0.0, list[float]()
    for _ in range(7):
        (dial,) = table.due(now)
        table.failed(dial, now)
        wait = table.next_due(now, 60.0)
        waits.append(round(wait, 3))
        now += wait
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_a_linked_peer_is_not_dialled_and_a_lost_one_at_once(table: PeerTable):
    table.set_admitted({HIGH: (HOME,), LOW: (AWAY,)}, 0.0)
    table.linked(HIGH, HOME)
    table.linked(LOW, AWAY)
    assert table.due(50.0) == ()
    table.lost(HIGH, 50.0)
    table.lost(LOW, 50.0)
    assert [dial.peer for dial in table.due(50.0)] == [HIGH]
    assert [dial.peer for dial in table.due(50.1)] == [LOW], "the higher id waits a moment"


def test_the_address_that_worked_last_comes_first(table: PeerTable):
    table.set_admitted({HIGH: (HOME, AWAY)}, 0.0)
    table.linked(HIGH, OTHER)
    table.lost(HIGH, 1.0)
    assert table.due(1.0) == (Dial(HIGH, (OTHER, HOME, AWAY)),)
    assert table.proved_address(HIGH) == OTHER


def test_a_hint_for_a_member_becomes_one_of_its_addresses(table: PeerTable):
    table.set_admitted({HIGH: ()}, 0.0)
    assert table.due(0.0) == ()
    table.add_candidate(HIGH, HOME, "mdns", 1.0)
    assert table.due(1.0) == (Dial(HIGH, (HOME,)),)
    assert table.candidate_count == 0


def test_a_new_address_of_a_failing_peer_is_tried_at_once(table: PeerTable):
    table.set_admitted({HIGH: (HOME,)}, 0.0)
    now = 0.0
    for _ in range(6):
        table.failed(table.due(now)[0], now)
        now += 2.0
    table.failed(table.due(now)[0], now)
    assert table.due(now) == ()
    table.add_candidate(HIGH, AWAY, "mdns", now)
    assert table.due(now)[0].addresses == (HOME, AWAY)


def test_an_address_where_somebody_else_answers_is_dropped_from_hints(table: PeerTable):
    table.set_admitted({HIGH: (HOME,)}, 0.0)
    table.add_candidate(HIGH, AWAY, "mdns", 0.0)
    (dial,) = table.due(0.0)
    assert set(dial.addresses) == {HOME, AWAY}
    table.found(dial, AWAY, LOW)
    assert table.addresses(HIGH) == (HOME,)


def test_a_stranger_is_dialled_and_backs_off_to_thirty_seconds(table: PeerTable):
    table.add_candidate(None, HOME, "mdns", 0.0)
    now, waits = 0.0, list[float]()
    for _ in range(8):
        (dial,) = table.due(now)
        assert dial == Dial(None, (HOME,))
        table.failed(dial, now)
        wait = table.next_due(now, 60.0)
        waits.append(round(wait, 3))
        now += wait
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_an_address_that_a_person_named_never_waits_long(table: PeerTable):
    table.add_candidate(None, HOME, "option", 0.0)
    now = 0.0
    for _ in range(10):
        table.failed(table.due(now)[0], now)
        now += 2.0
    assert table.is_asked(HOME)
    assert len(table.due(now)) == 1


def test_a_candidate_that_turns_out_a_member_is_dialled_as_that_member(table: PeerTable):
    table.add_candidate(None, HOME, "option", 0.0)
    (dial,) = table.due(0.0)
    table.found(dial, HOME, HIGH)
    table.failed(dial, 0.0)
    table.set_admitted({HIGH: ()}, 10.0)
    assert table.due(10.0) == (Dial(HIGH, (HOME,)),), "and no more as a stranger"


def test_an_asked_address_is_tried_as_a_stranger_again_when_its_member_moved(table: PeerTable):
    table.add_candidate(None, HOME, "option", 0.0)
    table.set_admitted({HIGH: (HOME,)}, 0.0)
    for dial in table.due(0.0):
        table.found(dial, HOME, LOW)
        table.failed(dial, 0.0)
    assert Dial(None, (HOME,)) in table.due(10.0)


def test_own_address_is_dialled_once(table: PeerTable):
    table.add_candidate(OWN, HOME, "mdns", 0.0)
    (dial,) = table.due(0.0)
    table.is_self(dial, HOME)
    table.add_candidate(OWN, HOME, "mdns", 1.0)
    table.add_candidate(None, HOME, "option", 1.0)
    assert table.candidate_count == 0
    assert table.due(1.0) == ()


@pytest.mark.parametrize("address", [Address("", 52416), Address("h", 0), Address("h", 70_000)])
def test_an_address_that_can_be_none_is_not_taken(table: PeerTable, address: Address):
    table.add_candidate(None, address, "mdns", 0.0)
    table.set_admitted({HIGH: (address,)}, 0.0)
    table.linked(HIGH, address)
    table.lost(HIGH, 0.0)
    assert table.due(5.0) == ()


def test_a_flood_of_candidates_is_bounded_and_dialled_slowly(table: PeerTable):
    table.add_candidate(None, HOME, "option", 0.0)
    for number in range(10_000):
        table.add_candidate(None, Address(f"10.1.{number // 250}.{number % 250}", 1), "mdns", 0.0)
    assert table.candidate_count == 256
    started = 0
    for step in range(100):
        now = step * 0.1
        dials = table.due(now)
        assert step or Dial(None, (HOME,)) in dials, "what a person named is not pushed out"
        started += len(dials)
        for dial in dials:
            table.failed(dial, now)
    assert started <= 32 + 20 * 10


def test_dials_at_a_time_are_bounded():
    table = PeerTable(OWN, PeerPolicy(dials_max=3))
    nodes = {NodeId(f"n{number}"): (Address("h", number),) for number in range(1, 10)}
    table.set_admitted(nodes, 0.0)
    first = table.due(10.0)
    assert len(first) == 3
    assert table.due(10.0) == ()
    assert table.next_due(10.0, 1.0) == 1.0
    table.failed(first[0], 10.0)
    assert len(table.due(10.0)) == 1


def test_addresses_per_peer_are_bounded(table: PeerTable):
    table.set_admitted({HIGH: tuple(Address("l", port) for port in range(1, 100))}, 0.0)
    for port in range(1, 100):
        table.add_candidate(HIGH, Address("m", port), "mdns", 0.0)
    assert len(table.addresses(HIGH)) == 16
    assert table.addresses(HIGH)[8] == Address("m", 99), "the latest hint first"


def test_a_removed_member_is_dialled_no_more(table: PeerTable):
    table.set_admitted({HIGH: (HOME,)}, 0.0)
    (dial,) = table.due(0.0)
    table.set_admitted({}, 0.0)
    table.failed(dial, 0.0)
    table.lost(HIGH, 0.0)
    assert table.due(100.0) == ()
    assert not table.is_admitted(HIGH)


def test_a_change_of_the_network_forgets_every_wait():
    table = PeerTable(OWN, PeerPolicy(stranger=Backoff(100.0, 100.0), member=Backoff(100.0, 100.0)))
    table.set_admitted({HIGH: (HOME,)}, 0.0)
    table.add_candidate(None, AWAY, "mdns", 0.0)
    for dial in table.due(0.0):
        table.failed(dial, 0.0)
    assert table.due(1.0) == ()
    table.retry_all(1.0)
    assert len(table.due(1.0)) == 2


@pytest.mark.parametrize(("source", "tried_again"), [("option", True), ("mdns", False)])
def test_after_a_change_of_the_network_an_own_address_may_be_somebody_elses(
    table: PeerTable, source: str, tried_again: bool
):
    table.add_candidate(None, HOME, source, 0.0)
    (dial,) = table.due(0.0)
    table.is_self(dial, HOME)
    table.network_changed(1.0)
    assert bool(table.due(1.0)) is tried_again  # a person's word is not forgotten
    table.add_candidate(HIGH, HOME, "mdns", 2.0)
    assert table.candidate_count == 1


def test_a_dial_that_gave_way_to_another_link_is_no_failure(table: PeerTable):
    table.set_admitted({HIGH: (HOME,)}, 0.0)
    (dial,) = table.due(0.0)
    table.released(dial, 0.0)
    assert table.due(0.0) == ()
    assert table.due(0.1) == (dial,)


def test_a_strangers_dial_that_gave_way_is_not_repeated_at_once(table: PeerTable):
    table.add_candidate(None, HOME, "mdns", 0.0)
    (dial,) = table.due(0.0)
    table.released(dial, 0.0)
    assert table.due(0.0) == ()
    assert table.due(0.1) == (dial,)


def test_own_addresses_are_bounded(table: PeerTable):
    for port in range(1, 1000):
        address = Address("10.0.0.9", port)
        table.add_candidate(None, address, "mdns", float(port))
        for dial in table.due(float(port)):
            table.is_self(dial, address)
    table.add_candidate(None, Address("10.0.0.9", 1), "mdns", 2000.0)
    table.add_candidate(None, Address("10.0.0.9", 999), "mdns", 2000.0)
    assert table.candidate_count == 1, "the oldest was forgotten, the latest was not"


def test_heard_nodes_are_shown_until_they_are_quiet_for_long():
    heard = HeardTable(PeerPolicy(heard_seconds=90.0))
    failure = Failure(code="other_cluster", message="other")
    heard.record(HIGH, HOME, failure, now=0.0, wall=1000.0)
    heard.record(HIGH, AWAY, failure, now=50.0, wall=1050.0)
    (record,) = heard.records(140.0)
    assert (record.peer, record.address, record.since, record.up) == (HIGH, AWAY, 1000.0, False)
    assert heard.records(141.0) == ()


def test_heard_nodes_are_bounded_and_forgotten_on_demand():
    heard = HeardTable(PeerPolicy(heard_max=4))
    failure = Failure(code="other_cluster", message="other")
    for number in range(100):
        heard.record(NodeId(f"n{number:03}"), HOME, failure, now=0.0, wall=0.0)
    assert [record.peer for record in heard.records(0.0)] == ["n096", "n097", "n098", "n099"]
    heard.forget(NodeId("n096"))
    assert len(heard.records(0.0)) == 3
    heard.clear()
    assert heard.records(0.0) == ()
