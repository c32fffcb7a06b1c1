"""What the demo tells: lines for a person as it goes on, or one record of facts at its end."""

import sys

from node.io import clock
from node.model.request import Delta
from tui.commands.console import Console, Listing
from tui.viewmodel.text import clean


class Story:
    """Collects the facts, and says them where a person reads along."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tells = not (console.is_json or console.settings.quiet)
        self._started_at = clock.monotonic()
        self._mid_line = False
        self.facts: dict[str, object] = {}

    def headline(self, text: str) -> None:
        """A new act."""
        self._line(text)

    def say(self, text: str) -> None:
        """Something that happened in it."""
        self._line("  " + text)

    def token(self, delta: Delta) -> None:
        """Text of an answer, as it comes."""
        if self._tells and delta.text:
            text = clean(delta.text, keep="\n").replace("\n", "\n  | ")
            sys.stdout.write(text if self._mid_line else "  | " + text)
            sys.stdout.flush()
            self._mid_line = True

    def note(self, **facts: object) -> None:
        """Facts for the record."""
        self.facts.update(facts)

    def finish(self, *, held: bool) -> None:
        """The last line, or the record."""
        seconds = clock.monotonic() - self._started_at
        self.note(held=held, seconds=round(seconds, 3))
        if self._console.is_json:
            listing = Listing(kind="Demo", index=-1, items=[self.facts], names=())
            self._console.emit(listing)
        elif held:
            self._line(f"everything held, in {seconds:.1f} s")

    def _line(self, text: str) -> None:
        if not self._tells:
            return
        if self._mid_line:
            sys.stdout.write("\n")
            self._mid_line = False
        sys.stdout.write(clean(text) + "\n")
        sys.stdout.flush()
