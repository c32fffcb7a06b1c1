"""A short campaign, so that the long one (`make fuzz`) is known to run."""

from tests.fuzz.frames import campaign


def test_mutated_frames_are_refused_ignored_or_read_but_never_harm() -> None:
    before, after = campaign(20_000, seed=7)
    # All three ways are taken, else the mutations would be too mild or too wild to tell anything.
    for tally in (before, after):
        assert min(tally.refused, tally.ignored + tally.taken) > 500
