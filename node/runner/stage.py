"""One stage of a model cut between layers: runs its own layers, passes over the others."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import msgspec
from mlx_lm.models.cache import make_prompt_cache

from node.runner.architecture import (
    HIDDEN_PATHS,
    Architecture,
    ArraySpec,
    ContextSpec,
    Path,
    find_layers,
    hook,
    is_context,
    leaves,
    replace_leaves,
)
from node.runner.row_cache import make_caches

CONTEXT = "context"


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """What goes over a cut: the hidden state, and by name what later layers need beside it."""

    hidden: mx.array
    extras: dict[str, mx.array] = {}


class Stage:
    """Layers [first, end) of a model.

    The model's own code runs on every stage, so masks, offsets and oddities of its family come out
    right. Layers of other stages are holes: they return what the trace saw, with the hidden state
    passed through, so their weights are never computed with and never read. On rank 0 the first
    hole after its own layers is where the other stages work: `exchange` is called there.
    """

    def __init__(
        self,
        model: Any,
        architecture: Architecture,
        shard: range,
        exchange: Callable[[Crossing], Crossing] | None = None,
    ) -> None:
        self._model = model
        self._architecture = architecture
        self._shard = shard
        self._exchange = exchange
        self._cache_types: set[type] = {type(cache) for cache in make_prompt_cache(model)}
        self._arrays: dict[str, mx.array] = {}
        self._arrived: Crossing | None = None
        self._leaving: Crossing | None = None
        own = [
            architecture.slot_of_layer[layer]
            for layer in shard
            if layer in architecture.slot_of_layer
        ]
        self._slots = sorted({*own, *architecture.shared_slots})
        self._shadows = self._missing_kinds(set(own))
        for number, layer in enumerate(find_layers(model)):
            hook(layer, self._local(number) if number in shard else self._hole(number))

    def make_cache(self) -> list[Any]:
        """Caches of the stage's own layers, then one shadow of each kind that only others have.

        A shadow holds next to nothing, but grows as the real ones do, so that masks and offsets
        which the model's code makes from a cache of that kind are right here too.
        """
        everything = make_caches(self._model)
        return [everything[slot] for slot in (*self._slots, *self._shadows.values())]

    def run(self, tokens: mx.array, caches: list[Any], arrived: Crossing | None) -> Any:
        """Run the stage's layers; returns the model's output, which means something on rank 0 only.

        What leaves the stage is then in `leaving`.
        """
        self._arrays = dict(arrived.extras) if arrived is not None else {}
        self._arrived = arrived
        self._leaving = None
        output = self._model(tokens, cache=self._fill(caches))
        rows, length = tokens.shape
        for shadow in caches[len(self._slots) :]:
            _grow(shadow, rows, length)
        self._arrays = {}
        self._arrived = None
        return output

    @property
    def leaving(self) -> Crossing:
        """What the last run sends to the next stage."""
        assert self._leaving is not None
        return self._leaving

    def _missing_kinds(self, own: set[int]) -> dict[object, int]:
        kinds = self._architecture.slot_kinds
        held = {kinds[slot] for slot in own}
        missing: dict[object, int] = {}
        for slot, kind in enumerate(kinds):
            if kind not in held and slot not in self._architecture.shared_slots:
                missing.setdefault(kind, slot)
        return missing

    def _fill(self, caches: list[Any]) -> list[Any]:
        """The model's whole cache list; in a remote layer's place one of the same kind."""
        kinds = self._architecture.slot_kinds
        own = dict(zip(self._slots, caches, strict=False))
        by_kind = dict(zip(self._shadows, caches[len(self._slots) :], strict=True))
        for slot, cache in own.items():
            if slot not in self._architecture.shared_slots:
                by_kind.setdefault(kinds[slot], cache)
        return [own[slot] if slot in own else by_kind[kind] for slot, kind in enumerate(kinds)]

    def _contexts(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
        return [
            value
            for value in (*arguments, *options.values())
            if is_context(value, self._cache_types)
        ]

    def _hole(self, number: int) -> Callable[..., Any]:
        template = self._architecture.returns[number]

        def call(_: object, hidden: Any, *arguments: Any, **options: Any) -> Any:
            contexts = self._contexts(arguments, options)
            if number == self._shard.stop and self._exchange is not None:
                answer = self._exchange(self.leaving)
                self._arrays.update(answer.extras)
                self._restore(contexts)
                hidden = answer.hidden

            def value_at(path: Path, leaf: Any) -> Any:
                if isinstance(leaf, ContextSpec):
                    return contexts[leaf.position]
                if not isinstance(leaf, ArraySpec):
                    return leaf
                if path in HIDDEN_PATHS:
                    return hidden
                known = self._arrays.get(self._name(number, path))
                return known if known is not None else mx.zeros([1] * len(leaf.shape), leaf.dtype)

            return replace_leaves(template, value_at)

        return call

    def _local(self, number: int) -> Callable[..., Any]:
        def call(original: Callable[..., Any], hidden: Any, *arguments: Any, **options: Any) -> Any:
            contexts = self._contexts(arguments, options)
            if number == self._shard.start and self._arrived is not None:
                hidden = self._arrived.hidden
                self._restore(contexts)
            returned = original(hidden, *arguments, **options)
            for path, array in leaves(returned):
                if path not in HIDDEN_PATHS:
                    self._arrays.setdefault(self._name(number, path), array)
            if number == self._shard.stop - 1:
                self._leaving = self._crossing(returned, contexts)
            return returned

        return call

    def _crossing(self, returned: Any, contexts: list[Any]) -> Crossing:
        architecture = self._architecture
        end = self._shard.stop
        if end < architecture.layer_count:
            names = [_name(origin.layer, origin.path) for origin in architecture.carried(end)]
        else:
            # After the last layer the model's own code goes on, on rank 0.
            names = [
                self._name(end - 1, path)
                for path, _ in leaves(returned)
                if path not in HIDDEN_PATHS
            ]
        extras = {name: self._arrays[name] for name in names if name in self._arrays}
        for position, context in enumerate(contexts):
            for attribute, value in vars(context).items():
                if isinstance(value, mx.array):
                    extras[f"{CONTEXT}/{position}/{attribute}"] = value
        hidden = returned if isinstance(returned, mx.array) else returned[0]
        # A handle of its own: some families change the hidden state in place afterwards.
        return Crossing(hidden=mx.stop_gradient(hidden), extras=extras)

    def _restore(self, contexts: list[Any]) -> None:
        for position, context in enumerate(contexts):
            prefix = f"{CONTEXT}/{position}/"
            for name, array in self._arrays.items():
                attribute = name.removeprefix(prefix)
                if attribute != name and attribute in vars(context):
                    setattr(context, attribute, array)

    def _name(self, layer: int, path: Path) -> str:
        origin = self._architecture.origin(layer, path)
        return _name(origin.layer, origin.path)


def _name(layer: int, path: str) -> str:
    return f"{layer}/{path}"


def _grow(shadow: Any, rows: int, length: int) -> None:
    """Let a shadow see as many tokens as the real caches did."""
    if hasattr(shadow, "caches"):
        for part in shadow.caches:
            _grow(part, rows, length)
    elif hasattr(shadow, "update_and_fetch"):
        nothing = mx.zeros((rows, 1, length, 1))
        shadow.update_and_fetch(nothing, nothing)
    elif isinstance(getattr(shadow, "cache", None), list):
        shadow.cache = [
            mx.zeros((rows, 1, 1)) if entry is None else entry for entry in shadow.cache
        ]
        if hasattr(shadow, "advance"):
            shadow.advance(length)
