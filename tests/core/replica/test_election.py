import pytest

from node.core.replica.durable import Recovered
from node.core.replica.effects import BecameMaster, LostMastership, SessionBegan
from node.core.replica.messages import AppendNack, Role, Yield
from node.core.replica.replica import Replica
from node.core.replica.timing import Timing
from node.model.ids import ClusterId, NodeId
from node.model.session import Position, Session
from tests.fakes.replica_cluster import CLUSTER, LINK_SECONDS, SYNC_SECONDS, settled


def test_a_fresh_replica_does_nothing_before_it_is_in_a_cluster() -> None:
    replica = Replica(NodeId("a"), Recovered(incarnation=1), Timing(), 0.0)
    assert replica.tick(5.0) == ()
    assert replica.peer_up(5.0, NodeId("b")) == ()
    assert replica.peer_down(5.0, NodeId("b"), refused=True) == ()
    assert replica.woke(5.0, 60.0) == ()
    assert (replica.role, replica.master, replica.in_sync) == (Role.LOOKING, None, ())


def test_a_lone_founder_masters_and_commits_at_once() -> None:
    cluster = settled("a")
    replica = cluster.nodes["a"].replica
    assert replica.role == Role.MASTERING
    assert replica.master == "a"
    assert replica.in_sync == ("a",)
    assert cluster.nodes["a"].state[0] == b"(control)"
    assert replica.entries(0, 1)[0].payload == b"founded"
    assert replica.cluster == CLUSTER


def test_a_lone_node_masters_again_at_its_first_tick_after_a_restart() -> None:
    cluster = settled("a")
    cluster.publish("a", "one")
    cluster.settle()
    cluster.kill("a")
    cluster.start("a")
    cluster.run(0.06)
    cluster.settle()
    assert cluster.nodes["a"].text() == ["one"]
    assert cluster.nodes["a"].replica.session.incarnation == 2


def test_joiners_follow_the_founder() -> None:
    cluster = settled("a", "b", "c")
    assert cluster.masters() == ["a"]
    assert [node.replica.role for node in cluster.running()[1:]] == [Role.FOLLOWING] * 2
    assert cluster.nodes["a"].replica.in_sync == ("a", "b", "c")


def test_a_killed_master_is_replaced_within_a_second_and_a_half() -> None:
    cluster = settled("a", "b", "c")
    cluster.kill("a")
    assert cluster.settle() < 1.5
    assert cluster.masters() in (["b"], ["c"])


def test_a_master_without_power_is_replaced_within_four_seconds() -> None:
    cluster = settled("a", "b", "c")
    cluster.power_off("a")
    assert 1.9 < cluster.settle() < 4.0


def test_two_nodes_go_on_as_one() -> None:
    cluster = settled("a", "b")
    cluster.kill("a")
    cluster.settle()
    cluster.publish("b", "alone")
    cluster.settle()
    assert cluster.nodes["b"].text() == ["alone"]
    assert cluster.nodes["b"].replica.in_sync == ("b",)


def test_the_most_complete_log_wins() -> None:
    cluster = settled("a", "b", "c")
    cluster.cut = {("a", "c")}
    cluster.publish("a", "only b has this")
    cluster.run(0.05)
    cluster.kill("a")
    cluster.cut = set()
    cluster.settle()
    assert cluster.masters() == ["b"]
    assert cluster.nodes["c"].text() == ["only b has this"]


def test_among_equal_logs_priority_decides() -> None:
    cluster = settled("a", "b", "c")
    cluster.nodes["b"].replica.adjust(priority=2, wall_offset_seconds=0.0)
    cluster.kill("a")
    cluster.settle()
    assert cluster.masters() == ["b"]


def test_a_restarted_follower_changes_no_master() -> None:
    cluster = settled("a", "b", "c")
    session = cluster.nodes["a"].replica.session
    for name in ("b", "c"):
        cluster.kill(name)
        cluster.run(1.0)
        cluster.start(name)
        cluster.settle()
        cluster.run(3.0)
    assert cluster.nodes["a"].replica.session == session
    assert not any(isinstance(effect, LostMastership) for effect in cluster.nodes["a"].seen)


def test_a_restarted_node_waits_for_peers_it_has_not_tried() -> None:
    cluster = settled("a", "b")
    cluster.kill("a")
    cluster.kill("b")
    cluster.cut = {("a", "b"), ("b", "a")}
    cluster.start("b")
    cluster.run(1.9)
    assert cluster.masters() == []
    cluster.run(0.5)
    assert cluster.masters() == ["b"]


def test_a_restarted_node_whose_peers_refuse_need_not_wait() -> None:
    cluster = settled("a", "b")
    cluster.kill("a")
    cluster.kill("b")
    cluster.start("b")
    assert cluster.run_until(lambda: cluster.masters() == ["b"], 1.0) < 0.6


def test_nobody_stands_while_a_peer_still_hears_the_master() -> None:
    cluster = settled("a", "b", "c")
    session = cluster.nodes["a"].replica.session
    cluster.cut = {("a", "c"), ("c", "a")}
    cluster.run(10.0)
    assert cluster.nodes["a"].replica.session == session
    assert cluster.masters() == ["a"]


def test_a_node_cut_off_from_the_master_goes_on_by_way_of_a_third() -> None:
    cluster = settled("a", "b", "c")
    cluster.cut = {("a", "c"), ("c", "a")}
    cluster.run(4.0)
    assert cluster.nodes["c"].replica.master == "a"
    cluster.publish("c", "by way of b")
    cluster.publish("a", "and back")
    cluster.run(0.5)
    assert sorted(cluster.nodes["c"].text()) == ["and back", "by way of b"]
    assert cluster.nodes["c"].acknowledged
    assert "c" in cluster.nodes["a"].replica.in_sync
    cluster.mend()
    cluster.run(2.0)
    cluster.sent.clear()
    cluster.run(1.0)
    assert not any("Relayed" in type(message).__name__ for _, _, message in cluster.sent)


def test_the_third_node_in_between_may_fail_too() -> None:
    cluster = settled("a", "b", "c")
    cluster.cut = {("a", "c"), ("c", "a")}
    cluster.run(4.0)
    cluster.kill("b")
    cluster.run(1.0)
    assert cluster.masters() == ["a", "c"]
    cluster.mend()
    cluster.settle()


def test_a_node_that_is_relayed_learns_from_the_relay_that_the_master_is_gone() -> None:
    cluster = settled("a", "b", "c")
    cluster.cut = {("a", "c"), ("c", "a")}
    cluster.run(4.0)
    assert cluster.nodes["c"].replica.master == "a"
    cluster.kill("a")
    assert cluster.settle() < 1.5


def test_two_masters_that_meet_become_one() -> None:
    cluster = settled("a", "b", "c")
    cluster.part("a", "b c")
    cluster.run(5.0)
    assert "a" in cluster.masters()
    assert len(cluster.masters()) == 2
    cluster.publish("a", "small half")
    cluster.publish("b", "large half")
    cluster.run(1.0)
    cluster.mend()
    cluster.settle()
    assert cluster.masters() != ["a"], "the larger view wins"
    assert sorted(cluster.nodes["a"].text()) == ["large half", "small half"]


def test_among_equal_views_priority_decides_who_goes_on() -> None:
    cluster = settled("a", "b")
    cluster.part("a", "b")
    cluster.run(5.0)
    cluster.nodes["a"].replica.adjust(priority=5, wall_offset_seconds=0.0)
    cluster.run(0.5)
    cluster.mend()
    cluster.settle()
    assert cluster.masters() == ["a"]


def test_masters_that_can_not_reach_each_other_do_not_duel() -> None:
    cluster = settled("a", "b", "c")
    cluster.nodes["c"].replica.adjust(priority=1, wall_offset_seconds=0.0)
    cluster.part("a", "b c")
    cluster.run(5.0)
    assert cluster.masters() == ["a", "c"]
    cluster.cut = {("a", "c"), ("c", "a")}
    cluster.run(3.0)
    assert cluster.masters() == ["c"]
    assert cluster.nodes["a"].replica.master == "c"
    assert cluster.nodes["c"].replica.session.term <= 3


def test_a_master_that_does_not_hear_the_other_does_not_duel_with_it() -> None:
    cluster = settled("a", "b", "c", "d")
    cluster.part("a b c", "d")
    cluster.cut |= {("a", "b"), ("b", "a")}
    cluster.run(5.0)
    assert cluster.masters() == ["a", "d"]
    assert cluster.nodes["b"].replica.master == "a", "by way of c"
    # Now d reaches b; and a hears d, though d does not hear a.
    cluster.cut -= {("b", "d"), ("d", "b"), ("d", "a")}
    cluster.run(3.0)
    assert cluster.masters() == ["a"]
    assert cluster.nodes["a"].replica.session.term <= 6
    cluster.mend()
    cluster.settle()
    assert cluster.masters() == ["a"]


def test_a_master_refused_for_a_later_session_that_is_over_begins_a_still_later_one() -> None:
    cluster = settled("a", "b", "c")
    node = cluster.nodes["a"]
    over = Session(7, NodeId("c"), 1)
    nack = AppendNack(CLUSTER, node.replica.session, over, 0)
    node.call(node.replica.receive(cluster.now, NodeId("b"), nack))
    assert node.replica.session == Session(8, NodeId("a"), 1)
    cluster.settle()
    assert cluster.masters() == ["a"]


def test_an_ended_link_that_is_made_again_at_once_changes_nothing() -> None:
    cluster = settled("a", "b")
    session = cluster.nodes["a"].replica.session
    for name, other in (("a", "b"), ("b", "a")):
        node = cluster.nodes[name]
        node.call(node.replica.peer_down(cluster.now, NodeId(other), refused=False))
    cluster.run(0.1)
    for name, other in (("a", "b"), ("b", "a")):
        node = cluster.nodes[name]
        node.call(node.replica.peer_up(cluster.now, NodeId(other)))
    cluster.run(3.0)
    assert cluster.nodes["b"].replica.session == session


def test_a_peer_whose_link_ended_is_dead_after_a_moment() -> None:
    cluster = settled("a", "b")
    replica = cluster.nodes["a"].replica
    cluster.cut = {("b", "a")}
    replica.peer_down(cluster.now, NodeId("b"), refused=False)
    assert replica.is_alive(cluster.now + 0.2, NodeId("b"))
    assert not replica.is_alive(cluster.now + 0.4, NodeId("b"))
    assert not replica.is_alive(cluster.now, NodeId("stranger"))


def test_a_master_that_slept_looks_before_it_goes_on() -> None:
    cluster = settled("a", "b", "c")
    node = cluster.nodes["a"]
    node.call(node.replica.woke(cluster.now, 3600.0))
    assert node.replica.role == Role.LOOKING
    reasons = [effect.reason for effect in node.seen if isinstance(effect, LostMastership)]
    assert reasons == ["woke after 3600 s"]
    cluster.settle()


def test_a_gap_between_ticks_counts_as_sleep() -> None:
    cluster = settled("a", "b")
    node = cluster.nodes["a"]
    node.replica.tick(cluster.now + 30.0)
    assert node.replica.role == Role.LOOKING


def test_a_lone_master_that_slept_just_goes_on() -> None:
    cluster = settled("a")
    cluster.nodes["a"].replica.woke(cluster.now, 60.0)
    assert cluster.masters() == ["a"]


def test_a_node_whose_own_loop_lags_gives_others_more_time() -> None:
    cluster = settled("a", "b")
    replica = cluster.nodes["a"].replica
    late = cluster.now + 1.5
    replica.tick(late)
    assert replica.is_alive(late + 2.0, NodeId("b"))


def test_a_new_master_does_not_wait_for_the_disk_of_the_one_it_took_for_dead() -> None:
    cluster = settled("a", "b", "c")
    cluster.tick_seconds = 0.4  # loops that lag have more patience with others than with a master
    cluster.run(2.0)
    assert cluster.masters() == ["a"]
    cluster.power_off("a")
    cluster.run_until(lambda: len(cluster.masters()) == 1, 4.0)
    (master,) = cluster.masters()
    assert cluster.nodes[master].replica.in_sync == ("b", "c")
    cluster.publish("b", "at once")
    assert cluster.run_until(lambda: cluster.nodes["b"].text() == ["at once"], 0.9) < 0.9


@pytest.mark.parametrize("count", [2, 3])
def test_a_planned_hand_over_takes_less_than_a_third_of_a_second(count: int) -> None:
    cluster = settled(*"abc"[:count])
    node = cluster.nodes["a"]
    cluster.publish("a", "just before")
    node.call(node.replica.step_down(cluster.now))
    took = cluster.run_until(
        lambda: len(cluster.masters()) == 1 and cluster.masters() != ["a"], 0.3
    )
    assert took < 0.1
    cluster.settle()
    assert all(other.text() == ["just before"] for other in cluster.running())
    began = [effect for effect in node.seen if isinstance(effect, SessionBegan)]
    assert began[-1].session.master != "a"


@pytest.mark.parametrize("fraction", range(5))
def test_a_hand_over_follows_the_last_acknowledgement_at_once(fraction: int) -> None:
    cluster = settled("a", "b")
    cluster.run(fraction * cluster.timing.tick_seconds / 5)
    cluster.publish("a", "on its way to b's disk")
    node = cluster.nodes["a"]
    node.call(node.replica.step_down(cluster.now))
    assert cluster.masters() == ["a"]
    took = cluster.run_until(lambda: cluster.masters() == ["b"], 0.3)
    assert took <= 3 * LINK_SECONDS + SYNC_SECONDS + 1e-6


def test_a_hand_over_waits_no_longer_than_allowed_for_a_slow_disk() -> None:
    cluster = settled("a", "b")
    cluster.nodes["b"].disk_stalled = True
    cluster.publish("a", "not on b's disk")
    node = cluster.nodes["a"]
    node.call(node.replica.step_down(cluster.now))
    assert cluster.masters() == ["a"]
    cluster.run(0.2)
    assert cluster.masters() == ["a"]
    cluster.run(0.2)
    assert cluster.masters() == ["b"]
    cluster.nodes["b"].disk_stalled = False
    cluster.settle()
    assert cluster.nodes["b"].text() == ["not on b's disk"]


def test_a_master_that_hands_over_takes_no_more_proposals() -> None:
    cluster = settled("a", "b")
    cluster.nodes["b"].disk_stalled = True
    node = cluster.nodes["a"]
    cluster.publish("a", "before")
    node.call(node.replica.step_down(cluster.now))
    cluster.publish("a", "during")
    cluster.run(0.05)
    assert b"during" not in node.tip
    cluster.nodes["b"].disk_stalled = False
    cluster.settle()
    assert cluster.nodes["b"].text() == ["before", "during"]


def test_with_nobody_to_hand_over_to_mastership_just_ends() -> None:
    cluster = settled("a")
    node = cluster.nodes["a"]
    node.call(node.replica.step_down(cluster.now))
    assert cluster.masters() == []
    cluster.run(5.0)
    assert cluster.masters() == []
    cluster.run(6.0)
    assert cluster.masters() == ["a"]


def test_a_node_that_handed_over_stands_again_later() -> None:
    cluster = settled("a", "b")
    node = cluster.nodes["a"]
    node.call(node.replica.step_down(cluster.now))
    cluster.settle()
    cluster.kill("b")
    cluster.run(8.0)
    assert cluster.masters() == []
    cluster.run(3.0)
    assert cluster.masters() == ["a"]


def test_a_follower_that_steps_down_hands_nothing_over() -> None:
    cluster = settled("a", "b")
    node = cluster.nodes["b"]
    node.call(node.replica.step_down(cluster.now))
    cluster.run(1.0)
    assert cluster.masters() == ["a"]


def test_a_joiner_never_masters_an_empty_log() -> None:
    replica = Replica(NodeId("b"), Recovered(incarnation=1), Timing(), 0.0)
    replica.join_cluster(0.0, CLUSTER)
    replica.set_peers(0.0, [NodeId("a")])
    for tenth in range(1, 200):
        replica.tick(tenth / 10)
    assert replica.role == Role.LOOKING


def test_a_master_that_founds_another_cluster_gives_up_the_old_one() -> None:
    cluster = settled("a", "b")
    node = cluster.nodes["a"]
    other = ClusterId("9" * 32)
    effects = node.replica.found_cluster(cluster.now, other, b"another")
    kinds = [type(effect) for effect in effects]
    assert kinds.index(LostMastership) < kinds.index(BecameMaster) < kinds.index(SessionBegan)
    assert node.replica.cluster == other
    assert node.replica.entries(0, 1)[0].payload == b"another"
    assert node.replica.session.term == 1


def test_a_failing_dial_does_not_matter_while_a_third_node_relays() -> None:
    cluster = settled("a", "b", "c")
    cluster.cut = {("a", "c"), ("c", "a")}
    cluster.run(4.0)
    for name, other in (("a", "c"), ("c", "a")):
        node = cluster.nodes[name]
        node.call(node.replica.peer_down(cluster.now, NodeId(other), refused=False))
    cluster.run(2.0)
    assert cluster.nodes["c"].replica.master == "a"
    assert "c" in cluster.nodes["a"].replica.in_sync


def test_a_yield_that_is_not_the_masters_is_ignored() -> None:
    cluster = settled("a", "b", "c")
    follower = cluster.nodes["b"].replica
    stale = Session(0, NodeId("a"), 1)
    for peer, session in (("c", follower.session), ("a", stale)):
        message = Yield(CLUSTER, session, NodeId("b"), follower.last_position)
        follower.receive(cluster.now, NodeId(peer), message)
        assert follower.role == Role.FOLLOWING


def test_a_successor_that_lacks_entries_stands_in_an_ordinary_election() -> None:
    cluster = settled("a", "b")
    follower = cluster.nodes["b"].replica
    ahead = Position(follower.session, follower.last_index + 1)
    message = Yield(CLUSTER, follower.session, NodeId("b"), ahead)
    cluster.nodes["b"].call(follower.receive(cluster.now, NodeId("a"), message))
    assert follower.role == Role.LOOKING


def test_a_removed_master_is_followed_no_more() -> None:
    cluster = settled("a", "b", "c")
    for name, others in (("b", "c"), ("c", "b")):
        node = cluster.nodes[name]
        node.call(node.replica.set_peers(cluster.now, [NodeId(others)]))
    cluster.power_off("a")
    cluster.settle()
    assert cluster.masters() != ["a"]


def test_a_removed_follower_is_waited_for_no_more() -> None:
    cluster = settled("a", "b")
    node = cluster.nodes["a"]
    cluster.power_off("b")
    cluster.publish("a", "goes on")
    assert node.text() == []
    node.call(node.replica.set_peers(cluster.now, []))
    cluster.run(0.1)
    assert node.text() == ["goes on"]
