"""Record a real cluster for the pictures: `python screenshots/record.py FILE`.

Three nodes on this machine, the embedded model split over all of them and once on one, and two
answers on their way when the recording ends.
"""

import sys
import tempfile
from pathlib import Path

import anyio

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from node.client import connect  # noqa: E402
from node.config import parse_address  # noqa: E402
from node.handle import NodeHandle  # noqa: E402
from node.io import clock  # noqa: E402
from node.model.command import Accepted, PlaceInstance, Wish  # noqa: E402
from node.model.ids import InstanceId, ModelId, NodeId, RequestId  # noqa: E402
from node.model.request import GenerationRequest, Message  # noqa: E402
from node.model.state import Snapshot, State  # noqa: E402
from tests.e2e.conftest import MODEL, converted_model  # noqa: E402
from tests.fakes.node_process import NodeProcesses  # noqa: E402
from tui.bridge.recording import line_of  # noqa: E402

NAMES = ("north", "east", "south")
PROMPTS = ("Tell me a long story about a lighthouse keeper.", "Explain rain to a child, at length.")
WATCH_SECONDS = 12.0


async def place(handle: NodeHandle, nodes: tuple[NodeId, ...]) -> InstanceId:
    answer = await handle.submit(PlaceInstance(model=ModelId(MODEL), wish=Wish(nodes=nodes)))
    assert isinstance(answer, Accepted), answer
    instance = InstanceId(answer.subject)
    await handle.wait_instance(instance, 120)
    return instance


async def ask(handle: NodeHandle, prompt: str, instance: InstanceId) -> None:
    request = GenerationRequest(
        id=RequestId("q-" + clock.random_hex(16)),
        model=ModelId(MODEL),
        messages=(Message(role="user", content=prompt),),
        instance=instance,
    )
    async for _ in handle.generate(request):
        pass


async def write(handle: NodeHandle, path: Path) -> None:
    async with handle.subscribe(0) as items:
        with path.open("wb") as file:
            file.write(line_of(Snapshot(state=State()), clock.wall()))
            file.write(line_of(await handle.local(), clock.wall()))
            async for item in items:
                file.write(line_of(item, clock.wall()))


async def record(path: Path, nodes: NodeProcesses) -> None:
    """Run the cluster and keep what the first node's stream says."""
    members = nodes.cluster(*NAMES)
    members[0].cli("wait", "--for", f"model={MODEL}", "--timeout", "60")
    async with (
        connect(parse_address(members[0].api)) as handle,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(write, handle, path)
        whole = await place(handle, tuple(NodeId(node.node) for node in members))
        single = await place(handle, (NodeId(members[1].node),))
        for prompt, instance in zip(PROMPTS, (whole, single), strict=True):
            tasks.start_soon(ask, handle, prompt, instance)
        await anyio.sleep(WATCH_SECONDS)
        tasks.cancel_scope.cancel()


def main() -> int:
    """Write the recording."""
    with tempfile.TemporaryDirectory(prefix="exoctl-record-") as folder:
        root = Path(folder)
        (root / "models").mkdir()
        nodes = NodeProcesses(root, converted_model(root / "models"))
        try:
            anyio.run(record, Path(sys.argv[1]), nodes)
        finally:
            nodes.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
