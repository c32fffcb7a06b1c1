"""Plans: every way a model could be placed, with its numbers and its verdict."""

import msgspec

from node.model.errors import Failure
from node.model.ids import ModelId, NodeId
from node.model.instance import WeightFormat


class NodeShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate asks of one node, in bytes."""

    node: NodeId
    name: str
    first_layer: int
    end_layer: int
    bytes_used: int
    """In use or promised now."""
    bytes_added: int
    """By this shard: weights, cache, and the working buffers of a runner."""
    bytes_limit: int
    """What may be used in all, headroom taken off."""
    held: bool = True
    """The model's files are on the node."""

    @property
    def bytes_slack(self) -> int:
        """Room left after this shard; negative where it does not fit."""
        return self.bytes_limit - self.bytes_used - self.bytes_added


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """A link that every token crosses."""

    source: NodeId
    target: NodeId
    medium: str = ""
    rtt_seconds: float | None = None
    bits_per_second: float | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One way to place a model."""

    strategy: str
    """`single`, `pipeline` or `tensor`."""
    transport: str
    weight_format: WeightFormat
    shares: tuple[NodeShare, ...]
    hops: tuple[Hop, ...] = ()
    context_tokens: int
    predicted_tokens_per_second: float = 0.0
    predicted_first_token_seconds: float = 0.0
    fits: bool
    refusal: Failure | None = None
    """Why not, with the numbers and what would help."""
    warnings: tuple[str, ...] = ()
    requests: int = 1
    """At once, each with the whole context."""
    predicted_prompt_tokens_per_second: float = 0.0
    predicted_prompt_tokens: int = 0
    """Length of the prompt of which the time to the first token is predicted."""
    table_tokens_per_second: float = 0.0
    """What the table of chips alone says."""
    table_prompt_tokens_per_second: float = 0.0
    measured: bool = False
    """Some node of it was measured with these weights: the prediction is no guess."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All candidates, best first; the first that fits is what a placement takes."""

    model: ModelId
    candidates: tuple[Candidate, ...]
    refusal: Failure | None = None
    """Set where no candidate fits."""
