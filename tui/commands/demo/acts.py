"""The demo's first acts: nodes start and join, a model answers over all of them."""

import anyio

from node.handle import NodeHandle
from node.io import clock
from node.model.errors import ExoctlError, InternalError, NotFoundError
from node.model.ids import ModelId, NodeId
from node.model.register import ModelFigures
from tui.commands.changes import until
from tui.commands.demo.children import DemoNode
from tui.commands.demo.moves import (
    SETTLE_SECONDS,
    Cast,
    ask,
    connected,
    figures_of,
    place,
    unload,
)
from tui.commands.figures import figures, placement_text
from tui.commands.models import model_views
from tui.commands.naming import find_model, known_models
from tui.commands.units import duration_text, nodes_text

DEFAULT_MODEL = ModelId("smollm2-135m-instruct")
QUESTION = "What is the capital of France?"
EXPECTED = "Paris"
MODEL_SECONDS = 300.0
"""The first time the model is made ready out of its package."""
KNOWN_SECONDS = 10.0
"""Until every node has told the others which models it has."""
LOOK_SECONDS = 0.1


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
    async with connected(cast, first) as handle:
        codes = [(await handle.invite()).code for _ in others]
    seconds: list[float] = []
    for node, code in zip(others, codes, strict=True):
        started = clock.monotonic()
        async with connected(cast, node) as handle:
            await handle.join(code, first.cluster_address)
        async with connected(cast, node) as handle:
            await until(
                handle,
                lambda handle=handle, node=node: _is_member(handle, first, node),
                timeout_seconds=SETTLE_SECONDS,
                what=f"{node.name} to be a member",
            )
        seconds.append(clock.monotonic() - started)
        cast.story.say(f"{node.name} is in after {duration_text(seconds[-1])}")
    cast.story.note(join_seconds=[round(each, 3) for each in seconds])


def _is_member(handle: NodeHandle, first: DemoNode, node: DemoNode) -> bool:
    return {first.node, node.node} <= handle.state.nodes.keys() and bool(handle.state.master)


async def ask_all(cast: Cast, model: ModelId) -> ModelId:
    """Place the model over all nodes, and ask it; returns its whole name."""
    story, first = cast.story, cast.nodes.nodes[0]
    story.headline(f"{model} over {nodes_text(len(cast.nodes.nodes))}")
    async with connected(cast, first) as handle:
        model = await _wait_model(cast, handle, model)
        instance, seconds = await place(handle, model, [each.node for each in cast.nodes.nodes])
        where = placement_text(handle.state, instance)
        story.say(f"{instance.instance}: layers {where}; ready after {duration_text(seconds)}")
        story.headline(QUESTION)
        answer = await ask(cast, handle, instance, QUESTION, 0, story.token)
        story.say(answer.stats)
        story.note(
            model=model,
            placement=where,
            load_seconds=round(seconds, 3),
            question=QUESTION,
            **figures_of(answer),
        )
        if model == DEFAULT_MODEL and EXPECTED not in answer.text:
            raise InternalError.because(
                "demo_wrong_answer", f"the answer {answer.text!r} does not name {EXPECTED}"
            )
        await unload(handle, instance.instance)
    return model


async def _wait_model(cast: Cast, handle: NodeHandle, wanted: ModelId) -> ModelId:
    """Have the model on every node; returns its whole name.

    Raises:
        NotFoundError: no node knows it.
    """
    with anyio.move_on_after(KNOWN_SECONDS):
        while find_model(handle, wanted) not in _known(handle):  # noqa: ASYNC110 - registers come without being awaited
            await anyio.sleep(LOOK_SECONDS)
    model = find_model(handle, wanted)
    if model not in _known(handle):
        raise NotFoundError.because(
            "model_not_found",
            f"no node knows the model {wanted!r}",
            f"there are: {', '.join(sorted(_known(handle))) or 'none'}",
        )

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
    return model


def _known(handle: NodeHandle) -> set[ModelId]:
    return known_models(handle) | {view.model for view in model_views(handle)}


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
