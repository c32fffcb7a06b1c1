"""Generations that this node takes: finds a ready instance, keeps the record, carries the items."""

import collections
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from node.core.affinity import Affinity
from node.core.instance_status import InstanceStatus, status
from node.io import clock
from node.log import logger
from node.model.errors import BusyError, ExoctlError, Failure, NotFoundError
from node.model.ids import InstanceId, NodeId, RequestId
from node.model.instance import Instance
from node.model.register import RequestFigures, RunnerFigures
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Prefilled,
    Queued,
    RequestPhase,
    RequestRecord,
)
from node.model.state import State
from node.services.register_store import RegisterStore
from node.wire.surface import kind_of

RUNNING_MAX = 512
"""Generations that this node takes at once; further ones are refused."""
ENDED_KEPT = 50
"""Ended generations that stay visible."""
RATE_SECONDS = 5.0

_log = logger("requests")

Generate = Callable[[GenerationRequest], AsyncGenerator[GenerationItem, None]]
Read = Callable[[NodeId, GenerationRequest], AsyncGenerator[GenerationItem, None]]


class _Running(msgspec.Struct):
    record: RequestRecord
    target: NodeId
    started: float
    """Monotonic."""
    first_token: float = 0.0


class Requests:
    """Made once; no master is in the path of a request."""

    def __init__(
        self,
        node: NodeId,
        registers: RegisterStore,
        state: Callable[[], State],
        generate_here: Generate,
        read: Read,
    ) -> None:
        self._node = node
        self._registers = registers
        self._state = state
        self._generate_here = generate_here
        self._read = read
        self._running: dict[RequestId, _Running] = {}
        self._ended: collections.deque[RequestRecord] = collections.deque(maxlen=ENDED_KEPT)
        self._affinity = Affinity()
        self._ended_total = 0
        self._failed_total = 0

    # -- choosing ----------------------------------------------------------------------------------

    def choose(self, request: GenerationRequest) -> Instance:
        """The ready instance of the model with the fewest requests, or one that knows the beginning
        of the conversation and has hardly more.

        Raises:
            NotFoundError: the model has no instance.
            BusyError: none of its instances is ready.
        """
        state = self._state()
        instances = [
            instance
            for instance in state.instances.values()
            if (request.instance is None and instance.model == request.model)
            or instance.instance == request.instance
        ]
        if not instances:
            raise NotFoundError(self._not_loaded(request, state))
        statuses = {
            instance.instance: status(state, instance.instance, self._registers.registers)
            for instance in instances
        }
        ready = [instance for instance in instances if statuses[instance.instance].ready]
        if not ready:
            raise BusyError(_not_ready(request, statuses))
        loads = {instance.instance: self._load(instance) for instance in ready}
        return state.instances[self._affinity.choose(request, loads)]

    def _load(self, instance: Instance) -> int:
        first = instance.shards[0]
        own = sum(
            running.record.instance == instance.instance for running in self._running.values()
        )
        register = self._registers.registers.get((first.node, RunnerFigures.__name__))
        if register is None or not isinstance(register.value, RunnerFigures):
            return own
        for runner in register.value.runners:
            if runner.runner == first.runner:
                return max(own, runner.requests_running + runner.requests_queued)
        return own

    def _not_loaded(self, request: GenerationRequest, state: State) -> Failure:
        loaded = sorted({instance.model for instance in state.instances.values()})
        what = request.instance or request.model
        return Failure(
            code="model_not_loaded",
            message=f"{what!r} is not loaded; loaded: {', '.join(loaded) or 'nothing'}",
            remedy=f"load it: exoctl load {request.model}",
        )

    # -- generating --------------------------------------------------------------------------------

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        """Generate on the chosen instance; the last item is `Finished` or `Failed`.

        Raises:
            NotFoundError, BusyError: as `choose`; or this node takes no more requests.
        """
        instance = self.choose(request)
        if len(self._running) >= RUNNING_MAX or request.id in self._running:
            raise BusyError.because(
                "too_many_requests", f"this node carries {len(self._running)} requests already"
            )
        request = msgspec.structs.replace(request, instance=instance.instance)
        target = instance.shards[0].node
        record = RequestRecord(
            request=request.id,
            model=instance.model,
            instance=instance.instance,
            taken_by=self._node,
            phase=RequestPhase.QUEUED,
            started_at=clock.wall(),
            nodes=instance.nodes,
            weight_format=instance.weight_format.value,
            table_tokens_per_second=instance.table_tokens_per_second,
            table_prompt_tokens_per_second=instance.table_prompt_tokens_per_second,
        )
        running = _Running(record, target, clock.monotonic())
        self._running[request.id] = running
        items = (
            self._generate_here(request) if target == self._node else self._read(target, request)
        )
        ended = False
        try:
            async with aclosing(items):
                async for item in items:
                    self._note(running, item)
                    ended = isinstance(item, Finished | Failed)
                    yield item
                    if ended:
                        return
            cut = Failed(
                kind="InternalError",
                failure=Failure(
                    code="stream_cut", message="the runner's stream ended without a last item"
                ),
            )
            self._note(running, cut)
            ended = True
            yield cut
        except ExoctlError as error:
            # It was refused, not cancelled: the record tells so, whoever asked is told by raising.
            self._note(running, Failed(kind=kind_of(error), failure=error.failure))
            ended = True
            raise
        finally:
            del self._running[request.id]
            self._end(running, ended=ended)

    def taker(self, request: RequestId) -> NodeId | None:
        """The node that took a running request, as its register says."""
        for (node, _), register in self._registers.registers.items():
            if isinstance(register.value, RequestFigures):
                for record in register.value.requests:
                    if record.request == request and not record.ended_at:
                        return node
        return None

    def target(self, request: RequestId) -> NodeId | None:
        """The node that generates for a request of this node."""
        running = self._running.get(request)
        return running.target if running is not None else None

    def figures(self) -> RequestFigures:
        """Running requests first, then those that ended last."""
        running = tuple(item.record for item in self._running.values())
        return RequestFigures(
            requests=running + tuple(reversed(self._ended)),
            ended_total=self._ended_total,
            failed_total=self._failed_total,
        )

    # -- the record --------------------------------------------------------------------------------

    def _note(self, running: _Running, item: GenerationItem) -> None:
        record = running.record
        match item:
            case Queued():
                changed = msgspec.structs.replace(record, phase=RequestPhase.QUEUED)
            case Prefilled(done=done, total=total):
                changed = msgspec.structs.replace(
                    record,
                    phase=RequestPhase.PREFILL,
                    prompt_tokens=total,
                    prefilled_tokens=done,
                )
            case Delta():
                changed = self._note_delta(running, item)
            case Finished(reason=reason, usage=usage):
                phase = (
                    RequestPhase.CANCELLED
                    if reason is FinishReason.CANCELLED
                    else RequestPhase.DONE
                )
                changed = msgspec.structs.replace(
                    record,
                    phase=phase,
                    prompt_tokens=usage.prompt_tokens,
                    output_tokens=usage.output_tokens,
                    cached_tokens=usage.cached_tokens,
                    prefill_seconds=round(usage.prefill_seconds, 3),
                )
            case Failed(failure=failure):
                changed = msgspec.structs.replace(
                    record, phase=RequestPhase.FAILED, failure=failure
                )
        running.record = changed

    def _note_delta(self, running: _Running, delta: Delta) -> RequestRecord:
        now = clock.monotonic()
        record = running.record
        if not running.first_token:
            running.first_token = now
        tokens = record.output_tokens + len(delta.tokens)
        elapsed = now - running.first_token
        return msgspec.structs.replace(
            record,
            phase=RequestPhase.DECODE,
            output_tokens=tokens,
            first_token_seconds=round(running.first_token - running.started, 3),
            tokens_per_second=round((tokens - 1) / elapsed, 2) if elapsed > 0 else 0.0,
        )

    def _end(self, running: _Running, *, ended: bool) -> None:
        record = msgspec.structs.replace(running.record, ended_at=clock.wall())
        if not ended:
            record = msgspec.structs.replace(record, phase=RequestPhase.CANCELLED)
        self._ended.append(record)
        self._ended_total += 1
        if record.failure is not None:
            self._failed_total += 1
            _log.warning("request %s failed: %s", record.request, record.failure.message)
        else:
            _log.info(
                "request %s %s: %d tokens, %.1f tok/s, first after %.2f s",
                record.request,
                record.phase.value,
                record.output_tokens,
                record.tokens_per_second,
                record.first_token_seconds,
            )


def _not_ready(request: GenerationRequest, statuses: dict[InstanceId, InstanceStatus]) -> Failure:
    words = ", ".join(
        f"{instance} is {found.word}" + (f" ({found.detail})" if found.detail else "")
        for instance, found in statuses.items()
    )
    return Failure(
        code="model_not_ready",
        message=f"no instance of {request.model!r} is ready: {words}",
        remedy=f"wait for it: exoctl wait --for model={request.model}",
    )
