"""POST /api/pull and DELETE /api/delete: models come and go as Ollama's clients ask for it."""

import anyio
import msgspec
from msgspec import UNSET, UnsetType

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.model_orders import carry_out
from node.api.names import model_name
from node.api.ollama_order import LATEST
from node.api.openai_order import ModelName, Refusals
from node.api.pages import local_facts
from node.core.pull_status import download_record, is_whole, raise_failure
from node.io.clock import monotonic
from node.model.download import PullModel, RemoveModel
from node.model.errors import NotFoundError, TimeoutExpiredError
from node.model.ids import ModelId
from node.model.register import DownloadRecord, ModelFigures
from node.wire.surface import NDJSON

PULL_SECONDS = 24 * 3600.0
"""How long a client may wait for a model; the download goes on without it."""
LOOK_SECONDS = 0.25
_WORDS = {
    "queued": "waiting for its turn",
    "resolving": "pulling manifest",
    "converting": "converting",
    "paused": "paused: exoctl download resume",
    "verifying": "verifying sha256 digest",
    "complete": "writing manifest",
}


class OllamaPullOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/api/pull`."""

    model: ModelName | None = None
    name: ModelName | None = None
    """The older name of `model`."""
    stream: bool | None = None
    insecure: bool | None = None


class OllamaDeleteOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/api/delete`."""

    model: ModelName | None = None
    name: ModelName | None = None
    """The older name of `model`."""


class OllamaProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pull is: a line of its answer."""

    status: str
    digest: str | UnsetType = UNSET
    total: int | UnsetType = UNSET
    """Bytes."""
    completed: int | UnsetType = UNSET


_REFUSALS = Refusals({"insecure": (False,)})
_DONE = OllamaProgress(status="success")


async def pull(context: ApiContext, exchange: Exchange) -> None:
    """Fetch a model to this node, telling how far it is. A client that goes away stops nothing."""
    order = exchange.decode(OllamaPullOrder)
    _REFUSALS.check(order)
    model = _model(order)
    node = (await local_facts(context)).node
    await carry_out(context, node, PullModel(model=model, companions=(node,)))
    streams = order.stream is not False
    began, last = monotonic(), None
    while not is_whole(context.handle.registers, node, model):
        record = download_record(context.handle.registers, node, model)
        seconds = monotonic() - began
        raise_failure(record, seconds)
        if seconds > PULL_SECONDS:
            raise TimeoutExpiredError.because(
                "wait_expired", f"{model} is not whole after {seconds:.0f} s", "it goes on"
            )
        progress = _progress(record)
        if streams and progress != last:
            await exchange.write_or_begin(NDJSON.encode(), _line(progress))
            last = progress
        await anyio.sleep(LOOK_SECONDS)
    if not streams:
        await exchange.answer(msgspec.json.encode(_DONE))
        return
    await exchange.write_or_begin(NDJSON.encode(), _line(_DONE))
    await exchange.end()


async def delete(context: ApiContext, exchange: Exchange) -> None:
    """Delete a model from every node that holds it; refused while an instance uses it."""
    model = _model(exchange.decode(OllamaDeleteOrder))
    holders = [
        node
        for (node, _), register in context.handle.registers.items()
        if isinstance(register.value, ModelFigures)
        and any(held.card.model == model for held in register.value.held)
    ]
    if not holders:
        raise NotFoundError.because("model_not_found", f"no node has the model {model!r}")
    for node in holders:
        await carry_out(context, node, RemoveModel(model=model))
    await exchange.answer(b"")


def _model(order: OllamaPullOrder | OllamaDeleteOrder) -> ModelId:
    name = order.model or order.name or ""
    return model_name("model", name.removesuffix(LATEST))


def _progress(record: DownloadRecord | None) -> OllamaProgress:
    if record is None:
        return OllamaProgress(status="pulling manifest")
    if record.failure is not None:
        return OllamaProgress(status=f"tried again by itself: {record.failure.message}")
    if record.phase != "downloading":
        return OllamaProgress(status=_WORDS.get(record.phase, record.phase))
    return OllamaProgress(
        status=f"pulling {record.commit[:12] or record.model}",
        digest=record.commit or UNSET,
        total=record.bytes_total or UNSET,
        completed=record.bytes_done,
    )


def _line(progress: OllamaProgress) -> bytes:
    return msgspec.json.encode(progress) + b"\n"
