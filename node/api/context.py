"""What every handler of the API works with: the node, the timing, and what is open now."""

from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry, Counter

from node.handle import NodeHandle
from node.model.errors import BusyError, ExoctlError
from node.model.ids import RequestId


class Stoppable(Protocol):
    """Something open that the stop of the server ends."""

    def stop(self) -> None:
        """End it soon."""
        ...


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines and periods of the API, in seconds."""

    body_seconds: float = 30.0
    """For a request's body to come in."""
    write_seconds: float = 60.0
    """For a client to take what is written; one that stops reading is cut off then."""
    hold_seconds: float = 10.0
    """How long a stream's head waits for the first token, so that a failure still gets a status."""
    keepalive_seconds: float = 10.0
    heartbeat_seconds: float = 15.0
    call_seconds: float = 60.0
    """For the node to answer a call of the cluster dialect that names no deadline itself."""
    close_seconds: float = 1.0
    """For a cancelled generation to clean up."""
    stop_seconds: float = 0.5
    """From the stop of the server to the cutting of what is still open."""


class ApiContext:
    """Made once per server."""

    def __init__(self, handle: NodeHandle, timing: Timing) -> None:
        self.handle = handle
        self.timing = timing
        self.groups: dict[RequestId, tuple[RequestId, ...]] = {}
        """Running requests that are more than one generation (`n`, several prompts)."""
        self.counters = CollectorRegistry()
        self.answered = Counter(
            "exoctl_api_responses",
            "Responses of this node's HTTP API by status",
            ["status"],
            registry=self.counters,
        )
        self.tokens = Counter(
            "exoctl_api_tokens",
            "Tokens of generations that ended well over this node's HTTP API",
            ["kind"],
            registry=self.counters,
        )
        self._open: set[Stoppable] = set()
        self._stopping = False

    @property
    def open_count(self) -> int:
        """Requests that are being answered now."""
        return len(self._open)

    def enter(self, exchange: Stoppable) -> None:
        """Note that a request is being answered.

        Raises:
            BusyError: the server is stopping.
        """
        if self._stopping:
            raise stopping_error()
        self._open.add(exchange)

    def leave(self, exchange: Stoppable) -> None:
        """The request is done with."""
        self._open.discard(exchange)

    def stop(self) -> None:
        """End everything that is open, each with an error that its client understands."""
        self._stopping = True
        for exchange in list(self._open):
            exchange.stop()


def stopping_error() -> ExoctlError:
    """What clients hear when the node ends."""
    return BusyError.because(
        "node_stopping", "this node is stopping", "ask another node of the cluster, or try again"
    )
