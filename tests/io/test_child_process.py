import os
import signal
import stat
import sys
from pathlib import Path

import anyio
import psutil
import pytest

from node.io.child_process import (
    LOG_BYTES_MAX,
    BoundedLog,
    ChildProcess,
    ChildSpec,
    child_environment,
    end_stranger,
    is_alive,
    make_private,
    start_child,
    start_time_of,
)


async def start(tmp_path: Path, code: str) -> ChildProcess:
    spec = ChildSpec(
        arguments=(sys.executable, "-u", "-c", code),
        environment={"ONLY": "this"},
        directory=tmp_path / "scratch",
        log=tmp_path / "logs" / "child.log",
    )
    return await start_child(spec)


async def said(child: ChildProcess, word: str) -> None:
    with anyio.fail_after(10.0):
        while word not in child.log.tail(10):  # noqa: ASYNC110 - the file is another process's
            await anyio.sleep(0.01)


async def test_a_child_inherits_nothing_but_what_it_is_given(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    code = (
        "import os, sys;"
        "print(sorted(os.environ), os.getcwd(), os.read(0, 1), sorted(os.listdir('/dev/fd'))[:4])"
    )
    try:
        child = await start(tmp_path, code)
        with anyio.fail_after(10.0):
            assert await child.wait() == 0
    finally:
        os.close(reader)
        os.close(writer)
    (line,) = child.log.tail(5)
    assert line.startswith(("['LC_CTYPE', 'ONLY', 'TMPDIR']", "['ONLY', 'TMPDIR']"))
    assert str(tmp_path / "scratch") in line
    # Its standard streams, and the one that lists them.
    assert line.endswith("b'' ['0', '1', '2', '3']")
    assert stat.S_IMODE((tmp_path / "scratch").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "logs" / "child.log").stat().st_mode) == 0o600
    assert await child.end() == 0


async def test_a_child_that_obeys_ends_by_the_asking_signal(tmp_path: Path) -> None:
    child = await start(tmp_path, "import time; print('up'); time.sleep(3600)")
    await said(child, "up")
    with anyio.fail_after(1.5):
        assert await child.end() == -signal.SIGTERM
    assert await child.end() == -signal.SIGTERM


async def test_a_child_that_does_not_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up'); time.sleep(3600)"
    )
    child = await start(tmp_path, code)
    await said(child, "up")
    with anyio.fail_after(3.0):
        assert await child.end(terminate_seconds=0.1) == -signal.SIGKILL


async def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    spec = ChildSpec(
        arguments=(str(tmp_path / "absent"),),
        environment={},
        directory=tmp_path / "scratch",
        log=tmp_path / "child.log",
    )
    with pytest.raises(FileNotFoundError):
        await start_child(spec)


async def test_a_stranger_is_ended_only_if_it_is_the_very_process(tmp_path: Path) -> None:
    child = await start(tmp_path, "import time; time.sleep(3600)")
    assert is_alive(child.process_id, child.start_time)
    assert not is_alive(child.process_id, child.start_time - 60)
    assert await end_stranger(child.process_id, child.start_time - 60)
    assert child.exit_code is None
    assert await end_stranger(child.process_id, child.start_time)
    assert await child.end() == -signal.SIGTERM
    assert start_time_of(child.process_id) is None


async def test_a_frozen_stranger_is_ended_too(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));"
        "print('up'); time.sleep(3600)"
    )
    child = await start(tmp_path, code)
    await said(child, "up")
    os.kill(child.process_id, signal.SIGSTOP)
    with anyio.fail_after(5.0):
        assert await end_stranger(child.process_id, child.start_time)
    assert await child.end() == -signal.SIGKILL


def test_a_log_is_turned_at_its_bound_with_its_end_kept(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "child.log", bytes_max=100)
    descriptor = log.open()
    os.write(descriptor, b"first\n" * 10)
    log.rotate()
    assert not (tmp_path / "child.log.1").exists()
    os.write(descriptor, b"x" * 100 + b"\nlast\n")
    log.rotate()
    assert (tmp_path / "child.log").stat().st_size == 0
    old = (tmp_path / "child.log.1").read_bytes()
    assert len(old) == 100
    assert old.endswith(b"\nlast\n")
    os.write(descriptor, b"goes on\n")
    os.close(descriptor)
    assert log.tail(5) == ("goes on",)


def test_the_tail_is_of_this_child_alone_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "child.log"
    path.write_text("of the child before\n")
    log = BoundedLog(path)
    assert BoundedLog(tmp_path / "absent").tail(5) == ()
    descriptor = log.open()
    assert log.tail(5) == ()
    os.write(descriptor, b"\xff\xfe\n\n  \none\ntwo\n" + b"y" * LOG_BYTES_MAX + b"\nend\n")
    os.close(descriptor)
    lines = log.tail(2)
    assert lines[-1] == "end"
    assert len(lines[0]) < 20_000


def test_a_private_directory_must_be_ours(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o755)
    make_private(real)
    assert stat.S_IMODE(real.stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "link", tmp_path / "file"):
        with pytest.raises(OSError, match=path.name):
            make_private(path)


def test_the_environment_of_a_child_is_offline_and_without_secrets() -> None:
    base = {"PATH": "/bin", "HF_TOKEN": "x", "EXOCTL_API_TOKEN": "y", "PYTHONPATH": "/mine"}
    environment = child_environment(base)
    assert environment["PATH"] == "/bin"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert not {"HF_TOKEN", "EXOCTL_API_TOKEN"} & environment.keys()
    assert environment["PYTHONPATH"].endswith(f"{os.pathsep}/mine")


def test_a_dead_number_is_not_alive() -> None:
    absent = max(psutil.pids()) + 100_000
    assert start_time_of(absent) is None
    assert not is_alive(absent, 0.0)
