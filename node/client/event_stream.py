"""Reading a node's event stream: once, or for ever with reconnection."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager

import anyio
import msgspec
from anyio.abc import TaskStatus

from node.client.mirror import Mirror
from node.client.transport import Transport
from node.model.errors import ExoctlError, InternalError, UnreachableError
from node.wire.surface import RegistersRecord, SnapshotRecord, StreamRecord

EVENTS_PATH = "/v1/cluster/events"
RETRY_SECONDS_FIRST = 0.2
RETRY_SECONDS_MAX = 5.0
LOAD_SECONDS = 15.0
"""What a node gets to send its state where the person names no time."""

_decoder: msgspec.json.Decoder[StreamRecord] = msgspec.json.Decoder(StreamRecord)


async def read_records(
    transport: Transport, since: int | None, *, follow: bool
) -> AsyncGenerator[StreamRecord, None]:
    """The records of one connection.

    Raises:
        ExoctlError: the node said no, can't be reached, or sends what can't be read.
    """
    query = {"follow": str(int(follow))}
    if since is not None:
        query["since"] = str(since)
    async with aclosing(transport.stream("GET", EVENTS_PATH, query=query)) as lines:
        async for line in lines:
            try:
                yield _decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise InternalError.because(
                    "answer_unreadable",
                    f"{transport.address} sent an event that can't be read: {error}",
                    "the node may be of another version",
                ) from error


async def load(transport: Transport, mirror: Mirror, seconds: float = LOAD_SECONDS) -> None:
    """Take the state and the registers as they are now, within so many seconds.

    Raises:
        ExoctlError: the node can't be reached or does not answer in time.
    """
    loaded = False
    with time_to_load(transport, seconds):
        async with aclosing(read_records(transport, None, follow=False)) as records:
            async for record in records:
                mirror.take(record)
                loaded = loaded or isinstance(record, SnapshotRecord)
    if not loaded:
        raise _no_state(transport, seconds)


@contextmanager
def time_to_load(transport: Transport, seconds: float) -> Generator[None]:
    """The deadline of the first state.

    Raises:
        UnreachableError: it passed.
    """
    with anyio.move_on_after(seconds) as limit:
        yield
    if limit.cancelled_caught:
        raise _no_state(transport, seconds)


def _no_state(transport: Transport, seconds: float) -> ExoctlError:
    return UnreachableError.because(
        "state_not_sent",
        f"the node at {transport.address} did not send its state within {seconds:g} s: it is"
        " suspended, stuck or very busy",
        "let it go on with `fg` or `kill -CONT`; allow a busy one more with --timeout",
    )


class Follower:
    """Keeps a mirror up to date over any number of connections."""

    def __init__(self, transport: Transport, mirror: Mirror) -> None:
        self._transport = transport
        self._mirror = mirror
        self.fault: ExoctlError | None = None
        """Why the mirror is out of date; None while the stream runs."""
        self._started: Callable[[], None] | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled; reports once the first state is there.

        Raises:
            ExoctlError: the first connection fails. Later ones are tried again for ever.
        """
        self._started = task_status.started
        delay = 0.0
        while True:
            before = self._mirror.state.index
            try:
                await self._follow_once()
            except ExoctlError as error:
                if self._started is not None:
                    raise
                self.fault = error
            progressed = self._mirror.state.index != before
            delay = RETRY_SECONDS_FIRST if progressed else _longer(delay)
            await anyio.sleep(delay)

    async def _follow_once(self) -> None:
        last = self._mirror.last
        since = None if last is None else last.index
        async with aclosing(read_records(self._transport, since, follow=True)) as records:
            async for record in records:
                if not self._mirror.take(record):
                    self._mirror.last = None
                    return
                if isinstance(record, RegistersRecord):
                    self._report()
        raise UnreachableError.because(
            "stream_ended",
            f"the node at {self._transport.address} ended its event stream",
            "it is stopping or restarting; the connection is tried again",
        )

    def _report(self) -> None:
        self.fault = None
        if self._started is not None:
            self._started()
            self._started = None


def _longer(delay: float) -> float:
    return min(RETRY_SECONDS_MAX, max(RETRY_SECONDS_FIRST, 2 * delay))
