"""The state: what folding the log's committed entries gives, the same on every node."""

import msgspec

from node.model.command import Accepted
from node.model.event import ProposalRejected
from node.model.ids import ClusterId, CommandId, InstanceId, NodeId, RunnerId
from node.model.instance import Instance, RunnerRecord
from node.model.machine import NodeRecord
from node.model.session import NO_SESSION, Session

ANSWERS_MIN = 10_000
"""Decided commands that are remembered at least; one sent again later than that runs again."""
ANSWERS_CHUNK = 256
"""Answers beyond this many become a chunk that is never copied again."""
REJECTIONS_MAX = 100


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable; `apply` copies only the map whose key changed. They hold at most about 1,000; the
    many answers lie in chunks.
    """

    cluster: ClusterId = ClusterId("")
    cluster_name: str = ""
    session: Session = NO_SESSION
    index: int = -1
    """Index of the last entry folded in; -1 before the first."""
    nodes: dict[NodeId, NodeRecord] = {}
    revoked: dict[NodeId, str] = {}
    """Nodes that must not come back by themselves, with the reason."""
    in_sync: tuple[NodeId, ...] = ()
    instances: dict[InstanceId, Instance] = {}
    runners: dict[RunnerId, RunnerRecord] = {}
    attempts: dict[InstanceId, int] = {}
    """Which start of an instance's runners is wanted, from 1."""
    answers: dict[CommandId, Accepted] = {}
    """The latest; ask `answer_to`."""
    rejections: tuple[ProposalRejected, ...] = ()
    answers_before: tuple[dict[CommandId, Accepted], ...] = ()
    """The earlier ones, oldest chunk first."""
    former: dict[NodeId, str] = {}
    """Last names of the latest nodes that are of the cluster no more."""

    @property
    def master(self) -> NodeId:
        """The node that masters the session; empty before the first."""
        return self.session.master

    def answer_to(self, command: CommandId) -> Accepted | None:
        """What a command was answered; None where it was not decided, or too long ago."""
        answer = self.answers.get(command)
        if answer is not None:
            return answer
        chunks = (chunk[command] for chunk in self.answers_before if command in chunk)
        return next(chunks, None)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Stream item and file: the state at an index, in place of every entry up to it."""

    state: State
