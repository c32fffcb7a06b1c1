"""Models that the cluster has: loaded, on the way, or on some node's disk."""

from collections.abc import Mapping

import msgspec

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.faults import ParameterError
from node.api.names import model_name
from node.core.instance_status import Word, status
from node.handle import NodeHandle
from node.model.card import ModelCard
from node.model.errors import ExoctlError, NotFoundError
from node.model.ids import InstanceId, ModelId
from node.model.register import ModelFigures

INSTANCE_STATUSES = ("ready", "loading", "degraded", "failed", "stopping")
STATUSES = (*INSTANCE_STATUSES, "on_disk")
"""The better ones first."""
_STATUS_OF_WORD: Mapping[Word, str] = {
    "PREPARING": "loading",
    "CONNECTING": "loading",
    "LOADING": "loading",
    "WARMING UP": "loading",
    "READY": "ready",
    "RUNNING": "ready",
    "DEGRADED": "degraded",
    "FAILED": "failed",
    "STOPPING": "stopping",
}


class OpenAiModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as OpenAI lists it, and what it can do now."""

    id: str
    created: int
    """Seconds since 1970: when it was placed; 0 for one that is only on disk."""
    status: str
    """`ready`, `loading`, `failed`; `degraded`: a node of it is lost; `on_disk`: held by a node,
    and to be loaded first."""
    context_tokens: int = 0
    """Tokens that fit, prompt and answer together; 0 where it is not loaded."""
    object: str = "model"
    owned_by: str = "exoctl"


class OpenAiModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/v1/models`."""

    data: list[OpenAiModel]
    object: str = "list"


def instance_status(handle: NodeHandle, instance: InstanceId) -> str:
    """One of `INSTANCE_STATUSES`; an instance takes requests where it is `ready`."""
    return _STATUS_OF_WORD[status(handle.state, instance, handle.registers).word]


def held_cards(handle: NodeHandle) -> dict[ModelId, ModelCard]:
    """Cards of models that lie complete on a node."""
    return {
        held.card.model: held.card
        for register in handle.registers.values()
        if isinstance(register.value, ModelFigures)
        for held in register.value.held
        if held.complete
    }


def all_models(handle: NodeHandle) -> list[OpenAiModel]:
    """Every model, those that answer now first."""
    found: dict[str, OpenAiModel] = {}
    for instance in handle.state.instances.values():
        now = instance_status(handle, instance.instance)
        if now == "stopping":
            continue
        model = OpenAiModel(
            id=instance.model,
            created=int(instance.placed_at),
            status=now,
            context_tokens=instance.context_tokens,
        )
        known = found.get(model.id)
        if known is None or STATUSES.index(now) < STATUSES.index(known.status):
            found[model.id] = model
    for name in held_cards(handle):
        found.setdefault(name, OpenAiModel(id=name, created=0, status="on_disk"))
    return sorted(found.values(), key=lambda model: (STATUSES.index(model.status), model.id))


def require_model(handle: NodeHandle, name: str) -> None:
    """Raise where nothing of that name is loaded.

    Raises:
        ParameterError: it can't be a name. NotFoundError: lists what is loaded, and how to load.
    """
    model = model_name("model", name)
    instances = handle.state.instances.values()
    if all(instance.model != model or instance.removing for instance in instances):
        raise not_loaded(handle, model)


def not_loaded(handle: NodeHandle, model: ModelId) -> ExoctlError:
    """What a person hears who asks for a model that is not loaded."""
    models = all_models(handle)
    loaded = [each.id for each in models if each.status != "on_disk"]
    on_disk = any(each.id == model for each in models)
    what = "is on disk but not loaded" if on_disk else "is not loaded"
    have = f"loaded: {', '.join(loaded)}" if loaded else "no model is loaded"
    return NotFoundError.because(
        "model_not_found",
        f"the model {model} {what}; {have}",
        f"load it with `exoctl load {model}`",
    )


def require_tools(handle: NodeHandle, name: str) -> None:
    """Raise where it is known that the model can't call tools.

    Raises:
        ParameterError: names `tools`.
    """
    card = held_cards(handle).get(ModelId(name))
    if card is not None and not card.supports_tools:
        raise ParameterError(
            "tools", f"the model {name} can't call tools", "leave tools out, or use another model"
        )


async def list_models(context: ApiContext, exchange: Exchange) -> None:
    """Answer with every model."""
    await exchange.answer(msgspec.json.encode(OpenAiModelList(data=all_models(context.handle))))


async def show_model(context: ApiContext, exchange: Exchange) -> None:
    """Answer with one model."""
    model = model_name("model", exchange.path["model"])
    for each in all_models(context.handle):
        if each.id == model:
            await exchange.answer(msgspec.json.encode(each))
            return
    raise not_loaded(context.handle, model)
