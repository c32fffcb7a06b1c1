"""`exoctl chat`: a conversation, line by line.

The terminal belongs to the main thread, the node's handle to a loop in another: so a blocked read
stops nothing, and Ctrl-C reaches the line or the answer, whichever is going on.
"""

import importlib
import sys
from concurrent.futures import Future
from typing import Annotated

import anyio
import typer
from anyio.from_thread import BlockingPortal, start_blocking_portal

from node.handle import NodeHandle
from node.model.errors import ExoctlError, NotFoundError, UsageError
from node.model.ids import ModelId
from node.model.request import Delta, GenerationRequest, Message, Sampling
from tui.commands.console import Console
from tui.commands.figures import condition
from tui.commands.generation import (
    Answer,
    MaxTokens,
    Seed,
    Stats,
    System,
    Temperature,
    TextWriter,
    make_ready,
    make_request,
    make_sampling,
    stream_answer,
)
from tui.commands.input_text import InputLines
from tui.commands.naming import find_model, known_models
from tui.commands.progress import ProgressLine

MESSAGES_MAX = 400
"""The oldest turns are forgotten beyond so many messages."""
STOP_SECONDS = 10.0
HELP = """\
/clear         forget the conversation
/stats         token counts and times after each answer, on or off
/system TEXT   set the instructions; without a text, show them
/bye           leave, as Ctrl-D does
Ctrl-C         stops the answer; at the prompt, a second one leaves"""


def chat(
    console: Console,
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="Else the one that is loaded.")
    ] = "",
    *,
    system: System = "",
    temperature: Temperature = None,
    max_tokens: MaxTokens = 0,
    seed: Seed = None,
    stats: Stats = False,
) -> None:
    """Talk to a model, line by line; it remembers the conversation."""
    if console.settings.is_plain_data:
        raise UsageError.because(
            "chat_format", "a chat has no -o", "use `exoctl run MODEL PROMPT -o json`"
        )
    address, token = console.target()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(
            console.connector(address, token, True, console.patience_seconds)
        ) as handle,
    ):
        found = find_model(handle, model) if model else default_model(handle)
        portal.call(make_ready, console, handle, found)
        talk = Talk(console, portal, handle, found)
        talk.system, talk.shows_stats = system, stats
        talk.sampling, talk.tokens_max = make_sampling(temperature, seed), max_tokens
        talk.go_on()


def default_model(handle: NodeHandle) -> ModelId:
    """The model that is loaded, else the only one there is.

    Raises:
        NotFoundError: there is none. UsageError: there are several to choose from.
    """
    state = handle.state
    loaded = {each.model for each in state.instances.values() if condition(handle, each).ready}
    choices = sorted(loaded or known_models(handle))
    if not choices:
        raise NotFoundError.because("no_models", "no node has a model", "see `exoctl model ls`")
    if len(choices) > 1:
        raise UsageError.because(
            "which_model", f"there are several models: {', '.join(choices)}", "name one of them"
        )
    return choices[0]


class Talk:
    """One conversation on the terminal."""

    system = ""
    shows_stats = False
    tokens_max = 0
    sampling = Sampling()

    def __init__(
        self, console: Console, portal: BlockingPortal, handle: NodeHandle, model: ModelId
    ) -> None:
        self._console, self._portal, self._handle, self._model = console, portal, handle, model
        self._messages: list[Message] = []
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._lines = InputLines()

    def go_on(self) -> None:
        """Read lines and answer them until the person leaves."""
        if self._is_terminal:
            importlib.import_module("readline")  # gives `input` its line editing and history

            self._console.say(f"{self._model}: /help shows what there is, Ctrl-D leaves")
        interrupted = False
        while True:
            try:
                line = self._read().strip()
            except KeyboardInterrupt:
                if interrupted:
                    return
                interrupted = True
                self._console.say("\nCtrl-C again or Ctrl-D leaves")
                continue
            except EOFError:
                self._console.write("\n" * self._is_terminal)
                return
            except UnicodeDecodeError:
                self._console.say("that is no text: is the terminal set to UTF-8?")
                continue
            interrupted = False
            if not self._take(line):
                return

    def _read(self) -> str:
        if self._is_terminal:
            return input("> ")
        line = self._lines.next()
        if not line:
            raise EOFError
        return line

    def _take(self, line: str) -> bool:
        """Obey or answer a line; False where it ends the conversation."""
        if line.startswith("/"):
            return self._obey(line)
        if line:
            self._answer(line)
        return True

    def _obey(self, line: str) -> bool:
        word, _, rest = line.partition(" ")
        match word:
            case "/bye" | "/exit" | "/quit":
                return False
            case "/help" | "/?":
                self._console.say(HELP)
            case "/clear":
                self._messages.clear()
                self._console.say("the conversation is forgotten")
            case "/stats":
                self.shows_stats = not self.shows_stats
                self._console.say(f"stats {'on' if self.shows_stats else 'off'}")
            case "/system":
                self.system = rest.strip() or self.system
                self._console.say(f"instructions: {self.system or 'none'}")
            case _:
                self._console.say(f"no command is called {word}; /help shows what there is")
        return True

    def _answer(self, line: str) -> None:
        self._messages.append(Message(role="user", content=line))
        head = [Message(role="system", content=self.system)] if self.system else []
        request = make_request(
            self._model,
            [*head, *self._messages],
            sampling=self.sampling,
            tokens_max=self.tokens_max,
        )
        turn = Turn(self._console, self._handle, request)
        try:
            answer = self._wait(turn)
        except ExoctlError as error:
            self._messages.pop()
            self._console.write("")
            self._console.say(f"error: {error.failure.message}")
            if error.failure.remedy:
                self._console.say(f"  try: {error.failure.remedy}")
            return
        self._messages.append(Message(role="assistant", content=turn.text))
        del self._messages[:-MESSAGES_MAX]
        self._console.write("" if turn.text.endswith("\n") else "\n" * self._is_terminal)
        if answer is None:
            self._console.say("stopped")
        elif self.shows_stats:
            self._console.say(answer.stats)

    def _wait(self, turn: "Turn") -> Answer | None:
        future: Future[Answer | None] | None = None
        try:  # from before it begins: ctrl-c may come at any moment
            future = self._portal.start_task_soon(turn.run)
            return future.result()
        except KeyboardInterrupt:
            self._portal.call(turn.stop)
            return future.result(STOP_SECONDS) if future is not None else None


class Turn:
    """One answer on its way; lives in the portal's loop."""

    def __init__(self, console: Console, handle: NodeHandle, request: GenerationRequest) -> None:
        self._console, self._handle, self._request = console, handle, request
        self._writer = TextWriter(console)
        self._scope: anyio.CancelScope | None = None
        self._is_stopped = False
        self.text = ""

    async def run(self) -> Answer | None:
        """Stream the answer to stdout; None where it was stopped."""
        with anyio.CancelScope() as self._scope, ProgressLine(self._console) as line:
            if self._is_stopped:
                return None
            return await stream_answer(self._handle, self._request, line, self._show)
        return None

    async def stop(self) -> None:
        """End the answer where it is."""
        self._is_stopped = True
        if self._scope is not None:
            self._scope.cancel()

    def _show(self, delta: Delta) -> None:
        self.text += delta.text
        self._writer(delta)
