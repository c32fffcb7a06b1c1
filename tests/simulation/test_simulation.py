"""Seeds by the hundred, the same in every process; and each rule missed when it is taken out."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import msgspec
import pytest

from tests.simulation.campaign import Campaign, replay_command, run_seed
from tests.simulation.faults import Mode
from tests.simulation.rules import RULES
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


@pytest.mark.parametrize(
    ("mode", "nodes", "seeds"),
    [
        (Mode.ALL, 2, 110),
        (Mode.ALL, 3, 50),
        (Mode.ALL, 5, 20),
        (Mode.WILD, 1, 10),
        (Mode.WILD, 2, 100),
        (Mode.WILD, 3, 45),
        (Mode.WILD, 4, 10),
        (Mode.WILD, 5, 10),
    ],
)
def test_every_invariant_holds_under_partitions_crashes_and_loss(
    pool: ProcessPoolExecutor, mode: Mode, nodes: int, seeds: int
) -> None:
    campaign = Campaign(nodes=nodes, mode=mode)
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
        (Mode.SHORT_TAIL, 5, 5),
        (Mode.CRASH, 2, 40),
        (Mode.CRASH, 3, 15),
        (Mode.PARTITION, 3, 15),
        (Mode.PARTITION, 5, 5),
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
        (Mode.ONE_AT_A_TIME, 2, 20),
        (Mode.ONE_AT_A_TIME, 3, 10),
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
        (Mode.WILD, 5, 11),  # two masters, one of which did not hear the other, in turns
        (Mode.PARTITION, 5, 20036),  # entries that all but one node knew only by snapshot
        (Mode.PERMANENT, 2, 60000019),  # what a writer lost for good had written waits for ever
        (Mode.WILD, 2, 60001404),  # entries found equal, then given up for a snapshot from before
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
    assert len(failovers) >= 28
    assert failovers[int(len(failovers) * 0.95)] < seconds_max


def test_the_same_seed_gives_the_same_trace_however_sets_are_ordered() -> None:
    program = (
        "from tests.simulation.campaign import *\n"
        "for nodes in 2, 3, 5:\n"
        "    print(run_seed(Campaign(nodes=nodes, mode=Mode.WILD, seconds=20.0), 7))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("0", "1", "12345", "random")
    ]
    assert outputs[0].count("Result(trace=") == 3
    assert len(set(outputs)) == 1


def test_seeds_differ() -> None:
    campaign = Campaign(nodes=3, seconds=20.0)
    results = [run_seed(campaign, seed) for seed in range(4)]
    assert len({result.trace for result in results if isinstance(result, Result)}) == 4


def test_a_failing_seed_prints_the_command_that_replays_it() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--nodes", "2", "--without", "dedup"]
    seeds = ["--seeds", "2", "--first", "0", "--mode", "permanent", "--seconds", "20"]
    printed = _run_command([*command, *seeds])
    (first, *_) = [line.strip() for line in printed.splitlines() if "replay: " in line]
    replay = first.removeprefix("replay: ").split()
    assert replay[:2] == ["python", "-m"]
    again = _run_command([sys.executable, *replay[1:]])
    assert printed.splitlines()[0] == again.splitlines()[0]
    assert "I12" in again


def _run_command(command: list[str]) -> str:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    assert done.returncode == 1, done.stderr
    return done.stdout


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
        ("acknowledge_on_delivery", Mode.ALL, 2, 4, ("I7",)),
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


def test_without_the_complete_log_rule_more_is_moved_and_withdrawn(
    pool: ProcessPoolExecutor,
) -> None:
    """Nothing is lost, since what is withdrawn is offered again: a measure tells."""
    campaign = Campaign(nodes=3, mode=Mode.CRASH)
    whole = expect_no_violation(campaign, run(pool, campaign, 16))
    broken = msgspec.structs.replace(campaign, without="complete_log")
    without = expect_no_violation(broken, run(pool, broken, 16))
    assert sum(result.rewinds for result in whole) == 0
    assert sum(result.rewinds for result in without) > 0
    moved, moved_without = (sum(result.moved for result in results) for results in (whole, without))
    assert moved_without > 1.5 * moved


def test_every_rule_is_taken_out_by_some_test() -> None:
    marks = test_a_rule_that_is_taken_out_is_missed.pytestmark  # type: ignore[attr-defined]
    rules = {case[0] for case in marks[0].args[1]}
    assert rules | {"complete_log"} == set(RULES)
