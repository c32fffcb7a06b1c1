"""Streaming an answer to a person: the model made ready, the text, the figures after it."""

import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from node.handle import NodeHandle
from node.io import clock
from node.model.command import Wish
from node.model.errors import InternalError, UsageError
from node.model.ids import InstanceId, ModelId, RequestId
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Message,
    Prefilled,
    Queued,
    Sampling,
    Usage,
)
from tui.commands.console import Console
from tui.commands.instances import ready_instances, starting_instance
from tui.commands.jsonable import encode, fields_of
from tui.commands.load import place, wait_ready
from tui.commands.naming import error_of
from tui.commands.progress import ProgressLine
from tui.commands.settings import OutputFormat
from tui.commands.units import duration_text
from tui.viewmodel.text import clean

_KEPT = "\n\t"
ANY_OBJECT = '{"type": "object"}'
TEMPERATURE = 0.3
"""Where none is asked for: small models wander at the API's 1."""
System = Annotated[
    str, typer.Option("--system", metavar="TEXT", help="Instructions before the conversation.")
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="NUMBER",
        min=0.0,
        max=5.0,
        help=f"0 takes the likeliest token; {TEMPERATURE} where it is not said.",
    ),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", metavar="N", min=0, help="End after so many; 0: no limit.")
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", min=0, help="The same answer every time.")
]
Stats = Annotated[bool, typer.Option("--stats", help="Token counts and times on stderr.")]


JsonSchema = Annotated[
    Path | None,
    typer.Option(
        "--json-schema", metavar="FILE", help="A JSON schema that the answer obeys; - is any JSON."
    ),
]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one generation, with the times as this side of it saw them."""

    request: RequestId
    model: ModelId
    text: str
    reasoning: str
    reason: FinishReason
    usage: Usage
    first_token_seconds: float
    """From asking to the first text, as seen here."""
    total_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Output tokens after the first over the time after the first; 0 for fewer than two."""
        after = self.total_seconds - self.first_token_seconds
        count = self.usage.output_tokens - 1
        return count / after if count > 0 and after > 0 else 0.0

    @property
    def stats(self) -> str:
        """The figures in one line."""
        used = self.usage
        cached = f" ({used.cached_tokens} cached)" if used.cached_tokens else ""
        queued = (
            f", queued {duration_text(used.queue_seconds)}" if used.queue_seconds > 0.05 else ""
        )
        return (
            f"{used.prompt_tokens} prompt tokens{cached}, {used.output_tokens} output tokens, "
            f"first after {duration_text(self.first_token_seconds)}, "
            f"{self.tokens_per_second:.1f} tok/s, "
            f"{duration_text(self.total_seconds)} in all{queued}"
        )


class TextWriter:
    """Writes the text of deltas as they come, in the format that was asked for."""

    def __init__(self, console: Console) -> None:
        self._format = console.settings.format
        self._is_terminal = sys.stdout.isatty()

    def __call__(self, delta: Delta) -> None:
        if self._format is OutputFormat.NDJSON:
            sys.stdout.write(encode({**fields_of(delta), "type": "delta"}, pretty=False) + "\n")
        elif self._format is not OutputFormat.JSON:
            # A model may say anything; on a terminal it must not move the cursor.
            text = clean(delta.text, keep=_KEPT) if self._is_terminal else delta.text
            sys.stdout.write(text)
        sys.stdout.flush()


def make_sampling(temperature: float | None, seed: int | None) -> Sampling:
    """The sampling of the options; a person's default is calmer than the API's."""
    return Sampling(seed=seed, temperature=TEMPERATURE if temperature is None else temperature)


def read_schema(file: Path | None) -> str:
    """The schema in a file, as text; any object for `-`, empty without a file.

    Raises:
        UsageError: the file can't be read, or holds no schema.
    """
    if file is None:
        return ""
    if str(file) == "-":
        return ANY_OBJECT
    try:
        text = file.read_text("utf-8")
        schema = msgspec.json.decode(text)
    except OSError as error:
        raise UsageError.because(
            "bad_schema", f"{file}: {error.strerror or error}", "name a file with a JSON schema"
        ) from error
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise UsageError.because("bad_schema", f"{file} holds no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise UsageError.because("bad_schema", f"{file} holds no JSON object")
    return text


async def make_ready(console: Console, handle: NodeHandle, model: ModelId) -> None:
    """Have an instance of the model that answers: one that is there, or is starting, or a new one.

    Raises:
        ExoctlError: it can't be placed, or its start failed.
    """
    if ready_instances(handle, model):
        return
    starting = starting_instance(handle, model)
    if starting is not None:
        await wait_ready(console, handle, starting.instance)
    else:
        await place(console, handle, model, Wish())


def make_request(
    model: ModelId,
    messages: Sequence[Message],
    *,
    sampling: Sampling,
    tokens_max: int = 0,
    instance: InstanceId | None = None,
    answer_schema: str = "",
) -> GenerationRequest:
    """A request with an id of its own."""
    return GenerationRequest(
        id=RequestId("q-" + clock.random_hex(16)),
        model=model,
        messages=tuple(messages),
        sampling=sampling,
        tokens_max=tokens_max,
        instance=instance,
        answer_schema=answer_schema,
    )


async def stream_answer(
    handle: NodeHandle,
    request: GenerationRequest,
    line: ProgressLine,
    show: Callable[[Delta], None],
) -> Answer:
    """Generate, giving every delta to `show` at once.

    Raises:
        ExoctlError: the generation failed, as the kind that the node says.
    """
    started = clock.monotonic()
    first_seconds = 0.0
    texts: list[str] = []
    reasonings: list[str] = []
    async with aclosing(handle.generate(request)) as items:
        async for item in items:
            match item:
                case Queued(ahead=ahead, wait_seconds=wait):
                    about = f", about {duration_text(wait)}" if wait else ""
                    line.update(f"queued behind {ahead}{about}")
                case Prefilled(done=done, total=total):
                    line.update("reading the prompt", f"{done}/{total} tokens", fleeting=True)
                case Delta():
                    first_seconds = first_seconds or clock.monotonic() - started
                    line.clear()
                    texts.append(item.text)
                    reasonings.append(item.reasoning)
                    show(item)
                case Finished():
                    total_seconds = clock.monotonic() - started
                    return Answer(
                        request=request.id,
                        model=request.model,
                        text="".join(texts),
                        reasoning="".join(reasonings),
                        reason=item.reason,
                        usage=item.usage,
                        first_token_seconds=first_seconds or total_seconds,
                        total_seconds=total_seconds,
                    )
                case Failed():
                    raise error_of(item)
    raise InternalError.because(
        "stream_unfinished", f"the answer to {request.id} ended without a last item"
    )
