"""Record a real cluster for the pictures: `python screenshots/record.py`.

Three nodes on this machine, the embedded model split over all of them and once on one, two answers
on their way, and then the loss of the node of the last stage: `recording.ndjson`. Before that one
question and its answer, item by item: `answer.ndjson`.
"""

import sys
import tempfile
from pathlib import Path

import anyio
import msgspec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from node.client import connect  # noqa: E402
from node.config import parse_address  # noqa: E402
from node.handle import NodeHandle  # noqa: E402
from node.io import clock  # noqa: E402
from node.model.command import Accepted, PlaceInstance, Wish  # noqa: E402
from node.model.ids import InstanceId, ModelId, NodeId, RequestId  # noqa: E402
from node.model.request import GenerationRequest, Message, Sampling  # noqa: E402
from tests.e2e.conftest import MODEL, converted_model  # noqa: E402
from tests.fakes.node_process import NodeProcesses, wait_for  # noqa: E402
from tui.bridge.recording import record as record_stream  # noqa: E402

NAMES = ("north", "east", "south")
QUESTION = "What is the capital of France, and what is it known for?"
PROMPTS = ("Tell me a long story about a lighthouse keeper.", "Explain rain to a child, at length.")
WATCH_SECONDS = 20.0
LOSS_SECONDS = 8.0


async def place(handle: NodeHandle, nodes: tuple[NodeId, ...]) -> InstanceId:
    answer = await handle.submit(PlaceInstance(model=ModelId(MODEL), wish=Wish(nodes=nodes)))
    assert isinstance(answer, Accepted), answer
    instance = InstanceId(answer.subject)
    await handle.wait_instance(instance, 120)
    return instance


def request_for(
    prompt: str, instance: InstanceId, sampling: Sampling | None = None, tokens_max: int = 0
) -> GenerationRequest:
    return GenerationRequest(
        id=RequestId("q-" + clock.random_hex(16)),
        model=ModelId(MODEL),
        messages=(Message(role="user", content=prompt),),
        instance=instance,
        sampling=sampling or Sampling(),
        tokens_max=tokens_max,
    )


async def ask(handle: NodeHandle, prompt: str, instance: InstanceId) -> None:
    async for _ in handle.generate(request_for(prompt, instance, tokens_max=2000)):
        pass


async def keep_answer(handle: NodeHandle, instance: InstanceId, path: Path) -> None:
    greedy = Sampling(temperature=0.0)
    items = [item async for item in handle.generate(request_for(QUESTION, instance, greedy, 120))]
    lines = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
    await anyio.Path(path).write_bytes(lines)


async def keep(handle: NodeHandle, path: Path) -> None:
    with path.open("wb") as file:
        await record_stream(handle, file, clock.wall)


async def record(folder: Path, nodes: NodeProcesses) -> None:
    """Run the cluster and keep what the first node's stream says."""
    members = nodes.cluster(*NAMES)
    wait_for(lambda: members[0].json("model", "ls")["items"], "the model lies there", 60)
    async with (
        connect(parse_address(members[0].api)) as handle,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(keep, handle, folder / "recording.ndjson")
        whole = await place(handle, tuple(NodeId(node.node) for node in members))
        single = await place(handle, (NodeId(members[1].node),))
        await keep_answer(handle, whole, folder / "answer.ndjson")
        for prompt, instance in zip(PROMPTS, (whole, single), strict=True):
            tasks.start_soon(ask, handle, prompt, instance)
        await anyio.sleep(WATCH_SECONDS)
        members[2].kill()
        await anyio.sleep(LOSS_SECONDS)
        tasks.cancel_scope.cancel()


def main() -> int:
    """Write both files."""
    with tempfile.TemporaryDirectory(prefix="exoctl-record-") as folder:
        root = Path(folder)
        (root / "models").mkdir()
        nodes = NodeProcesses(root, converted_model(root / "models"))
        try:
            anyio.run(record, HERE, nodes)
        finally:
            nodes.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
