"""What the HTTP API and its own client say to each other: pages, orders, stream records, faults."""

from typing import Generic, TypeVar

import msgspec

from node.model.command import Wish
from node.model.download import ModelOrder
from node.model.errors import KINDS, ExoctlError, Failure, InternalError
from node.model.ids import ModelId, NodeId, RequestId
from node.model.register import Register
from node.model.session import Entry, Session
from node.model.state import State

API_VERSION = "exoctl/v1"
EXACT = "exact"
"""Query parameter: answer with the plain values (times as seconds since 1970), for programs that
share these types, in place of the form for people (RFC 3339 times)."""
NDJSON = "application/x-ndjson"

Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """Every answer of the cluster dialect that is not a stream."""

    api_version: str = msgspec.field(default=API_VERSION, name="apiVersion")
    kind: str
    """What the items are, such as `Instance`."""
    index: int
    """Index of the log that the answering node has applied."""
    items: list[Item]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A failure with the name of its exception class in `model.errors`."""

    code: str
    message: str
    remedy: str = ""
    node: str = ""
    kind: str = "InternalError"
    param: str = ""
    """JSON path or name of the faulty parameter, where there is one."""
    retry_seconds: float = 0.0

    def to_error(self) -> ExoctlError:
        """The exception that it stood for."""
        failure = Failure(
            code=self.code,
            message=self.message,
            remedy=self.remedy,
            node=self.node,
            retry_seconds=self.retry_seconds,
        )
        return error_of_kind(self.kind, failure)


class FaultBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every error answer of the cluster dialect."""

    error: Fault


def error_of_kind(kind: str, failure: Failure) -> ExoctlError:
    """The exception with the class of that name; `InternalError` where the name is unknown."""
    for error_class in KINDS:
        if error_class.__name__ == kind:
            return error_class(failure)
    return InternalError(failure)


def kind_of(error: ExoctlError) -> str:
    """Name of the class in `model.errors` that an error is of, directly or by descent."""
    for ancestor in type(error).__mro__:
        if ancestor in KINDS:
            return ancestor.__name__
    return InternalError.__name__


class PlaceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a placement and of a plan."""

    model: ModelId
    wish: Wish = Wish()


class InviteOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an invitation."""

    lifetime_seconds: float = 600.0


class JoinOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a join."""

    code: str
    peer: str = ""
    """`host:port` of a node of the cluster; empty: where the code says."""


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an order about a node's models or downloads."""

    node: NodeId
    """Id, the start of it, or name."""
    order: ModelOrder


class PullOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a new download."""

    model: ModelId
    nodes: tuple[str, ...] = ()
    """Names or ids; the node that answers where there are none."""
    revision: str = "main"
    priority: int = 0
    bytes_per_second: int = 0
    source: str = "auto"


class DownloadChange(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a change to a download."""

    action: str = ""
    """`pause`, `resume`, `retry`; empty leaves it as it is."""
    priority: int | None = None


class AskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a request to be let in by a person."""

    peer: str = ""
    """`host:port` of a node of the cluster; empty: whoever is heard on the network."""


class FinishOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What came of comparing the codes, on the side that asks."""

    matches: bool


class JudgeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a member's owner decides on a machine that asks."""

    approve: bool


class PingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a ping."""

    bandwidth: bool = False
    """Fill the link for a second, to know what it carries."""


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a cancel."""

    request: RequestId
    cancelled: bool
    """False where it was not running."""


class SnapshotRecord(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot", tag_field="type"):
    """The state as it is, in place of all entries up to its index."""

    index: int
    state: State


class RegistersRecord(msgspec.Struct, frozen=True, kw_only=True, tag="registers", tag_field="type"):
    """Every register there is; those that are missing are gone."""

    index: int
    registers: tuple[Register, ...]


class EntryRecord(msgspec.Struct, frozen=True, kw_only=True, tag="event", tag_field="type"):
    """The next entry of the log."""

    index: int
    entry: Entry


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, tag="session", tag_field="type"):
    """Entries that follow are of this session."""

    index: int
    session: Session


class RewindRecord(msgspec.Struct, frozen=True, kw_only=True, tag="rewind", tag_field="type"):
    """Entries from `index` on were withdrawn."""

    index: int


class RegisterRecord(msgspec.Struct, frozen=True, kw_only=True, tag="register", tag_field="type"):
    """A register's new value."""

    index: int
    register: Register


class LaggedRecord(msgspec.Struct, frozen=True, kw_only=True, tag="lagged", tag_field="type"):
    """The reader fell behind; a snapshot follows."""

    index: int
    skipped: int


class HeartbeatRecord(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat", tag_field="type"):
    """Nothing happened, and the stream is alive."""

    index: int
    at: float
    """Wall clock of the node, seconds since 1970."""


StreamRecord = (
    SnapshotRecord
    | RegistersRecord
    | EntryRecord
    | SessionRecord
    | RewindRecord
    | RegisterRecord
    | LaggedRecord
    | HeartbeatRecord
)
