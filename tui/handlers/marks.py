"""Several rows at once: marked with space, acted on with `a`, after one question."""

from tui.bridge.store import ALL
from tui.handlers.cluster import do_to
from tui.shell import Handler, Question, Shell
from tui.viewmodel import text
from tui.widgets.list_pane import ListPane

NAMED_MAX = 8
"""Rows that a question names one by one."""


def handlers(shell: Shell) -> dict[str, Handler]:
    """Marking, and acting on what is marked."""
    return {
        "global.mark": lambda _: _mark(shell),
        "global.act": lambda verb: _act(shell, verb),
    }


def _list(shell: Shell) -> ListPane | None:
    pane = shell.pane_for("list")
    return pane if isinstance(pane, ListPane) else None


def _mark(shell: Shell) -> None:
    pane = _list(shell)
    if pane is None or not pane.mark_row():
        shell.say("rows of this pane can't be marked", "warn")


def _act(shell: Shell, verb: str) -> None:
    pane = _list(shell)
    keys = pane.marked() if pane is not None else []
    if pane is None or not keys:
        shell.say("nothing is marked: space marks the row under the cursor", "warn")
        return
    verbs = {word: action for action, word in pane.bulk.items()}
    if verb in verbs or len(verbs) == 1:
        word = verb if verb in verbs else next(iter(verbs))
        _ask(shell, pane, word, verbs[word])
        return
    from tui.dialogs.chooser import Choice, ChooserDialog  # noqa: PLC0415 - seldom asked for

    choices = [
        Choice(key=word, label=word.capitalize(), note=text.plural(len(keys), "row"))
        for word in verbs
    ]
    title = f"What with {text.plural(len(keys), 'marked row')}?"
    held = pane

    def chose(word: str) -> None:
        _ask(shell, held, word, verbs[word])

    shell.open_dialog(ChooserDialog(shell.context, title, choices, chose))


def _ask(shell: Shell, pane: ListPane, word: str, action: str) -> None:
    keys = pane.marked()
    known = {str(row.node): row.name for row in shell.context.view.nodes}
    models = {str(row.instance): row.model for row in shell.context.view.placements}
    shown = [known.get(key) or " ".join((key, models.get(key, ""))).strip() for key in keys]
    lines = shown[:NAMED_MAX]
    if len(shown) > NAMED_MAX:
        lines.append(f"and {len(shown) - NAMED_MAX} more")

    def do() -> None:
        pane.marks = frozenset()
        for key in keys:
            do_to(shell, action, key)
        shell.mark(ALL)

    title = f"{word.capitalize()} {text.plural(len(keys), 'marked row')}?"
    shell.ask(Question(title=title, lines=tuple(lines), verb=word.capitalize()), do)
