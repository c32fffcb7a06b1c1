"""Predicted speed: every stage reads its weights once for each token, then the token hops on."""

from collections.abc import Sequence
from types import MappingProxyType

import msgspec

from node.core.chip_speeds import speed_of
from node.core.measured import UNKNOWN, Ratios
from node.core.placement.layers import Costs
from node.core.placement.ring import hop_seconds
from node.core.placement.room import Room
from node.model.card import ModelCard
from node.model.topology import Hop

PROMPT_TOKENS = 512
"""Length of the prompt that the time to first token is predicted for."""


SUMS_PER_LAYER = 2
"""With tensor parallel: after attention, and after what follows it."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What one request alone may expect. Models that use only some of their weights for a token
    (mixtures of experts) are faster than this.
    """

    tokens_per_second: float
    prompt_tokens_per_second: float
    first_token_seconds: float
    prompt_tokens: int
    """Length of the prompt before that first token."""


def predict(
    card: ModelCard,
    costs: Costs,
    stages: Sequence[Room],
    ranges: Sequence[tuple[int, int]],
    hops: Sequence[Hop],
    measured: Ratios = MappingProxyType({}),
) -> Prediction:
    """Predict a candidate's speed: by the table of chips, or by what was measured on its nodes."""
    prompt_tokens = min(PROMPT_TOKENS, costs.context_tokens)
    total_weights = costs.weight_bytes(0, costs.layer_count)
    token_seconds = prompt_seconds = 0.0
    for layers, room in zip(ranges, stages, strict=True):
        speed = speed_of(room.machine, costs.weight_format, card.quantisation_bits)
        ratio = measured.get((room.node, costs.weight_format), UNKNOWN)
        weights = costs.weight_bytes(*layers)
        token_seconds += weights / (speed.bytes_per_second * ratio.decode)
        operations = 2 * card.parameters * prompt_tokens * weights / max(total_weights, 1)
        prompt_seconds += operations / (speed.operations_per_second * ratio.prompt)
    activation = card.activation_bytes_per_token
    token_seconds += sum(hop_seconds(crossed, activation) for crossed in hops)
    prompt_seconds += sum(hop_seconds(crossed, activation * prompt_tokens) for crossed in hops)
    return _prediction(prompt_tokens, token_seconds, prompt_seconds)


def predict_tensor(
    card: ModelCard,
    costs: Costs,
    stages: Sequence[Room],
    ranges: Sequence[tuple[int, int]],
    hops: Sequence[Hop],
    measured: Ratios = MappingProxyType({}),
) -> Prediction:
    """Predict the speed of ranks that compute together: as fast as the slowest, and in each layer
    two sums go around, first in parts and then whole.
    """
    prompt_tokens = min(PROMPT_TOKENS, costs.context_tokens)
    operations = 2 * card.parameters * prompt_tokens / len(stages)
    token_seconds = prompt_seconds = 0.0
    for layers, room in zip(ranges, stages, strict=True):
        speed = speed_of(room.machine, costs.weight_format, card.quantisation_bits)
        ratio = measured.get((room.node, costs.weight_format), UNKNOWN)
        reading = costs.weight_bytes(*layers) / (speed.bytes_per_second * ratio.decode)
        computing = operations / (speed.operations_per_second * ratio.prompt)
        token_seconds = max(token_seconds, reading)
        prompt_seconds = max(prompt_seconds, computing)
    steps = SUMS_PER_LAYER * card.layer_count * 2 * (len(stages) - 1)
    part = card.activation_bytes_per_token // len(stages)
    token_seconds += steps * max(hop_seconds(crossed, part) for crossed in hops)
    prompt_seconds += steps * max(hop_seconds(crossed, part * prompt_tokens) for crossed in hops)
    return _prediction(prompt_tokens, token_seconds, prompt_seconds)


def _prediction(prompt_tokens: int, token_seconds: float, prompt_seconds: float) -> Prediction:
    return Prediction(
        tokens_per_second=1.0 / token_seconds if token_seconds > 0 else 0.0,
        prompt_tokens_per_second=prompt_tokens / prompt_seconds if prompt_seconds > 0 else 0.0,
        first_token_seconds=prompt_seconds + token_seconds,
        prompt_tokens=prompt_tokens,
    )
