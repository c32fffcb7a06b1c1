"""Which downloads of a node run now, and what becomes of one that fails.

Values only: a queue and what happened in, the next queue out. The order is by priority, then by
when a download was asked for; the first few that can run do, and one that is overtaken waits.
"""

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from node.core.backoff import Backoff
from node.core.refusal import Refusal, refusal
from node.model.download import PullModel
from node.model.errors import BusyError, ConflictError, Failure, NotFoundError, UsageError
from node.model.ids import ModelId, NodeId
from node.model.register import DownloadRecord

JOBS_MAX = 200
"""Downloads in a queue; the oldest finished ones make room."""
AT_ONCE = 2
AT_ONCE_MAX = 16
PRIORITY_MAX = 1000
RETRY = Backoff(first_seconds=1.0, last_seconds=300.0)
RETRY_AFTER_SECONDS_MAX = 3600.0
"""However long a hub asks to be left alone."""
RUNNABLE = ("queued", "resolving", "downloading", "verifying")
ACTIONS = ("pause", "resume", "retry", "cancel")


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why a download stopped."""

    failure: Failure
    is_passing: bool
    """It may go by itself: tried again. Else it stands until a person acts."""
    retry_after_seconds: float = 0.0
    """What the hub asked for."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One model on its way to this node."""

    model: ModelId
    revision: str = "main"
    commit: str = ""
    phase: str = "queued"
    priority: int = 0
    number: int = 0
    """Order of asking."""
    bytes_done: int = 0
    bytes_total: int = 0
    attempts: int = 0
    failure: Failure | None = None
    retry_at: float = 0.0
    """Wall clock; 0: not by itself."""
    queued_at: float = 0.0
    ended_at: float = 0.0
    bytes_per_second_max: int = 0
    source: str = "auto"
    companions: tuple[NodeId, ...] = ()
    is_check: bool = False
    """Its files lie here already and are hashed anew."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """What a node keeps on disk over its restarts."""

    jobs: tuple[Job, ...] = ()
    numbers: int = 0
    """Numbers given so far."""
    at_once: int = AT_ONCE
    bytes_per_second_max: int = 0

    def get(self, model: ModelId) -> Job | None:
        """The job of a model."""
        return next((job for job in self.jobs if job.model == model), None)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What should run now."""

    start: tuple[Job, ...]
    stop: tuple[ModelId, ...]
    wake_at: float | None
    """Wall clock: look again then."""


def add(queue: Queue, order: PullModel, now: float, *, is_check: bool = False) -> Queue:
    """Queue a model; one that is there already goes on, with the order's wishes."""
    known = queue.get(order.model)
    if known is not None and known.revision == order.revision and known.phase in RUNNABLE:
        return _put(queue, replace(known, **_wishes(order)))
    if known is not None and known.revision == order.revision and known.phase != "complete":
        again = replace(known, phase="queued", failure=None, retry_at=0.0, attempts=0)
        return _put(queue, replace(again, **_wishes(order)))
    number = queue.numbers + 1
    job = Job(
        model=order.model,
        revision=order.revision,
        number=number,
        queued_at=now,
        is_check=is_check,
        priority=order.priority,
        bytes_per_second_max=order.bytes_per_second,
        source=order.source,
        companions=order.companions,
    )
    return _put(replace(queue, numbers=number), job)


def no_room(queue: Queue, model: ModelId) -> Refusal | None:
    """Why no further model can be queued, if so: only finished ones make room."""
    waiting = sum(job.phase != "complete" for job in queue.jobs if job.model != model)
    if waiting < JOBS_MAX:
        return None
    return refusal(
        BusyError,
        "too_many_downloads",
        f"{waiting} downloads wait already, at most {JOBS_MAX}",
        "wait, or give some up: exoctl download ls",
    )


def steer(queue: Queue, model: ModelId, action: str) -> Queue | Refusal:
    """Pause, resume, try again now, or drop a download."""
    job = queue.get(model)
    if action not in ACTIONS:
        return refusal(
            UsageError,
            "bad_action",
            f"a download can't be told to {action[:60]!r}",
            f"use {', '.join(ACTIONS)}",
        )
    if job is None:
        return _unknown(queue, model)
    if action == "cancel":
        return replace(queue, jobs=tuple(each for each in queue.jobs if each.model != model))
    if job.phase == "complete":
        return refusal(
            ConflictError, "download_complete", f"{model} is complete already", "nothing to do"
        )
    return _put(queue, _paused(job) if action == "pause" else _resumed(job, action))


def _paused(job: Job) -> Job:
    return replace(job, phase="paused", failure=None, retry_at=0.0)


def _resumed(job: Job, action: str) -> Job:
    if action == "resume" and job.phase in RUNNABLE:
        return job
    return replace(job, phase="queued", failure=None, retry_at=0.0, attempts=0)


def prioritise(queue: Queue, model: ModelId, priority: int) -> Queue | Refusal:
    """Give a download its place."""
    job = queue.get(model)
    if job is None:
        return _unknown(queue, model)
    bounded = max(-PRIORITY_MAX, min(PRIORITY_MAX, priority))
    return _put(queue, replace(job, priority=bounded))


def limit(queue: Queue, at_once: int | None, bytes_per_second: int | None) -> Queue | Refusal:
    """Bound what all downloads do together."""
    if at_once is not None and not 1 <= at_once <= AT_ONCE_MAX:
        return refusal(
            UsageError,
            "bad_limit",
            f"{at_once} downloads at once are not possible",
            f"use 1 to {AT_ONCE_MAX}",
        )
    if bytes_per_second is not None and bytes_per_second < 0:
        return refusal(UsageError, "bad_limit", "a rate can't be negative", "0 takes the bound off")
    return replace(
        queue,
        at_once=queue.at_once if at_once is None else at_once,
        bytes_per_second_max=(
            queue.bytes_per_second_max if bytes_per_second is None else bytes_per_second
        ),
    )


def plan(queue: Queue, running: Collection[ModelId], now: float) -> Turn:
    """What should start and what should make room."""
    ready = [job for job in in_order(queue) if _is_due(job, now)]
    chosen = ready[: queue.at_once]
    wanted = {job.model for job in chosen}
    waits = [_due_at(job, now) for job in queue.jobs if job.phase == "failed" and job.retry_at]
    return Turn(
        start=tuple(job for job in chosen if job.model not in running),
        stop=tuple(model for model in running if model not in wanted),
        wake_at=min(waits, default=None),
    )


def in_order(queue: Queue) -> list[Job]:
    """Every job, the next first."""
    return sorted(queue.jobs, key=lambda job: (-job.priority, job.number))


def note(queue: Queue, model: ModelId, **changes: object) -> Queue:
    """Write down how far a job is; nothing where it is gone. Bytes that came forgive failures."""
    job = queue.get(model)
    if job is None:
        return queue
    changed = replace(job, **changes)
    if changed.bytes_done > job.bytes_done and job.attempts:
        changed = replace(changed, attempts=0)
    if changed.phase == "complete":
        changed = replace(changed, failure=None, retry_at=0.0, attempts=0)
    return _put(queue, changed)


def failed(queue: Queue, model: ModelId, trouble: Trouble, now: float) -> Queue:
    """A job stopped: it waits for its next try, or for a person."""
    job = queue.get(model)
    if job is None or job.phase == "paused":
        return queue
    attempts = job.attempts + 1
    retry_at = 0.0
    if trouble.is_passing:
        wait = max(
            RETRY.delay_seconds(attempts),
            min(trouble.retry_after_seconds, RETRY_AFTER_SECONDS_MAX),
        )
        retry_at = now + wait
    return _put(
        queue,
        replace(job, phase="failed", failure=trouble.failure, attempts=attempts, retry_at=retry_at),
    )


def recovered(queue: Queue) -> Queue:
    """The queue of before a restart: what ran is in line again, what waits for a person waits."""
    return replace(
        queue,
        jobs=tuple(
            replace(job, phase="queued") if job.phase in RUNNABLE else job for job in queue.jobs
        ),
    )


def record(job: Job) -> DownloadRecord:
    """The job as others see it; never more than all of it."""
    done = min(job.bytes_done, job.bytes_total) if job.bytes_total else job.bytes_done
    return DownloadRecord(
        model=job.model,
        phase=job.phase,
        bytes_done=done,
        bytes_total=job.bytes_total,
        failure=job.failure,
        revision=job.revision,
        commit=job.commit,
        priority=job.priority,
        attempts=job.attempts,
        retry_at=job.retry_at,
        queued_at=job.queued_at,
    )


def _is_due(job: Job, now: float) -> bool:
    if job.phase in RUNNABLE:
        return True
    return job.phase == "failed" and bool(job.retry_at) and _due_at(job, now) <= now


def _due_at(job: Job, now: float) -> float:
    """When a failed one is due; a clock that was set back does not put it off."""
    longest = max(RETRY.last_seconds, RETRY_AFTER_SECONDS_MAX)
    return now if job.retry_at - now > longest else job.retry_at


def _wishes(order: PullModel) -> dict[str, object]:
    return {
        "priority": order.priority,
        "bytes_per_second_max": order.bytes_per_second,
        "source": order.source,
        "companions": order.companions,
    }


def _put(queue: Queue, job: Job) -> Queue:
    jobs = [each for each in queue.jobs if each.model != job.model] + [job]
    jobs.sort(key=lambda each: each.number)
    over = len(jobs) - JOBS_MAX
    if over > 0:
        ended = [each for each in jobs if each.phase == "complete"][:over]
        jobs = [each for each in jobs if each not in ended]
    return replace(queue, jobs=tuple(jobs))


def _unknown(queue: Queue, model: ModelId) -> Refusal:
    known = ", ".join(job.model for job in in_order(queue)) or "none"
    return refusal(
        NotFoundError,
        "download_not_found",
        f"no download of {model!r} is in the queue",
        f"downloads here: {known}",
    )
