"""What the master does by itself when the state changes: finish stops, restart what failed, and
say which instances have been without a node for so long that they are to be placed anew.
"""

from collections.abc import Iterator

import msgspec

from node.core.decide import next_attempt
from node.model.event import Event, InstanceRemoved, InstanceStopping, RunnerRestartRequested
from node.model.ids import InstanceId
from node.model.instance import Instance, RunnerPhase, RunnerRecord
from node.model.state import State

RETRY_SECONDS = (1.0, 5.0, 15.0)
"""Back-off before each restart; after the last the instance stays failed until a person acts."""
REFILL_SECONDS = 300.0
"""An instance that was ready for so long has all its restarts again."""

REPLACE_SECONDS = 10.0
"""How long a lost node is waited for, and how long after a look for other places comes the next."""
RETELL_SECONDS = 10.0
"""What was offered and does not show in the state by then got lost on its way: it is repeated."""

_OVER = (RunnerPhase.STOPPED, RunnerPhase.FAILED)


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """What the master remembers of one instance's restarts."""

    attempt: int
    """The attempt that it has asked for, or found."""
    used: int = 0
    due_at: float | None = None
    ready_since: float | None = None
    interrupted: bool = False
    """A node of the instance is lost."""
    replace_at: float | None = None
    """When to look for another place, where a node is lost."""
    asked: bool = False
    """The attempt was asked for and does not show yet; at `due_at` it is asked for again."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A stop or a removal that was offered to the log."""

    removal: bool
    at: float


class Memo(msgspec.Struct, frozen=True, kw_only=True):
    """What one reign of a master remembers; a new master begins with an empty one."""

    retries: dict[InstanceId, Retry] = {}
    told: dict[InstanceId, Told] = {}
    """What was offered for an instance and does not show yet."""


class FollowUp(msgspec.Struct, frozen=True, kw_only=True):
    """What to offer to the log now, and what to remember."""

    events: tuple[Event, ...]
    memo: Memo
    wake_at: float | None = None
    """Look again then, even if nothing changes."""
    stranded: tuple[InstanceId, ...] = ()
    """Instances that are without a node for so long that another place is to be looked for."""


def follow_up(state: State, now: float, memo: Memo) -> FollowUp:
    """Look at the state after a change or at `wake_at`; `now` is monotonic.

    Instances whose runners are all over are removed once their stop was decided; an instance on a
    node that is not of the cluster any more is stopped; one that failed starts anew, all runners
    together, once its nodes are all there. A node's return gives an instance all its restarts back:
    its failures came from the loss.
    """
    events: list[Event] = []
    retries: dict[InstanceId, Retry] = {}
    told: dict[InstanceId, Told] = {}
    stranded: list[InstanceId] = []
    for key, instance in state.instances.items():
        ending = _ending(state, instance)
        if ending is not None:
            removal = isinstance(ending, InstanceRemoved)
            offered = memo.told.get(key)
            if offered is None or offered.removal != removal or now >= _repeat_at(offered):
                offered = Told(removal=removal, at=now)
                events.append(ending)
            told[key] = offered
        elif not instance.removing:
            attempt = state.attempts.get(key, 1)
            retry = memo.retries.get(key, Retry(attempt=attempt))
            if attempt > retry.attempt:
                retry = Retry(attempt=attempt)
            if any(state.nodes[node].lost for node in instance.nodes):
                retries[key], is_due = _interrupted(instance, retry, now)
                stranded += [key] if is_due else []
                continue
            retries[key], restart = _retry(state, instance, retry, now)
            if restart is not None:
                events.append(restart)
    due = [retry.due_at for retry in retries.values() if retry.due_at is not None]
    due += [retry.replace_at for retry in retries.values() if retry.replace_at is not None]
    due += [_repeat_at(offered) for offered in told.values()]
    return FollowUp(
        events=tuple(events),
        memo=Memo(retries=retries, told=told),
        wake_at=min(due, default=None),
        stranded=tuple(stranded),
    )


def _repeat_at(offered: Told) -> float:
    return offered.at + RETELL_SECONDS


def _ending(state: State, instance: Instance) -> InstanceRemoved | InstanceStopping | None:
    if instance.removing:
        if all(_is_gone(state, instance, rank) for rank in range(len(instance.shards))):
            return InstanceRemoved(instance=instance.instance, reason="stopped")
        return None
    if any(node not in state.nodes for node in instance.nodes):
        return InstanceStopping(instance=instance.instance)
    return None


def _is_gone(state: State, instance: Instance, rank: int) -> bool:
    """Whether a runner is over, or out of reach: its node then ends it by itself on return."""
    shard = instance.shards[rank]
    node = state.nodes.get(shard.node)
    if node is None or node.lost:
        return True
    record = state.runners.get(shard.runner)
    return record is not None and record.phase in _OVER


def _interrupted(instance: Instance, retry: Retry, now: float) -> tuple[Retry, bool]:
    """A node is lost: wait for it, then say that another place is wanted, again and again."""
    if instance.wish.restart == "never":
        return Retry(attempt=retry.attempt, used=retry.used, interrupted=True), False
    replace_at = now + REPLACE_SECONDS if retry.replace_at is None else retry.replace_at
    is_due = now >= replace_at
    waiting = Retry(
        attempt=retry.attempt,
        used=retry.used,
        interrupted=True,
        replace_at=now + REPLACE_SECONDS if is_due else replace_at,
    )
    return waiting, is_due


def _retry(
    state: State, instance: Instance, retry: Retry, now: float
) -> tuple[Retry, RunnerRestartRequested | None]:
    wanted = state.attempts.get(instance.instance, 1)
    if retry.attempt > wanted:
        if retry.asked and retry.due_at is not None and now < retry.due_at:
            return retry, None
        retry = Retry(attempt=wanted, used=max(0, retry.used - 1), due_at=now)
    elif retry.asked:
        retry = Retry(attempt=retry.attempt, used=retry.used)
    if retry.interrupted:
        retry = Retry(attempt=retry.attempt)
    records = tuple(_current(state, instance, retry.attempt))
    failed = next((record for record in records if record.phase in _OVER), None)
    if failed is not None:
        return _after_failure(state, instance, retry, failed, now)
    ready = [record for record in records if record.phase is RunnerPhase.READY]
    if len(ready) < len(instance.shards):
        return msgspec.structs.replace(retry, due_at=None, ready_since=None), None
    since = now if retry.ready_since is None else retry.ready_since
    return msgspec.structs.replace(retry, due_at=None, ready_since=since), None


def _after_failure(
    state: State, instance: Instance, retry: Retry, failed: RunnerRecord, now: float
) -> tuple[Retry, RunnerRestartRequested | None]:
    used = retry.used
    if instance.wish.restart == "never":
        return Retry(attempt=retry.attempt, used=used), None
    if retry.ready_since is not None and now - retry.ready_since >= REFILL_SECONDS:
        used = 0
    if used >= len(RETRY_SECONDS):
        return Retry(attempt=retry.attempt, used=used), None
    due_at = now + RETRY_SECONDS[used] if retry.due_at is None else retry.due_at
    if now < due_at:
        return Retry(attempt=retry.attempt, used=used, due_at=due_at), None
    cause = failed.failure.message if failed.failure else f"it is {failed.phase.value}"
    attempt = next_attempt(state, instance)
    restart = RunnerRestartRequested(
        instance=instance.instance,
        attempt=attempt,
        reason=f"restart {used + 1} of {len(RETRY_SECONDS)} after runner {failed.runner} on"
        f" {state.nodes[failed.node].name} ended: {cause}",
    )
    asked = Retry(attempt=attempt, used=used + 1, due_at=now + RETELL_SECONDS, asked=True)
    return asked, restart


def _current(state: State, instance: Instance, attempt: int) -> Iterator[RunnerRecord]:
    """Records of the wanted attempt; older ones speak of processes that are over."""
    for shard in instance.shards:
        record = state.runners.get(shard.runner)
        if record is not None and record.attempt >= attempt:
            yield record
