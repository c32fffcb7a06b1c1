"""Which stage gets which layers: by memory, whole layers, never over a cut that is forbidden."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from node.core.placement.room import RUNNER_BYTES
from node.model.card import ModelCard
from node.model.instance import WeightFormat

EXACT_STAGES_MAX = 8
"""Up to so many stages the lowest fill is found exactly; beyond, filling from the front does."""
FILL_STEPS = 20
"""Halvings in the search for the lowest fill: finer than a millionth of a node's room."""


class Costs:
    """What a model costs, stage by stage, in one weight format and for some whole contexts."""

    def __init__(
        self, card: ModelCard, weight_format: WeightFormat, context_tokens: int, requests: int = 1
    ) -> None:
        dense = weight_format is WeightFormat.DENSE
        weights = [(layer.dense_weights if dense else 0) or layer.weights for layer in card.layers]
        cache = [layer.kv_per_token * context_tokens * requests for layer in card.layers]
        self.weight_format = weight_format
        self.context_tokens = context_tokens
        self.requests = requests
        self.embedding_bytes = (card.dense_embedding_bytes if dense else 0) or card.embedding_bytes
        self._weights = [0, *accumulate(weights)]
        self._cache = [0, *accumulate(cache)]
        count = card.layer_count
        forbidden = set(card.forbidden_cuts)
        whole = bool(card.uncuttable_reason)
        inner = [] if whole else [cut for cut in range(1, count) if cut not in forbidden]
        self.cuts = [0, *inner, count]
        """Layers before which a stage may begin, and the layer count last."""
        self._at_cuts = [self._weights[cut] + self._cache[cut] for cut in self.cuts]

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return self.cuts[-1]

    @property
    def stages_max(self) -> int:
        """The most stages that the model can be cut into."""
        return len(self.cuts) - 1

    def weight_bytes(self, first_layer: int, end_layer: int) -> int:
        """Weights of a stage; the first holds the embedding and the head too."""
        embedding = self.embedding_bytes if first_layer == 0 else 0
        return self._weights[end_layer] - self._weights[first_layer] + embedding

    def cache_bytes(self, first_layer: int, end_layer: int) -> int:
        """Key/value cache of a stage, every request at its whole context."""
        return self._cache[end_layer] - self._cache[first_layer]

    def stage_bytes(self, first_layer: int, end_layer: int) -> int:
        """Everything a stage takes: weights, cache, and a runner's buffers."""
        return (
            self.weight_bytes(first_layer, end_layer)
            + self.cache_bytes(first_layer, end_layer)
            + RUNNER_BYTES
        )

    def total_bytes(self, stages: int) -> int:
        """Everything the model takes, spread over so many stages."""
        return self._at_cuts[-1] + self.embedding_bytes + stages * RUNNER_BYTES

    def furthest(self, start: int, room_bytes: float) -> int:
        """Index of the last cut that a stage from cut `start` on reaches within its room."""
        embedding = self.embedding_bytes if start == 0 else 0
        budget = self._at_cuts[start] + room_bytes - RUNNER_BYTES - embedding
        return bisect_right(self._at_cuts, budget) - 1

    def reach(self, starts: int, room_bytes: float) -> int:
        """Where a stage can end that begins at any of `starts`; both are bit sets of cuts."""
        ends = 0
        start = 0
        remaining = starts
        while remaining:
            skip = (remaining & -remaining).bit_length() - 1
            start += skip
            remaining >>= skip
            count = self.furthest(start, room_bytes) - start
            if count > 0:
                ends |= ((1 << count) - 1) << (start + 1)
            remaining >>= 1
            start += 1
        return ends


def spread(costs: Costs, room_bytes: Sequence[int]) -> tuple[int, ...] | None:
    """Boundaries that give every stage at least a layer and fill all rooms to about the same
    fraction, such as (0, 12, 30) for two stages; None where it can't be done within the rooms.
    """
    if not 0 < len(room_bytes) <= costs.stages_max:
        return None
    best = _greedy(costs, room_bytes) or _exact(costs, room_bytes)
    low, high = 0.0, 1.0
    for _ in range(FILL_STEPS if best is not None else 0):
        middle = (low + high) / 2
        filled = [room * middle for room in room_bytes]
        found = _greedy(costs, filled)
        if found is None and len(room_bytes) <= EXACT_STAGES_MAX:
            found = _exact(costs, filled)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best


def can_spread(costs: Costs, room_bytes: Sequence[int]) -> bool:
    """Whether `spread` finds a way."""
    if not 0 < len(room_bytes) <= costs.stages_max:
        return False
    return (_greedy(costs, room_bytes) or _exact(costs, room_bytes)) is not None


def spread_over(costs: Costs, weights: Sequence[int]) -> tuple[int, ...] | None:
    """Boundaries in proportion to the weights, whether or not it fits; None only where there are
    more stages than the model can be cut into.
    """
    if not 0 < len(weights) <= costs.stages_max:
        return None
    if len(weights) == 1:
        return (0, costs.layer_count)
    scaled = [max(weight, 1) for weight in weights]
    # Ends: a model has a finite number of bytes, and every doubling makes room for more of them.
    while (boundaries := spread(costs, scaled)) is None:
        scaled = [weight * 2 for weight in scaled]
    return boundaries


def _greedy(costs: Costs, room_bytes: Sequence[float]) -> tuple[int, ...] | None:
    """Each stage takes what it can, but leaves a layer for each stage to come."""
    last = costs.stages_max
    position = 0
    boundaries = [0]
    for stage, room in enumerate(room_bytes):
        stages_left = len(room_bytes) - stage - 1
        end = min(costs.furthest(position, room), last - stages_left)
        if end <= position:
            return None
        position = end
        boundaries.append(costs.cuts[position])
    return tuple(boundaries) if position == last else None


def _exact(costs: Costs, room_bytes: Sequence[float]) -> tuple[int, ...] | None:
    """Any split within the rooms: follows every place where a stage can end, then goes back."""
    ends = [1]
    for room in room_bytes:
        ends.append(costs.reach(ends[-1], room))
    position = costs.stages_max
    if not ends[-1] >> position & 1:
        return None
    boundaries = [costs.cuts[position]]
    for stage in range(len(room_bytes) - 1, -1, -1):
        starts = ends[stage] & ((1 << position) - 1)
        while True:
            start = (starts & -starts).bit_length() - 1
            if costs.furthest(start, room_bytes[stage]) >= position:
                break
            starts &= starts - 1
        position = start
        boundaries.append(costs.cuts[position])
    return tuple(reversed(boundaries))
