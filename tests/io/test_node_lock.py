import multiprocessing
from pathlib import Path

import pytest

from node.config import Config
from node.io.node_lock import LockRecord, NodeLock, read_lock
from node.model.errors import ConflictError
from node.runtime import open_node


def test_the_running_node_is_found_by_its_lock(tmp_path: Path) -> None:
    assert read_lock(tmp_path) is None
    lock = NodeLock(tmp_path)
    lock.acquire()
    assert read_lock(tmp_path) is None
    lock.publish(LockRecord(process_id=7, name="one"))
    found = read_lock(tmp_path)
    assert found is not None
    assert (found.process_id, found.name) == (7, "one")
    lock.release()
    assert read_lock(tmp_path) is None


def test_a_second_node_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    first, second = NodeLock(tmp_path), NodeLock(tmp_path)
    first.acquire()
    first.publish(LockRecord(process_id=4711))
    with pytest.raises(ConflictError, match="4711"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_garbage_in_the_lock_file_is_no_node(tmp_path: Path) -> None:
    lock = NodeLock(tmp_path)
    lock.acquire()
    (tmp_path / "node.lock").write_bytes(b"{garbage")
    assert read_lock(tmp_path) is None
    lock.release()


def look(directory: str, rounds: int) -> None:
    for _ in range(rounds):
        read_lock(Path(directory))


async def test_asking_whether_a_node_runs_never_keeps_one_from_starting(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    asker = context.Process(target=look, args=(str(tmp_path), 200_000))
    asker.start()
    try:
        config = Config(
            state_directory=tmp_path, model_directories=(tmp_path / "models",),
            bind="127.0.0.1", cluster_port=0, api_port=-1, discovery=False,
        )  # fmt: skip
        for _ in range(3):
            async with open_node(config) as handle:
                assert (await handle.local()).cluster_address is not None
    finally:
        asker.terminate()
        asker.join()
