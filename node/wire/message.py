"""Messages between nodes beside the replica's own.

Fields are only ever appended, each with a default. A tag, once given, is never used again.
"""

import msgspec

from node.model.command import Answer, CommandRequest, Wish
from node.model.download import ModelOrder, OrderDone
from node.model.errors import Failure
from node.model.ids import ClusterId, CommandId, ModelId, RequestId
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
)
