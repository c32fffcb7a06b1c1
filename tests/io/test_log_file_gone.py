"""A log whose files somebody emptied, overwrote or deleted."""

import random
import shutil
from pathlib import Path

import pytest

from node.core.replica.durable import Appended
from tests.fakes.log_files import OpenLog, entries, founded, reopen


@pytest.mark.parametrize("content", [b"", bytes(3000), random.Random(1).randbytes(3000)])
def test_a_log_whose_only_segment_holds_nothing_is_damaged_and_goes_on_beside_it(
    tmp_path: Path, content: bytes
) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 5)))
    (segment,) = tmp_path.glob("segment-*.log")
    segment.write_bytes(content)
    with OpenLog(tmp_path) as log:
        assert log.log.damage
        assert log.recovered.entries == ()
        founded(log)
        log.write(Appended(entries(0, 3)))
    (kept,) = (tmp_path / "damaged").glob("*/segment-*.log")
    assert kept.read_bytes() == content
    for _ in range(2):
        again, recovered = reopen(tmp_path)
        assert (again.damage, recovered.entries) == ("", entries(0, 3))


def test_nothing_is_acknowledged_once_the_file_was_deleted_under_it(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
        shutil.rmtree(tmp_path)
        assert log.log.submit(99, (Appended(entries(0, 1)),), full_sync=False)
        failure = log.failed.get(timeout=10)
        assert "deleted" in str(failure)
        assert log.done.empty()
        assert "nothing is acknowledged" in log.log.status().trouble
