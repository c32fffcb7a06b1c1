"""Whether a model would fit: its weights and a usual context beside each node's free memory."""

from node.handle import NodeHandle
from node.model.card import ModelCard
from node.model.register import MachineFigures
from tui.commands.figures import figures
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, bytes_text

CONTEXT_TOKENS = 4096


def fit_table(handle: NodeHandle, card: ModelCard) -> Table:
    """A row for each node, and one for all together; `exoctl plan` says it exactly."""
    tokens = min(CONTEXT_TOKENS, card.context_tokens_max or CONTEXT_TOKENS)
    cache = tokens * sum(layer.kv_per_token for layer in card.layers)
    need = card.weight_bytes + cache
    rows: list[tuple[str, ...]] = []
    together = 0
    for record in handle.state.nodes.values():
        now = figures(handle, record.node, MachineFigures)
        if now is None or record.lost:
            rows.append((record.name, NOTHING, bytes_text(need), "not heard"))
            continue
        together += now.memory_bytes_available
        rows.append(_row(record.name, now.memory_bytes_available, need))
    if len(rows) > 1:
        rows.append(_row("all together", together, need))
    columns = (
        Column("NODE"),
        Column("FREE", right=True),
        Column(f"NEEDED AT {tokens} TOKENS", right=True),
        Column("FITS"),
    )
    return Table(columns, tuple(rows))


def _row(name: str, free: int, need: int) -> tuple[str, ...]:
    word = "yes" if free >= need else f"short {bytes_text(need - free)}"
    return (name, bytes_text(free), bytes_text(need), word)
