"""What machine this is, and how it is doing."""

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from node.model.machine import Machine
from node.model.register import MachineFigures

_SYSCTL_SECONDS_MAX = 2.0
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_CGROUP_UNLIMITED_BYTES = 1 << 60
"""Version 1 writes a huge number where it means no limit."""


class MemoryGroup(msgspec.Struct, frozen=True):
    """The tightest memory limit that a container or service puts on this process."""

    limit_bytes: int
    used_bytes: int
    """Without what the kernel would give back at once (inactive file pages)."""

    @property
    def available_bytes(self) -> int:
        """What may still be used below the limit."""
        return max(0, self.limit_bytes - self.used_bytes)


class _ProcessorMeter:
    """Turns the system's counters of busy seconds into a share of the time since the last look."""

    def __init__(self) -> None:
        self._last = (0.0, 0.0)

    def fraction(self) -> float:
        times = psutil.cpu_times()
        everything = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        busy = everything - times.idle - getattr(times, "iowait", 0.0)
        (busy_before, before), self._last = self._last, (busy, everything)
        if before == 0.0 or everything <= before:
            return 0.0
        return min(1.0, max(0.0, (busy - busy_before) / (everything - before)))


# The counters are the machine's: one look back per process, whichever thread asks.
_processor = _ProcessorMeter()


def probe_machine() -> Machine:
    """Fixed facts; takes milliseconds, on a Mac one call of `sysctl`."""
    system = sys.platform if sys.platform in ("darwin", "linux") else platform.system().lower()
    architecture = platform.machine()
    memory = psutil.virtual_memory().total
    group = memory_group()
    return Machine(
        hostname=socket.gethostname(),
        system=system,
        release=platform.mac_ver()[0] if system == "darwin" else platform.release(),
        architecture=architecture,
        chip=_chip(system) or platform.processor() or architecture,
        cores=_cores(),
        memory_bytes=min(memory, group.limit_bytes) if group else memory,
        unified_memory=system == "darwin" and architecture == "arm64",
        python=platform.python_version(),
        mlx=_version_of("mlx"),
    )


def probe_figures(state_directory: Path, model_directory: Path) -> MachineFigures:
    """How the machine is doing now; never waits.

    `processor_fraction` is since the last call, 0 at the first. Disk figures are
    of the volume that models lie on, or of the state's where that can't be asked.
    """
    memory = psutil.virtual_memory()
    group = memory_group()
    total, available = memory.total, memory.available
    if group is not None:
        total = min(total, group.limit_bytes)
        available = min(available, group.available_bytes)
    disk_total, disk_free = _disk(model_directory) or _disk(state_directory) or (0, 0)
    return MachineFigures(
        memory_bytes_total=total,
        memory_bytes_available=available,
        disk_bytes_free=disk_free,
        disk_bytes_total=disk_total,
        processor_fraction=_processor.fraction(),
        load_average=os.getloadavg()[0],
        node_rss_bytes=psutil.Process().memory_info().rss,
        temperature_celsius=_temperature(),
    )


def memory_group(
    membership: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")
) -> MemoryGroup | None:
    """The tightest memory limit above this process; None where there is none."""
    groups = list(_limited_groups(membership, mount))
    return min(groups, key=lambda group: group.available_bytes, default=None)


def _limited_groups(membership: Path, mount: Path) -> Iterator[MemoryGroup]:
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            yield from _walk(mount, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            yield from _walk(
                mount / "memory",
                path,
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )


def _walk(
    mount: Path, path: str, limit_name: str, usage_name: str, reclaimable: str
) -> Iterator[MemoryGroup]:
    """Each group from the process's own up to the mount that has a limit.

    Inside a container the path may be the host's and not exist: the mount itself is then the
    container's group.
    """
    inner = path.strip("/")
    place = mount / inner
    if ".." in Path(inner).parts or not place.is_dir():
        place = mount
    while True:
        limit = _number(place / limit_name)
        usage = _number(place / usage_name)
        if limit is not None and usage is not None and limit < _CGROUP_UNLIMITED_BYTES:
            cached = _statistic(place / "memory.stat", reclaimable)
            yield MemoryGroup(limit, max(0, usage - cached))
        if place == mount:
            return
        place = place.parent


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _statistic(path: Path, name: str) -> int:
    try:
        text = path.read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _chip(system: str) -> str:
    return _chip_of_mac() if system == "darwin" else chip_of_linux()


def _chip_of_mac() -> str:
    try:
        done = subprocess.run(
            ("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"),
            capture_output=True,
            timeout=_SYSCTL_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()


def chip_of_linux(
    processors: Path = Path("/proc/cpuinfo"),
    board: Path = Path("/sys/firmware/devicetree/base/model"),
) -> str:
    """The processor's model name; on boards whose processor has none, the board's."""
    try:
        lines = processors.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()
    try:
        return board.read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _disk(directory: Path) -> tuple[int, int] | None:
    """(total, free) bytes of the volume that a directory lies on or would be made on."""
    for place in (directory, *directory.parents):
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            continue
        return usage.total, usage.free
    return None


def _temperature() -> float | None:
    """The hottest processor sensor; None where the system shows none."""
    if sys.platform != "linux":
        return None
    try:
        sensors = psutil.sensors_temperatures()
    except (OSError, ValueError):
        return None
    readings = [entry.current for name in _CPU_SENSORS for entry in sensors.get(name, ())]
    return max(readings, default=None)
