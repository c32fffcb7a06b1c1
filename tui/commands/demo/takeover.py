"""The demo's last act: the master dies while an answer streams, and nothing stops."""

import itertools
from collections.abc import Sequence

import anyio

from node.handle import NodeHandle
from node.io import clock
from node.io.child_process import is_alive
from node.model.command import CordonNode
from node.model.errors import InternalError
from node.model.ids import ModelId, RunnerId
from node.model.instance import Instance
from node.model.request import Delta
from tui.commands.demo.children import DemoNode
from tui.commands.demo.moves import Cast, accepted, ask, connected, figures_of, place
from tui.commands.figures import placement_text
from tui.commands.generation import Answer
from tui.commands.units import duration_text

TALE = "Tell me a long story about the keeper of a lighthouse."
TALE_TOKENS = 80
TOKENS_BEFORE_KILL = 8
FAILOVER_SECONDS = 15.0


async def survive(cast: Cast, model: ModelId) -> None:
    """Kill the master while an answer streams from the other nodes."""
    story = cast.story
    if len(cast.nodes.nodes) == 1:
        story.headline("one node alone: nobody could take over, so its master is left alive")
        story.note(failover=None)
        return
    async with connected(cast, cast.nodes.nodes[0]) as handle:
        master = cast.nodes.by_id(handle.state.master)
    others = [each for each in cast.nodes.nodes if each is not master]
    names = ", ".join(each.name for each in others)
    story.headline(f"{master.name} is the master; {model} goes onto {names} alone")
    async with connected(cast, others[0]) as handle:
        instance, seconds = await place(handle, model, [each.node for each in others])
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
            **figures_of(answer),
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
                    await ask(self._cast, self._handle, instance, TALE, TALE_TOKENS, self._take)
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
        await accepted(
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
