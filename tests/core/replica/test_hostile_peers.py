"""Nothing that a peer says takes a replica down, or makes it promise what it can't keep."""

import zlib
from random import Random

import msgspec
import pytest

from node.core.replica.durable import Interval, KnownWriter, SnapshotImage
from node.core.replica.ledger import TERM_MAX
from node.core.replica.messages import (
    PAYLOAD_BYTES_MAX,
    Append,
    AppendAck,
    AppendNack,
    Campaign,
    DirectMessage,
    Heartbeat,
    Proposal,
    Relayed,
    Role,
    SnapshotAck,
    SnapshotChunk,
    Submit,
    Yield,
)
from node.core.replica.timing import Limits
from node.core.replica.transfer import pack_image, unpack_image
from node.model.ids import ClusterId, NodeId
from node.model.session import NO_SESSION, Entry, EventId, Position, Session
from tests.fakes.replica_cluster import CLUSTER, ReplicaCluster

NAMES = [NodeId(name) for name in ("a", "b", "c", "stranger", "")]


class Liar:
    """Makes up messages: sound in type, arbitrary in what they say."""

    def __init__(self, seed: int, cluster: ReplicaCluster) -> None:
        self._random = Random(seed)
        self._cluster = cluster

    def _number(self) -> int:
        return self._random.choice((-1, 0, 1, 2, 3, 5, 8, 40, 1 << 60, -(1 << 60)))

    def _session(self) -> Session:
        known = [node.replica.session for node in self._cluster.nodes.values()]
        made_up = Session(self._number(), self._random.choice(NAMES), self._number())
        return self._random.choice((*known, made_up, NO_SESSION))

    def _position(self) -> Position:
        known = [node.replica.last_position for node in self._cluster.nodes.values()]
        return self._random.choice((*known, Position(self._session(), self._number())))

    def _event_id(self) -> EventId:
        return EventId(self._random.choice(NAMES), self._number(), self._number())

    def _entries(self, first: int) -> tuple[Entry, ...]:
        count = self._random.randrange(4)
        skew = self._random.choice((0, 0, 0, 1))
        return tuple(
            Entry(self._session(), first + number + skew, self._event_id(), b"lie")
            for number in range(count)
        )

    def _proposals(self) -> tuple[Proposal, ...]:
        return tuple(
            Proposal(self._event_id(), b"lie", self._number(), self._random.random() < 0.5)
            for _ in range(3)
        )

    def message(self) -> DirectMessage:
        """One lie."""
        previous = self._position()
        session = self._session()
        node = self._random.choice(NAMES)
        number = self._number()
        return self._random.choice(
            (
                Heartbeat(
                    CLUSTER, number, self._random.choice(list(Role)), session, node, previous,
                    number, number, number, self._number(),
                ),
                Campaign(CLUSTER, previous, number, self._number()),
                Append(CLUSTER, session, previous, self._entries(previous.index + 1), number),
                AppendAck(CLUSTER, session, number),
                AppendNack(
                    CLUSTER, session, self._session(), number, self._random.random() < 0.5, number
                ),
                Submit(CLUSTER, self._proposals()),
                SnapshotChunk(CLUSTER, session, previous, number, self._number(), b"junk"),
                SnapshotAck(CLUSTER, session, previous, number),
                Yield(CLUSTER, session, node, previous),
            )
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_lies_are_borne_and_the_cluster_comes_to_rest_afterwards(seed: int) -> None:
    cluster = ReplicaCluster("a", "b", "c", limits=Limits(tail_entries=5))
    cluster.settle()
    for name in ("a", "b", "c"):
        cluster.publish(name, f"of {name}")
    cluster.settle()
    if seed % 2:
        cluster.nodes["b"].call(cluster.nodes["b"].snapshot())
    liar = Liar(seed, cluster)
    random = Random(seed)
    for _ in range(60):
        target = random.choice(("a", "b"))
        node = cluster.nodes[target]
        message = liar.message()
        if random.random() < 0.1:
            message = Relayed(CLUSTER, random.choice(NAMES), random.choice(NAMES), message)
        effects = node.replica.receive(cluster.now, NodeId("c"), message)
        # A lying member may well win an election or grow the log; it must not break anything.
        node.call(effects)
        cluster.run(0.02)
    for node in cluster.running():
        assert node.replica.commit_index <= node.replica.last_index
        assert node.replica.session.term < TERM_MAX


def test_messages_of_other_clusters_and_strangers_are_dropped_unread() -> None:
    cluster = ReplicaCluster("a", "b")
    cluster.settle()
    replica = cluster.nodes["b"].replica
    session = Session(99, NodeId("a"), 1)
    foreign = Append(ClusterId("0" * 32), session, replica.last_position, (), 0)
    assert replica.receive(cluster.now, NodeId("a"), foreign) == ()
    own = msgspec.structs.replace(foreign, cluster=CLUSTER, session=Session(99, NodeId("x"), 1))
    assert replica.receive(cluster.now, NodeId("x"), own) == ()
    inner = Relayed(CLUSTER, NodeId("a"), NodeId("b"), foreign)
    replica.receive(cluster.now, NodeId("a"), inner)
    assert replica.session.term == 1


def test_a_term_beyond_all_reason_is_not_taken_over() -> None:
    cluster = ReplicaCluster("a", "b")
    cluster.settle()
    replica = cluster.nodes["b"].replica
    last = replica.last_position
    huge = Session(TERM_MAX, NodeId("a"), 1)
    for message in (
        Append(CLUSTER, huge, last, (), 0),
        Heartbeat(CLUSTER, 1, Role.MASTERING, huge, NodeId("a"), last, 0, 1, 0, TERM_MAX),
        AppendNack(CLUSTER, replica.session, huge, 0),
        Campaign(CLUSTER, last, 0, TERM_MAX * 2),
    ):
        replica.receive(cluster.now, NodeId("a"), message)
        cluster.nodes["a"].replica.receive(cluster.now, NodeId("b"), message)
    cluster.kill("a")
    cluster.run(2.0)
    assert cluster.masters() == ["b"]
    assert replica.session.term == 2


def test_a_proposal_too_large_for_a_frame_is_not_taken() -> None:
    cluster = ReplicaCluster("a", "b")
    cluster.settle()
    replica = cluster.nodes["a"].replica
    large = Proposal(EventId(NodeId("b"), 1, 1), b"x" * (PAYLOAD_BYTES_MAX + 1), 1)
    before = replica.last_index
    replica.receive(cluster.now, NodeId("b"), Submit(CLUSTER, (large,)))
    assert replica.last_index == before


IMAGE = SnapshotImage(
    cluster=CLUSTER,
    position=Position(Session(1, NodeId("a"), 1), 4),
    state=b"state" * 100,
    known=(KnownWriter(NodeId("a"), 1, (Interval(1, 3),)),),
)


def test_a_packed_image_is_unpacked() -> None:
    assert unpack_image(pack_image(IMAGE), 10_000) == IMAGE


@pytest.mark.parametrize(
    "packed",
    [
        b"no zlib at all",
        pack_image(IMAGE)[:-9],
        zlib.compress(b"no image"),
        zlib.compress(b"\x81\xa1x" + b"\x91" * 5000 + b"\xc0"),
        pack_image(msgspec.structs.replace(IMAGE, position=Position(NO_SESSION, -1))),
        pack_image(
            msgspec.structs.replace(IMAGE, known=(KnownWriter(NodeId("a"), 1, (Interval(3, 1),)),))
        ),
    ],
)
def test_a_damaged_image_is_none(packed: bytes) -> None:
    assert unpack_image(packed, 10_000) is None


def test_an_image_that_unpacks_to_more_than_allowed_is_none() -> None:
    assert unpack_image(zlib.compress(b"0" * 1_000_000), 10_000) is None


def test_a_damaged_snapshot_is_asked_for_again() -> None:
    cluster = ReplicaCluster("a", "b", limits=Limits(tail_entries=3))
    cluster.settle()
    for number in range(20):
        cluster.publish("a", f"text {number}")
    cluster.settle()
    cluster.nodes["a"].call(cluster.nodes["a"].snapshot())
    cluster.run(0.1)
    cluster.kill("b")
    cluster.nodes["b"].disk.wipe()
    cluster.dropping = lambda _s, _t, message: isinstance(message, SnapshotChunk)
    cluster.start("b")
    cluster.run(0.5)
    chunks = [message for _, _, message in cluster.sent if isinstance(message, SnapshotChunk)]
    follower = cluster.nodes["b"]
    damaged = msgspec.structs.replace(chunks[0], chunk=b"\0" * len(chunks[0].chunk))
    too_large = msgspec.structs.replace(chunks[0], bytes_total=1 << 40)
    wrong = msgspec.structs.replace(
        chunks[0], position=Position(chunks[0].position.session, chunks[0].position.index - 1)
    )
    for message in (too_large, damaged, wrong):
        follower.call(follower.replica.receive(cluster.now, NodeId("a"), message))
        assert follower.replica.snapshot is None
    cluster.dropping = lambda _s, _t, _m: False
    cluster.settle()
    assert len(follower.text()) == 20
