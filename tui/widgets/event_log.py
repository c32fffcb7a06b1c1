"""The ordered log as it grows: only the visible rows are ever made."""

import bisect
import collections
from typing import ClassVar

from textual.binding import BindingType

from node.model.session import Entry
from tui.bridge.store import EVENTS, SESSION
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.events import event_row
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, EventRow
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings


class EventLog(ListPane):
    """Follows the newest entry until the cursor moves up."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("events")
    scope: ClassVar[str] = "events"
    topics: ClassVar[frozenset[str]] = frozenset((EVENTS, SESSION))
    is_following = True
    entries: list[Entry] = []
    _matching: list[Entry] = []
    _seen = (-1, 0)
    _seen_filter: tuple[str, str, str] = ("", "", "")
    kind = origin = ""
    """Only events of this kind, or written by the node of this name; empty for all."""

    def prepare(self) -> None:
        """Take what is new; filtered rows are only looked at once."""
        store = self.context.store
        seen = (store.events_total, store.events_version)
        if not self.context.is_held and seen != self._seen:
            known = self.entries[-1].index if self.entries else -1
            is_cut = store.events_version != self._seen[1]
            self.entries = list(store.events)
            self._seen = seen
            if is_cut:
                self._seen_filter = ("\0", "", "")
            else:
                self._extend(known)
        if self._filter != self._seen_filter:
            self._seen_filter = self._filter
            self._matching = self._match(self.entries)
        if self.is_following:
            self.cursor = max(0, self.count() - 1)
            self._cursor_key = None

    def _extend(self, known: int) -> None:
        if not any(self._filter):
            return
        place = bisect.bisect_right(self.entries, known, key=lambda entry: entry.index)
        self._matching += self._match(self.entries[place:])

    def _match(self, entries: list[Entry]) -> list[Entry]:
        matches = matcher(self._words)
        names = self.context.view.names
        return [
            entry
            for entry in entries
            for row in [event_row(entry, names)]
            if self.kind in ("", row.kind)
            and self.origin in ("", row.origin)
            and matches(_words_of(row))
        ]

    @property
    def _filter(self) -> tuple[str, str, str]:
        return self._words, self.kind, self.origin

    def counted(self, field: str) -> dict[str, int]:
        """How many events there are of each kind, or of each `origin`."""
        names = self.context.view.names
        rows = (event_row(entry, names) for entry in self.entries)
        return dict(
            collections.Counter(row.kind if field == "kind" else row.origin for row in rows)
        )

    def narrow_to_kind(self, kind: str) -> None:
        """Show one kind alone."""
        self.kind = kind
        self.paint()

    def narrow_to_origin(self, origin: str) -> None:
        """Show what one node wrote."""
        self.origin = origin
        self.paint()

    def take_filter(self, words: str) -> None:
        """As every list; without words, all kinds and origins are shown again."""
        super().take_filter(words)
        if not words:
            self.kind = self.origin = ""

    @property
    def filter_words(self) -> str:
        """The filter that is set."""
        return " ".join(part for part in self._filter if part)

    @property
    def shown(self) -> list[Entry]:
        """Entries that match the filter."""
        return self._matching if any(self._filter) else self.entries

    def count(self) -> int:
        """How many entries match."""
        return len(self.shown)

    def key_of(self, place: int) -> object:
        """The entry's index."""
        shown = self.shown
        return shown[place].index if place < len(shown) else None

    @property
    def chosen(self) -> Entry | None:
        """The entry under the cursor."""
        shown = self.shown
        return shown[self.cursor] if self.cursor < len(shown) else None

    def move(self, verb: str) -> None:
        """Moving up lets go of the newest; the last row takes hold of it again."""
        self.is_following = False
        super().move(verb)
        self.is_following = self.cursor >= self.count() - 1
        self.paint()

    def follow(self) -> None:
        """Follow the newest, or stay."""
        self.is_following = not self.is_following
        self.paint()

    def go_to(self, index: int) -> bool:
        """Put the cursor on the entry of that index, or on the next that is shown."""
        shown = self.shown
        place = bisect.bisect_left(shown, index, key=lambda entry: entry.index)
        if place >= len(shown) or (shown and index < shown[0].index):
            return False
        self._put_cursor(place)
        return shown[place].index == index

    def next_problem(self) -> bool:
        """Put the cursor on the next warning or failure below it, or on the first of all."""
        names = self.context.view.names
        shown = self.shown
        for place in (*range(self.cursor + 1, len(shown)), *range(self.cursor + 1)):
            if place < len(shown) and event_row(shown[place], names).level in ("warn", "bad"):
                self._put_cursor(place)
                return True
        return False

    def _put_cursor(self, place: int) -> None:
        self.is_following = False
        self.cursor = place
        self._cursor_key = self.key_of(place)
        self.paint()

    def heading(self) -> Parts:
        """Title, span, filter."""
        parts: Parts = [("Events ", "text b")]
        shown = self.shown
        if shown and self.size.width > 60:
            last = shown[min(len(shown) - 1, self.top + self.room - 1)].index
            span = f"{text.count(shown[self.top].index)}{glyphs.EN_DASH}{text.count(last)} "
            parts.append((span, "dim"))
        said = [f"filter {self._words}"] if self._words else []
        said += [f"only {self.kind}"] if self.kind else []
        said += [f"by {self.origin}"] if self.origin else []
        if said:
            parts.append((f"{glyphs.DOT} {f' {glyphs.DOT} '.join(said)} ", "warn"))
        return parts

    def footing(self) -> Parts:
        """Whether it follows, how fast entries come, what was skipped."""
        store = self.context.store
        rate = store.event_rate.value(store.now)
        parts: Parts = []
        if store.skipped:
            parts.append((f"{store.skipped:,} skipped  ", "warn"))
        if rate >= 0.05:
            parts.append((f"{rate:.1f}/s  ", "dim"))
        word = "following" if self.is_following else "f follows"
        parts.append((f"{glyphs.DOWN} {word}", "accent" if self.is_following else "dim"))
        return parts

    def draw_empty(self, canvas: Canvas) -> None:
        """Nothing yet, or nothing that matches."""
        if self.context.store.heard_at:
            words = (
                "No event matches the filter; esc clears it."
                if any(self._filter)
                else "No events yet."
            )
            canvas.centre(canvas.height // 2, words, "dim")

    @property
    def columns(self) -> tuple[int, int, int, int]:
        """Cells of time, origin sequence, kind and subject at this width."""
        width = self.size.width
        if width >= 130:
            return 13, 8, 22, 14
        if width >= 96:
            return 9, 0, 20, 12
        return 0, 0, 16, 11

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads, where the pane has a line for them."""
        if not self.head_lines:
            return
        time, sequence, kind, subject = self.columns
        x = canvas.right(9, 0, "index", "faint") and 11
        if time:
            canvas.put(x, 0, "time", "faint")
            x += time
        x = canvas.put(x, 0, f"{'origin':<11}", "faint")
        if sequence:
            canvas.right(x + sequence - 2, 0, "no.", "faint")
            x += sequence
        canvas.put(x, 0, "event", "faint")
        canvas.put(x + kind + 1, 0, "subject", "faint")
        canvas.put(x + kind + subject + 4, 0, "what happened", "faint")

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """Index, time, origin, kind, subject, words."""
        row = event_row(self.shown[place], self.context.view.names)
        time, sequence, kind, subject = self.columns
        canvas.right(9, y, text.count(row.index), "dim")
        x = 11
        if time:
            canvas.put(
                x, y, text.clock(row.at + self.context.zone_seconds, milliseconds=time > 9), "faint"
            )
            x += time
        canvas.put(x, y, text.middle(row.origin, 10), row.hue)
        x += 11
        if sequence:
            number = str(row.sequence) if row.sequence >= 0 else text.UNKNOWN
            canvas.right(x + sequence - 2, y, number, "faint")
            x += sequence
        x = canvas.put(x, y, text.pad(text.shorten(row.kind, kind), kind), "text") + 1
        x = canvas.put(x, y, text.pad(text.shorten(row.subject, subject), subject), "dim") + 1
        loud = row.level in ("warn", "bad")
        canvas.put(x, y, SYMBOLS[row.level] if loud else " ", row.level)
        mark = "again: " if row.is_resubmitted else ""
        ink = row.level if loud else "text"
        canvas.put(x + 2, y, text.shorten(mark + row.summary, canvas.width - x - 2), ink)

    def chosen_text(self) -> str:
        """The row under the cursor as words."""
        return _words_of(event_row(self.chosen, self.context.view.names)) if self.chosen else ""

    def open_chosen(self) -> None:
        """Show the entry as JSON."""
        if self.chosen is not None:
            self.context.show_entry(self.chosen)


def _words_of(row: EventRow) -> str:
    return f"{row.index} {row.origin} {row.kind} {row.subject} {row.summary}"
