"""Record a real cluster for the pictures: `python screenshots/record.py`.

Three nodes on this machine, the embedded model split over all of them and once on one, two answers
and two downloads on their way (from a hub on loopback, slowed down), and then the loss of the node
of the last stage: `recording.ndjson`. Before that one question and its answer, item by item:
`answer.ndjson`. The first node's log, shortly before the loss: `logs.ndjson`.
"""

import os
import shutil
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
from node.model.command import Accepted, PlaceInstance, Refused, Wish  # noqa: E402
from node.model.download import PullModel  # noqa: E402
from node.model.ids import InstanceId, ModelId, NodeId, RequestId  # noqa: E402
from node.model.request import GenerationRequest, Message, Sampling  # noqa: E402
from tests.e2e.conftest import MODEL, converted_model  # noqa: E402
from tests.fakes.hub_server import HubServer  # noqa: E402
from tests.fakes.node_process import NodeProcesses, wait_for  # noqa: E402
from tui.bridge.recording import record as record_stream  # noqa: E402

NAMES = ("north", "east", "south")
QUESTION = "Write a short Python function that adds two numbers, and say how it works."
REPO = "lab/smollm2-135m-instruct"
BYTES_PER_SECOND = 3_000_000
LOG_LINES = 200
PROMPTS = ("Tell me a long story about a lighthouse keeper.", "Explain rain to a child, at length.")
WATCH_SECONDS = 20.0
LOSS_SECONDS = 8.0


async def place(handle: NodeHandle, nodes: tuple[NodeId, ...]) -> InstanceId:
    command = PlaceInstance(model=ModelId(MODEL), wish=Wish(nodes=nodes))
    answer = await handle.submit(command)
    while isinstance(answer, Refused) and answer.kind == "BusyError":
        await anyio.sleep(0.5)  # a node still looks at its copy of the model
        answer = await handle.submit(command)
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


async def keep_log(handle: NodeHandle, path: Path, root: Path) -> None:
    """Without the lines that name this machine's directories."""
    lines = [line for line in await handle.logs("", LOG_LINES) if str(root) not in line.text]
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    await anyio.Path(path).write_bytes(content)


async def fetch(handle: NodeHandle, nodes: tuple[NodeId, ...]) -> None:
    """Have some nodes fetch the model once more, under another name."""
    for node in nodes:
        await handle.order(node, PullModel(model=ModelId(REPO), companions=nodes))


async def keep(handle: NodeHandle, path: Path) -> None:
    with path.open("wb") as file:
        await record_stream(handle, file, clock.wall)


async def record(folder: Path, nodes: NodeProcesses) -> None:
    """Run the cluster and keep what the first node's stream says."""
    members = nodes.cluster(*NAMES, models=nodes.root)
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
        await fetch(handle, tuple(NodeId(node.node) for node in members[:2]))
        await anyio.sleep(WATCH_SECONDS)
        await keep_log(handle, folder / "logs.ndjson", nodes.root)
        members[2].kill()
        await anyio.sleep(LOSS_SECONDS)
        tasks.cancel_scope.cancel()


def main() -> int:
    """Write both files."""
    with (
        tempfile.TemporaryDirectory(prefix="exoctl-record-") as folder,
        HubServer().running() as hub,
    ):
        root = Path(folder)
        (root / "models").mkdir()
        models = converted_model(root / "models")
        for name in NAMES:
            shutil.copytree(models / MODEL, root / name / MODEL)
        hub.add_directory(REPO, models / MODEL)
        hub.bytes_per_second = BYTES_PER_SECOND
        os.environ["HF_ENDPOINT"] = hub.url  # noqa: TID251 - the nodes inherit it
        nodes = NodeProcesses(root, models)
        try:
            anyio.run(record, HERE, nodes)
        finally:
            nodes.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
