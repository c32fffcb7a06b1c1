"""Where the question is written: enter sends, ctrl+j makes a new line."""

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import TextArea


class Composer(TextArea):
    """Grows with what is written, up to a limit."""

    BINDINGS: ClassVar[list[BindingType]] = []

    class Sent(Message):
        """The question is to be asked."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    def __init__(self) -> None:
        super().__init__(
            id="composer",
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask, then enter. ^j begins a new line.",
        )
        self.border_title = "Prompt"

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            words = self.text.strip()
            if words:
                self.post_message(self.Sent(words))
            return
        if event.key in ("ctrl+j", "shift+enter"):
            event.stop()
            event.prevent_default()
            self.insert("\n")
            return
        await super()._on_key(event)
