"""Disks that hang or have no room: who masters, and what the node says."""

import errno
import os
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from node.io.log_file import log_file as disk
from node.model.session import Entry
from node.services import event_router, log_writer
from tests.fakes.routers import Lan, Member, cordon, form_cluster, running, until


class Disks:
    """What the disks of the nodes do, by the name of their directory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hanging: set[str] = set()
        self.full: set[str] = set()
        self._root = root
        self._answers = threading.Event()
        sync_file, write = disk.sync_file, os.write

        def sync_maybe(descriptor: int, *, full: bool) -> None:
            if self._is_of(descriptor, self.hanging):
                self._answers.wait(60)
            sync_file(descriptor, full=full)

        def write_maybe(descriptor: int, content: bytes) -> int:
            if self._is_of(descriptor, self.full):
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(descriptor, content)

        monkeypatch.setattr(disk, "sync_file", sync_maybe)
        monkeypatch.setattr(disk.os, "write", write_maybe)
        monkeypatch.setattr(disk, "RETRY_SECONDS", 0.02)
        monkeypatch.setattr(log_writer, "STUCK_SECONDS", 0.3)
        monkeypatch.setattr(log_writer, "FULL_SECONDS", 0.3)

    def _is_of(self, descriptor: int, names: set[str]) -> bool:
        if not names:
            return False
        status = os.fstat(descriptor)
        files = (path for name in tuple(names) for path in (self._root / name).glob("segment-*"))
        return any(os.path.samestat(status, path.stat()) for path in files)

    def heal(self) -> None:
        self.hanging.clear()
        self.full.clear()
        self._answers.set()


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Disks]:
    made = Disks(tmp_path, monkeypatch)
    yield made
    made.heal()


@pytest.mark.parametrize("trouble", ["hanging", "full"])
async def test_a_master_whose_disk_takes_nothing_hands_over_and_the_others_go_on(
    tmp_path: Path, disks: Disks, trouble: str
) -> None:
    async with running(Lan(), tmp_path, "a", "b", "c") as members:
        await form_cluster(members)
        a, b, c = members
        getattr(disks, trouble).add("a")
        settled: list[Entry | None] = []
        b.router.publish(cordon(b.node, on=True), settled.append)
        await until(lambda: b.router.is_master or c.router.is_master)
        await until(lambda: bool(settled) and c.state.nodes[b.node].cordoned)
        assert not a.router.is_master
        assert a.state.cluster
        await until(lambda: bool(a.router.figures().disk_trouble))
        assert a.router.figures().disk_full == (trouble == "full")
        disks.heal()
        await until(lambda: a.state == b.state == c.state and "a" in a.state.in_sync)
        assert not a.router.figures().disk_trouble


async def test_a_lone_master_keeps_office_and_goes_on_when_its_disk_answers(
    tmp_path: Path, disks: Disks
) -> None:
    async with running(Lan(), tmp_path, "a") as (a,):
        await until(lambda: a.state.cluster != "")
        disks.hanging.add("a")
        settled: list[Entry | None] = []
        a.router.publish(cordon(a.node, on=True), settled.append)
        await until(lambda: bool(a.router.figures().disk_trouble))
        assert a.router.is_master
        assert not settled
        disks.heal()
        await until(lambda: bool(settled))
        assert not a.router.figures().disk_trouble


async def test_a_follower_whose_disk_hangs_holds_nobody_up(
    tmp_path: Path, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def commits(writer: Member) -> None:
        settled: list[Entry | None] = []
        writer.router.publish(cordon(writer.node, on=True), settled.append)
        await until(lambda: bool(settled))

    monkeypatch.setattr(event_router, "SNAPSHOT_EVERY_ENTRIES", 5)
    async with running(Lan(), tmp_path, "a", "b") as members:
        await form_cluster(members)
        a, b = members
        disks.hanging.add("b")
        for _ in range(7):
            await commits(a)
        assert a.router.is_master
        assert "b" not in a.router.figures().disk_trouble
        await until(lambda: bool(b.router.figures().disk_trouble))
        disks.heal()
        await until(lambda: a.state == b.state and "b" in a.state.in_sync)
