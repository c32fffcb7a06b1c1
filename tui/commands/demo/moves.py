"""What every act of the demo does: reach a node, place a model, ask it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import anyio
import msgspec

from node.handle import NodeHandle
from node.io import clock
from node.model.command import Accepted, Command, PlaceInstance, Refused, StopInstance, Wish
from node.model.errors import InternalError, TimeoutExpiredError
from node.model.ids import InstanceId, ModelId, NodeId
from node.model.instance import Instance
from node.model.request import Delta, FinishReason, Message, Sampling
from tui.commands.changes import until
from tui.commands.console import Console
from tui.commands.demo.children import DemoNode, DemoNodes
from tui.commands.demo.story import Story
from tui.commands.generation import Answer, make_request, stream_answer
from tui.commands.naming import error_of
from tui.commands.progress import ProgressLine

SETTLE_SECONDS = 30.0
"""For a node to join, an instance to go, a command to be decided."""
LOAD_SECONDS = 180.0
ANSWER_SECONDS = 180.0


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """Who plays: the console, the nodes, the story."""

    console: Console
    nodes: DemoNodes
    story: Story


def connected(cast: Cast, node: DemoNode) -> AbstractAsyncContextManager[NodeHandle]:
    return cast.console.connector(node.api, "", True, None)


async def place(
    handle: NodeHandle, model: ModelId, nodes: Sequence[NodeId]
) -> tuple[Instance, float]:
    started = clock.monotonic()
    answer = await accepted(handle, PlaceInstance(model=model, wish=Wish(nodes=tuple(nodes))))
    key = InstanceId(answer.subject)
    await handle.wait_instance(key, LOAD_SECONDS)
    await until(
        handle, lambda: key in handle.state.instances, timeout_seconds=SETTLE_SECONDS, what=key
    )
    return handle.state.instances[key], clock.monotonic() - started


async def unload(handle: NodeHandle, key: InstanceId) -> None:
    await accepted(handle, StopInstance(instance=key))
    await until(
        handle,
        lambda: key not in handle.state.instances,
        timeout_seconds=SETTLE_SECONDS,
        what=f"{key} to be gone",
    )


async def accepted(
    handle: NodeHandle, command: Command, timeout_seconds: float = SETTLE_SECONDS
) -> Accepted:
    answer = await handle.submit(command, timeout_seconds)
    if isinstance(answer, Refused):
        raise error_of(answer)
    return answer


async def ask(
    cast: Cast,
    handle: NodeHandle,
    instance: Instance,
    question: str,
    tokens_max: int,
    show: Callable[[Delta], None],
) -> Answer:
    request = make_request(
        instance.model,
        [Message(role="user", content=question)],
        sampling=Sampling(temperature=0.0),
        tokens_max=tokens_max,
        instance=instance.instance,
    )
    seen: list[int] = []
    quiet = cast.console.overlaid({"quiet": True})

    def take(delta: Delta) -> None:
        seen.append(delta.index)
        show(delta)

    try:
        with anyio.fail_after(ANSWER_SECONDS), ProgressLine(quiet) as line:
            answer = await stream_answer(handle, request, line, take)
    except TimeoutError:
        raise TimeoutExpiredError.because(
            "demo_answer_slow", f"no whole answer came within {ANSWER_SECONDS:g} s"
        ) from None
    if seen != list(range(len(seen))) or answer.reason is FinishReason.CANCELLED:
        raise InternalError.because(
            "demo_answer_torn", f"the answer's pieces came as {seen}, its end is {answer.reason}"
        )
    return answer


def figures_of(answer: Answer) -> dict[str, object]:
    return {
        "answer": answer.text,
        "output_tokens": answer.usage.output_tokens,
        "first_token_seconds": round(answer.first_token_seconds, 3),
        "tokens_per_second": round(answer.tokens_per_second, 2),
        "finish_reason": answer.reason.value,
    }
