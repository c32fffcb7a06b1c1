"""Help, made of the registry: what acts here, what acts everywhere, what the signs mean."""

from itertools import zip_longest

from textual.app import ComposeResult

from tui.actions.action import GLOBAL
from tui.actions.catalogue import SCOPE_TITLES
from tui.actions.everywhere import VIEWS
from tui.actions.registry import in_scope
from tui.context import Context
from tui.dialogs.dialog import Dialog, width_of
from tui.viewmodel import glyphs
from tui.widgets.painted import Parts
from tui.widgets.text_pane import TextPane

KEY_CELLS = 11
GAP_CELLS = 3
FRAME_CELLS = 6


class HelpDialog(Dialog):
    """One or two columns, the scopes of what has the focus first."""

    BINDINGS = [("question_mark", "close", "Close"), ("f1", "close", "Close"), ("q", "close", "")]

    def __init__(self, context: Context, scopes: tuple[str, ...], view: str) -> None:
        super().__init__()
        self.context = context
        self.scopes = scopes
        self.title_of_view = dict(VIEWS).get(view, view)

    def compose(self) -> ComposeResult:
        """The keys in a pane."""
        pane = TextPane(self.context, [], identity="help")
        pane.add_class("dialog-pane")
        pane.title_parts = [("Help ", "text b"), (f"{glyphs.DOT} {self.title_of_view} ", "dim")]
        pane.foot_parts = [("esc ", "accent b"), ("closes", "dim")]
        self.pane = pane
        yield pane

    def on_mount(self) -> None:
        """As wide and high as is needed."""
        lines = self.lines(self.size.width - FRAME_CELLS)
        widest = max(_width(line) for line in lines) + FRAME_CELLS
        self.pane.styles.width = width_of(widest, self.size.width)
        self.pane.styles.height = min(len(lines) + 2, self.size.height - 2)
        self.pane.lines = lines
        self.pane.focus()

    def lines(self, width: int) -> list[Parts]:
        """Everything that can be done here, in two columns where they fit."""
        shown = [scope for scope in self.scopes if scope in SCOPE_TITLES]
        if any(scope != "chat" for scope in self.scopes):
            shown.append("list")
        local: list[Parts] = []
        for scope in dict.fromkeys(shown):
            local += self._section(scope)
        local += _legend()
        everywhere = self._section(GLOBAL)
        left_cells = max(_width(line) for line in everywhere) + GAP_CELLS
        if left_cells + max(_width(line) for line in local) > width:
            return [*local, *everywhere]
        return [
            _pad(left or [], left_cells) + (right or [])
            for left, right in zip_longest(everywhere, local)
        ]

    def _section(self, scope: str) -> list[Parts]:
        lines: list[Parts] = [[(SCOPE_TITLES[scope], "text b")]]
        for action in in_scope(scope):
            keys = " ".join(self.context.keys_of(action))
            if action.id == f"global.{VIEWS[0][0]}":
                lines.append([(f"{'1-8':<{KEY_CELLS}}", "accent b"), ("Show a view", "text")])
            if not keys.isdigit():
                lines.append(
                    [
                        (f"{keys:<{KEY_CELLS}}", "accent b"),
                        (action.title, "text"),
                        (f"  :{action.command}", "faint"),
                    ]
                )
        return [*lines, []]


def _width(parts: Parts) -> int:
    return sum(len(words) for words, _ in parts)


def _pad(parts: Parts, width: int) -> Parts:
    return [*parts, (" " * max(0, width - _width(parts)), "text")]


def _legend() -> list[Parts]:
    return [
        [("Signs", "text b")],
        [
            (f"{glyphs.DIAMOND} ", "master"),
            ("master  ", "dim"),
            (f"{glyphs.FULL_CIRCLE} ", "ok"),
            ("fine  ", "dim"),
            (f"{glyphs.OPEN_CIRCLE} ", "busy"),
            ("under way", "dim"),
        ],
        [
            (f"{glyphs.UP} ", "warn"),
            ("look  ", "dim"),
            (f"{glyphs.CROSS} ", "bad"),
            ("failed  ", "dim"),
            (f"{glyphs.CHECK} ", "ok"),
            ("whole", "dim"),
        ],
        [
            (f"{glyphs.HEAVY * 2} ", "accent"),
            ("Thunderbolt  ", "dim"),
            (f"{glyphs.THIN * 2} ", "text"),
            ("Ethernet  ", "dim"),
            (f"{glyphs.DASHED * 2} ", "text"),
            ("Wi-Fi, return of token ids", "dim"),
        ],
        [("Each node keeps one hue in every pane.", "dim")],
        [],
    ]
