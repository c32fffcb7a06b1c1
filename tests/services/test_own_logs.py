"""The handle's logs: what lies on the disk may be anything."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from node.io.runner_files import RunnerFiles
from node.log import NodeLog
from node.model.errors import ExoctlError
from node.model.ids import InstanceId, NodeId, RunnerId
from node.model.instance import RunnerPhase, RunnerRecord
from node.model.state import State
from node.services.control_plane import ControlPlane
from node.services.embedded import EmbeddedHandle, Surroundings
from node.services.requests import Requests

OWN, RUNNER = NodeId("own"), RunnerId("r-00000001")


async def test_a_log_that_cannot_be_read_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    record = RunnerRecord(
        runner=RUNNER, instance=InstanceId("i-1"), node=OWN, phase=RunnerPhase.READY
    )
    control = SimpleNamespace(
        store=SimpleNamespace(state=State(runners={RUNNER: record})),
        registers=None,
        commands=None,
        membership=SimpleNamespace(node=OWN),
    )
    handle = EmbeddedHandle(
        cast("ControlPlane", control), cast("Requests", None), cast("Surroundings", None)
    )
    files = RunnerFiles(tmp_path)
    handle.attach_logs(cast("NodeLog", None), files)
    files.log(RUNNER).mkdir(parents=True)
    with pytest.raises(ExoctlError) as caught:
        await handle.own_logs(f"runner {RUNNER}", 10)
    assert caught.value.failure.code == "log_unreadable"
