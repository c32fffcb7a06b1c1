"""Events: facts in the past tense, ordered by the log and folded into the state.

Fields are only ever appended, each with a default; a tag is never used again. A node that does not
know a tag keeps and forwards the entry and applies nothing.
"""

import msgspec

from node.model.errors import Failure
from node.model.ids import ClusterId, CommandId, InstanceId, NodeId
from node.model.instance import Instance, RunnerRecord
from node.model.machine import Address, Machine
from node.model.session import EventId, Session


class ClusterFounded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The first entry of a cluster's log."""

    cluster: ClusterId
    name: str
    founder: NodeId


class SessionOpened(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A new master's first entry: commits what came before it."""

    session: Session
    reason: str = ""
    """Why there was an election, such as `master studio-a lost`."""


class ViewChanged(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The set of nodes whose disks must hold an entry before it counts as committed."""

    in_sync: tuple[NodeId, ...]


class NodeAdmitted(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A node may join; its links are accepted from now on."""

    node: NodeId
    name: str
    admitted_by: NodeId
    addresses: tuple[Address, ...] = ()


class NodeRevoked(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A node left or was removed: its links are refused everywhere."""

    node: NodeId
    reason: str


class NodeDescribed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A node's own facts, written once at each of its starts and when one changes."""

    node: NodeId
    name: str
    machine: Machine
    version: str
    incarnation: int
    addresses: tuple[Address, ...] = ()


class NodeLost(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The master has not heard the node for longer than the limit, or the node said goodbye."""

    node: NodeId
    reason: str
    at: float = 0.0
    stopped: bool = False
    """It was stopped in order."""


class NodeReturned(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A lost node is heard again."""

    node: NodeId


class NodeCordoned(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """New shards are kept off the node, or allowed again."""

    node: NodeId
    cordoned: bool


class NodeNamed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """People call the node so from now on; by its own name again where it is empty."""

    node: NodeId
    name: str


class NodeLabelled(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The node has these labels from now on, and no others."""

    node: NodeId
    labels: dict[str, str]


class InstancePlaced(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A placement was decided; its nodes start runners."""

    instance: Instance


class InstanceStopping(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A stop was decided; its nodes stop their runners."""

    instance: InstanceId


class InstanceRemoved(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """All runners of the instance are gone, and so is the instance."""

    instance: InstanceId
    reason: str = ""


class RunnerChanged(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A runner's node reports a transition."""

    runner: RunnerRecord


class RunnerRestartRequested(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The instance's runners are to be started again together, as one more attempt."""

    instance: InstanceId
    attempt: int
    reason: str


class InstanceReplaced(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A node of the instance is lost, so it was placed anew, and what is left of it stops."""

    instance: InstanceId
    by: Instance
    reason: str


class InstanceStranded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A node of the instance is lost, and it is not placed anew; it waits for the node."""

    instance: InstanceId
    failure: Failure


class CommandDecided(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The master's decision on a command, with everything it brings about, as one entry.

    All or nothing: `events` are applied together, and the id keeps a command that is sent again
    from being run twice.
    """

    command: CommandId
    asked_by: NodeId
    events: "tuple[Event, ...]"
    subject: str = ""
    """What was made or touched, such as the id of a placed instance; answered to the asker."""


class DecisionWithdrawn(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A master lost its office before its decision was ordered: nothing came of it.

    It takes the decision's place in its writer's order; the asker asks the new master.
    """

    command: CommandId


class ProposalRejected(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An event that was withdrawn after a partition no longer holds."""

    id: EventId
    asked_by: NodeId
    failure: Failure
    command: CommandId | None = None


class ProposalDropped(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An event that was withdrawn after a partition says nothing any more: it is so already, or
    something newer is known. Nobody need be told.
    """

    id: EventId


Event = (
    ClusterFounded
    | SessionOpened
    | ViewChanged
    | NodeAdmitted
    | NodeRevoked
    | NodeDescribed
    | NodeLost
    | NodeReturned
    | NodeCordoned
    | InstancePlaced
    | InstanceStopping
    | InstanceRemoved
    | RunnerChanged
    | RunnerRestartRequested
    | CommandDecided
    | DecisionWithdrawn
    | ProposalRejected
    | ProposalDropped
    | InstanceReplaced
    | InstanceStranded
    | NodeNamed
    | NodeLabelled
)
