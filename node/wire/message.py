"""Messages between nodes beside the replica's own.

Fields are only ever appended, each with a default. A tag, once given, is never used again.
"""

import msgspec

from node.model.command import Answer, CommandRequest, Wish
from node.model.download import Listing, ModelOrder, OrderDone, RemoteFile
from node.model.errors import Failure
from node.model.ids import ClusterId, CommandId, ModelId, NodeId, RequestId
from node.model.machine import Address
from node.model.register import Register
from node.model.request import GenerationItem, GenerationRequest
from node.model.topology import Plan

STREAM_WINDOW = 256
"""Items that a stream's sender may have in flight before it needs credit."""


class CommandSent(msgspec.Struct, frozen=True, tag="command", kw_only=True):
    """To the master: decide this. Sent again until answered."""

    request: CommandRequest
    cluster: ClusterId = ClusterId("")
    """Whose master is asked; another's ignores it."""


class CommandAnswered(msgspec.Struct, frozen=True, tag="answer", kw_only=True):
    """From the master, after commit."""

    answer: Answer


class PlanAsked(msgspec.Struct, frozen=True, tag="plan", kw_only=True):
    """To the master: how could this be placed?"""

    id: CommandId
    model: ModelId
    wish: Wish
    cluster: ClusterId = ClusterId("")


class PlanAnswered(msgspec.Struct, frozen=True, tag="plan_answer", kw_only=True):
    """From the master."""

    id: CommandId
    plan: Plan


class RegistersChanged(msgspec.Struct, frozen=True, tag="registers", kw_only=True):
    """Latest values; while a link is slow, later ones replace those that still wait."""

    registers: tuple[Register, ...]


class StreamOpened(msgspec.Struct, frozen=True, tag="stream_open", kw_only=True):
    """To the node of rank 0: generate, and send the items to me."""

    request: GenerationRequest


class StreamItems(msgspec.Struct, frozen=True, tag="stream", kw_only=True):
    """From the node of rank 0: items, numbered without a gap from `first`."""

    request: RequestId
    first: int
    items: tuple[GenerationItem, ...]


class StreamCredit(msgspec.Struct, frozen=True, tag="stream_credit", kw_only=True):
    """From the reader: it has consumed items up to and including `consumed` (-1: none yet).

    With `resume`, the link was new: items after `consumed` are to be sent again.
    """

    request: RequestId
    consumed: int
    resume: bool = False


class StreamCancelled(msgspec.Struct, frozen=True, tag="stream_cancel", kw_only=True):
    """From the reader: stop generating; the last item still comes."""

    request: RequestId


class StreamClosed(msgspec.Struct, frozen=True, tag="stream_close", kw_only=True):
    """From the reader: it is gone, nothing more is wanted."""

    request: RequestId


class AddressesKnown(msgspec.Struct, frozen=True, tag="addresses", kw_only=True):
    """Peer exchange: where other nodes of the cluster were last reached."""

    addresses: tuple[tuple[str, Address], ...]
    """(node id, address)"""


class Leaving(msgspec.Struct, frozen=True, tag="leaving", kw_only=True):
    """The sender stops cleanly: no need to wait for it to be silent."""

    reason: str


class OrderSent(msgspec.Struct, frozen=True, tag="model_order", kw_only=True):
    """To the node whose models or downloads are meant. Sent again until answered."""

    id: CommandId
    order: ModelOrder


class OrderAnswered(msgspec.Struct, frozen=True, tag="model_order_answer", kw_only=True):
    """From that node."""

    id: CommandId
    done: OrderDone | None = None
    """None: refused, as `failure` says."""
    kind: str = ""
    """Name of the exception class in `model.errors`."""
    failure: Failure | None = None


class ListingAsked(msgspec.Struct, frozen=True, tag="listing_ask", kw_only=True):
    """To a node that has a repository, or is fetching it: what does the revision consist of?"""

    id: CommandId
    repo: ModelId
    revision: str


class ListingTold(msgspec.Struct, frozen=True, tag="listing", kw_only=True):
    """From that node."""

    id: CommandId
    listing: Listing | None = None
    """None: it does not know."""


class PieceAsked(msgspec.Struct, frozen=True, tag="piece_ask", kw_only=True):
    """To a node that has a file, or some of it: send me these bytes."""

    id: CommandId
    repo: ModelId
    file: RemoteFile
    offset: int
    length: int
    """At most `PIECES_BYTES_MAX` over the bulk connection; over one for copies, all there is."""


class PieceSent(msgspec.Struct, frozen=True, tag="piece", kw_only=True):
    """From that node, over the bulk connection: some of the bytes; an empty one says no more."""

    id: CommandId
    offset: int
    content: bytes
    available: int
    """How much of the file the node has, from its beginning; -1: nothing at all."""
    digest: bytes = b""
    """Of everything up to the end of these bytes, where that is the end of a chunk."""


class RangeSent(msgspec.Struct, frozen=True, tag="range", kw_only=True):
    """From that node, over a connection for copies: so many bytes follow as they are; none: there
    are no more for now.
    """

    offset: int
    length: int
    available: int
    """As in `PieceSent`."""
    digest: bytes = b""
    """Of everything up to the end of these bytes."""


PIECE_BYTES = 256 * 1024
"""Of one `PieceSent`."""
PIECES_BYTES_MAX = 4 * 1024 * 1024
"""Of what is asked for at once."""


class JoinJudged(msgspec.Struct, frozen=True, tag="join_judged", kw_only=True):
    """To the member that a machine asks: a person at another member has decided."""

    request: str
    approve: bool


class Relayed(msgspec.Struct, frozen=True, tag="relayed", kw_only=True):
    """A piece of a stream between two members that can't reach each other, by way of a third."""

    source: NodeId
    target: NodeId
    stream: str
    kind: str
    """`open`, `data`, `credit`, `close`."""
    data: bytes = b""
    count: int = 0
    """Bytes that the reader has room for again."""


class AdmissionRotated(msgspec.Struct, frozen=True, tag="rotated", kw_only=True):
    """To every member: open codes are worth nothing any more, and the fleet's secret is another."""

    secret: str = ""
    """As it stands in the file; empty where the sender has none."""


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a log on its way."""

    at: float
    level: str
    source: str
    text: str


class LogAsked(msgspec.Struct, frozen=True, tag="log", kw_only=True):
    """To a member: the last lines of a log of yours."""

    id: CommandId
    source: str
    lines_max: int


class LogAnswered(msgspec.Struct, frozen=True, tag="log_answer", kw_only=True):
    """From that member: the lines, or why there are none."""

    id: CommandId
    rows: tuple[LogRow, ...] = ()
    kind: str = ""
    """Name of the exception class, where it failed."""
    failure: Failure | None = None


ServiceMessage = (
    CommandSent
    | CommandAnswered
    | PlanAsked
    | PlanAnswered
    | RegistersChanged
    | StreamOpened
    | StreamItems
    | StreamCredit
    | StreamCancelled
    | StreamClosed
    | AddressesKnown
    | Leaving
    | OrderSent
    | OrderAnswered
    | ListingAsked
    | ListingTold
    | PieceAsked
    | PieceSent
    | JoinJudged
    | Relayed
    | AdmissionRotated
    | LogAsked
    | LogAnswered
)
