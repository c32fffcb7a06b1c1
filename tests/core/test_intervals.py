from itertools import pairwise
from random import Random

from node.core.intervals import IntervalSet


def test_it_behaves_like_a_set_of_numbers() -> None:
    random = Random(7)
    for _ in range(200):
        ours, plain = IntervalSet(), set[int]()
        for _ in range(80):
            number = random.randrange(1, 30)
            if random.random() < 0.6:
                ours.add(number)
                plain.add(number)
            else:
                ours.discard(number)
                plain.discard(number)
            assert {n for n in range(32) if n in ours} == plain
            assert ours.count() == len(plain)
            assert ours.last() == max(plain, default=None)
        runs = ours.intervals()
        assert len(ours) == len(runs)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(runs))
        for start in range(1, 32):
            assert ours.next_absent(start) == min(n for n in range(start, 40) if n not in plain)
        assert IntervalSet(runs).intervals() == runs


def test_touching_and_overlapping_runs_are_joined() -> None:
    assert IntervalSet([(5, 7), (1, 2), (3, 4), (6, 9)]).intervals() == ((1, 9),)


def test_filling_the_first_hole_leaves_one_run_less() -> None:
    numbers = IntervalSet([(1, 2), (5, 6), (9, 9)])
    numbers.fill_first_hole()
    assert numbers.intervals() == ((1, 6), (9, 9))
    lone = IntervalSet([(1, 2)])
    lone.fill_first_hole()
    assert lone.intervals() == ((1, 2),)
