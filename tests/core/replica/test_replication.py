from collections.abc import Callable

import pytest

from node.core.replica.durable import Appended, Orphaned, Truncated
from node.core.replica.effects import (
    BecameMaster,
    HistoryDropped,
    Revalidate,
    Rewound,
    SnapshotInstalled,
    SnapshotNeeded,
    Write,
)
from node.core.replica.messages import Append, AppendAck, AppendNack, SnapshotChunk, Submit
from node.core.replica.timing import Limits
from node.model.ids import NodeId
from tests.fakes.replica_cluster import FakeNode, ReplicaCluster

SMALL = Limits(tail_entries=6, snapshot_chunk_bytes=40, snapshot_chunks_in_flight=2)


def settled(*names: str, limits: Limits | None = None) -> ReplicaCluster:
    cluster = ReplicaCluster(*names, limits=limits)
    cluster.settle()
    return cluster


def deliver_all(source: str, target: str, message: object) -> bool:
    return False


def kinds(node: FakeNode, kind: type) -> int:
    return sum(isinstance(effect, kind) for effect in node.seen)


def publish_many(cluster: ReplicaCluster, name: str, count: int) -> list[str]:
    texts = [f"{name}{number}" for number in range(count)]
    for text in texts:
        cluster.publish(name, text)
    return texts


# -- commit ------------------------------------------------------------------------------------


def test_an_event_reaches_every_node_in_its_writers_order() -> None:
    cluster = settled("a", "b", "c")
    texts = publish_many(cluster, "b", 200)
    cluster.settle()
    assert all(node.text() == texts for node in cluster.running())
    assert len(cluster.nodes["b"].acknowledged) == 200


def test_nothing_commits_before_every_disk_in_sync_has_it() -> None:
    cluster = settled("a", "b")
    cluster.nodes["b"].disk_stalled = True
    cluster.publish("a", "waits")
    cluster.run(0.8)
    assert cluster.nodes["a"].text() == []
    cluster.nodes["b"].disk_stalled = False
    cluster.run(0.1)
    assert cluster.nodes["a"].text() == ["waits"]


def test_nothing_commits_before_the_masters_own_disk_has_it() -> None:
    cluster = settled("a", "b")
    cluster.nodes["a"].disk_stalled = True
    cluster.publish("a", "waits")
    cluster.run(2.0)
    assert cluster.nodes["b"].text() == []
    cluster.nodes["a"].disk_stalled = False
    cluster.settle()
    assert cluster.nodes["b"].text() == ["waits"]


def test_a_laggard_leaves_the_in_sync_set_and_comes_back() -> None:
    cluster = settled("a", "b", "c")
    master = cluster.nodes["a"].replica
    cluster.nodes["c"].disk_stalled = True
    cluster.publish("a", "without c")
    cluster.run(1.5)
    assert master.in_sync == ("a", "b")
    assert cluster.nodes["a"].text() == ["without c"]
    cluster.nodes["c"].disk_stalled = False
    cluster.run(1.5)
    assert master.in_sync == ("a", "b", "c")


def test_changes_of_the_in_sync_set_are_in_the_log() -> None:
    cluster = settled("a", "b")
    cluster.kill("b")
    cluster.run(3.0)
    entries = cluster.nodes["a"].replica.entries(0, 100)
    views = [entry.payload for entry in entries if b"ViewChanged" in entry.payload]
    assert views[-1].count(b"\xa1b") == 0
    assert entries[-1].id.sequence < 0


def test_followers_learn_of_a_commit_at_once() -> None:
    cluster = settled("a", "b")
    cluster.publish("b", "quick")
    assert cluster.run_until(lambda: cluster.nodes["b"].text() == ["quick"], 1.0) < 0.03


def test_an_event_offered_twice_is_in_the_log_once() -> None:
    cluster = settled("a", "b")
    cluster.publish("b", "once")
    proposals = cluster.nodes["b"].order.session_began(cluster.now)
    for _ in range(3):
        cluster.nodes["b"].call(cluster.nodes["b"].replica.propose(cluster.now, proposals))
    cluster.settle()
    assert cluster.nodes["a"].text() == ["once"]
    cluster.nodes["a"].call(
        cluster.nodes["a"].replica.receive(
            cluster.now, NodeId("b"), Submit(cluster.nodes["a"].replica.cluster, proposals)
        )
    )
    cluster.settle()
    assert cluster.nodes["a"].text() == ["once"]


def test_a_proposal_in_anothers_name_is_not_taken() -> None:
    cluster = settled("a", "b", "c")
    cluster.cut = {("b", "a")}
    cluster.publish("b", "from b alone")
    (proposal,) = cluster.nodes["b"].order.session_began(cluster.now)
    master = cluster.nodes["a"]
    message = Submit(master.replica.cluster, (proposal,))
    assert master.replica.receive(cluster.now, NodeId("c"), message) == ()


def test_the_masters_tip_is_ahead_of_what_is_committed() -> None:
    cluster = settled("a", "b")
    node = cluster.nodes["a"]
    cluster.nodes["b"].disk_stalled = True
    cluster.publish("a", "decided, not committed")
    assert node.tip[-1] == b"decided, not committed"
    assert node.text() == []
    cluster.nodes["b"].disk_stalled = False
    cluster.settle()
    assert node.tip == node.state


def test_a_new_masters_tip_holds_what_was_not_committed_yet() -> None:
    cluster = settled("a", "b")
    cluster.dropping = lambda source, _target, message: (
        source == "b" and isinstance(message, AppendAck)
    )
    cluster.publish("a", "on both logs")
    cluster.run(0.1)
    cluster.kill("a")
    cluster.settle()
    tips = [effect.tip for effect in cluster.nodes["b"].seen if isinstance(effect, BecameMaster)]
    assert b"on both logs" in [entry.payload for entry in tips[-1]]
    assert cluster.nodes["b"].text() == ["on both logs"]


# -- lost messages --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Append, AppendAck, Submit])
def test_a_lost_message_is_made_good(kind: type) -> None:
    cluster = settled("a", "b")
    lost: list[str] = []

    def drop_first(source: str, target: str, message: object) -> bool:
        if isinstance(message, kind) and len(lost) < 2:
            lost.append(source)
            return True
        return False

    cluster.dropping = drop_first
    texts = publish_many(cluster, "b", 5)
    cluster.settle()
    assert len(lost) == 2
    assert cluster.nodes["b"].text() == texts


def test_a_follower_that_is_behind_asks_again_ever_more_seldom() -> None:
    cluster = settled("a", "b")
    cluster.dropping = lambda source, _t, message: isinstance(message, Append | SnapshotChunk)
    cluster.publish("a", "lost tail")
    cluster.run(1.2)
    assert cluster.nodes["a"].text() == ["lost tail"], "b left the in-sync set"
    cluster.sent.clear()
    cluster.run(20.0)
    asked = [1 for _, _, message in cluster.sent if isinstance(message, AppendNack)]
    assert 3 <= len(asked) <= 6
    figures = cluster.nodes["b"].replica.figures
    assert figures.asked >= 3
    assert figures.commit_heard > cluster.nodes["b"].replica.commit_index
    cluster.dropping = deliver_all
    cluster.settle()


def test_many_entries_go_out_without_waiting_for_each_answer() -> None:
    cluster = settled("a", "b")
    texts = [f"text {number}" for number in range(3000)]
    for text in texts:
        cluster.publish("a", text)
    assert cluster.settle() < 0.5
    assert cluster.nodes["b"].text() == texts


def test_large_entries_go_one_by_one() -> None:
    cluster = settled("a", "b", limits=Limits(bytes_per_append=100))
    publish_many(cluster, "b", 3)
    for letter in "xyz":
        cluster.publish("b", letter * 80)
    cluster.settle()
    cluster.publish("b", "x" * 500)
    cluster.settle()
    assert len(cluster.nodes["a"].text()) == 7
    appends = [message for _, _, message in cluster.sent if isinstance(message, Append)]
    sizes = [sum(len(entry.payload) for entry in append.entries) for append in appends]
    counts = [len(append.entries) for append in appends]
    assert all(size <= 300 or count == 1 for size, count in zip(sizes, counts, strict=True))


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
