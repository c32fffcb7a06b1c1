"""Failures as HTTP answers: status, headers, and the body in the dialect of the path."""

from typing import Protocol

import msgspec

from node.model.errors import BusyError, ExoctlError, Failure, InternalError, RefusedError
from node.wire.surface import Fault, FaultBody, kind_of

RETRY_SECONDS = 5
"""What `Retry-After` says where there is no capacity."""
CLIENT_CLOSED_STATUS = 499
"""A generation that was cancelled: not worth a retry, and no fault of either side."""
INTERNAL_TEXT = "exoctl made a mistake; its log says where"


class HttpError(RefusedError):
    """A request that can't be answered, with a status of its own."""

    def __init__(self, status: int, code: str, message: str, remedy: str = "") -> None:
        super().__init__(Failure(code=code, message=message, remedy=remedy))
        self.status = status


class ParameterError(ExoctlError):
    """A parameter of the request can't be honoured as written."""

    http_status = 400

    def __init__(self, param: str, message: str, remedy: str = "") -> None:
        super().__init__(Failure(code="invalid_parameter", message=message, remedy=remedy))
        self.param = param


class CancelledError(ExoctlError):
    """The generation was cancelled by someone else than its client."""

    http_status = CLIENT_CLOSED_STATUS


def status_of(error: ExoctlError) -> int:
    """HTTP status of an error."""
    if isinstance(error, HttpError):
        return error.status
    if isinstance(error, BusyError) and error.failure.code == "queue_full":
        return 429
    return error.http_status


def headers_of(error: ExoctlError) -> list[tuple[bytes, bytes]]:
    """Headers that go with an error."""
    if status_of(error) in (429, 503):
        return [(b"retry-after", b"%d" % RETRY_SECONDS)]
    if status_of(error) == 401:
        return [(b"www-authenticate", b"Bearer")]
    if status_of(error) in (408, 413):
        return [(b"connection", b"close")]  # the rest of the body is not wanted
    return []


def internal_error() -> ExoctlError:
    """What a client hears of our own mistakes."""
    return InternalError.because("internal", INTERNAL_TEXT, "see `exoctl logs`")


class Dialect(Protocol):
    """How an API family says that something failed."""

    def fault(self, error: ExoctlError) -> bytes:
        """Body of an error answer; in a stream, its last event."""
        ...


class ClusterDialect:
    """exoctl's own: the failure with every part of it."""

    def fault(self, error: ExoctlError) -> bytes:
        """A `FaultBody`."""
        failure = error.failure
        return msgspec.json.encode(
            FaultBody(
                error=Fault(
                    code=failure.code,
                    message=failure.message,
                    remedy=failure.remedy,
                    node=failure.node,
                    kind="UsageError" if isinstance(error, ParameterError) else kind_of(error),
                    param=error.param if isinstance(error, ParameterError) else "",
                )
            )
        )


class OpenAiFault(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAiFaultBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every error answer of the OpenAI dialect."""

    error: OpenAiFault


_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    CLIENT_CLOSED_STATUS: "cancelled",
}


class OpenAiDialect:
    """OpenAI's. The remedy is part of the message: clients show only that."""

    def fault(self, error: ExoctlError) -> bytes:
        """An `OpenAiFaultBody`."""
        failure = error.failure
        status = status_of(error)
        default = "server_error" if status >= 500 else "invalid_request_error"
        message = f"{failure.message}; {failure.remedy}" if failure.remedy else failure.message
        return msgspec.json.encode(
            OpenAiFaultBody(
                error=OpenAiFault(
                    message=message,
                    type=_OPENAI_TYPES.get(status, default),
                    param=error.param if isinstance(error, ParameterError) else None,
                    code=failure.code,
                )
            )
        )


CLUSTER_DIALECT = ClusterDialect()
OPENAI_DIALECT = OpenAiDialect()
_OPENAI_PATHS = ("/v1/chat/", "/v1/completions", "/v1/models")


def dialect_of(path: str) -> Dialect:
    """The dialect that clients of a path understand."""
    return OPENAI_DIALECT if path.startswith(_OPENAI_PATHS) else CLUSTER_DIALECT
