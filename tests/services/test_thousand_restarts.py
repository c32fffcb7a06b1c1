"""A node that is restarted a thousand times is one node still, and costs what it did before."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from node.core.peer_table import SOURCE_DISCOVERY, PeerPolicy, PeerTable
from node.core.replica.known import LIVES_MAX
from node.core.replica.timing import Limits
from node.io.address_book import ADDRESSES_PER_NODE_MAX, AddressBook
from node.io.log_file import open_log
from node.model.event import Event, NodeAdmitted, NodeDescribed, NodeLost, NodeReturned
from node.model.ids import NodeId
from node.model.machine import Address
from node.model.register import LinkFigures, Register
from node.model.session import NO_SESSION, Entry, EventId
from node.model.state import Snapshot, State
from node.services.feed import Feed
from node.services.register_store import RegisterStore
from node.services.state_store import StateStore, encode_state
from tests.fakes.fleet import MAC
from tests.fakes.replica_cluster import CLUSTER, ReplicaCluster

RESTARTS = 1_000
SETTLED = 2 * LIVES_MAX
"""By then every bound is reached: nothing may grow any more."""
TAIL_ENTRIES = 100
SNAPSHOT_EVERY = 50
ALIVE, RESTLESS = NodeId("a" * 52), NodeId("b" * 52)
"""The one that goes on and sees it all, and the one that is restarted."""


def address_in(life: int) -> Address:
    """Each life listens elsewhere."""
    return Address(f"10.0.{life % 7}.2", 20_000 + life)


def described(node: NodeId, life: int) -> NodeDescribed:
    return NodeDescribed(
        node=node,
        name=node[:1],
        machine=MAC,
        version="1",
        incarnation=life,
        addresses=(address_in(life),),
    )


def weight(thing: object, seen: set[int] | None = None) -> int:
    """How many items all containers hold that can be reached from a thing."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, str | bytes | int | float | type(None)):
        return 0
    seen.add(id(thing))
    parts = list(_parts(thing))
    return len(parts) + sum(weight(part, seen) for part in parts)


def _parts(thing: object) -> Iterator[object]:
    if isinstance(thing, Mapping):
        yield from thing.keys()
        yield from thing.values()
    elif isinstance(thing, Collection):
        yield from thing
    elif isinstance(thing, msgspec.Struct):
        yield from (getattr(thing, name) for name in thing.__struct_fields__)
    elif type(thing).__module__.startswith("node."):
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        names = [*getattr(thing, "__dict__", {}), *slots]
        yield from (getattr(thing, name) for name in names if hasattr(thing, name))


def test_the_log_the_known_lives_and_the_replica_stay_within_their_bounds() -> None:
    cluster = ReplicaCluster(ALIVE, RESTLESS, limits=Limits(tail_entries=TAIL_ENTRIES))
    cluster.settle()
    alive, restless = cluster.nodes.values()
    weights: list[int] = []
    taken = 0
    for life in range(1, RESTARTS + 1):
        cluster.kill(RESTLESS)
        cluster.start(RESTLESS)
        cluster.publish(RESTLESS, f"life {life}")
        written = f"life {life}".encode()
        cluster.run_until(lambda written=written: alive.state[-1] == written, 5.0)
        if alive.order.index - taken >= SNAPSHOT_EVERY:
            taken = alive.order.index
            alive.state = alive.state[-1:]
            alive.call(alive.snapshot())
        cluster.sent.clear()
        alive.seen.clear()
        if life in (SETTLED, RESTARTS):
            weights.append(weight(alive.replica) + weight(alive.order))
    assert restless.disk.incarnation == RESTARTS + 1
    assert cluster.masters() == [ALIVE]
    image = alive.replica.snapshot
    assert image is not None
    lives = [known.incarnation for known in image.known if known.origin == RESTLESS]
    assert len(lives) <= LIVES_MAX
    assert max(lives) > RESTARTS - SNAPSHOT_EVERY
    kept = alive.replica.entries(0, alive.order.index + 1)
    assert len(kept) <= TAIL_ENTRIES + SNAPSHOT_EVERY + 10
    settled, last = weights
    assert last <= 1.05 * settled + 8 * SNAPSHOT_EVERY


def test_the_state_holds_one_record_of_it_and_does_not_grow() -> None:
    store = StateStore()
    store.install(State(cluster=CLUSTER))
    index = 0

    def fold(event: Event) -> None:
        nonlocal index
        index += 1
        payload = msgspec.msgpack.encode(event)
        store.deliver([Entry(NO_SESSION, index, EventId(ALIVE, 1, index), payload)])

    for node in (ALIVE, RESTLESS):
        fold(NodeAdmitted(node=node, name=node[:1], addresses=(), admitted_by=ALIVE))
    sizes: list[int] = []
    for life in range(1, RESTARTS + 1):
        fold(NodeLost(node=RESTLESS, reason="silent", at=float(life)))
        fold(NodeReturned(node=RESTLESS))
        fold(described(RESTLESS, life))
        sizes.append(len(encode_state(store.state)))
    record = store.state.nodes[RESTLESS]
    assert set(store.state.nodes) == {ALIVE, RESTLESS}
    assert (record.incarnation, record.lost) == (RESTARTS, False)
    assert record.addresses == (address_in(RESTARTS),)
    assert max(sizes) - sizes[0] < 64
    fold(described(RESTLESS, RESTARTS - 1))
    assert store.state.nodes[RESTLESS].incarnation == RESTARTS


def test_its_registers_replace_each_other() -> None:
    store = RegisterStore(ALIVE, 1, Feed(lambda: Snapshot(state=State())))
    for life in range(1, RESTARTS + 1):
        register = Register(node=RESTLESS, incarnation=life, sequence=1, value=LinkFigures())
        assert store.take(RESTLESS, register)
        late = msgspec.structs.replace(register, incarnation=life - 1, sequence=99)
        assert not store.take(RESTLESS, late)
    [held] = store.registers.values()
    assert held.incarnation == RESTARTS


def test_whom_to_dial_and_the_address_book_remember_only_its_last_addresses(
    tmp_path: Path,
) -> None:
    policy = PeerPolicy()
    table = PeerTable(ALIVE, policy)
    book = AddressBook(tmp_path)
    for life in range(1, RESTARTS + 1):
        now, place = 10.0 * life, address_in(life)
        table.add_candidate(RESTLESS, place, SOURCE_DISCOVERY, now)
        table.add_candidate(None, place, SOURCE_DISCOVERY, now)
        table.set_admitted({ALIVE: (), RESTLESS: (place,)}, now)
        for dial in table.due(now):
            table.found(dial, dial.addresses[0], RESTLESS)
            table.released(dial, now)
        table.linked(RESTLESS, place)
        book.remember({RESTLESS: place})
        table.lost(RESTLESS, now + 1.0)
    assert table.peers() == (RESTLESS,)
    assert table.addresses(RESTLESS)[0] == address_in(RESTARTS)
    assert len(table.addresses(RESTLESS)) <= 3 * policy.addresses_per_source_max
    assert table.candidate_count <= policy.candidates_max
    remembered = AddressBook(tmp_path).load()
    assert list(remembered) == [RESTLESS]
    assert len(remembered[RESTLESS]) == ADDRESSES_PER_NODE_MAX
    assert remembered[RESTLESS][0] == address_in(RESTARTS)


def test_a_thousand_starts_leave_one_file_of_the_incarnation(tmp_path: Path) -> None:
    incarnations: list[int] = []
    for _ in range(RESTARTS):
        log, recovered = open_log(tmp_path)
        log.close()
        incarnations.append(recovered.incarnation)
    assert incarnations == list(range(incarnations[0], incarnations[0] + RESTARTS))
    assert [path.name for path in tmp_path.iterdir()] == ["incarnation"]
