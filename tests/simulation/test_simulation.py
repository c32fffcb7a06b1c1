"""Seeds by the hundred, the same in every process; and each rule missed when it is taken out."""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.campaign import Campaign, replay_command, run_seed
from tests.simulation.faults import Mode
from tests.simulation.simulation import Result

PROCESSES = min(os.cpu_count() or 1, 4)
RUN_SECONDS_MAX = 600.0


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as executor:
        yield executor


def run(pool: ProcessPoolExecutor, campaign: Campaign, seeds: int) -> list[Result | str]:
    """Seeds 0..seeds-1, spread over the processes."""
    return list(
        pool.map(run_seed, [campaign] * seeds, range(seeds), timeout=RUN_SECONDS_MAX, chunksize=4)
    )


def expect_no_violation(campaign: Campaign, results: list[Result | str]) -> list[Result]:
    failed = [
        f"seed {seed}: {result}\n  replay: {replay_command(campaign, seed)}"
        for seed, result in enumerate(results)
        if isinstance(result, str)
    ]
    assert not failed, "\n".join(failed[:10])
    return [result for result in results if isinstance(result, Result)]


@pytest.mark.parametrize(("nodes", "seeds"), [(1, 10), (2, 300), (3, 150), (5, 50)])
def test_every_invariant_holds_under_partitions_crashes_and_loss(
    pool: ProcessPoolExecutor, nodes: int, seeds: int
) -> None:
    campaign = Campaign(nodes=nodes)
    results = expect_no_violation(campaign, run(pool, campaign, seeds))
    assert sum(result.acknowledged for result in results) > 150 * seeds
    if nodes > 1:
        assert sum(result.sessions for result in results) > 3 * seeds
        assert sum(result.rewinds for result in results) > 0
        assert sum(result.resubmissions for result in results) > 0


@pytest.mark.parametrize(
    ("mode", "nodes", "seeds"),
    [
        (Mode.SHORT_TAIL, 2, 40),
        (Mode.SHORT_TAIL, 3, 20),
        (Mode.SHORT_TAIL, 5, 8),
        (Mode.CRASH, 2, 40),
        (Mode.CRASH, 3, 20),
        (Mode.PARTITION, 3, 20),
        (Mode.PARTITION, 5, 8),
        (Mode.PERMANENT, 2, 60),
        (Mode.PERMANENT, 3, 40),
        (Mode.POWER_CUT, 2, 40),
        (Mode.POWER_CUT, 3, 20),
        (Mode.CUT, 3, 20),
        (Mode.CUT, 5, 5),
        (Mode.HAND_OVER, 2, 15),
        (Mode.HAND_OVER, 3, 15),
        (Mode.JOIN, 2, 15),
        (Mode.JOIN, 3, 15),
        (Mode.RESTART, 3, 15),
    ],
)
def test_every_invariant_holds_under_one_kind_of_fault(
    pool: ProcessPoolExecutor, mode: Mode, nodes: int, seeds: int
) -> None:
    campaign = Campaign(nodes=nodes, mode=mode)
    results = expect_no_violation(campaign, run(pool, campaign, seeds))
    if mode == Mode.JOIN:
        assert sum(result.snapshots_installed for result in results) > seeds
    if mode in (Mode.PERMANENT, Mode.CUT, Mode.HAND_OVER, Mode.JOIN, Mode.RESTART):
        assert sum(result.moved for result in results) == 0


@pytest.mark.parametrize(
    ("mode", "nodes", "seed"),
    [
        (Mode.ALL, 3, 24),  # a fork above the master's snapshot and below the follower's
        (Mode.ALL, 3, 20183),  # a straggler that a new master had not known
        (Mode.PARTITION, 3, 20030),
        (Mode.PARTITION, 3, 20169),
        (Mode.PARTITION, 5, 20036),  # entries that all but one node knew only by snapshot
    ],
)
def test_a_seed_that_failed_once_passes(mode: Mode, nodes: int, seed: int) -> None:
    result = run_seed(Campaign(nodes=nodes, mode=mode), seed)
    assert isinstance(result, Result), result


@pytest.mark.parametrize(
    ("mode", "seconds_max"),
    [(Mode.PERMANENT, 4.0), (Mode.KILLED, 1.5), (Mode.HAND_OVER, 0.3)],
)
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_a_new_master_commits_within_the_promised_time(
    pool: ProcessPoolExecutor, mode: Mode, seconds_max: float, nodes: int
) -> None:
    campaign = Campaign(nodes=nodes, mode=mode, seconds=20.0)
    results = expect_no_violation(campaign, run(pool, campaign, 40))
    failovers = sorted(seconds for result in results for seconds in result.failovers)
    assert len(failovers) >= 40
    assert failovers[int(len(failovers) * 0.95)] < seconds_max


def test_the_same_seed_gives_the_same_trace_in_every_process(pool: ProcessPoolExecutor) -> None:
    campaign = Campaign(nodes=3, seconds=20.0)
    for seed in range(6):
        here = run_seed(campaign, seed)
        there = pool.submit(run_seed, campaign, seed).result(RUN_SECONDS_MAX)
        assert isinstance(here, Result)
        assert here == there
    traces = {repr(run_seed(campaign, seed)) for seed in range(6)}
    assert len(traces) == 6


@pytest.mark.parametrize(
    ("rule", "mode", "nodes", "seeds", "invariants"),
    [
        ("dedup", Mode.PERMANENT, 2, 4, ("I6",)),
        ("resubmit", Mode.ALL, 2, 12, ("I7",)),
        ("log_matching", Mode.ALL, 3, 8, ("I2",)),
        ("in_sync_commit", Mode.POWER_CUT, 2, 8, ("I7",)),
        ("pre_vote", Mode.CUT, 3, 4, ("sticky", "I5")),
        ("session_incarnation", Mode.CRASH, 2, 60, ("I1",)),
        ("acknowledge_after_sync", Mode.POWER_CUT, 2, 8, ("I7",)),
        ("deliver_after_commit", Mode.POWER_CUT, 2, 8, ("I7",)),
        ("writer_order", Mode.ALL, 2, 4, ("I12",)),
    ],
)
def test_a_rule_that_is_taken_out_is_missed(
    pool: ProcessPoolExecutor,
    rule: str,
    mode: Mode,
    nodes: int,
    seeds: int,
    invariants: tuple[str, ...],
) -> None:
    campaign = Campaign(nodes=nodes, mode=mode, without=rule)
    results = run(pool, campaign, seeds)
    noticed = [
        result for result in results if isinstance(result, str) and result.startswith(invariants)
    ]
    assert noticed, f"{seeds} seeds without {rule} and nothing of {invariants}: {results[:3]}"
