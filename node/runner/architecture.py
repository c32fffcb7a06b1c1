"""How a model of mlx-lm is built inside, found out by one forward pass that computes nothing.

MLX is lazy: the pass only builds a graph, so no weight is read. Layers are hooked meanwhile, and
tell which cache they use, what they return, and what they hand to later layers beside the hidden
state. That is all that is needed to cut a model between two layers, whatever its family.
"""

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import msgspec
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from node.runner.failures import RunnerError

TRACE_TOKENS = (1, 2, 3)
Path = tuple[Any, ...]
"""Way through nested tuples, lists and dicts to an array; () for the array itself."""
INEXACT = {
    "afm7": "between its layers the model itself reads the keys of one, which one stage alone has",
    "bailing_moe_v3": "in stages this family gives other tokens than whole",
    "deepseek_v41": "in stages this family gives other tokens than whole",
    "nanochat": "on a processor its answers change from run to run, so no split could be checked",
}
"""Families that the tests found not to be exact in stages: refused, not served."""
HIDDEN_PATHS: tuple[Path, ...] = ((), (0,))
"""Where a layer's return holds the hidden state: alone, or first."""


class ArraySpec(msgspec.Struct, frozen=True):
    """Stands for an array in a recorded return."""

    shape: tuple[int, ...]
    dtype: mx.Dtype


class ContextSpec(msgspec.Struct, frozen=True):
    """Stands for a mutable object that a layer was given and returned."""

    position: int


class Origin(msgspec.Struct, frozen=True, order=True):
    """An array by the layer that made it and its place in what the layer returned."""

    layer: int
    path: str


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """What the trace found."""

    layer_count: int
    slot_of_layer: dict[int, int]
    """Which entry of the model's cache list a layer uses."""
    slot_kinds: tuple[object, ...]
    """Type signature of each cache entry."""
    shared_slots: tuple[int, ...]
    """Entries that no layer owns; every stage keeps its own."""
    returns: dict[int, Any]
    """What each layer returned, with specs in place of arrays."""
    origins: dict[tuple[int, str], Origin]
    """For arrays that a layer only passed on: who made them."""
    uses: frozenset[tuple[Origin, int]]
    """Arrays beside the hidden state, with a layer that uses them."""
    hidden: ArraySpec
    """The hidden state of the traced pass."""
    forbidden_cuts: frozenset[int]
    """Layers before which no cut is possible, as both sides would share a cache."""

    def carried(self, cut: int) -> tuple[Origin, ...]:
        """Arrays made before the cut and used after it, in the order in which they are sent."""
        return tuple(sorted({origin for origin, user in self.uses if origin.layer < cut <= user}))

    def origin(self, layer: int, path: Path) -> Origin:
        """Who made an array that the layer returned."""
        return self.origins.get((layer, str(path)), Origin(layer, str(path)))

    def bytes_per_token(self, cut: int) -> int:
        """Bytes that cross the cut for each token."""
        specs = [self.hidden]
        for origin in self.carried(cut):
            specs += [
                spec
                for path, spec in leaves(self.returns[origin.layer])
                if str(path) == origin.path and isinstance(spec, ArraySpec)
            ]
        total = 0
        for spec in specs:
            count = 1
            for size in spec.shape:
                count *= size
            total += count * spec.dtype.size
        return total // len(TRACE_TOKENS)


def not_cuttable(reason: str) -> RunnerError:
    """The model can't be cut into stages."""
    error = RunnerError.because(
        "model_not_cuttable",
        f"the model can't be cut into stages: {reason}",
        "place it whole on one node",
    )
    assert isinstance(error, RunnerError)
    return error


def find_layers(model: Any) -> list[Any]:
    """The list of layers inside a model.

    Raises:
        RunnerError: it has none that can be found.
    """
    try:
        wanted = {id(layer) for layer in model.layers}
    except (AttributeError, TypeError) as error:
        raise not_cuttable("it names no layers") from error
    best: list[Any] = []
    for _, module in model.named_modules():
        for value in module.values():
            if (
                isinstance(value, list)
                and len(value) > len(best)
                and all(isinstance(item, nn.Module) and id(item) in wanted for item in value)
            ):
                best = value
    if not best:
        raise not_cuttable("its layers are not in one list")
    return best


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Arrays (or their specs) inside nested tuples, lists and dicts."""
    if isinstance(value, mx.array | ArraySpec):
        yield path, value
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))


def replace_leaves(value: Any, change: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """The same nesting with everything that is no container changed."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        items = [replace_leaves(item, change, (*path, i)) for i, item in enumerate(value)]
        return type(value)(*items)
    if isinstance(value, tuple | list):
        return type(value)(replace_leaves(item, change, (*path, i)) for i, item in enumerate(value))
    if isinstance(value, dict):
        return {key: replace_leaves(item, change, (*path, key)) for key, item in value.items()}
    return change(path, value)


def hook(layer: Any, call: Callable[..., Any]) -> type:
    """Have `call(original, hidden, *arguments)` run in place of the layer; returns its class.

    The layer stays the object it was, as models read attributes of their layers.
    """
    original_class = layer.__class__

    def call_original(*arguments: Any, **options: Any) -> Any:
        return original_class.__call__(layer, *arguments, **options)

    def hooked(_: Any, *arguments: Any, **options: Any) -> Any:
        if not arguments and options:
            # A family that names the hidden state instead of putting it first.
            first = next(iter(options))
            arguments = (options.pop(first),)
        return call(call_original, *arguments, **options)

    layer.__class__ = type(original_class.__name__, (original_class,), {"__call__": hooked})
    return original_class


def is_context(value: Any, cache_types: set[type]) -> bool:
    """Whether a layer's argument is a mutable object that carries arrays from layer to layer."""
    return (
        type(value) not in cache_types
        and hasattr(value, "__dict__")
        and not isinstance(value, nn.Module | mx.array)
        and not callable(value)
        and not hasattr(value, "update_and_fetch")
        and any(item is None or isinstance(item, mx.array) for item in vars(value).values())
    )


def cache_kind(cache: Any) -> object:
    """What makes two caches alike for masks and offsets."""
    if hasattr(cache, "caches"):
        return (type(cache).__name__, tuple(cache_kind(part) for part in cache.caches))
    entries = getattr(cache, "cache", None)
    return (
        type(cache).__name__,
        getattr(cache, "max_size", None),
        getattr(cache, "chunk_size", None),
        len(entries) if isinstance(entries, list) else None,
    )


class _Recorder:
    """Sees every layer's call of one pass."""

    def __init__(self, caches: list[Any]) -> None:
        self._caches = caches
        self._cache_types: set[type] = {type(cache) for cache in caches}
        self._made: dict[int, Origin] = {}
        self._kept: list[Any] = []  # so that no id is used twice
        self.order: list[int] = []
        self.slots: dict[int, int] = {}
        self.returns: dict[int, Any] = {}
        self.origins: dict[tuple[int, str], Origin] = {}
        self.uses: set[tuple[Origin, int]] = set()
        self.hidden: mx.array | None = None

    def called(self, layer: int, arguments: list[Any], returned: Any) -> None:
        self.order.append(layer)
        self._kept += [arguments, returned]
        for argument in arguments:
            for slot, cache in enumerate(self._caches):
                if argument is cache:
                    self.slots[layer] = slot
        self._record_uses(layer, arguments)
        self._record_origins(layer, returned)
        self._record_return(layer, arguments, returned)

    def _record_uses(self, layer: int, arguments: list[Any]) -> None:
        # The hidden state comes first and is sent anyway.
        beside = arguments[1:] if isinstance(arguments[0], mx.array) else arguments
        for _, array in leaves(beside):
            if id(array) in self._made:
                self.uses.add((self._made[id(array)], layer))

    def _record_origins(self, layer: int, returned: Any) -> None:
        for path, array in leaves(returned):
            if path in HIDDEN_PATHS:
                self.hidden = array
            elif id(array) in self._made:
                self.origins[(layer, str(path))] = self._made[id(array)]
            else:
                self._made[id(array)] = Origin(layer, str(path))

    def _record_return(self, layer: int, arguments: list[Any], returned: Any) -> None:
        contexts = [
            argument for argument in arguments[1:] if is_context(argument, self._cache_types)
        ]

        def template(_: Path, value: Any) -> Any:
            if isinstance(value, mx.array):
                return ArraySpec(tuple(value.shape), value.dtype)
            for position, context in enumerate(contexts):
                if value is context:
                    return ContextSpec(position)
            return value

        self.returns[layer] = replace_leaves(returned, template)


def trace(model: Any) -> Architecture:
    """Find out how the model can be cut.

    Raises:
        RunnerError: it can't be cut at all, with the reason.
    """
    layers = find_layers(model)
    inexact = INEXACT.get(getattr(model, "model_type", ""))
    if inexact is not None:
        raise not_cuttable(inexact)
    if len({id(layer) for layer in layers}) != len(layers):
        raise not_cuttable("the same layer is used more than once")
    caches = make_prompt_cache(model)
    recorder = _Recorder(caches)
    classes: list[type] = []
    for number, layer in enumerate(layers):

        def seen(
            original: Callable[..., Any], *arguments: Any, _number: int = number, **options: Any
        ) -> Any:
            returned = original(*arguments, **options)
            recorder.called(_number, [*arguments, *options.values()], returned)
            return returned

        classes.append(hook(layer, seen))
    try:
        model(mx.array([TRACE_TOKENS]), cache=caches)
    except Exception as error:
        raise not_cuttable(f"{type(error).__name__}: {error}") from error
    finally:
        for layer, original_class in zip(layers, classes, strict=True):
            layer.__class__ = original_class
    if recorder.order != list(range(len(layers))) or recorder.hidden is None:
        raise not_cuttable("its layers do not run once each, one after the other")
    return _architecture(recorder, caches, recorder.hidden)


def _architecture(recorder: _Recorder, caches: list[Any], hidden: mx.array) -> Architecture:
    users: dict[int, list[int]] = {}
    for layer, slot in recorder.slots.items():
        users.setdefault(slot, []).append(layer)
    return Architecture(
        layer_count=len(recorder.order),
        slot_of_layer=recorder.slots,
        slot_kinds=tuple(cache_kind(cache) for cache in caches),
        shared_slots=tuple(slot for slot in range(len(caches)) if slot not in users),
        returns=recorder.returns,
        origins=recorder.origins,
        uses=frozenset(recorder.uses),
        hidden=ArraySpec(tuple(hidden.shape), hidden.dtype),
        forbidden_cuts=frozenset(
            cut for layers in users.values() for cut in range(min(layers) + 1, max(layers) + 1)
        ),
    )
