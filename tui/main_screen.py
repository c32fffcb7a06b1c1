"""The one screen: status, tabs, the views, the command line and the keys."""

from collections.abc import Callable
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from node.model.errors import ExoctlError
from node.model.session import Entry
from tui.actions.everywhere import VIEWS
from tui.actions.registry import BY_ID, parse
from tui.bridge.frame_clock import FrameClock
from tui.bridge.store import ALL
from tui.context import Context
from tui.dialogs.question import ConfirmDialog
from tui.doing import ANYWHERE, SCOPE_VIEWS, Doing, attempt, pane_here
from tui.handlers import cluster, downloads, marks, panes, screen
from tui.shell import Question, app_of
from tui.timers import Timers
from tui.viewmodel.rows import Level
from tui.views.catalogue import make_view
from tui.views.view import View
from tui.widgets.banner import Banner
from tui.widgets.bars_of_screen import KeyBar, StatusBar, TabBar
from tui.widgets.command_line import CommandField, CommandLine
from tui.widgets.compact import CompactPane
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Painted
from tui.widgets.pane import Pane, bindings
from tui.widgets.table_pane import TablePane
from tui.widgets.topology import TopologyPane

COLUMNS_MIN, LINES_MIN = 80, 24
MOUNT_SECONDS = 0.01  # until a view that is not there yet is looked at again
_SEVERITIES: dict[Level, Any] = {"bad": "error", "warn": "warning"}


class MainScreen(Screen[None]):
    """Shows views, paints what changed, and does actions."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = bindings("global")

    def __init__(self, context: Context, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self.context = context
        self.clock = FrameClock(
            self._after, self.paint_topics, monotonic, context.frames_per_second
        )
        self.view_name = ""
        self.last_view = "overview"
        self._doing = Doing()
        self.timers = Timers(context, self.set_timer)
        self.timers.panes = lambda: list(self.view.query(TopologyPane)) if self.view else []
        self._node_count = -1
        self.is_settled = True
        """The view that was asked for is there, and what waited for it is done."""

    def compose(self) -> ComposeResult:
        """The lines around the views, and room for these; a view is made when it is first shown."""
        yield StatusBar(self.context, identity="status")
        yield TabBar(self.context, identity="tabs")
        yield Banner(self.context, identity="banner")
        yield ContentSwitcher(id="views")
        yield CompactPane(self.context, identity="compact")
        yield CommandLine()
        yield KeyBar(self.context)

    def on_mount(self) -> None:
        """Show the first view."""
        self.context.doer = self
        for part in (screen, panes, cluster, downloads, marks):
            self._doing.take(part.handlers(self))
        self.watch(self, "focused", self._focus_changed)
        first = self.context.options.view
        self.show_view(first if first in dict(VIEWS) else "overview")

    @property
    def view(self) -> View | None:
        """The view that is shown."""
        found = self.query_one("#views", ContentSwitcher).visible_content
        return found if isinstance(found, View) else None

    def show_view(self, name: str) -> None:
        """Show a view, made now where it was not shown before."""
        if name == self.view_name:
            return
        self.is_settled = False
        switcher = self.query_one("#views", ContentSwitcher)
        if not switcher.query(f"#view-{name}"):
            view = make_view(name, self.context)
            self._doing.take(view.handlers(self), name)
            switcher.mount(view)
        if self.view_name:
            self.last_view = self.view_name
        self.view_name = name
        switcher.current = f"view-{name}"
        self.query_one(TabBar).show(name)
        self.call_after_refresh(self._shown, name)

    def _shown(self, name: str) -> None:
        view = self.view
        if view is None or self.view_name != name:
            return
        if not view.is_composed:
            self.set_timer(MOUNT_SECONDS, lambda: self._shown(name))
            return
        view.fit(view.size)
        first = view.first_focus()
        if first is not None and not self.query_one(CommandLine).display:
            first.focus()
        self.paint_topics(ALL)
        self.call_after_refresh(self._do_waiting, name)

    def _do_waiting(self, name: str) -> None:
        """Do what was asked for before the view had its panes, and these their sizes."""
        is_here = name == self.view_name
        is_seen = is_here and not self.has_class("-compact")
        if is_seen and self.view is not None and not self.view.is_laid_out:
            self.set_timer(MOUNT_SECONDS, lambda: self._do_waiting(name))
            return
        due = self._doing.due(name) if is_here else []
        if due:
            self.paint_topics(ALL)
        self.is_settled = self.is_settled or is_here
        for action_id, argument in due:
            self.perform(action_id, argument)

    def pane_for(self, scope: str) -> Pane | None:
        """The pane an action of this scope acts on; its view is shown where it is not yet."""
        here = pane_here(scope, self.focused, self.view)
        if here is None and scope not in ANYWHERE:
            self.show_view(SCOPE_VIEWS.get(scope, scope))
            here = self.view.pane_of(scope) if self.view else None
        return here

    def _after(self, seconds: float, call: Callable[[], None]) -> object:
        if seconds <= 0:
            return self.call_later(call)
        return self.set_timer(seconds, call)

    def mark(self, topics: frozenset[str]) -> None:
        """Have panes of these topics painted in the next frame."""
        self.clock.mark(topics)
        self.timers.watch_age()

    def paint_topics(self, topics: frozenset[str]) -> None:
        """Paint what is visible and touched."""
        if not self.is_attached:
            return
        count = len(self.context.view.nodes)
        view = self.view
        if view is not None and view.children and count != self._node_count:
            self._node_count = count
            view.fit(view.size)
        self.query_one(Banner).fit()
        for bar in self.query_children(Painted):
            if bar.display and (topics & bar.topics or topics == ALL):
                bar.paint()
        if view is None or self.has_class("-compact"):
            return
        for pane in view.painted():
            if pane.display and topics & pane.topics and not self.context.is_held:
                pane.paint()
        self.timers.pulse()

    def on_resize(self, event: events.Resize) -> None:
        """Fall back to one pane below the least size."""
        width, height = event.size
        self.set_class(width < COLUMNS_MIN or height < LINES_MIN, "-compact")
        self.call_after_refresh(self.paint_topics, ALL)

    def _focus_changed(self) -> None:
        focused = self.focused
        scopes: list[str] = []
        for node in focused.ancestors_with_self if focused else ():
            scope = getattr(node, "scope", "")
            if isinstance(scope, str) and scope and scope not in scopes:
                scopes.append(scope)
        if isinstance(focused, TablePane):
            scopes.append("table")
        self.query_one(KeyBar).show_for(focused, tuple(scopes))

    @property
    def host(self) -> App[Any]:
        """The app, with a type."""
        return app_of(self)

    @property
    def focused_widget(self) -> Widget | None:
        """What has the focus."""
        return self.focused

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes whose keys act now."""
        return self.query_one(KeyBar).scopes

    def action_act(self, action_id: str) -> None:
        """Do an action of the registry; every key comes here."""
        if action_id == "global.place" and isinstance(self.focused, ListPane):
            action_id = "list.next_hit" if self.focused.filter_words else action_id
        self.perform(action_id)

    def perform(self, action_id: str, argument: str = "") -> None:
        """Do an action, or say why not."""
        action = BY_ID[action_id]
        if action.is_writing and self.context.options.read_only:
            self.say(f"{action.title}: not in read-only mode", "warn")
            return
        needed = self._doing.needed_view(action, self.view, self.view_name)
        if needed:
            self._doing.keep(needed, action_id, argument)
            self.attempt(action.title, lambda: self.show_view(needed))
            return
        self.attempt(action.title, lambda: self._doing.handlers[action_id](argument))

    def attempt(self, title: str, do: Callable[[], None]) -> None:
        """Do something that the person wants; a mistake of ours is said, and ends nothing else."""
        if mistake := attempt(title, do):
            self.say(mistake, "bad")

    def run_line(self, line: str) -> None:
        """Do what a command line says."""
        parsed = parse(line)
        if isinstance(parsed, str):
            self.prompt(line, parsed)
            return
        self.perform(parsed.action.id, parsed.argument)

    def say(self, text: str, level: Level = "ok") -> None:
        """Tell the person something, for a few seconds."""
        severity = _SEVERITIES.get(level, "information")
        self.host.notify(self.context.written(text), severity=severity, markup=False, timeout=6.0)

    def report(self, error: ExoctlError) -> None:
        """Say what failed and what helps."""
        failure = error.failure
        self.say(f"{failure.message}\n{failure.remedy}".rstrip(), "bad")

    def prompt(self, line: str, hint: str = "", sign: str = ":") -> None:
        """Open the command line with a beginning."""
        self._before_prompt = self.focused
        self.query_one(CommandLine).open(sign, line, hint)

    _before_prompt: Any = None

    def on_command_field_left(self) -> None:
        """Close the command line."""
        self._close_prompt()

    def on_input_submitted(self, event: CommandField.Submitted) -> None:
        """Do the line, or filter by it."""
        line_widget = self.query_one(CommandLine)
        if event.input is not line_widget.field:
            return
        event.stop()
        line = event.value.strip()
        self._close_prompt()
        if line_widget.sign == "/":
            self.perform("global.filter", line or "-")
        elif line:
            line_widget.field.remember(line)
            self.run_line(line)

    def _close_prompt(self) -> None:
        self.query_one(CommandLine).close()
        before = self._before_prompt
        if before is not None and before.is_attached and not isinstance(before, CommandField):
            self.set_focus(before)

    def ask(self, question: Question, on_yes: Callable[[], None]) -> None:
        """Ask; do it where the answer is yes."""

        def answered(answer: bool | None) -> None:  # noqa: FBT001 - Textual calls it so
            if answer:
                on_yes()

        self.host.push_screen(ConfirmDialog(question.drawn(self.context.written)), answered)

    def open_dialog(self, dialog: ModalScreen[None]) -> None:
        """Put a dialog over the view."""
        self.host.push_screen(dialog)

    def show_entry(self, entry: Entry) -> None:
        """Show an entry of the log as JSON."""
        from tui.dialogs.entry import EntryDialog  # noqa: PLC0415 - only once it is asked for

        self.open_dialog(EntryDialog(entry, self.context))

    def show_text(self, title: str, words: str) -> None:
        """Show words whole, broken into lines."""
        from tui.dialogs.entry import TextDialog  # noqa: PLC0415 - as above

        self.open_dialog(TextDialog(title, words, self.context))
