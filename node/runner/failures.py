"""Failures of a runner by name, out of whatever mlx, the disk or the network raised."""

from node.core.failure_text import short_failure
from node.model.errors import ExoctlError, Failure
from node.model.request import Failed

_MEMORY_SIGNS = (
    "unable to allocate",
    "insufficient memory",
    "out of memory",
    "bad_alloc",
    "malloc",
)


class RunnerError(ExoctlError):
    """Ends the runner; its failure is what the person sees."""


class StopAskedError(Exception):
    """The node wants the runner to end; no failure."""


def failure_of(error: BaseException) -> Failure:
    """Name what ended a runner, in words that are never too long to be told."""
    return short_failure(_failure_of(error))


def _failure_of(error: BaseException) -> Failure:
    if isinstance(error, ExoctlError):
        return error.failure
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _MEMORY_SIGNS):
        return Failure(
            code="out_of_memory",
            message=f"no memory is left for the model: {error}",
            remedy="close other programs, use more nodes, or ask for less context",
        )
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(code="system_error", message=f"{where}{error.strerror or error}")
    return Failure(
        code="runner_failed",
        message=text,
        remedy="the runner's log has the details",
    )


def stopped_failure() -> Failure:
    """Why a request ended that was running when the runner was stopped."""
    return Failure(
        code="runner_stopped",
        message="the instance was stopped while it answered",
        remedy="start it again, or ask another instance",
    )


def request_refused(
    kind: type[ExoctlError], code: str, message: str, remedy: str = "", retry_seconds: float = 0.0
) -> Failed:
    """The only item of a request that is not taken."""
    failure = short_failure(
        Failure(code=code, message=message, remedy=remedy, retry_seconds=retry_seconds)
    )
    return Failed(kind=kind.__name__, failure=failure)
