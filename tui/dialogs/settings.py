"""Settings of the app: changed here, seen at once, kept in the settings file."""

from pathlib import Path
from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType

from node.config import AppFileSettings, config_file, read_config_file
from node.model.errors import ExoctlError, UsageError
from tui.bridge.store import ALL
from tui.context import Context
from tui.dialogs.dialog import Dialog, width_of
from tui.paint.canvas import Canvas
from tui.settings_file import with_setting, write_settings
from tui.shell import Shell, app_of
from tui.themes import OWN
from tui.viewmodel import glyphs, text
from tui.viewmodel.app_settings import NO, YES, AppSetting, settings_rows
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts

WIDTH = 76
NAME_CELLS = 13


class SettingList(ListPane):
    """A row for each setting, and below what the chosen one is for."""

    fades: ClassVar[bool] = False
    surface: ClassVar[str] = "raised"

    def __init__(self, context: Context, path: Path) -> None:
        super().__init__(context, identity="settings", classes="dialog-pane")
        self.path = path
        self.now: dict[str, str] = {}
        self.rows: list[AppSetting] = []
        self.complaint = ""

    def prepare(self) -> None:
        """The settings as they are now."""
        self.rows = settings_rows(self.now, tuple(OWN)) if self.now else []

    @property
    def room(self) -> int:
        """All but the lines below."""
        return max(1, self.size.height - 4)

    def heading(self) -> Parts:
        """What they are."""
        return [("Settings ", "text b"), (f"{glyphs.DOT} of the app ", "dim")]

    def footing(self) -> Parts:
        """The keys."""
        keys = ((f"enter {glyphs.RIGHT} {glyphs.LEFT}", "change"), ("esc", "closes"))
        return [
            part for key, does in keys for part in ((f"{key} ", "accent b"), (f"{does}  ", "dim"))
        ]

    def count(self) -> int:
        """How many settings."""
        return len(self.rows)

    def open_chosen(self) -> None:
        """Take the next choice."""
        if isinstance(self.screen, SettingsDialog):
            self.screen.action_change(1)

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """Name, value, and when a change acts."""
        row = self.rows[place]
        canvas.put(1, y, row.name.replace("_", "-"), "text b")
        is_chosen = place == self.cursor
        ink = "accent b" if is_chosen else "text"
        x = 1 + NAME_CELLS
        shown = f"{glyphs.LEFT} {row.now} {glyphs.RIGHT}" if is_chosen else f"  {row.now}"
        canvas.put(x, y, shown, ink)
        if not row.is_at_once:
            canvas.right(canvas.width - 1, y, "next start", "faint")
        if is_chosen:
            self._draw_words(canvas, row)

    def _draw_words(self, canvas: Canvas, row: AppSetting) -> None:
        y = canvas.height - 3
        if self.complaint:
            canvas.put(1, y, text.shorten(self.complaint, canvas.width - 2), "bad")
        else:
            canvas.put(1, y, text.shorten(row.words, canvas.width - 2), "dim")
        canvas.put(1, y + 1, text.middle(f"kept in {self.path}", canvas.width - 2), "faint")
        canvas.put(
            1,
            y + 2,
            text.shorten(
                "keys: `exoctl config keys`; the node's: `exoctl config`", canvas.width - 2
            ),
            "faint",
        )


class SettingsDialog(Dialog):
    """A change acts at once where it can, and is kept."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("right", "change(1)", "Next"),
        ("space", "change(1)", "Next"),
        ("left", "change(-1)", "Before"),
        ("comma", "close", "Close"),
    ]

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.shell = shell
        self.pane = SettingList(shell.context, config_file())

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.pane

    def on_mount(self) -> None:
        """What holds now, in as many lines as are needed."""
        self.pane.now = self._now()
        self.pane.styles.width = width_of(WIDTH, self.size.width)
        self.pane.styles.height = min(len(self.pane.now) + 6, self.size.height - 2)
        self.pane.focus()

    def _now(self) -> dict[str, str]:
        options = self.shell.context.options
        try:
            kept = read_config_file(self.pane.path).app
        except UsageError as error:
            kept = AppFileSettings()
            self.pane.complaint = error.failure.message
        return {
            "theme": app_of(self).theme,
            "ascii": _word(on=options.ascii),
            "mouse": _word(on=kept.mouse),
            "animations": _word(on=options.animations),
            "read_only": _word(on=kept.read_only),
            "view": kept.view,
        }

    def action_change(self, step: int) -> None:
        """Take the next choice, or the one before."""
        row = self.pane.rows[self.pane.cursor]
        value = row.after(step)
        written = {YES: "true", NO: "false"}.get(value, value)
        try:
            path = self.pane.path
            write_settings(path, with_setting(path, "app", row.name, written))
        except ExoctlError as error:
            self.pane.complaint = f"not kept: {error.failure.message}"
        else:
            self.pane.complaint = ""
        self.pane.now = {**self.pane.now, row.name: value}
        self._take(row.name, value)
        self.pane.paint()

    def _take(self, name: str, value: str) -> None:
        context, host = self.shell.context, app_of(self)
        if name == "theme" and context.palette.has_colour:
            host.theme = value
        elif name == "ascii":
            context.options = msgspec.structs.replace(context.options, ascii=value == YES)
            host.set_class(value == YES, "-ascii")
        elif name == "animations":
            context.options = msgspec.structs.replace(context.options, animations=value == YES)
        self.shell.mark(ALL)


def _word(*, on: bool) -> str:
    return YES if on else NO
