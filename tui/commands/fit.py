"""Whether a model would fit: its weights and a usual context beside each node's free memory."""

import msgspec

from node.handle import NodeHandle
from node.model.card import ModelCard
from node.model.register import MachineFigures
from tui.commands.figures import figures
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, bytes_text

CONTEXT_TOKENS = 4096


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A node's free memory beside what the model needs."""

    node: str
    """Empty: all together."""
    name: str
    bytes_free: int | None
    """None: it is not heard."""
    bytes_needed: int
    context_tokens: int

    @property
    def word(self) -> str:
        """Yes, or what is short."""
        if self.bytes_free is None:
            return "not heard"
        short = self.bytes_needed - self.bytes_free
        return "yes" if short <= 0 else f"short {bytes_text(short)}"


def fits(handle: NodeHandle, card: ModelCard) -> list[Fit]:
    """One for each node, and one for all together; `exoctl plan` says it exactly."""
    tokens = min(CONTEXT_TOKENS, card.context_tokens_max or CONTEXT_TOKENS)
    need = card.weight_bytes + tokens * sum(layer.kv_per_token for layer in card.layers)
    found: list[Fit] = []
    for record in handle.state.nodes.values():
        now = figures(handle, record.node, MachineFigures)
        free = None if now is None or record.lost else now.memory_bytes_available
        found.append(
            Fit(
                node=record.node,
                name=record.name,
                bytes_free=free,
                bytes_needed=need,
                context_tokens=tokens,
            )
        )
    if len(found) > 1:
        together = sum(each.bytes_free or 0 for each in found)
        found.append(
            Fit(
                node="",
                name="all together",
                bytes_free=together,
                bytes_needed=need,
                context_tokens=tokens,
            )
        )
    return found


def fit_table(found: list[Fit]) -> Table:
    """A row for each."""
    tokens = found[0].context_tokens if found else CONTEXT_TOKENS
    columns = (
        Column("NODE"),
        Column("FREE", right=True),
        Column(f"NEEDED AT {tokens} TOKENS", right=True),
        Column("FITS"),
    )
    rows = tuple(
        (
            each.name,
            NOTHING if each.bytes_free is None else bytes_text(each.bytes_free),
            bytes_text(each.bytes_needed),
            each.word,
        )
        for each in found
    )
    return Table(columns, rows)
