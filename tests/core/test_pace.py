from hypothesis import given
from hypothesis import strategies as st

from node.core.pace import BURST_SECONDS, WINDOW_SECONDS, Pace, RateWindow


def test_no_cap_never_waits() -> None:
    assert Pace().spend(10**12, 0.0) == 0.0


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=200), st.integers(100, 10_000))
def test_who_heeds_the_waits_stays_below_the_cap(counts: list[int], cap: int) -> None:
    pace, now = Pace(cap), 100.0
    for count in counts:
        now += pace.spend(count, now)
    assert sum(counts) <= cap * (now - 100.0 + BURST_SECONDS) + 1e-3


def test_the_rate_is_of_the_last_seconds_and_falls_to_nothing() -> None:
    window = RateWindow()
    assert window.rate(0.0) == 0.0
    for step in range(200):
        window.add(100, step * 0.1)
    assert 900 < window.rate(20.0) < 1100
    assert window.rate(20.0 + 2 * WINDOW_SECONDS) == 0.0


def test_many_small_pieces_are_one_mark() -> None:
    window = RateWindow()
    for step in range(1000):
        window.add(1, step * 0.001)
    assert 800 < window.rate(1.0) < 1200
