"""Measuring how fast a model answers several clients at once."""

from contextlib import aclosing
from typing import Any

import msgspec

from node.handle import NodeHandle
from node.io import clock
from node.model.errors import ExoctlError
from node.model.ids import ModelId, RequestId
from node.model.request import Delta, Failed, Finished, GenerationRequest, Sampling, Usage
from tui.commands.naming import error_of

WORD = " lighthouse"


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where and with what figures were made: without that they can't be compared."""

    version: str
    model: str
    nodes: list[str]
    chips: list[str]
    mlx: list[str]
    placement: str
    weight_format: str
    measured_at: float
    """Wall clock, seconds since 1970."""
    load_average: float
    """Of this node's machine, before."""
    prompt_tokens: int
    output_tokens: int
    reuses_prefix: bool


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Figures at one number of clients."""

    concurrency: int
    requests: int
    failed: int
    output_tokens: int
    seconds: float
    tokens_per_second: float
    """Over all clients, first prompt to last token."""
    first_token_median_seconds: float
    first_token_worst_seconds: float
    cached_tokens: int
    failure: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark, as it is kept in a file."""

    provenance: Provenance
    points: list[Point]


class _Outcome(msgspec.Struct, kw_only=True):
    first_seconds: float = 0.0
    usage: Usage | None = None
    failure: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What every client asks for."""

    model: ModelId
    prompt_tokens: int
    output_tokens: int
    reuses_prefix: bool
    """All prompts begin alike."""

    def request(self, number: int) -> GenerationRequest:
        """One client's request: greedy, and never ended before its tokens are out."""
        words = WORD * self.prompt_tokens
        own = f"{clock.random_hex(8)} "
        text = f"{words}{own}" if self.reuses_prefix else f"{own}{words}"
        return GenerationRequest(
            id=RequestId(f"q-{clock.random_hex(12)}{number:04d}"),
            model=self.model,
            prompt=text,
            sampling=Sampling(temperature=0.0),
            tokens_max=self.output_tokens,
        )


async def measure(handle: NodeHandle, asked: Asked, clients: int) -> Point:
    """So many clients at once, each with one request."""
    import anyio

    outcomes = [_Outcome() for _ in range(clients)]
    began = clock.monotonic()
    async with anyio.create_task_group() as tasks:
        for number, outcome in enumerate(outcomes):
            tasks.start_soon(_ask, handle, asked.request(number), outcome)
    seconds = clock.monotonic() - began
    usages = [outcome.usage for outcome in outcomes if outcome.usage is not None]
    firsts = sorted(outcome.first_seconds for outcome in outcomes if outcome.usage is not None)
    tokens = sum(usage.output_tokens for usage in usages)
    return Point(
        concurrency=clients,
        requests=clients,
        failed=clients - len(usages),
        output_tokens=tokens,
        seconds=round(seconds, 3),
        tokens_per_second=round(tokens / seconds, 2) if seconds > 0 else 0.0,
        first_token_median_seconds=round(firsts[len(firsts) // 2], 3) if firsts else 0.0,
        first_token_worst_seconds=round(firsts[-1], 3) if firsts else 0.0,
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        failure=next((outcome.failure for outcome in outcomes if outcome.failure), ""),
    )


async def _ask(handle: NodeHandle, request: GenerationRequest, outcome: _Outcome) -> None:
    began = clock.monotonic()
    try:
        async with aclosing(handle.generate(request)) as items:
            async for item in items:
                if isinstance(item, Delta) and item.tokens and not outcome.first_seconds:
                    outcome.first_seconds = clock.monotonic() - began
                if isinstance(item, Failed):
                    raise error_of(item)
                if isinstance(item, Finished):
                    outcome.usage = item.usage
    except ExoctlError as error:
        outcome.failure = error.failure.message


async def provenance_of(handle: NodeHandle, asked: Asked) -> Provenance:
    """Where and with what it is measured."""
    local = await handle.local()
    instance = next(each for each in handle.state.instances.values() if each.model == asked.model)
    records = [handle.state.nodes[node] for node in instance.nodes if node in handle.state.nodes]
    machines = [record.machine for record in records if record.machine is not None]
    figures = handle.registers.get((local.node, "MachineFigures"))
    average: Any = getattr(figures.value, "load_average", 0.0) if figures is not None else 0.0
    return Provenance(
        version=local.version,
        model=asked.model,
        nodes=[record.name for record in records],
        chips=[machine.chip for machine in machines],
        mlx=sorted({machine.mlx for machine in machines}),
        placement=" + ".join(
            f"{shard.end_layer - shard.first_layer} layers" for shard in instance.shards
        ),
        weight_format=instance.weight_format.value,
        measured_at=round(clock.wall(), 3),
        load_average=float(average),
        prompt_tokens=asked.prompt_tokens,
        output_tokens=asked.output_tokens,
        reuses_prefix=asked.reuses_prefix,
    )
