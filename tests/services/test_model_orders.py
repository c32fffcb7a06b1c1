"""Orders about models between nodes: once each, so many at a time, and none that ends the node."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import pytest

from node.io.model_store.embedded import EMBEDDED_MODEL
from node.io.model_store.store import ModelStore
from node.model.download import ImportModel, PullModel, VerifyModel
from node.model.errors import ConflictError, TimeoutExpiredError, UsageError
from node.model.ids import CommandId, ModelId, NodeId
from node.model.state import State
from node.services.background import background_tasks
from node.services.downloader import Downloader
from node.services.model_orders import CARRIED_OUT_MAX, REMEMBERED_MAX, ModelOrders
from node.wire.message import OrderAnswered, OrderSent, ServiceMessage
from tests.fakes.eventually import eventually
from tests.fakes.tiny_files import write_model

OWN, PEER = NodeId("own"), NodeId("peer")
MODEL = ModelId("acme/a")


class SlowDownloader:
    """Takes orders and is done with them once the test says so."""

    def __init__(self) -> None:
        self.taken = 0
        self.may_end = False

    async def order(self, order: PullModel) -> str:
        self.taken += 1
        await eventually(lambda: self.may_end, 10)
        return f"{order.model} queued"


class Scene:
    def __init__(self, tmp_path: Path, tasks: anyio.abc.TaskGroup) -> None:
        self.downloader = SlowDownloader()
        self.answers: list[OrderAnswered] = []
        self.store = ModelStore((tmp_path / "models",), tmp_path, {})
        self.orders = ModelOrders(
            OWN, self.store, cast("Downloader", self.downloader), State, self._send, tasks
        )

    def _send(self, peer: NodeId, message: ServiceMessage) -> bool:
        assert peer == PEER
        assert isinstance(message, OrderAnswered)
        self.answers.append(message)
        return True

    def ask(self, number: int) -> None:
        message = OrderSent(id=CommandId(f"c-{number}"), order=PullModel(model=MODEL))
        self.orders.on_message(PEER, message)


@asynccontextmanager
async def scene_in(tmp_path: Path) -> AsyncGenerator[Scene]:
    async with background_tasks() as tasks:
        yield Scene(tmp_path, tasks)


async def test_only_so_many_orders_of_others_are_carried_out_at_a_time(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        for number in range(2 * REMEMBERED_MAX):
            scene.ask(number)
        await anyio.wait_all_tasks_blocked()
        assert scene.downloader.taken == CARRIED_OUT_MAX
        assert {answer.kind for answer in scene.answers} == {"BusyError"}
        scene.ask(0)  # sent again, while it is still carried out
        await anyio.wait_all_tasks_blocked()
        assert scene.downloader.taken == CARRIED_OUT_MAX
        scene.downloader.may_end = True
        await eventually(lambda: sum(one.done is not None for one in scene.answers) >= 1)
        done = [one.id for one in scene.answers if one.done is not None]
        scene.ask(0)
        assert scene.answers[-1].id == "c-0"
        assert done.count(CommandId("c-0")) == 1


@pytest.mark.parametrize("path", ["a\0.gguf", "a\0"])
async def test_a_path_that_can_be_none_is_refused(tmp_path: Path, path: str) -> None:
    async with scene_in(tmp_path) as scene:
        with pytest.raises(UsageError):
            await scene.orders.carry_out(ImportModel(path=path, model=ModelId("acme/b")))


@pytest.mark.parametrize(
    ("model", "helps"),
    [
        (EMBEDDED_MODEL, f"exoctl model rm {EMBEDDED_MODEL}"),
        (ModelId("acme/a"), "exoctl model pull acme/a"),
        (ModelId("mine"), "exoctl model import PATH"),
    ],
)
async def test_what_has_no_hashes_is_not_verified_and_what_helps_can_be_done(
    tmp_path: Path, model: ModelId, helps: str
) -> None:
    write_model(tmp_path / "models" / model)
    async with scene_in(tmp_path) as scene:
        await scene.store.scan()
        with pytest.raises(ConflictError) as caught:
            await scene.orders.carry_out(VerifyModel(model=model))
    assert helps in caught.value.failure.remedy


async def test_an_order_to_the_own_node_outlives_its_asker_and_keeps_his_time(
    tmp_path: Path,
) -> None:
    async with scene_in(tmp_path) as scene:
        with pytest.raises(TimeoutExpiredError, match="did not answer"):
            await scene.orders.order(OWN, PullModel(model=MODEL), 0.05)
        assert scene.downloader.taken == 1
        scene.downloader.may_end = True
        done = await scene.orders.order(OWN, PullModel(model=MODEL), 5.0)
        assert done.words == f"{MODEL} queued"
