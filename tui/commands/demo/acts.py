"""The demo's acts: nodes join, a model runs over all of them, the master dies and nothing stops."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import anyio
import msgspec

from node.handle import NodeHandle
from node.io import clock
from node.io.child_process import is_alive
from node.model.command import (
    Accepted,
    Command,
    CordonNode,
    PlaceInstance,
    Refused,
    StopInstance,
    Wish,
)
from node.model.errors import ExoctlError, InternalError, TimeoutExpiredError
from node.model.ids import InstanceId, ModelId, NodeId, RunnerId
from node.model.instance import Instance
from node.model.register import ModelFigures
from node.model.request import Delta, FinishReason, Message, Sampling
from tui.commands.changes import until
from tui.commands.console import Console
from tui.commands.demo.children import DemoNode, DemoNodes
from tui.commands.demo.story import Story
from tui.commands.figures import figures, placement_text
from tui.commands.generation import Answer, make_request, stream_answer
from tui.commands.naming import error_of
from tui.commands.progress import ProgressLine
from tui.commands.units import duration_text, nodes_text

DEFAULT_MODEL = ModelId("smollm2-135m-instruct")
QUESTION = "What is the capital of France?"
EXPECTED = "Paris"
TALE = "Tell me a long story about the keeper of a lighthouse."
TALE_TOKENS = 80
TOKENS_BEFORE_KILL = 8
JOIN_SECONDS = 30.0
MODEL_SECONDS = 300.0
"""The first time the model is made ready out of its package."""
LOAD_SECONDS = 180.0
FAILOVER_SECONDS = 15.0
ANSWER_SECONDS = 180.0


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """Who plays: the console, the nodes, the story."""

    console: Console
    nodes: DemoNodes
    story: Story


async def start_nodes(cast: Cast, count: int) -> None:
    """Start the nodes."""
    cast.story.headline(f"starting {nodes_text(count)} under {cast.nodes.root}")
    await cast.nodes.start(count)
    for node in cast.nodes.nodes:
        cast.story.say(
            f"{node.name}  process {node.process.pid}, api {node.api}, "
            f"ready after {duration_text(node.ready_seconds)}"
        )
    cast.story.note(
        nodes=[
            {
                "name": node.name,
                "node": node.node,
                "process_id": node.process.pid,
                "ready_seconds": round(node.ready_seconds, 3),
            }
            for node in cast.nodes.nodes
        ]
    )


async def join_nodes(cast: Cast) -> None:
    """The first node invites, the others join with its codes."""
    first, *others = cast.nodes.nodes
    if not others:
        return
    cast.story.headline(f"{first.name} invites, the others join with its codes")
    async with _connected(cast, first) as handle:
        codes = [(await handle.invite()).code for _ in others]
    seconds: list[float] = []
    for node, code in zip(others, codes, strict=True):
        started = clock.monotonic()
        async with _connected(cast, node) as handle:
            await handle.join(code, first.cluster_address)
        async with _connected(cast, node) as handle:
            await until(
                handle,
                lambda handle=handle, node=node: _is_member(handle, first, node),
                timeout_seconds=JOIN_SECONDS,
                what=f"{node.name} to be a member",
            )
        seconds.append(clock.monotonic() - started)
        cast.story.say(f"{node.name} is in after {duration_text(seconds[-1])}")
    cast.story.note(join_seconds=[round(each, 3) for each in seconds])


def _is_member(handle: NodeHandle, first: DemoNode, node: DemoNode) -> bool:
    return {first.node, node.node} <= handle.state.nodes.keys() and bool(handle.state.master)


def _connected(cast: Cast, node: DemoNode) -> AbstractAsyncContextManager[NodeHandle]:
    return cast.console.connector(node.api, "", True)


async def ask_all(cast: Cast, model: ModelId) -> None:
    """Place the model over all nodes, and ask it."""
    story, first = cast.story, cast.nodes.nodes[0]
    story.headline(f"{model} over {nodes_text(len(cast.nodes.nodes))}")
    async with _connected(cast, first) as handle:
        await _wait_model(cast, handle, model)
        instance, seconds = await _place(handle, model, [each.node for each in cast.nodes.nodes])
        where = placement_text(handle.state, instance)
        story.say(f"{instance.instance}: layers {where}; ready after {duration_text(seconds)}")
        story.headline(QUESTION)
        answer = await _ask(cast, handle, instance, QUESTION, 0, story.token)
        story.say(answer.stats)
        story.note(
            model=model,
            placement=where,
            load_seconds=round(seconds, 3),
            question=QUESTION,
            **_figures_of(answer),
        )
        if model == DEFAULT_MODEL and EXPECTED not in answer.text:
            raise InternalError.because(
                "demo_wrong_answer", f"the answer {answer.text!r} does not name {EXPECTED}"
            )
        await _unload(handle, instance.instance)


async def survive(cast: Cast, model: ModelId) -> None:
    """Kill the master while an answer streams from the other nodes."""
    story = cast.story
    if len(cast.nodes.nodes) == 1:
        story.headline("one node alone: nobody could take over, so its master is left alive")
        story.note(failover=None)
        return
    async with _connected(cast, cast.nodes.nodes[0]) as handle:
        master = cast.nodes.by_id(handle.state.master)
    others = [each for each in cast.nodes.nodes if each is not master]
    names = ", ".join(each.name for each in others)
    story.headline(f"{master.name} is the master; {model} goes onto {names} alone")
    async with _connected(cast, others[0]) as handle:
        instance, seconds = await _place(handle, model, [each.node for each in others])
        where = placement_text(handle.state, instance)
        story.say(f"{instance.instance}: layers {where}; ready after {duration_text(seconds)}")
        story.headline(f"killing {master.name} while an answer streams")
        before = _runner_processes(others, instance)
        takeover = Takeover(cast, handle, master, others)
        answer = await takeover.run(instance)
        after = _runner_processes(others, instance)
    if before != after or not all(is_alive(*process) for process in after.values()):
        raise InternalError.because(
            "demo_runners_changed", f"runners were {before} before the kill and are {after} now"
        )
    shown = ", ".join(f"{runner} process {number}" for runner, (number, _) in after.items())
    story.say(f"the same runners as before the kill: {shown}")
    story.note(
        failover={
            "killed": master.name,
            "placement": where,
            "runner_process_ids": {runner: number for runner, (number, _) in after.items()},
            **takeover.facts,
            **_figures_of(answer),
        }
    )


class Takeover:
    """One kill: the stream that goes on, and the time until a command is accepted again."""

    def __init__(
        self, cast: Cast, handle: NodeHandle, master: DemoNode, others: list[DemoNode]
    ) -> None:
        self._cast, self._handle, self._master, self._others = cast, handle, master, others
        self._due, self._wait_due = anyio.create_memory_object_stream[None](1)
        self._delta_at: list[float] = []
        self.facts: dict[str, object] = {}

    async def run(self, instance: Instance) -> Answer:
        """Stream an answer, kill the master in the midst of it, and see both to their end.

        Raises:
            ExoctlError: the stream broke, ended too early, or nobody took over.
        """
        answers: list[Answer] = []

        async def stream() -> None:
            with self._due:
                answers.append(
                    await _ask(self._cast, self._handle, instance, TALE, TALE_TOKENS, self._take)
                )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream)
            with self._wait_due:
                try:
                    await self._wait_due.receive()
                except anyio.EndOfStream:
                    raise InternalError.because(
                        "demo_answer_short",
                        f"the answer ended within {TOKENS_BEFORE_KILL} tokens, before the kill",
                    ) from None
            await self._kill(answers)
        answer = answers[0]
        pauses = [b - a for a, b in itertools.pairwise(self._delta_at)]
        self.facts["longest_pause_seconds"] = round(max(pauses, default=0.0), 3)
        self._cast.story.say(
            f"the answer went on to its end: {answer.usage.output_tokens} tokens, "
            f"longest pause {duration_text(max(pauses, default=0.0))}"
        )
        return answer

    def _take(self, delta: Delta) -> None:
        self._delta_at.append(clock.monotonic())
        self._cast.story.token(delta)
        if len(self._delta_at) == TOKENS_BEFORE_KILL:
            self._due.send_nowait(None)

    async def _kill(self, answers: list[Answer]) -> None:
        story, term = self._cast.story, self._handle.state.session.term
        count = len(self._delta_at)
        killed_at = clock.monotonic()
        await self._master.kill()
        if answers:
            raise InternalError.because("demo_answer_short", "the answer ended before the kill")
        story.say(f"{self._master.name} (process {self._master.process.pid}) killed")
        # A wish that changes nothing: what counts is that somebody decides and commits it.
        await _accepted(
            self._handle,
            CordonNode(node=self._others[0].node, cordoned=False),
            timeout_seconds=FAILOVER_SECONDS,
        )
        seconds = clock.monotonic() - killed_at
        session = self._handle.state.session
        leader = self._cast.nodes.by_id(session.master)
        if leader is self._master or session.term <= term:
            raise InternalError.because(
                "demo_no_takeover", f"{leader.name} still leads term {session.term} after the kill"
            )
        story.say(
            f"{leader.name} leads now, term {session.term}: "
            f"a command was accepted {duration_text(seconds)} after the kill"
        )
        self.facts.update(
            leader=leader.name,
            term=session.term,
            failover_seconds=round(seconds, 3),
            tokens_before_kill=count,
        )


async def _wait_model(cast: Cast, handle: NodeHandle, model: ModelId) -> None:
    def missing() -> list[str]:
        return [each.name for each in cast.nodes.nodes if not _holds(handle, each.node, model)]

    if missing():
        cast.story.say("making the model ready, once for all nodes of this machine")
    await until(
        handle,
        lambda: not missing(),
        timeout_seconds=MODEL_SECONDS,
        what=f"{model} on every node",
    )


def _holds(handle: NodeHandle, node: NodeId, model: ModelId) -> bool:
    """Whether the model lies whole on the node.

    Raises:
        ExoctlError: it can't be made ready there, with the reason.
    """
    found = figures(handle, node, ModelFigures)
    for held in found.held if found else ():
        if held.card.model == model:
            if held.failure is not None:
                raise ExoctlError(held.failure)
            return held.complete
    return False


async def _place(
    handle: NodeHandle, model: ModelId, nodes: Sequence[NodeId]
) -> tuple[Instance, float]:
    started = clock.monotonic()
    accepted = await _accepted(handle, PlaceInstance(model=model, wish=Wish(nodes=tuple(nodes))))
    key = InstanceId(accepted.subject)
    await handle.wait_instance(key, LOAD_SECONDS)
    await until(
        handle, lambda: key in handle.state.instances, timeout_seconds=JOIN_SECONDS, what=key
    )
    return handle.state.instances[key], clock.monotonic() - started


async def _unload(handle: NodeHandle, key: InstanceId) -> None:
    await _accepted(handle, StopInstance(instance=key))
    await until(
        handle,
        lambda: key not in handle.state.instances,
        timeout_seconds=JOIN_SECONDS,
        what=f"{key} to be gone",
    )


async def _accepted(
    handle: NodeHandle, command: Command, timeout_seconds: float = JOIN_SECONDS
) -> Accepted:
    answer = await handle.submit(command, timeout_seconds)
    if isinstance(answer, Refused):
        raise error_of(answer)
    return answer


async def _ask(
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

    def take(delta: Delta) -> None:
        seen.append(delta.index)
        show(delta)

    try:
        with anyio.fail_after(ANSWER_SECONDS), ProgressLine(cast.console) as line:
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


def _figures_of(answer: Answer) -> dict[str, object]:
    return {
        "answer": answer.text,
        "output_tokens": answer.usage.output_tokens,
        "first_token_seconds": round(answer.first_token_seconds, 3),
        "tokens_per_second": round(answer.tokens_per_second, 2),
        "finish_reason": answer.reason.value,
    }


def _runner_processes(
    nodes: Sequence[DemoNode], instance: Instance
) -> dict[RunnerId, tuple[int, float]]:
    """Process number and start time of each of the instance's runners, as their nodes noted."""
    return {
        record.runner: (record.process_id, record.start_time)
        for node in nodes
        for record in node.runners()
        if record.instance == instance.instance
    }
