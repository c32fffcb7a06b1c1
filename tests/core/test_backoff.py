"""Waits grow and are bounded; strangers may fail a few times only."""

from node.core.backoff import FORGET_SECONDS, AttemptLimiter, Backoff

BACKOFF = Backoff(2.0, 60.0)


def test_a_wait_doubles_from_the_first_to_the_last():
    backoff = Backoff(0.1, 2.0)
    delays = [backoff.delay_seconds(failures) for failures in range(8)]
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_a_wait_after_very_many_failures_is_the_last():
    assert Backoff(0.1, 2.0).delay_seconds(10_000) == 2.0


def test_five_failures_are_free_and_the_sixth_attempt_waits():
    limiter = AttemptLimiter(5, BACKOFF)
    for _ in range(4):
        limiter.failed("a", 100.0)
        assert limiter.wait_seconds("a", 100.0) == 0.0
    limiter.failed("a", 100.0)
    assert limiter.wait_seconds("a", 100.0) == 2.0
    assert limiter.wait_seconds("a", 102.0) == 0.0
    limiter.failed("a", 102.0)
    assert limiter.wait_seconds("a", 102.0) == 4.0


def test_other_keys_are_not_held_back():
    limiter = AttemptLimiter(1, BACKOFF)
    limiter.failed("a", 0.0)
    assert limiter.wait_seconds("a", 0.0) > 0
    assert limiter.wait_seconds("b", 0.0) == 0.0


def test_success_forgets_the_failures():
    limiter = AttemptLimiter(1, BACKOFF)
    limiter.failed("a", 0.0)
    limiter.succeeded("a")
    assert limiter.wait_seconds("a", 0.0) == 0.0


def test_quiet_forgets_the_failures():
    limiter = AttemptLimiter(2, BACKOFF)
    for _ in range(3):
        limiter.failed("a", 0.0)
    later = 4.0 + FORGET_SECONDS + 1.0
    limiter.failed("a", later)
    assert limiter.wait_seconds("a", later) == 0.0


def test_the_number_of_keys_is_bounded_and_the_longest_wait_stays():
    limiter = AttemptLimiter(1, BACKOFF, keys_max=3)
    for _ in range(5):
        limiter.failed("worst", 0.0)
    for number in range(100):
        limiter.failed(f"k{number}", 0.0)
    assert limiter.wait_seconds("worst", 0.0) == 32.0
    waiting = sum(limiter.wait_seconds(f"k{number}", 0.0) > 0 for number in range(100))
    assert waiting == 2
