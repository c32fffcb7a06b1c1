"""What the mesh tells its owner, and what its owner may say to peers."""

import msgspec

from node.core.replica.messages import ReplicaMessage
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from node.wire.message import ServiceMessage

PeerMessage = ReplicaMessage | ServiceMessage


class PeerUp(msgspec.Struct, frozen=True, kw_only=True):
    """A link stands: the peer proved its id and both sides want it."""

    peer: NodeId
    address: Address
    """Where it was dialled, or where it came from."""
    name: str
    version: str = ""


class PeerDown(msgspec.Struct, frozen=True, kw_only=True):
    """A link fell (`refused` is False), or nothing listens at any of the peer's addresses.

    Nothing that came over the fallen link follows. After the first kind the peer is dialled at
    once; the second kind follows when it was refused, and may come for a peer that was never up.
    """

    peer: NodeId
    refused: bool
    reason: str


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message over a link that stands; `peer` is proved, whatever the message itself says."""

    peer: NodeId
    message: PeerMessage


MeshEvent = PeerUp | PeerDown | Received


class JoinGranted(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster has admitted this node."""

    cluster: ClusterId
    cluster_name: str
    member: NodeId
    """The member that let it in; proved."""
    addresses: tuple[tuple[NodeId, Address], ...]
    """(member, where it is reached); the one that let it in comes first."""
