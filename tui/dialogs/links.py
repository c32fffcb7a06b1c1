"""The links of this node, measured while one looks."""

from functools import partial
from typing import ClassVar, Literal

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType

from node.model.errors import ExoctlError
from node.model.ids import NodeId
from node.model.register import LinkRecord
from tui.context import Context
from tui.dialogs.dialog import Dialog, width_of
from tui.paint.canvas import Canvas
from tui.shell import Shell
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, NodeRow
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts

WIDTH = 84
FIRST_CELLS, FIGURE_CELLS = 15, 13

Phase = Literal["measuring", "filling", "measured", "failed"]
WORDS: dict[Phase, str] = {
    "measuring": "measuring" + glyphs.ELLIPSIS,
    "filling": "filling it for a second" + glyphs.ELLIPSIS,
}


class Measured(msgspec.Struct, frozen=True):
    """What is known of the link with one peer."""

    phase: Phase
    record: LinkRecord | None = None
    why: str = ""


class LinkList(ListPane):
    """A row for each peer."""

    fades: ClassVar[bool] = False
    surface: ClassVar[str] = "raised"
    head_lines = 1

    def __init__(self, context: Context, peers: list[NodeRow]) -> None:
        super().__init__(context, identity="links", classes="dialog-pane")
        self.peers = peers
        self.found: dict[NodeId, Measured] = {}

    def heading(self) -> Parts:
        """From where it is measured."""
        names, here = self.context.view.names, self.context.view.here
        parts: Parts = [("Links ", "text b"), (f"{glyphs.DOT} from ", "dim")]
        return [*parts, (f"{names.name(here)} ", names.hue(here))]

    def footing(self) -> Parts:
        """The keys."""
        keys = (("t", "round trips again"), ("b", "bandwidth of the row"), ("esc", "closes"))
        return [
            part for key, does in keys for part in ((f"{key} ", "accent b"), (f"{does}  ", "dim"))
        ]

    def count(self) -> int:
        """How many peers."""
        return len(self.peers)

    def key_of(self, place: int) -> object:
        """The peer."""
        return self.peers[place].node if place < len(self.peers) else None

    @property
    def chosen(self) -> NodeRow:
        """The peer under the cursor."""
        return self.peers[min(self.cursor, len(self.peers) - 1)]

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads."""
        canvas.put(3, 0, "peer", "faint")
        x = 3 + FIRST_CELLS
        for name in ("round trip", "bandwidth"):
            canvas.right(x + FIGURE_CELLS - 2, 0, name, "faint")
            x += FIGURE_CELLS
        canvas.put(x, 0, "by way of", "faint")

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One peer: figures, or why there are none."""
        peer = self.peers[place]
        found = self.found.get(peer.node, Measured("measuring"))
        level = {"failed": "bad", "measured": "ok"}.get(found.phase, "busy")
        canvas.put(1, y, SYMBOLS[level], level)  # type: ignore[index]
        canvas.put(3, y, text.middle(peer.name, FIRST_CELLS - 1), f"{peer.hue} b")
        x = 3 + FIRST_CELLS
        if found.phase == "failed":
            canvas.put(x, y, text.shorten(found.why, canvas.width - x - 1), "bad")
            return
        record = found.record
        if record is not None:
            trip, bits = record.rtt_seconds, record.bits_per_second
            canvas.right(x + FIGURE_CELLS - 2, y, text.round_trip(trip), "text b")
            canvas.right(x + 2 * FIGURE_CELLS - 2, y, text.bandwidth(bits), "text b")
        way = WORDS.get(found.phase) or _way(self.context, record)
        x += 2 * FIGURE_CELLS
        canvas.put(x, y, text.shorten(way, canvas.width - x - 1), "dim")

    def chosen_text(self) -> str:
        """The peer's name."""
        return self.chosen.name


class LinksDialog(Dialog):
    """Round trips of all at once; bandwidth only of the row that is asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("t", "again", "Round trips again"),
        ("b", "fill", "Bandwidth of the row"),
    ]

    def __init__(self, shell: Shell, peers: list[NodeRow]) -> None:
        super().__init__()
        self.shell = shell
        self.pane = LinkList(shell.context, peers)

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.pane

    def on_mount(self) -> None:
        """As high as is needed; measure at once."""
        self.pane.styles.width = width_of(WIDTH, self.size.width)
        self.pane.styles.height = min(self.pane.count() + 3, self.size.height - 2)
        self.pane.focus()
        self.action_again()

    def action_again(self) -> None:
        """Measure every round trip."""
        for peer in self.pane.peers:
            self._measure(peer.node, "measuring")

    def action_fill(self) -> None:
        """Measure what the link of the row carries."""
        self._measure(self.pane.chosen.node, "filling")

    def _measure(self, peer: NodeId, phase: Phase) -> None:
        before = self.pane.found.get(peer)
        if before is not None and before.phase in WORDS:
            return
        self.pane.found[peer] = Measured(phase, before.record if before else None)
        self.shell.context.node.call(
            lambda node: node.ping(peer, bandwidth=phase == "filling"), partial(self._took, peer)
        )
        self.pane.paint()

    def _took(self, peer: NodeId, result: object) -> None:
        if isinstance(result, LinkRecord):
            self.pane.found[peer] = Measured("measured", result)
        elif isinstance(result, ExoctlError):
            failure = result.failure
            words = f"{failure.message}; {failure.remedy}" if failure.remedy else failure.message
            self.pane.found[peer] = Measured("failed", None, words)
        if self.is_attached:
            self.pane.paint()


def _way(context: Context, record: LinkRecord | None) -> str:
    if record is None:
        return ""
    if record.via:
        return f"{context.view.names.name(record.via)}, which passes it on"
    return f"{record.medium or text.UNKNOWN} {record.address}"
