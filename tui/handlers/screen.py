"""Actions on the screen itself: views, panes, filter, palette, themes, quitting."""

from typing import Any, Protocol

from textual.app import App
from textual.widget import Widget

from tui.actions.everywhere import VIEWS
from tui.context import Context
from tui.shell import Handler, Question, Shell
from tui.viewmodel.joins import waiting_requests
from tui.viewmodel.leaving import consequences
from tui.views.view import View
from tui.widgets.pane import Pane
from tui.widgets.topology import TopologyPane


class MainShell(Shell, Protocol):
    """The main screen, with what only these handlers need of it."""

    last_view: str
    view_name: str

    @property
    def view(self) -> View | None:
        """The view that is shown."""
        ...

    @property
    def host(self) -> App[Any]:
        """The app."""
        ...

    @property
    def focused_widget(self) -> Widget | None:
        """What has the focus."""
        ...

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes whose keys act now."""
        ...

    def run_line(self, line: str) -> None:
        """Do what a command line says."""
        ...

    def focus_next(self) -> Widget | None:
        """Move the focus on."""
        ...

    def focus_previous(self) -> Widget | None:
        """Move the focus back."""
        ...


def handlers(shell: MainShell) -> dict[str, Handler]:
    """Everything that acts everywhere, but on the cluster."""
    shown: dict[str, Handler] = {f"global.{name}": _show(shell, name) for name, _ in VIEWS}
    found: dict[str, Handler] = {
        "global.help": lambda _: _help(shell),
        "global.command": lambda line: shell.run_line(line) if line else shell.prompt(""),
        "global.palette": lambda _: _palette(shell),
        "global.place": lambda model: _place(shell, model),
        "global.last_view": lambda _: shell.show_view(shell.last_view),
        "global.next_pane": lambda _: _ignore(shell.focus_next()),
        "global.previous_pane": lambda _: _ignore(shell.focus_previous()),
        "global.zoom": lambda _: _zoom(shell),
        "global.filter": lambda words: _filter(shell, words),
        "global.back": lambda _: _back(shell),
        "global.pause": lambda _: _pause(shell),
        "global.copy": lambda _: _copy(shell),
        "global.invite": lambda _: _invite(shell),
        "global.requests": lambda _: _requests(shell),
        "global.join": lambda argument: _join(shell, argument),
        "global.settings": lambda _: _settings(shell),
        "global.ping": lambda node: _ping(shell, node),
        "global.theme": lambda name: _theme(shell, name),
        "global.screenshot": lambda name: _screenshot(shell, name),
        "global.quit": lambda _: _quit(shell),
        "global.quit_now": lambda _: shell.host.exit(),
    }
    return shown | found


def _ignore(_result: object) -> None:
    """Handlers give nothing back."""


def _show(shell: MainShell, name: str) -> Handler:
    def show(_argument: str) -> None:
        shell.show_view(name)

    return show


def _help(shell: MainShell) -> None:
    from tui.dialogs.help import HelpDialog  # noqa: PLC0415 - only once it is asked for

    shell.open_dialog(HelpDialog(shell.context, shell.scopes, shell.view_name))


def _palette(shell: MainShell) -> None:
    from tui.dialogs.palette import palette  # noqa: PLC0415 - only once it is asked for

    shell.host.push_screen(palette(shell))


def _place(shell: MainShell, model: str) -> None:
    from tui.dialogs.place import PlaceDialog  # noqa: PLC0415 - only once it is asked for

    shell.open_dialog(PlaceDialog(shell, model))


def _invite(shell: MainShell) -> None:
    from tui.dialogs.joining import InviteDialog  # noqa: PLC0415 - only once it is asked for

    shell.open_dialog(InviteDialog(shell))


def _join(shell: MainShell, argument: str) -> None:
    from tui.dialogs.joining import JoinDialog  # noqa: PLC0415 - only once it is asked for

    shell.open_dialog(JoinDialog(shell, argument))


def _settings(shell: MainShell) -> None:
    from tui.dialogs.settings import SettingsDialog  # noqa: PLC0415 - only once it is asked for

    shell.open_dialog(SettingsDialog(shell))


def _ping(shell: MainShell, words: str) -> None:
    from tui.dialogs.links import LinksDialog  # noqa: PLC0415 - only once it is asked for

    here = shell.context.view.here
    others = [row for row in shell.context.view.nodes if row.node != here]
    wanted = [row for row in others if not words or words in (row.name, row.node)]
    if wanted:
        shell.open_dialog(LinksDialog(shell, wanted))
    elif words:
        shell.say(f"no other node is called {words!r}", "warn")
    else:
        shell.say("this node is alone: i shows a code for another machine", "warn")


def _requests(shell: MainShell) -> None:
    from tui.dialogs.approval import RequestsDialog  # noqa: PLC0415 - only once it is asked for

    if waiting_requests(shell.context.view.registers):
        shell.open_dialog(RequestsDialog(shell))
    else:
        shell.say("no machine asks to be let in")


def _zoom(shell: MainShell) -> None:
    view, focused = shell.view, shell.focused_widget
    if view is None:
        return
    if view.has_class("-zoomed"):
        view.remove_class("-zoomed")
        for pane in view.query(Pane):
            pane.remove_class("-aside")
        view.fit(view.size)
    elif isinstance(focused, Pane):
        view.add_class("-zoomed")
        for pane in view.query(Pane):
            pane.set_class(pane is not focused, "-aside")
        focused.styles.height = "1fr"


def _filter(shell: MainShell, words: str) -> None:
    pane = shell.focused_widget if isinstance(shell.focused_widget, Pane) else None
    pane = pane or shell.pane_for("list")
    if pane is None:
        return
    if not words:
        shell.prompt(pane.filter_words, sign="/")
        return
    try:
        if not pane.set_filter("" if words == "-" else words):
            shell.say("there is nothing to filter in this pane", "warn")
    except ValueError as error:
        shell.prompt(words, str(error), sign="/")


def _back(shell: MainShell) -> None:
    view, focused = shell.view, shell.focused_widget
    if view is not None and view.has_class("-zoomed"):
        _zoom(shell)
    elif isinstance(focused, Pane) and focused.filter_words:
        focused.set_filter("")
    elif isinstance(focused, TopologyPane) and focused.shows_matrix:
        focused.shows_matrix = False
        focused.paint()
    elif shell.view_name != "overview":
        shell.show_view("overview")


def _pause(shell: MainShell) -> None:
    from tui.bridge.store import ALL  # noqa: PLC0415

    shell.context.hold()
    shell.mark(ALL)


def _copy(shell: MainShell) -> None:
    focused = shell.focused_widget
    words = focused.chosen_text() if isinstance(focused, Pane) else ""
    if not words:
        shell.say("nothing is chosen here", "warn")
        return
    shell.host.copy_to_clipboard(words)
    shown = words if len(words) <= 60 else f"{len(words):,} characters"
    shell.say(f"copied: {shown}")


def _theme(shell: MainShell, name: str) -> None:
    from tui.themes import OWN  # noqa: PLC0415

    names = list(OWN)
    if name and name not in OWN:
        name = f"exoctl-{name}"
    if name and name not in OWN:
        shell.say(f"themes: {', '.join(names)}", "warn")
        return
    if not shell.context.palette.has_colour:
        shell.say("NO_COLOR is set: no theme is used", "warn")
        return
    place = names.index(shell.host.theme) + 1 if shell.host.theme in names else 0
    shell.host.theme = name or names[place % len(names)]
    shell.say(f"theme {shell.host.theme}")


def _screenshot(shell: MainShell, name: str) -> None:
    try:
        path = shell.host.save_screenshot(name or None)
    except OSError as error:
        shell.say(f"not saved: {error}", "bad")
        return
    shell.say(f"saved {path}")


def _quit(shell: MainShell) -> None:
    context: Context = shell.context
    lines: list[str] = []
    if context.is_embedded and context.store.heard_at:
        lines = consequences(context.store.state, context.store.view.here)
    if not lines:
        shell.host.exit()
        return
    question = Question(title="Quit this node?", lines=tuple(lines), verb="Quit")
    shell.ask(question, shell.host.exit)
