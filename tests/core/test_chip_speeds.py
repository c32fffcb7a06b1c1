"""Speeds by chip."""

import pytest
from msgspec.structs import replace

from node.core.chip_speeds import REACHED, speed_of
from node.model.instance import WeightFormat
from tests.fakes.fleet import BOX, MAC

AS_STORED, DENSE = WeightFormat.AS_STORED, WeightFormat.DENSE


@pytest.mark.parametrize(
    ("chip", "cores", "gigabytes"),
    [("Apple M1", 8, 68), ("Apple M3 Max", 14, 300), ("Apple M3 Max", 16, 400)],
)
def test_apple_chips_reach_a_share_of_their_bandwidth(
    chip: str, cores: int, gigabytes: float
) -> None:
    speed = speed_of(replace(MAC, chip=chip, cores=cores), AS_STORED, 4)
    assert speed.bytes_per_second == pytest.approx(gigabytes * 1e9 * REACHED)
    assert speed.known


def test_an_unknown_apple_chip_counts_as_the_slowest_and_says_so() -> None:
    speed = speed_of(replace(MAC, chip="Apple M99"), AS_STORED, 4)
    assert not speed.known
    slowest = speed_of(replace(MAC, chip="Apple M1"), AS_STORED, 4)
    assert speed.bytes_per_second == slowest.bytes_per_second


def test_a_linux_processor_is_as_fast_as_was_measured_for_each_format() -> None:
    tokens = {DENSE: 538e6, AS_STORED: 115.2e6}
    dense = speed_of(BOX, DENSE, 4).bytes_per_second / tokens[DENSE]
    packed = speed_of(BOX, AS_STORED, 4).bytes_per_second / tokens[AS_STORED]
    half = speed_of(BOX, AS_STORED, 0).bytes_per_second / 269e6
    assert dense == pytest.approx(12.1, rel=0.05)
    assert packed == pytest.approx(10.0, rel=0.05)
    assert half == pytest.approx(4.3, rel=0.05)
