"""Logs of this node and of its runners."""

from pathlib import Path
from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Size
from textual.timer import Timer

from node.handle import LogLine, NodeHandle
from node.model.errors import ExoctlError
from tui.shell import Handler, Shell
from tui.viewmodel import text
from tui.views.view import View
from tui.widgets.log_view import LogView, SourceList
from tui.widgets.pane import bindings

LINES_MAX = 2000
RELOAD_SECONDS = 1.0
SAVE_NAME = "exoctl.log"


class _Read(msgspec.Struct, frozen=True):
    """What was read at once."""

    lines: tuple[LogLine, ...]
    sources: tuple[str, ...]


class LogsView(View):
    """Sources at the left, lines at the right. Reads again each second while it is shown."""

    scope: ClassVar[str] = "logs"
    BINDINGS: ClassVar[list[BindingType]] = bindings("logs")
    _timer: Timer | None = None
    _is_asking = False

    def compose(self) -> ComposeResult:
        """The two panes."""
        yield SourceList(self.context, self._chose_source)
        yield LogView(self.context, identity="logs-lines")

    def first_focus(self) -> LogView:
        """The lines."""
        return self.query_one(LogView)

    def fit(self, size: Size) -> None:
        """No list of sources where it is narrow."""
        self.query_one(SourceList).display = size.width >= 96

    def on_show(self) -> None:
        """Read, and go on reading while it is shown."""
        self._read()
        if self._timer is None:
            self._timer = self.set_interval(RELOAD_SECONDS, self._read)
        self._timer.resume()

    def on_hide(self) -> None:
        """Nothing is read while nobody looks."""
        if self._timer is not None:
            self._timer.pause()

    def handlers(self, shell: Shell) -> dict[str, Handler]:
        """What the logs' actions do."""
        del shell  # all of them act on this view alone
        return {
            "logs.source": lambda _: self._next_source(),
            "logs.level": lambda _: self.query_one(LogView).next_level(),
            "logs.wrap": lambda _: self.query_one(LogView).wrap(),
            "logs.follow": lambda _: self.query_one(LogView).follow(),
            "logs.reload": lambda _: self._read(),
            "logs.save": self._save,
        }

    def _chose_source(self, source: str) -> None:
        self.query_one(LogView).show_source(source)
        self._read()

    def _save(self, name: str) -> None:
        view = self.query_one(LogView)
        path = Path(name or SAVE_NAME).expanduser()
        try:
            path.write_text("".join(view.words_of(line) + "\n" for line in view.shown), "utf-8")
        except OSError as error:
            self.context.say(f"{path} not written: {error.strerror}", "bad")
            return
        self.context.say(f"{text.plural(len(view.shown), 'line')} written to {path}")

    def _next_source(self) -> None:
        self.query_one(SourceList).next()

    def _read(self) -> None:
        if self._is_asking or self.context.is_held:
            return
        self._is_asking = True
        source = self.query_one(LogView).source

        async def work(node: NodeHandle) -> _Read:
            lines = await node.logs(source, LINES_MAX)
            return _Read(tuple(lines), tuple(await node.log_sources()))

        self.context.node.call(work, self._answered)

    def _answered(self, result: object) -> None:
        self._is_asking = False
        if not self.is_attached:
            return
        view = self.query_one(LogView)
        if isinstance(result, ExoctlError):
            view.show_failure(result.failure.message)
        elif isinstance(result, _Read):
            view.show_lines(result.lines)
            self.query_one(SourceList).show_sources(result.sources)
