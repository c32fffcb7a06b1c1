"""What a replica asks its shell to do. Perform them in the order given, and never drop one."""

import msgspec

from node.core.replica.durable import DurableRecord, SnapshotImage
from node.core.replica.messages import Proposal, ReplicaMessage
from node.model.ids import NodeId
from node.model.session import Entry, Session


class Send(msgspec.Struct, frozen=True):
    """Send now, on the bulk link where `bulk`. May be lost: every message is repeated or implied.

    The replica itself holds back what must wait for the disk; the shell never delays a message.
    """

    peer: NodeId
    message: ReplicaMessage
    bulk: bool = False


class Write(msgspec.Struct, frozen=True):
    """Write the records in this order, sync, then call `Replica.synced(now, token)`.

    Several writes may share one sync: `synced` with the last token stands for all before it.
    """

    records: tuple[DurableRecord, ...]
    token: int


class Deliver(msgspec.Struct, frozen=True):
    """Committed entries, indices without a gap from the last delivered one on: fold them in."""

    entries: tuple[Entry, ...]


class Rewound(msgspec.Struct, frozen=True):
    """Delivered entries from `index` on were withdrawn, after a partition.

    Rebuild the state: from `Replica.snapshot` and `Replica.entries(…, index)`. What replaces them
    is delivered from `index` on.
    """

    index: int


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """The master's snapshot replaces log and state; later entries are delivered next."""

    image: SnapshotImage


class SnapshotNeeded(msgspec.Struct, frozen=True):
    """Only a snapshot helps a peer and there is none: take one, call `Replica.compact`."""


class SessionBegan(msgspec.Struct, frozen=True):
    """This node is in another session now: propose everything unacknowledged again."""

    session: Session
    reason: str


class BecameMaster(msgspec.Struct, frozen=True):
    """This node masters the session: decide commands.

    The tip state is the applied state with `tip` folded in; `TipAppended` goes on from there.
    """

    session: Session
    tip: tuple[Entry, ...]


class TipAppended(msgspec.Struct, frozen=True):
    """While mastering: entries appended, not committed yet. Fold them into the tip state.

    The tip never shrinks while mastering; it is thrown away at `LostMastership`.
    """

    entries: tuple[Entry, ...]


class LostMastership(msgspec.Struct, frozen=True):
    """This node decides no more; commands it has not answered are asked again by their askers."""

    reason: str


class Revalidate(msgspec.Struct, frozen=True):
    """While mastering: a withdrawn event is offered again. Does it hold in the tip state?

    Answer at once with `Replica.accept_resubmission` or `Replica.reject_resubmission`; one that is
    never answered is offered again later.
    """

    proposal: Proposal


class HistoryDropped(msgspec.Struct, frozen=True):
    """After a partition, this node can't offer `count` withdrawn events again: their entries were
    compacted away here, or exceed the bound on orphans. Unless another node still has them they are
    gone. For the person to see.
    """

    count: int


Effect = (
    Send
    | Write
    | Deliver
    | Rewound
    | SnapshotInstalled
    | SnapshotNeeded
    | SessionBegan
    | BecameMaster
    | TipAppended
    | LostMastership
    | Revalidate
    | HistoryDropped
)
