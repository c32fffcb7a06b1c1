"""Generations open at one runner, each with its own bounded buffer: none holds up another."""

from collections.abc import Callable

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from node.core.failure_text import short_failure
from node.model.errors import BusyError, ConflictError, Failure, UsageError
from node.model.ids import RequestId
from node.model.request import Failed, Finished, GenerationItem, GenerationRequest
from node.runner.protocol import Cancel, Generate
from node.services.runner_link import FrameTooLargeError, encode_frame

REQUEST_ITEMS_MAX = 1024
"""Items of a generation that wait for its reader; one that is further behind is cancelled."""
REQUESTS_MAX = 256
"""Generations open at one runner; further ones are refused."""


class _Generation:
    """A generation's items on their way to its reader."""

    def __init__(self) -> None:
        self.send: MemoryObjectSendStream[GenerationItem]
        self.receive: MemoryObjectReceiveStream[GenerationItem]
        self.send, self.receive = anyio.create_memory_object_stream(REQUEST_ITEMS_MAX)
        self.failure: Failed | None = None
        """What the reader gets after the items, where the runner did not end the generation."""


class RunnerGenerations:
    """Carries items from a runner to the readers; `post` sends it a frame, False where it can't."""

    def __init__(self, post: Callable[[bytes], bool]) -> None:
        self._post = post
        self._open: dict[RequestId, _Generation] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, request: RequestId) -> bool:
        return request in self._open

    def open(self, request: GenerationRequest) -> MemoryObjectReceiveStream[GenerationItem]:
        """Start a generation; its items come on the stream, which ends after the last.

        Raises:
            ConflictError: a generation of this id is open. BusyError: too many are.
            UsageError: the request is longer than a frame may be.
        """
        if request.id in self._open:
            raise ConflictError.because("request_open", f"request {request.id} is running already")
        try:
            frame = encode_frame(Generate(request=request))
        except FrameTooLargeError as error:
            raise UsageError.because(
                "request_too_large", f"request {request.id} is too long: {error}"
            ) from None
        if len(self._open) >= REQUESTS_MAX or not self._post(frame):
            raise BusyError.because(
                "runner_full",
                f"{len(self._open)} generations are open at this runner, at most {REQUESTS_MAX}",
                "try again shortly, or place another instance of the model",
            )
        generation = self._open[request.id] = _Generation()
        return generation.receive

    def outcome(self, request: RequestId) -> Failed:
        """The last item of an open generation whose stream ended without one."""
        generation = self._open[request]
        return generation.failure or Failed(kind="UnreachableError", failure=_gone())

    def cancel(self, request: RequestId) -> bool:
        """Ask the runner to end a generation; False where none of this id is open."""
        return request in self._open and self._post(encode_frame(Cancel(request=request)))

    def close(self, request: RequestId, *, ended: bool) -> None:
        """The reader is gone; what had not ended is cancelled."""
        if not ended and self._open[request].failure is None:
            self.cancel(request)
        generation = self._open.pop(request)
        generation.send.close()
        generation.receive.close()

    def pass_on(self, request: RequestId, item: GenerationItem) -> None:
        """Hand an item to its reader; one that is too far behind loses its generation."""
        generation = self._open.get(request)
        if generation is None or generation.failure is not None:
            return  # it was cancelled, and the runner had not heard of it yet
        if isinstance(item, Failed):
            item = msgspec.structs.replace(item, failure=short_failure(item.failure))
        try:
            generation.send.send_nowait(item)
        except anyio.WouldBlock:
            self.cancel(request)
            generation.failure = Failed(kind="BusyError", failure=_too_slow())
            generation.send.close()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it ended, or its reader is leaving right now
        else:
            if isinstance(item, Finished | Failed):
                generation.send.close()

    def fail(self, failure: Failure | None) -> None:
        """The runner is over: every reader is told, after what it had said."""
        for generation in self._open.values():
            if generation.failure is None:
                generation.failure = Failed(kind="UnreachableError", failure=failure or _gone())
                generation.send.close()


def _gone() -> Failure:
    return Failure(
        code="runner_gone",
        message="the runner ended before the generation did",
        remedy="try again once the instance is ready",
    )


def _too_slow() -> Failure:
    return Failure(
        code="reader_too_slow",
        message=f"the reader was {REQUEST_ITEMS_MAX} items behind; the generation was cancelled",
        remedy="read faster, or ask for fewer tokens",
    )
