"""Chat with a model that is placed."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from node.model.ids import ModelId, RequestId
from node.model.request import GenerationRequest
from tui.bridge.conversation import TOPICS
from tui.shell import Handler, Shell
from tui.viewmodel.placements import coming_words
from tui.views.view import View
from tui.widgets.composer import Composer
from tui.widgets.pane import bindings
from tui.widgets.transcript import Transcript

REQUEST_ID_CHARACTERS = 16


class ChatView(View):
    """Transcript above, composer below."""

    scope: ClassVar[str] = "chat"
    BINDINGS: ClassVar[list[BindingType]] = bindings("chat")

    def compose(self) -> ComposeResult:
        """The two parts."""
        yield Transcript(self.context, identity="chat-transcript")
        yield Composer()

    def first_focus(self) -> Composer:
        """The composer."""
        return self.query_one(Composer)

    def handlers(self, shell: Shell) -> dict[str, Handler]:
        """What the chat's actions do."""
        return {
            "chat.stop": lambda _: self._stop(shell),
            "chat.model": lambda name: self._choose(shell, name),
            "chat.retry": lambda _: self._retry(shell),
            "chat.new": lambda _: self._new(shell),
            "chat.thinking": lambda _: self._toggle_thinking(),
        }

    def on_composer_sent(self, event: Composer.Sent) -> None:
        """Ask."""
        conversation = self.context.conversation
        if conversation.is_generating:
            self.context.say("one answer at a time: esc stops this one", "warn")
            return
        conversation.model = self.context.chat_model
        if conversation.model is None:
            coming = coming_words(self.context.view.placements)
            words = (
                f"{coming}: ask once it is ready" if coming else "no model is ready: n places one"
            )
            self.context.say(words, "warn")
            return
        self.query_one(Composer).text = ""
        self.query_one(Transcript).is_following = True
        request = RequestId(f"q-{self.context.random_hex(REQUEST_ID_CHARACTERS)}")
        self._send(conversation.ask(event.words, request, self.context.store.now))

    def _send(self, request: GenerationRequest) -> None:
        self.context.node.generate(request)
        self.context.mark(TOPICS)

    def _stop(self, shell: Shell) -> None:
        request = self.context.conversation.request
        if request is not None:
            self.context.node.stop_generating(request)
        elif self.query_one(Composer).has_focus:
            self.query_one(Transcript).focus()
        else:
            shell.perform("global.back")

    def _choose(self, shell: Shell, name: str) -> None:
        from tui.dialogs.chooser import Choice, ChooserDialog  # noqa: PLC0415

        if name:
            self._take(ModelId(name))
            return
        choices = [
            Choice(key=row.model, label=row.model, note=f"{row.word} {row.detail}".strip())
            for row in self.context.view.placements
        ]
        if not choices:
            shell.say("nothing is placed: n places a model", "warn")
            return
        dialog = ChooserDialog(
            self.context, "Model to chat with", choices, lambda key: self._take(ModelId(key))
        )
        shell.open_dialog(dialog)

    def _take(self, model: ModelId) -> None:
        known = {row.model for row in self.context.view.placements}
        if model not in known:
            names = ", ".join(sorted(known)) or "none"
            self.context.say(f"{model} is not placed; placed: {names}", "warn")
            return
        self.context.conversation.model = model
        self.context.mark(TOPICS)

    def _retry(self, shell: Shell) -> None:
        request = RequestId(f"q-{self.context.random_hex(REQUEST_ID_CHARACTERS)}")
        again = self.context.conversation.retry(request, self.context.store.now)
        if again is None:
            shell.say("there is no question to answer again", "warn")
        else:
            self._send(again)

    def _new(self, shell: Shell) -> None:
        if self.context.conversation.is_generating:
            shell.say("an answer is under way: esc stops it", "warn")
            return
        self.context.conversation.clear()
        self.context.mark(TOPICS)

    def _toggle_thinking(self) -> None:
        conversation = self.context.conversation
        conversation.shows_reasoning = not conversation.shows_reasoning
        self.context.mark(TOPICS)
