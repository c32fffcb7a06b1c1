import pytest

from node.core.replica.effects import (
    BecameMaster,
)
from node.core.replica.messages import (
    Append,
    AppendAck,
    AppendNack,
    Proposal,
    SnapshotChunk,
    Submit,
)
from node.core.replica.timing import Limits
from node.model.ids import NodeId
from node.model.session import Entry, EventId, Position, Session
from tests.fakes.replica_cluster import (
    deliver_all,
    publish_many,
    settled,
)

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


def test_a_straggler_behind_its_successors_enters_marked() -> None:
    cluster = settled("a", "b")
    master = cluster.nodes["a"]
    writer = NodeId("b")
    first, second = (
        Proposal(EventId(writer, 1, sequence), b"%d" % sequence, sequence) for sequence in (1, 2)
    )
    for proposal in (second, first, first):
        message = Submit(master.replica.cluster, (proposal,))
        master.call(master.replica.receive(cluster.now, writer, message))
    cluster.settle()
    entries = master.replica.entries(0, 100)
    events = [(entry.id.sequence, entry.resubmitted) for entry in entries if entry.id.sequence > 0]
    # The second's floor says that the first was acknowledged, so it was not waited for.
    assert events == [(2, False), (1, True)]


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


def test_what_waited_for_a_link_goes_out_in_messages_of_bounded_size() -> None:
    cluster = settled("a", "b", limits=Limits(bytes_per_append=100, proposals_per_submit=3))
    cluster.cut = {("b", "a")}
    texts = [letter * 40 for letter in "uvwxyz"]
    for text in texts:
        cluster.publish("b", text)
    cluster.mend()
    cluster.sent.clear()
    cluster.settle()
    submits = [message for _, _, message in cluster.sent if isinstance(message, Submit)]
    assert max(len(message.proposals) for message in submits) == 2
    cluster.cut = {("a", "b")}
    for text in texts:
        cluster.publish("a", text)
    cluster.mend()
    cluster.sent.clear()
    cluster.settle()
    appends = [message for _, _, message in cluster.sent if isinstance(message, Append)]
    assert all(sum(len(e.payload) for e in message.entries) <= 100 for message in appends)
    assert cluster.nodes["b"].text() == texts * 2


def test_acknowledgements_that_wait_for_a_stalled_disk_are_bounded() -> None:
    cluster = settled("a", "b", limits=Limits(held_messages=2))
    cluster.nodes["b"].disk_stalled = True
    texts = publish_many(cluster, "a", 20)
    cluster.run(0.1)
    cluster.nodes["b"].disk_stalled = False
    cluster.settle()
    assert cluster.nodes["b"].text() == texts


def test_entries_that_contradict_themselves_are_not_taken() -> None:
    cluster = settled("a", "b")
    replica = cluster.nodes["b"].replica
    last, session = replica.last_position, replica.session
    event_id = EventId(NodeId("a"), 1, 77)
    cluster_id = replica.cluster
    skipped = Entry(session, last.index + 2, event_id, b"")
    older = Entry(Session(0, NodeId("a"), 1), last.index + 1, event_id, b"")
    later = Entry(Session(9, NodeId("a"), 1), last.index + 1, event_id, b"")
    for entry in (skipped, older, later):
        message = Append(cluster_id, session, last, (entry,), 0)
        assert replica.receive(cluster.now, NodeId("a"), message) == ()
    before_all = Append(cluster_id, session, Position(session, -5), (), 0)
    assert replica.receive(cluster.now, NodeId("a"), before_all) == ()
    assert replica.last_position == last


def test_an_acknowledgement_of_what_was_never_sent_counts_for_nothing() -> None:
    cluster = settled("a", "b")
    cluster.nodes["b"].disk_stalled = True
    cluster.publish("a", "waits")
    node = cluster.nodes["a"]
    message = AppendAck(node.replica.cluster, node.replica.session, 1000)
    node.call(node.replica.receive(cluster.now, NodeId("b"), message))
    cluster.run(0.1)
    assert node.text() == []


def test_an_overlapping_append_changes_nothing() -> None:
    cluster = settled("a", "b")
    appends: list[Append] = []
    cluster.dropping = lambda _s, _t, message: (
        isinstance(message, Append) and bool(appends.append(message))
    )
    publish_many(cluster, "a", 3)
    cluster.settle()
    replica = cluster.nodes["b"].replica
    before = (replica.last_position, replica.commit_index)
    for message in appends:
        replica.receive(cluster.now, NodeId("a"), message)
    assert (replica.last_position, replica.commit_index) == before
