"""Commands: wishes in the imperative, decided by the master, answered after commit."""

import msgspec

from node.model.errors import Failure
from node.model.ids import CommandId, InstanceId, ModelId, NodeId
from node.model.machine import Address


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """How a person wants a model placed; everything is optional."""

    nodes: tuple[NodeId, ...] = ()
    """Only these nodes, and all of them; empty lets placement choose."""
    exclude: tuple[NodeId, ...] = ()
    nodes_min: int = 1
    context_tokens: int = 0
    """0 takes the default: 4096 or the model's own limit, whichever is less."""
    strategy: str = "auto"
    """`auto`, `single`, `pipeline`, `tensor`."""
    layers: tuple[int, ...] = ()
    """Layers per node, in the order of `nodes`; empty lets placement choose."""
    weight_format: str = "auto"
    """`auto`, `as_stored`, `dense`."""
    force: bool = False
    """Place even where memory is short; what it risks is said beside it."""
    restart: str = "auto"
    """When a node or a runner of it is gone. `auto`: start its runners again; place it anew on the
    nodes that hold the files, within this wish, once a node is lost for a while. `always`: also on
    other nodes than those named. `never`: neither."""
    requests: int = 1
    """Requests at once for each of which the whole context must find room; where there is less,
    further ones share it while they are shorter, and else queue."""


class PlaceInstance(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Place a model and start its runners."""

    model: ModelId
    wish: Wish = Wish()


class StopInstance(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Stop an instance's runners and remove it."""

    instance: InstanceId


class RestartInstance(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Start an instance's runners again, all together."""

    instance: InstanceId


class AdmitNode(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Let a node in whose proof was checked by the node that asks."""

    node: NodeId
    name: str
    addresses: tuple[Address, ...] = ()
    proof: str = "invite"
    """`invite` or `approval`: a person vouches, which also lets a removed node come back; `lan`:
    nobody does."""


class RemoveNode(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Take a node out of the cluster for good."""

    node: NodeId
    reason: str = "removed"


class CordonNode(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Keep new shards off a node, or allow them again."""

    node: NodeId
    cordoned: bool = True


class NameNode(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Call a node otherwise than it calls itself; an empty name takes that back."""

    node: NodeId
    name: str


class LabelNode(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Set labels of a node; an empty value takes one off. Others stay as they are."""

    node: NodeId
    labels: dict[str, str]


class StepDown(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Have the master hand its office over to another node, as before a planned stop."""


Command = (
    PlaceInstance
    | StopInstance
    | RestartInstance
    | AdmitNode
    | RemoveNode
    | CordonNode
    | StepDown
    | NameNode
    | LabelNode
)


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A command with the id that it keeps for life, however often it is sent."""

    id: CommandId
    asked_by: NodeId
    command: Command


class Accepted(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The command was decided and its decision is committed."""

    id: CommandId
    index: int
    """Where in the log."""
    subject: str = ""
    """What was made or touched, such as an instance id."""


class Refused(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The command was not carried out; nothing changed."""

    id: CommandId
    kind: str
    """Name of the exception class in `model.errors` that a caller raises."""
    failure: Failure


Answer = Accepted | Refused
