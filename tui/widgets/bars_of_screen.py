"""The lines around the views: status above, tabs, keys below."""

from typing import ClassVar

from textual import events
from textual.widget import Widget
from textual.widgets import Input

from tui.actions.action import Action
from tui.actions.everywhere import VIEWS
from tui.actions.registry import BY_ID, in_scope
from tui.bridge.conversation import TOPICS as CHAT_TOPICS
from tui.bridge.store import ALL
from tui.context import Context
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, Header
from tui.widgets.painted import Painted, Parts

SEPARATOR = "   "


class StatusBar(Painted):
    """The cluster in one line."""

    topics: ClassVar[frozenset[str]] = ALL
    surface: ClassVar[str] = "app"
    fades: ClassVar[bool] = False

    def draw(self, canvas: Canvas) -> None:
        """Name, nodes, master, index and the health of the event stream."""
        x = canvas.put(1, 0, "exoctl", "accent b")
        right = self._right(canvas)
        store = self.context.store
        if not store.heard_at:
            canvas.put(x + 3, 0, "starting node" + glyphs.ELLIPSIS, "dim")
            return
        header = self.context.view.header
        for group in self._groups(header, canvas.width):
            width = sum(len(words) for words, _ in group)
            if x + 3 + width > right - 1:
                break
            x = canvas.parts(x + 3, 0, group)

    def _groups(self, header: Header, width: int) -> list[Parts]:
        wide = width >= 120
        nodes_ink = "ok" if header.nodes_up == header.nodes_known else "warn"
        symbol = SYMBOLS["ok"] if nodes_ink == "ok" else SYMBOLS["warn"]
        groups: list[Parts] = []
        if header.cluster and width >= 96:
            groups.append([(header.cluster, "text b")])
        groups.append(
            [
                (f"{symbol} ", nodes_ink),
                (f"{header.nodes_up}/{header.nodes_known}", "text b"),
                (" nodes" if width >= 96 else "", "dim"),
            ]
        )
        if header.session_level == "ok":
            master = [(f"{glyphs.DIAMOND} ", "master"), (header.master, f"{header.master_hue} b")]
            groups.append([*master, (f" t{header.term}", "dim")])
        else:
            word = header.session_word + glyphs.ELLIPSIS
            symbol = SYMBOLS[header.session_level]
            groups.append([(f"{symbol} {word}", f"{header.session_level} b")])
        rate = self.context.store.event_rate.value(self.context.store.now)
        index: Parts = [("index " if wide else "idx ", "dim"), (text.count(header.index), "text b")]
        if rate >= 0.05:
            index.append((f" +{rate:.0f}/s" if rate >= 1 else f" +{rate:.1f}/s", "accent"))
        groups.append(index)
        groups += self._health(header, wide=wide)
        return groups

    def _health(self, header: Header, *, wide: bool) -> list[Parts]:
        worst = header.lag_worst
        lag = f"{header.lag_here}" + (f"/{worst}" if worst else "")
        lag_ink = "warn" if worst > 100 else "text"
        unacked = "unacknowledged " if wide else "unack "
        return [
            [("lag ", "dim"), (lag, lag_ink)],
            [(unacked, "dim"), (str(header.unacknowledged), "text")],
            [("replays ", "dim"), (str(header.replays), "warn" if header.replays else "text")],
        ]

    def _right(self, canvas: Canvas) -> int:
        context, store = self.context, self.context.store
        words: Parts = []
        if store.heard_at and context.view.header.trust_lan:
            words.append(("trust lan: anyone may join", "bad b"))
        if context.options.read_only:
            words.append(("read-only", "warn"))
        if context.is_held:
            words.append((f"held, +{context.events_since_held:,}", "warn b"))
        stale = store.stale_seconds
        if stale and not store.is_connected:
            words.append((f"{SYMBOLS['bad']} node gone {text.duration(stale)}", "bad b"))
        elif stale:
            words.append((f"{SYMBOLS['warn']} stale {text.duration(stale)}", "warn b"))
        elif store.heard_at and not context.is_held:
            live = "attached" if not context.is_embedded else "live"
            ink = "accent" if context.options.source else "ok"
            words.append((f"{SYMBOLS['ok']} {context.options.source or live}", ink))
        x = canvas.width - 1
        for part, ink in reversed(words):
            x = canvas.right(x, 0, part, ink) - 2
        return x + 2


class TabBar(Painted):
    """The views and their digits."""

    topics: ClassVar[frozenset[str]] = frozenset()
    surface: ClassVar[str] = "app"
    fades: ClassVar[bool] = False
    current = "overview"

    def draw(self, canvas: Canvas) -> None:
        """Draw each view's tab, the current one raised."""
        self._spans: list[tuple[int, int, str]] = []
        x = 1
        spacing = 1 if canvas.width >= 96 else 0
        for digit, (name, title) in enumerate(VIEWS, start=1):
            start = x
            if name == self.current:
                x = canvas.put(x, 0, f" {digit} ", "accent/cursor b")
                x = canvas.put(x, 0, f"{title} ", "text/cursor b")
            else:
                x = canvas.put(x, 0, f" {digit} ", "faint")
                x = canvas.put(x, 0, title, "dim") + spacing
            self._spans.append((start, x, name))

    def show(self, name: str) -> None:
        """Mark a view as the current one."""
        self.current = name
        self.paint()

    def on_click(self, event: events.Click) -> None:
        """Go to the view under the pointer."""
        for start, end, name in self._spans:
            if start <= event.x < end:
                self.context.perform(f"global.{name}")


class KeyBar(Painted):
    """Keys that act now, for what has the focus."""

    topics: ClassVar[frozenset[str]] = CHAT_TOPICS
    surface: ClassVar[str] = "app"
    fades: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        super().__init__(context, identity="keys")
        self.scopes: tuple[str, ...] = ()
        self.is_typing = self.is_command = False

    def draw(self, canvas: Canvas) -> None:
        """Keys with their words, as many as fit; quit is always the last."""
        shown = self._actions()
        end = canvas.width - 1
        if not self.is_typing:
            end = canvas.right(end, 0, " quit", "dim")
            end = canvas.right(
                end, 0, self.context.keys_of(BY_ID["global.quit"])[0], "accent b"
            ) - len(SEPARATOR)
        x = 1
        for key, words in shown:
            width = len(key) + 1 + len(words)
            if x + width > end:
                break
            x = canvas.put(x, 0, key, "accent b")
            x = canvas.put(x, 0, f" {words}", "dim") + len(SEPARATOR)

    def _actions(self) -> list[tuple[str, str]]:
        read_only = self.context.options.read_only
        found: list[Action] = []
        for scope in (*self.scopes, "global"):
            found += [action for action in in_scope(scope) if action.hint]
        if self.is_command:
            return [("enter", "runs it"), ("tab", "completes"), ("esc", "closes")]
        if self.is_typing:
            answers = self.context.conversation.is_generating
            keys = [("enter", "send"), ("^j", "newline")]
            keys += [("esc", "stop" if answers else "leave"), ("tab", "transcript")]
            return keys + [
                (key, action.hint)
                for action in found
                for key in self.context.keys_of(action)
                if key.startswith("^")
            ]
        return [
            (self.context.keys_of(action)[0], action.hint)
            for action in found
            if action.id != "global.quit" and not (read_only and action.is_writing)
        ]

    def show_for(self, focused: Widget | None, scopes: tuple[str, ...]) -> None:
        """Show the keys of these scopes."""
        was_command, self.is_command = self.is_command, isinstance(focused, Input)
        is_typing = self.is_command or (focused is not None and focused.id == "composer")
        if (scopes, is_typing) != (self.scopes, self.is_typing) or was_command != self.is_command:
            self.scopes, self.is_typing = scopes, is_typing
            self.paint()
