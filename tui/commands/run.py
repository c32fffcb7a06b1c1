"""`exoctl run`: one answer to stdout; without a prompt on a terminal, the chat."""

import sys
from typing import Annotated

import typer

from node.handle import NodeHandle
from node.model.errors import UsageError
from node.model.request import FinishReason, Message
from tui.commands.console import Console, Listing, say
from tui.commands.generation import (
    Answer,
    JsonSchema,
    MaxTokens,
    Seed,
    Stats,
    System,
    Temperature,
    TextWriter,
    make_ready,
    make_request,
    make_sampling,
    read_schema,
    stream_answer,
)
from tui.commands.input_text import read_input
from tui.commands.jsonable import encode, fields_of
from tui.commands.load import ModelArgument
from tui.commands.naming import find_model
from tui.commands.progress import ProgressLine
from tui.commands.settings import OutputFormat

CANCELLED = 1
PROMPT_BYTES_MAX = 16_000_000


def run(
    console: Console,
    model: ModelArgument,
    prompt: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]", help="Else read from stdin.")
    ] = None,
    *,
    system: System = "",
    temperature: Temperature = None,
    max_tokens: MaxTokens = 0,
    seed: Seed = None,
    json_schema: JsonSchema = None,
    stats: Stats = False,
) -> None:
    """Answer a prompt, streaming to stdout; loads the model first where it is not loaded."""
    text = " ".join(prompt or [])
    schema = read_schema(json_schema)
    if not prompt and sys.stdin.isatty():
        from tui.commands.chat import chat

        chat(
            console, model, system=system, temperature=temperature,
            max_tokens=max_tokens, seed=seed, stats=stats,
        )  # fmt: skip
        return
    if not prompt:
        text = read_input(PROMPT_BYTES_MAX)
    if not text.strip():
        raise UsageError.because(
            "no_prompt", "the prompt is empty", "write it behind the model, or pipe it in"
        )
    messages = [Message(role="user", content=text)]
    if system:
        messages.insert(0, Message(role="system", content=system))

    async def work(handle: NodeHandle) -> None:
        found = find_model(handle, model)
        await make_ready(console, handle, found)
        request = make_request(
            found,
            messages,
            sampling=make_sampling(temperature, seed),
            tokens_max=max_tokens,
            answer_schema=schema,
        )
        with ProgressLine(console) as line:
            answer = await stream_answer(handle, request, line, TextWriter(console))
        _finish(console, handle, answer, stats=stats)

    console.connected(work, follow=True)


def _finish(console: Console, handle: NodeHandle, answer: Answer, *, stats: bool) -> None:
    item = {
        "type": "answer",
        **fields_of(answer),
        "tokens_per_second": answer.tokens_per_second,
    }
    if console.settings.format is OutputFormat.NDJSON:
        console.write(encode(item, pretty=False))
    elif console.settings.format is OutputFormat.JSON:
        console.emit(Listing(kind="Answer", index=handle.state.index, items=[item], names=()))
    elif not answer.text.endswith("\n"):
        console.write("")
    if stats:
        say(answer.stats)
    if answer.reason is FinishReason.CANCELLED:
        console.say(f"{answer.request} was cancelled")
        console.exit(CANCELLED)
