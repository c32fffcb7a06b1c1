"""Models as Ollama lists them: on disk, loaded, and one in detail."""

import hashlib

import msgspec

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.model_list import held_cards, instance_status, not_loaded
from node.api.names import model_name
from node.api.ollama_order import LATEST
from node.api.ollama_reply import timestamp
from node.api.openai_order import ModelName
from node.api.pages import local_facts
from node.model.card import ModelCard
from node.model.ids import ModelId
from node.model.instance import Instance

FOREVER = "9999-12-31T23:59:59Z"
"""An instance stays until it is stopped."""


class OllamaDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of model it is."""

    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    format: str = "mlx"
    parent_model: str = ""


class OllamaModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model on some node's disk."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaModels(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/api/tags`."""

    models: list[OllamaModel]


class OllamaLoaded(msgspec.Struct, frozen=True, kw_only=True):
    """A model that answers now."""

    name: str
    model: str
    size: int
    size_vram: int
    digest: str
    details: OllamaDetails
    context_length: int
    expires_at: str = FOREVER


class OllamaProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/api/ps`."""

    models: list[OllamaLoaded]


class OllamaShowOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/api/show`."""

    model: ModelName
    verbose: bool | None = None


class OllamaShown(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/api/show`."""

    modified_at: str
    details: OllamaDetails
    model_info: dict[str, object]
    capabilities: list[str]
    parameters: str = ""
    template: str = ""
    modelfile: str = ""
    license: str = ""


class OllamaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/api/version`."""

    version: str


async def list_tags(context: ApiContext, exchange: Exchange) -> None:
    """Answer with every model that lies on a disk."""
    cards = sorted(held_cards(context.handle).items())
    listed = [_model(context, card) for _, card in cards]
    await exchange.answer(msgspec.json.encode(OllamaModels(models=listed)))


async def list_loaded(context: ApiContext, exchange: Exchange) -> None:
    """Answer with every model that takes requests."""
    cards = held_cards(context.handle)
    instances = [
        instance
        for instance in context.handle.state.instances.values()
        if instance_status(context.handle, instance.instance) == "ready"
    ]
    loaded = [_loaded(instance, cards.get(instance.model)) for instance in instances]
    await exchange.answer(msgspec.json.encode(OllamaProcesses(models=loaded)))


async def show(context: ApiContext, exchange: Exchange) -> None:
    """Answer with one model."""
    order = exchange.decode(OllamaShowOrder)
    model = model_name("model", order.model.removesuffix(LATEST))
    card = held_cards(context.handle).get(model)
    if card is None:
        raise not_loaded(context.handle, model)
    capabilities = ["completion"]
    capabilities += ["tools"] if card.supports_tools else []
    capabilities += ["thinking"] if card.supports_thinking else []
    shown = OllamaShown(
        modified_at=_placed_at(context, model),
        details=_details(card),
        capabilities=capabilities,
        model_info={
            "general.architecture": card.architecture,
            "general.parameter_count": card.parameters,
            f"{card.architecture}.block_count": card.layer_count,
            f"{card.architecture}.context_length": card.context_tokens_max,
            f"{card.architecture}.embedding_length": card.hidden_size,
            f"{card.architecture}.attention.head_count": card.attention_heads,
            f"{card.architecture}.attention.head_count_kv": card.kv_heads,
        },
    )
    await exchange.answer(msgspec.json.encode(shown))


async def show_version(context: ApiContext, exchange: Exchange) -> None:
    """Answer with this node's version."""
    local = await local_facts(context)
    await exchange.answer(msgspec.json.encode(OllamaVersion(version=local.version)))


def _model(context: ApiContext, card: ModelCard) -> OllamaModel:
    return OllamaModel(
        name=card.model,
        model=card.model,
        modified_at=_placed_at(context, card.model),
        size=card.weight_bytes,
        digest=_digest(card.model, card.source),
        details=_details(card),
    )


def _loaded(instance: Instance, card: ModelCard | None) -> OllamaLoaded:
    held = sum(shard.weight_bytes + shard.cache_bytes for shard in instance.shards)
    return OllamaLoaded(
        name=instance.model,
        model=instance.model,
        size=held,
        size_vram=held,
        digest=_digest(instance.model, card.source if card else ""),
        details=_details(card),
        context_length=instance.context_tokens,
    )


def _placed_at(context: ApiContext, model: ModelId) -> str:
    times = [
        instance.placed_at
        for instance in context.handle.state.instances.values()
        if instance.model == model
    ]
    return timestamp(max(times, default=0.0))


def _digest(model: str, source: str) -> str:
    """Ollama's clients want one; it stays the same for the same model of the same source."""
    return hashlib.sha256(f"{model}\n{source}".encode()).hexdigest()


def _details(card: ModelCard | None) -> OllamaDetails:
    if card is None:
        return OllamaDetails(family="", families=[], parameter_size="", quantization_level="")
    parameters = card.parameters
    size = f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"
    return OllamaDetails(
        family=card.architecture,
        families=[card.architecture],
        parameter_size=size,
        quantization_level=f"Q{card.quantisation_bits}" if card.quantisation_bits else "dense",
    )
