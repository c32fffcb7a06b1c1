"""Rows of a placement's candidates, and moving layers between their nodes."""

import msgspec

from node.model.ids import NodeId
from node.model.topology import Candidate, Hop, Plan
from tui.viewmodel import text
from tui.viewmodel.rows import Level, Run

TIGHT_BYTES = 2 * text.GIB


class ShareRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate asks of one node."""

    node: NodeId
    name: str
    hue: str
    first_layer: int
    end_layer: int
    used: int
    added: int
    limit: int
    slack: int
    level: Level
    word: str
    held: bool

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return self.end_layer - self.first_layer


class CandidateRow(msgspec.Struct, frozen=True, kw_only=True):
    """One way to place the model."""

    label: str
    nodes: int
    names: str
    speed: float
    first_token_seconds: float
    prompt_tokens: int
    measured: bool
    slowest: str
    slack: int
    level: Level
    verdict: str
    why_not: str
    remedy: str
    warnings: tuple[str, ...]
    shares: tuple[ShareRow, ...]
    hops: tuple[str, ...]
    fits: bool
    context_tokens: int

    @property
    def runs(self) -> tuple[Run, ...]:
        """The shares as runs of layers."""
        return tuple(
            Run(
                node=share.node,
                name=share.name,
                hue=share.hue,
                first_layer=share.first_layer,
                end_layer=share.end_layer,
            )
            for share in self.shares
        )


def speed_words(prompt_tokens: int, *, measured: bool) -> str:
    """What the predicted speeds are made of, and for which prompt the first token is told."""
    source = "as measured on these nodes" if measured else "a guess by chip"
    first = f"; first token: of a {prompt_tokens:,}-token prompt" if prompt_tokens else ""
    return f"speed: {source}{first}"


def candidate_rows(plan: Plan, hues: dict[NodeId, str]) -> list[CandidateRow]:
    """Every candidate, best first, as the plan has them."""
    return [_candidate(candidate, hues) for candidate in plan.candidates]


def _candidate(candidate: Candidate, hues: dict[NodeId, str]) -> CandidateRow:
    shares = _shares(candidate, hues)
    slack = min((share.slack for share in shares), default=0)
    refusal = candidate.refusal
    if not candidate.fits:
        level: Level = "bad"
        verdict = f"short {text.memory(-slack)}" if slack < 0 else "not possible"
    elif slack < TIGHT_BYTES:
        level, verdict = "warn", "fits, tight"
    else:
        level, verdict = "ok", "fits"
    label = candidate.strategy
    if candidate.transport:
        label += f" {candidate.transport}"
    if candidate.weight_format.value != "as_stored":
        label += f" {candidate.weight_format.value}"
    return CandidateRow(
        label=label,
        nodes=len(shares),
        names=", ".join(share.name for share in shares),
        speed=candidate.predicted_tokens_per_second,
        first_token_seconds=candidate.predicted_first_token_seconds,
        prompt_tokens=candidate.predicted_prompt_tokens,
        measured=candidate.measured,
        slowest=_slowest(candidate.hops),
        slack=slack,
        level=level,
        verdict=verdict,
        why_not=refusal.message if refusal else "",
        remedy=refusal.remedy if refusal else "",
        warnings=candidate.warnings,
        shares=shares,
        hops=tuple(_hop(hop) for hop in candidate.hops),
        fits=candidate.fits,
        context_tokens=candidate.context_tokens,
    )


def _shares(candidate: Candidate, hues: dict[NodeId, str]) -> tuple[ShareRow, ...]:
    rows: list[ShareRow] = []
    for share in candidate.shares:
        slack = share.bytes_slack
        level: Level = "bad" if slack < 0 else "warn" if slack < TIGHT_BYTES else "ok"
        word = "short" if slack < 0 else "tight" if slack < TIGHT_BYTES else "room"
        rows.append(
            ShareRow(
                node=share.node,
                name=share.name,
                hue=hues.get(share.node, "dim"),
                first_layer=share.first_layer,
                end_layer=share.end_layer,
                used=share.bytes_used,
                added=share.bytes_added,
                limit=share.bytes_limit,
                slack=slack,
                level=level,
                word=word,
                held=share.held,
            )
        )
    return tuple(rows)


def _hop(hop: Hop) -> str:
    return f"{text.link(hop.medium, hop.bits_per_second)} {text.round_trip(hop.rtt_seconds)}"


def _slowest(hops: tuple[Hop, ...]) -> str:
    if not hops:
        return text.UNKNOWN
    slowest = max(hops, key=lambda hop: hop.rtt_seconds or 0.0)
    return _hop(slowest)


def move_boundary(counts: tuple[int, ...], boundary: int, step: int) -> tuple[int, ...]:
    """Move layers over the boundary after the `boundary`-th node; each node keeps at least one.

    The sum stays the same.
    """
    if not 0 <= boundary < len(counts) - 1:
        return counts
    left, right = counts[boundary], counts[boundary + 1]
    step = max(1 - left, min(step, right - 1))
    moved = list(counts)
    moved[boundary], moved[boundary + 1] = left + step, right - step
    return tuple(moved)
