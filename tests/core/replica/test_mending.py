from collections.abc import Callable

from node.core.replica.durable import (
    Appended,
    Orphaned,
    Recovered,
    SnapshotImage,
    Truncated,
)
from node.core.replica.effects import (
    HistoryDropped,
    Revalidate,
    Rewound,
    Send,
    SnapshotInstalled,
    SnapshotNeeded,
    Write,
)
from node.core.replica.messages import (
    Append,
    AppendAck,
    AppendNack,
    SnapshotAck,
    SnapshotChunk,
    Submit,
)
from node.core.replica.replica import Replica
from node.core.replica.timing import Limits, Timing
from node.core.replica.transfer import pack_image
from node.model.ids import NodeId
from node.model.session import Entry, EventId, Position, Session
from tests.fakes.replica_cluster import (
    CLUSTER,
    FakeNode,
    ReplicaCluster,
    deliver_all,
    kinds,
    publish_many,
    settled,
)

SMALL = Limits(tail_entries=6, snapshot_chunk_bytes=40, snapshot_chunks_in_flight=2)


# -- after a partition ----------------------------------------------------------------------


def parted(cluster: ReplicaCluster, left: str, right: str) -> None:
    cluster.part(left, right)
    cluster.run(4.0)


def test_withdrawn_events_are_offered_again_and_marked() -> None:
    cluster = settled("a", "b", "c")
    parted(cluster, "a", "b c")
    publish_many(cluster, "a", 3)
    cluster.run(1.0)
    assert cluster.nodes["a"].text() == ["a0", "a1", "a2"], "a half goes on by itself"
    cluster.publish("b", "large")
    cluster.run(1.0)
    cluster.mend()
    cluster.settle()
    assert cluster.nodes["a"].text() == ["large", "a0", "a1", "a2"]
    assert kinds(cluster.nodes["a"], Rewound) == 1
    entries = cluster.nodes["a"].replica.entries(0, 100)
    marked = [entry.payload for entry in entries if entry.resubmitted]
    assert marked == [b"a0", b"a1", b"a2"]
    assert cluster.nodes["a"].replica.figures.orphans == 0


def test_thousands_of_withdrawn_events_are_back_within_seconds() -> None:
    cluster = settled("a", "b", "c")
    parted(cluster, "a", "b c")
    texts = publish_many(cluster, "a", 2000)
    cluster.run(1.0)
    cluster.publish("b", "large")
    cluster.run(1.0)
    cluster.mend()
    cluster.settle(seconds_max=5.0)
    assert cluster.nodes["c"].text() == ["large", *texts]


def test_what_no_longer_holds_is_rejected_under_its_own_id() -> None:
    cluster = settled("a", "b", "c")
    parted(cluster, "a", "b c")
    event_id = cluster.publish("a", "stale")
    cluster.run(1.0)
    for node in cluster.running():
        node.reject.add(b"stale")
    cluster.mend()
    cluster.settle()
    assert cluster.nodes["c"].text() == ["rejected stale"]
    entries = cluster.nodes["c"].replica.entries(0, 100)
    assert [entry.id for entry in entries if entry.payload == b"rejected stale"] == [event_id]


def test_orphans_are_written_before_their_entries_are_withdrawn() -> None:
    cluster = settled("a", "b", "c")
    parted(cluster, "a", "b c")
    publish_many(cluster, "a", 2)
    cluster.run(1.0)
    node = cluster.nodes["a"]
    records: list[object] = []
    keep = cluster.keep

    def watch(fake: FakeNode, write: Write) -> None:
        if fake is node:
            records.extend(write.records)
        keep(fake, write)

    cluster.keep = watch  # type: ignore[method-assign]
    cluster.mend()
    cluster.settle()
    order = [type(record) for record in records if isinstance(record, Orphaned | Truncated)]
    assert order == [Orphaned, Truncated]
    assert any(isinstance(record, Appended) for record in records)


def test_orphans_survive_a_crash() -> None:
    cluster = settled("a", "b", "c")
    parted(cluster, "a", "b c")
    publish_many(cluster, "a", 2)
    cluster.run(1.0)
    cluster.dropping = lambda source, _t, message: source == "a" and isinstance(message, Submit)
    cluster.mend()
    cluster.run(3.0)
    assert cluster.nodes["a"].replica.figures.orphans == 2
    cluster.kill("a")
    cluster.dropping = deliver_all
    cluster.start("a")
    cluster.settle()
    cluster.run(1.0)
    assert cluster.nodes["b"].text() == ["a0", "a1"]
    assert cluster.nodes["a"].replica.figures.orphans == 0


def test_an_unanswered_resubmission_is_offered_again() -> None:
    cluster = settled("a", "b", "c")
    parted(cluster, "a", "b c")
    cluster.publish("a", "patient")
    cluster.run(1.0)
    cluster.mend()
    ignored: list[Revalidate] = []

    def ignoring(node: FakeNode) -> Callable[..., object]:
        act = node.act

        def ignore_first(effect: object) -> object:
            if isinstance(effect, Revalidate) and len(ignored) < 2:
                ignored.append(effect)
                return ()
            return act(effect)  # type: ignore[arg-type]

        return ignore_first

    for node in cluster.running():
        node.act = ignoring(node)  # type: ignore[method-assign,assignment]
    cluster.settle()
    cluster.run(4.0)
    assert len(ignored) == 2
    assert cluster.nodes["b"].text() == ["patient"]


def test_an_answer_to_no_question_is_ignored() -> None:
    cluster = settled("a", "b")
    event_id = cluster.publish("a", "x")
    for node in cluster.running():
        last = node.replica.last_index
        node.call(node.replica.accept_resubmission(cluster.now, event_id))
        node.call(node.replica.reject_resubmission(cluster.now, event_id, b"no"))
        assert node.replica.last_index == last


def test_more_orphans_than_the_bound_are_reported() -> None:
    cluster = settled("a", "b", "c", limits=Limits(orphans=3))
    parted(cluster, "a", "b c")
    publish_many(cluster, "a", 5)
    cluster.run(1.0)
    cluster.mend()
    cluster.settle()
    dropped = [e for e in cluster.nodes["a"].seen if isinstance(e, HistoryDropped)]
    assert dropped == [HistoryDropped(2)]
    assert cluster.nodes["b"].text() == ["a0", "a1", "a2"]


# -- snapshots ------------------------------------------------------------------------------


def compact(cluster: ReplicaCluster, *names: str) -> None:
    for name in names:
        node = cluster.nodes[name]
        node.call(node.snapshot())
    cluster.run(0.1)


def test_a_snapshot_lets_old_entries_go_but_a_tail() -> None:
    cluster = settled("a", "b", limits=SMALL)
    publish_many(cluster, "a", 30)
    cluster.settle()
    replica = cluster.nodes["a"].replica
    compact(cluster, "a")
    assert replica.first_index == replica.last_index + 1 - 6
    assert replica.snapshot is not None
    assert replica.snapshot.position == replica.last_position
    again = replica.compact(cluster.now, replica.snapshot.position, b"again")
    assert again == ()


def test_a_newcomer_gets_snapshot_and_tail() -> None:
    cluster = settled("a", "b", "c", limits=SMALL)
    texts = publish_many(cluster, "a", 40)
    cluster.settle()
    compact(cluster, "a", "b")
    texts += publish_many(cluster, "b", 3)
    cluster.settle()
    cluster.kill("c")
    cluster.nodes["c"].disk.wipe()
    cluster.start("c")
    cluster.settle()
    assert cluster.nodes["c"].text() == texts
    assert kinds(cluster.nodes["c"], SnapshotInstalled) == 1
    chunks = [m for _, _, m in cluster.sent if isinstance(m, SnapshotChunk)]
    assert len(chunks) > 2
    cluster.publish("c", "and it writes")
    cluster.settle()
    assert cluster.nodes["a"].text()[-1] == "and it writes"


def test_lost_chunks_are_sent_again() -> None:
    cluster = settled("a", "b", limits=SMALL)
    texts = publish_many(cluster, "a", 40)
    cluster.settle()
    compact(cluster, "a")
    cluster.kill("b")
    cluster.nodes["b"].disk.wipe()
    count = 0

    def every_third(source: str, target: str, message: object) -> bool:
        nonlocal count
        count += isinstance(message, SnapshotChunk)
        return isinstance(message, SnapshotChunk) and count % 3 == 0

    cluster.dropping = every_third
    cluster.start("b")
    cluster.settle(30.0)
    assert cluster.nodes["b"].text() == texts


def test_a_newcomer_that_restarts_amid_a_snapshot_gets_it_from_the_beginning() -> None:
    cluster = settled("a", "b", limits=SMALL)
    texts = publish_many(cluster, "a", 40)
    cluster.settle()
    compact(cluster, "a")
    cluster.kill("b")
    cluster.nodes["b"].disk.wipe()
    cluster.start("b")
    cluster.run_until(
        lambda: any(isinstance(m, SnapshotChunk) and m.offset > 80 for _, _, m in cluster.sent), 5
    )
    cluster.power_off("b")
    cluster.start("b")
    cluster.settle(20.0)
    assert cluster.nodes["b"].text() == texts


def test_logs_that_part_below_a_snapshot_are_mended_by_snapshot() -> None:
    cluster = settled("a", "b", "c")
    cluster.publish("a", "shared")
    cluster.settle()
    parted(cluster, "a", "b c")
    publish_many(cluster, "a", 3)
    cluster.run(1.0)
    compact(cluster, "a")
    cluster.publish("b", "large")
    cluster.run(1.0)
    cluster.mend()
    cluster.settle()
    masters = cluster.masters()
    assert masters != ["a"]
    assert kinds(cluster.nodes[masters[0]], SnapshotNeeded) >= 1
    assert kinds(cluster.nodes["a"], SnapshotInstalled) == 1
    assert cluster.nodes["a"].text() == ["shared", "large", "a0", "a1", "a2"]


def test_the_masters_snapshot_may_lie_before_the_fork() -> None:
    cluster = settled("a", "b", "c")
    cluster.publish("a", "shared")
    cluster.settle()
    compact(cluster, "b", "c")
    parted(cluster, "a", "b c")
    publish_many(cluster, "a", 3)
    cluster.run(1.0)
    compact(cluster, "a")
    cluster.publish("b", "large")
    cluster.run(1.0)
    cluster.mend()
    cluster.settle()
    assert cluster.nodes["a"].text() == ["shared", "large", "a0", "a1", "a2"]


def test_events_that_only_a_snapshot_remembers_are_reported_when_they_are_lost() -> None:
    cluster = settled("a", "b", "c", limits=Limits(tail_entries=2))
    parted(cluster, "a", "b c")
    publish_many(cluster, "a", 9)
    cluster.run(1.0)
    compact(cluster, "a")
    cluster.publish("b", "large")
    cluster.run(1.0)
    cluster.mend()
    cluster.settle()
    dropped = [e for e in cluster.nodes["a"].seen if isinstance(e, HistoryDropped)]
    assert sum(effect.count for effect in dropped) == 9 - 2
    assert len(cluster.nodes["b"].text()) == 3


def test_a_restart_from_snapshot_and_tail_gives_the_same_state() -> None:
    cluster = settled("a", limits=SMALL)
    texts = publish_many(cluster, "a", 20)
    cluster.settle()
    compact(cluster, "a")
    texts += publish_many(cluster, "a", 4)
    cluster.settle()
    cluster.kill("a")
    cluster.start("a")
    cluster.run(0.1)
    assert cluster.nodes["a"].text() == texts
    event_id = cluster.publish("a", "x")
    assert event_id.incarnation == 2


def test_a_snapshot_of_withdrawn_or_uncommitted_entries_is_not_taken() -> None:
    cluster = settled("a", "b")
    cluster.nodes["b"].disk_stalled = True
    cluster.publish("a", "uncommitted")
    replica = cluster.nodes["a"].replica
    assert replica.compact(cluster.now, replica.last_position, b"") == ()
    position = replica.last_position
    foreign = type(position)(type(position.session)(99, NodeId("z"), 1), 0)
    assert replica.compact(cluster.now, foreign, b"") == ()
    assert replica.snapshot is None


def test_resubmissions_beyond_the_bound_are_asked_about_later() -> None:
    cluster = settled("a", "b", "c", limits=Limits(revalidations=1))
    parted(cluster, "a", "b c")
    publish_many(cluster, "a", 3)
    cluster.run(1.0)
    cluster.mend()
    cluster.settle()
    assert sorted(cluster.nodes["b"].text()) == ["a0", "a1", "a2"]


def test_a_restart_whose_tail_begins_in_the_middle_keeps_following() -> None:
    cluster = settled("a", "b", limits=SMALL)
    texts = publish_many(cluster, "a", 30)
    cluster.settle()
    compact(cluster, "a", "b")
    texts += publish_many(cluster, "b", 3)
    cluster.settle()
    for name in ("b", "a"):
        cluster.kill(name)
    for name in ("b", "a"):
        cluster.start(name)
    cluster.settle()
    assert cluster.nodes["a"].text() == cluster.nodes["b"].text() == texts


def test_a_tail_that_begins_in_the_middle_is_recovered_but_for_its_first_entry() -> None:
    session = Session(1, NodeId("a"), 1)
    entries = tuple(
        Entry(session, index, EventId(NodeId("a"), 1, index), b"x") for index in range(5, 9)
    )
    image = SnapshotImage(cluster=CLUSTER, position=Position(session, 7), state=b"", known=())
    for snapshot, first in ((image, 6), (None, 6)):
        recovered = Recovered(incarnation=2, cluster=CLUSTER, snapshot=snapshot, entries=entries)
        replica = Replica(NodeId("a"), recovered, Timing(), 0.0)
        assert (replica.first_index, replica.last_index) == (first, 8)
    blank = Recovered(incarnation=2, cluster=CLUSTER, snapshot=image)
    assert Replica(NodeId("a"), blank, Timing(), 0.0).first_index == 8


def test_a_snapshot_knows_nothing_of_entries_after_it() -> None:
    cluster = settled("a", "b")
    committed = cluster.publish("a", "committed")
    cluster.settle()
    cluster.nodes["b"].disk_stalled = True
    cluster.publish("a", "not yet")
    compact(cluster, "a")
    image = cluster.nodes["a"].replica.snapshot
    assert image is not None
    assert [run.last for writer in image.known for run in writer.intervals] == [committed.sequence]


def test_asking_again_does_not_begin_a_running_transfer_anew() -> None:
    cluster = settled("a", "b", limits=SMALL)
    publish_many(cluster, "a", 40)
    cluster.settle()
    compact(cluster, "a")
    master = cluster.nodes["a"]
    last, session = master.replica.last_position, master.replica.session
    nack = AppendNack(CLUSTER, session, session, 0, snapshot_wanted=True)
    cluster.cut = {("b", "a")}
    cluster.sent.clear()
    for _ in range(3):
        master.call(master.replica.receive(cluster.now, NodeId("b"), nack))
    too_far = SnapshotAck(CLUSTER, session, last, 1 << 40)
    elsewhere = SnapshotAck(CLUSTER, session, Position(session, 0), 40)
    for message in (too_far, elsewhere):
        master.call(master.replica.receive(cluster.now, NodeId("b"), message))
    chunks = [message for _, _, message in cluster.sent if isinstance(message, SnapshotChunk)]
    assert [chunk.offset for chunk in chunks] == [0, 40]
    cluster.mend()
    cluster.settle()


def test_a_snapshot_is_asked_for_once_a_second_at_most() -> None:
    cluster = settled("a", "b")
    master = cluster.nodes["a"].replica
    nack = AppendNack(CLUSTER, master.session, master.session, 0, snapshot_wanted=True)
    asked = 0
    for _ in range(30):
        cluster.now += 0.05
        effects = master.receive(cluster.now, NodeId("b"), nack)
        asked += sum(isinstance(effect, SnapshotNeeded) for effect in effects)
    assert asked == 2


def test_entries_that_never_committed_are_withdrawn_without_a_rewind() -> None:
    cluster = settled("a", "b", "c")
    cluster.nodes["a"].disk_stalled = True
    parted(cluster, "a", "b c")
    cluster.publish("a", "never committed there")
    cluster.run(1.0)
    assert cluster.nodes["a"].text() == []
    cluster.mend()
    cluster.run(1.0)
    cluster.nodes["a"].disk_stalled = False
    cluster.settle()
    assert kinds(cluster.nodes["a"], Rewound) == 0
    assert cluster.nodes["b"].text() == ["never committed there"]


def test_the_tail_is_bounded_by_its_bytes_too() -> None:
    small = Limits(tail_entries=1000, tail_bytes=100)
    cluster = settled("a", "b", limits=small)
    publish_many(cluster, "a", 40)
    cluster.settle()
    compact(cluster, "a")
    replica = cluster.nodes["a"].replica
    kept = replica.entries(replica.first_index, replica.last_index + 1)
    assert 0 < sum(len(entry.payload) for entry in kept) <= 100
    publish_many(cluster, "a", 5)
    cluster.settle()
    assert cluster.nodes["b"].replica.last_index == replica.last_index


def test_a_snapshot_from_below_the_fork_takes_back_what_was_found_equal_beyond_it() -> None:
    """Else entries are acknowledged, and taken for committed, that went with the own log."""
    me, master = NodeId("b"), NodeId("a")
    earlier, later = Session(1, master, 1), Session(2, master, 2)
    entries = tuple(
        Entry(earlier, index, EventId(master, 1, index + 1), b"x") for index in range(10)
    )
    own = SnapshotImage(cluster=CLUSTER, position=Position(earlier, 7), state=b"", known=())
    recovered = Recovered(
        incarnation=1,
        cluster=CLUSTER,
        session=earlier,
        term_highest=1,
        snapshot=own,
        entries=entries,
    )
    replica = Replica(me, recovered, Timing(), 0.0)
    replica.set_peers(0.0, (master,))
    replica.peer_up(0.0, master)
    # Equal up to 4; but of 6, behind the own snapshot, the master has another one.
    effects = [*replica.receive(0.1, master, Append(CLUSTER, later, Position(earlier, 4), (), -1))]
    effects += replica.receive(0.1, master, Append(CLUSTER, later, Position(later, 6), (), -1))
    wanted = [e.message for e in effects if isinstance(e, Send)]
    assert any(isinstance(said, AppendNack) and said.snapshot_wanted for said in wanted)
    image = SnapshotImage(cluster=CLUSTER, position=Position(earlier, 2), state=b"", known=())
    packed = pack_image(image)
    chunk = SnapshotChunk(CLUSTER, later, image.position, 0, len(packed), packed)
    replica.receive(0.2, master, chunk)
    assert replica.last_index == 2
    effects = [
        *replica.receive(0.3, master, Append(CLUSTER, later, image.position, entries[3:4], 4))
    ]
    (write,) = (effect for effect in effects if isinstance(effect, Write))
    assert replica.commit_index == 3
    effects += replica.synced(0.4, write.token)
    acknowledged = [e.message for e in effects if isinstance(e, Send)]
    assert [said.match for said in acknowledged if isinstance(said, AppendAck)][-1:] == [3]
