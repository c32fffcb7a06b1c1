"""What a runner wrote, with its time and level."""

from datetime import datetime

from node.services.runner_lines import runner_lines


def test_lines_have_their_own_time_and_level_and_what_follows_stays_behind_them() -> None:
    lines = runner_lines(
        [
            "before any stamp",
            "2026-12-01 01:04:00,782 INFO node.runner.channel: loading",
            "2026-12-01 01:04:02,105 ERROR node.runner.engine: it broke",
            "Traceback (most recent call last):",
            "2026-12-01 01:04:03,000 CRITICAL mlx: out of memory",
        ],
        "runner r-1",
    )
    first = datetime(2026, 12, 1, 1, 4, 0).astimezone().timestamp() + 0.782
    assert [(line.level, line.text) for line in lines] == [
        ("output", "before any stamp"),
        ("info", "channel: loading"),
        ("error", "engine: it broke"),
        ("output", "Traceback (most recent call last):"),
        ("error", "mlx: out of memory"),
    ]
    assert lines[0].at == 0.0
    assert abs(lines[1].at - first) < 1e-6
    assert lines[3].at == lines[2].at
    assert {line.source for line in lines} == {"runner r-1"}
