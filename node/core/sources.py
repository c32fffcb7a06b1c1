"""Who has a model's files, and which of several nodes asks the hub for all of them.

Every node that fetches the same commit sees the same registers and comes to the same answer: the
first in order asks the hub, the others take from it what it has. When it falls out, the next does.
"""

from collections.abc import Mapping

import msgspec

from node.core.download_queue import Job
from node.model.ids import NodeId
from node.model.register import DownloadFigures, DownloadRecord, ModelFigures, Register

FETCHING = ("resolving", "downloading", "verifying")
COMPANION_SECONDS = 8.0
"""How long an earlier companion that has not begun yet is waited for."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file can be had."""

    whole: tuple[NodeId, ...] = ()
    """Nodes that have all of it."""
    partly: tuple[NodeId, ...] = ()
    """Nodes before this one that are fetching it: what they have already can be had."""
    should_wait: bool = False
    """A node before this one is about to begin: it is not for this one to ask the hub."""

    @property
    def peers(self) -> tuple[NodeId, ...]:
        """All of them, the better first."""
        return (*self.whole, *self.partly)


def sources(
    registers: Mapping[tuple[NodeId, str], Register],
    node: NodeId,
    job: Job,
    commit: str,
    now: float,
) -> Sources:
    """Look for the commit's files on other nodes; `now` is by the wall clock."""
    whole: list[NodeId] = []
    partly: list[NodeId] = []
    begun: set[NodeId] = set()
    wanted = f"{job.model}@{commit}"
    for (other, _), register in registers.items():
        if other == node:
            continue
        value = register.value
        if isinstance(value, ModelFigures):
            if any(held.complete and held.card.source == wanted for held in value.held):
                whole.append(other)
        elif isinstance(value, DownloadFigures):
            record = next((each for each in value.downloads if each.model == job.model), None)
            if record is None or (record.commit and record.commit != commit):
                continue
            if record.phase == "complete":
                whole.append(other)
            elif record.phase in FETCHING and _is_before(other, record, node, job):
                partly.append(other)
            if record.phase != "queued":
                begun.add(other)
    partly.sort(key=lambda other: _place(other, job))
    earlier = job.companions[: _place(node, job)]
    late = [other for other in earlier if other not in begun and other not in whole]
    return Sources(
        whole=tuple(sorted(set(whole))),
        partly=tuple(other for other in partly if other not in whole),
        should_wait=bool(late) and 0 <= now - job.queued_at < COMPANION_SECONDS,
    )


def _is_before(other: NodeId, record: DownloadRecord, node: NodeId, job: Job) -> bool:
    if other in job.companions and node in job.companions:
        return _place(other, job) < _place(node, job)
    return (record.queued_at, other) < (job.queued_at, node)


def _place(node: NodeId, job: Job) -> int:
    return job.companions.index(node) if node in job.companions else len(job.companions)
