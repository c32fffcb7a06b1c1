import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from node.io.machine_probe import (
    MemoryGroup,
    chip_of_linux,
    memory_group,
    probe_figures,
    probe_machine,
)

GIB = 1024**3


def test_the_machine_is_the_one_that_the_tests_run_on() -> None:
    machine = probe_machine()
    assert machine.hostname == socket.gethostname()
    assert machine.system == sys.platform
    assert machine.architecture == os.uname().machine
    assert machine.chip
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert 0 < machine.memory_bytes <= psutil.virtual_memory().total
    assert machine.python == ".".join(map(str, sys.version_info[:3]))


def test_probing_does_not_load_mlx() -> None:
    code = (
        "import sys; from node.io.machine_probe import probe_machine as p; m = p();"
        "print(m.mlx, [n for n in sys.modules if n.split('.')[0] == 'mlx'])"
    )
    done = subprocess.run(
        (sys.executable, "-c", code), capture_output=True, text=True, timeout=30, check=True
    )
    version, loaded = done.stdout.split(" ", 1)
    assert version[0].isdigit()
    assert loaded.strip() == "[]"


def test_figures_are_plausible(tmp_path: Path) -> None:
    probe_figures(tmp_path, tmp_path)
    figures = probe_figures(tmp_path, tmp_path)
    assert 0 < figures.memory_bytes_available <= figures.memory_bytes_total
    assert 0 < figures.disk_bytes_free <= figures.disk_bytes_total
    assert 0.0 <= figures.processor_fraction <= 1.0
    assert figures.load_average >= 0.0
    assert 1_000_000 < figures.node_rss_bytes < figures.memory_bytes_total


def test_figures_of_directories_that_do_not_exist_yet(tmp_path: Path) -> None:
    there = probe_figures(tmp_path, tmp_path)
    absent = probe_figures(tmp_path, tmp_path / "not" / "yet")
    assert absent.disk_bytes_total == there.disk_bytes_total


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_tightest_group_above_the_process_counts(tmp_path: Path) -> None:
    write(tmp_path / "membership", "0::/user.slice/exoctl.service\n")
    mount = tmp_path / "cgroup"
    write(mount / "user.slice/memory.max", f"{8 * GIB}\n")
    write(mount / "user.slice/memory.current", f"{7 * GIB}\n")
    write(mount / "user.slice/memory.stat", f"anon 1\ninactive_file {2 * GIB}\n")
    write(mount / "user.slice/exoctl.service/memory.max", "max\n")
    write(mount / "user.slice/exoctl.service/memory.current", f"{GIB}\n")
    group = memory_group(tmp_path / "membership", mount)
    assert group is not None
    assert group == MemoryGroup(8 * GIB, 5 * GIB)
    assert group.available_bytes == 3 * GIB


def test_a_container_sees_its_own_group_at_the_mount(tmp_path: Path) -> None:
    write(tmp_path / "membership", "0::/../../docker/abc\n")
    write(tmp_path / "cgroup/memory.max", f"{2 * GIB}\n")
    write(tmp_path / "cgroup/memory.current", f"{3 * GIB}\n")
    group = memory_group(tmp_path / "membership", tmp_path / "cgroup")
    assert group is not None
    assert group.available_bytes == 0


def test_limits_of_version_1_are_read(tmp_path: Path) -> None:
    write(tmp_path / "membership", "5:cpu:/x\n4:hugetlb,memory:/box\n")
    box = tmp_path / "cgroup/memory/box"
    write(box / "memory.limit_in_bytes", str(GIB))
    write(box / "memory.usage_in_bytes", str(GIB // 2))
    write(tmp_path / "cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    write(tmp_path / "cgroup/memory/memory.usage_in_bytes", "5")
    assert memory_group(tmp_path / "membership", tmp_path / "cgroup") == MemoryGroup(GIB, GIB // 2)


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "0::/\n", ":::::", "4:memory:/gone\n"])
def test_no_limit_where_none_can_be_read(tmp_path: Path, text: str) -> None:
    write(tmp_path / "membership", text)
    assert memory_group(tmp_path / "membership", tmp_path / "cgroup") is None
    assert memory_group(tmp_path / "absent", tmp_path) is None


def test_a_limit_lowers_what_the_machine_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "node.io.machine_probe.memory_group", lambda: MemoryGroup(GIB // 4, GIB // 8)
    )
    assert probe_machine().memory_bytes == GIB // 4
    figures = probe_figures(tmp_path, tmp_path)
    assert figures.memory_bytes_total == GIB // 4
    assert figures.memory_bytes_available == GIB // 8


def test_the_chip_of_a_linux_machine(tmp_path: Path) -> None:
    write(tmp_path / "x86", "processor\t: 0\nmodel name\t: AMD EPYC\n")
    write(tmp_path / "pi", "processor\t: 0\nCPU part\t: 0xd08\nModel\t\t: Raspberry Pi 4\n")
    write(tmp_path / "bare", "processor\t: 0\n")
    write(tmp_path / "board", "Rockchip RK3588\0")
    absent = tmp_path / "absent"
    assert chip_of_linux(tmp_path / "x86", absent) == "AMD EPYC"
    assert chip_of_linux(tmp_path / "pi", absent) == "Raspberry Pi 4"
    assert chip_of_linux(tmp_path / "bare", tmp_path / "board") == "Rockchip RK3588"
    assert chip_of_linux(absent, absent) == ""
