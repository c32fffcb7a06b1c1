"""Failures as HTTP answers: status, headers, and the body in the dialect of the path."""

import math
from typing import Protocol

import msgspec

from node.model.errors import BusyError, ExoctlError, Failure, InternalError, RefusedError
from node.wire.surface import Fault, FaultBody, kind_of

RETRY_SECONDS = 5
"""What `Retry-After` says where there is no capacity and nobody knows for how long."""
RETRY_SECONDS_MAX = 600
"""And at most: in ten minutes much may be otherwise."""
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
        return [
            (b"retry-after", b"%d" % (math.ceil(_retry_seconds(error.failure)) or RETRY_SECONDS))
        ]
    if status_of(error) == 401:
        return [(b"www-authenticate", b"Bearer")]
    if status_of(error) in (408, 413):
        return [(b"connection", b"close")]  # the rest of the body is not wanted
    return []


def _retry_seconds(failure: Failure) -> float:
    """What the failure says, within bounds; 0 where it says nothing, or no number."""
    known = failure.retry_seconds > 0
    return min(failure.retry_seconds, RETRY_SECONDS_MAX) if known else 0.0


def internal_error() -> ExoctlError:
    """What a client hears of our own mistakes."""
    return InternalError.because("internal", INTERNAL_TEXT, "see `exoctl logs`")


class Dialect(Protocol):
    """How an API family says that something failed."""

    @property
    def fault_type(self) -> type[msgspec.Struct]:
        """Body of an error answer."""
        ...

    def fault(self, error: ExoctlError) -> bytes:
        """Body of an error answer; in a stream, its last event."""
        ...


class ClusterDialect:
    """exoctl's own: the failure with every part of it."""

    fault_type = FaultBody

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
                    retry_seconds=_retry_seconds(failure),
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

    fault_type = OpenAiFaultBody

    def fault(self, error: ExoctlError) -> bytes:
        """An `OpenAiFaultBody`."""
        failure = error.failure
        status = status_of(error)
        default = "server_error" if status >= 500 else "invalid_request_error"
        return msgspec.json.encode(
            OpenAiFaultBody(
                error=OpenAiFault(
                    message=_text(failure),
                    type=_OPENAI_TYPES.get(status, default),
                    param=error.param if isinstance(error, ParameterError) else None,
                    code=failure.code,
                )
            )
        )


class AnthropicFault(msgspec.Struct, frozen=True, kw_only=True):
    """Anthropic's error object."""

    type: str
    message: str


class AnthropicFaultBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every error answer of Anthropic's dialect."""

    error: AnthropicFault
    type: str = "error"


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class AnthropicDialect:
    """Anthropic's."""

    fault_type = AnthropicFaultBody

    def fault(self, error: ExoctlError) -> bytes:
        """An `AnthropicFaultBody`."""
        status = status_of(error)
        default = "api_error" if status >= 500 else "invalid_request_error"
        name = f"{error.param}: " if isinstance(error, ParameterError) else ""
        fault = AnthropicFault(
            type=_ANTHROPIC_TYPES.get(status, default), message=name + _text(error.failure)
        )
        return msgspec.json.encode(AnthropicFaultBody(error=fault))


class OllamaFaultBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every error answer of Ollama's dialect."""

    error: str


class OllamaDialect:
    """Ollama's."""

    fault_type = OllamaFaultBody

    def fault(self, error: ExoctlError) -> bytes:
        """An `OllamaFaultBody`."""
        name = f"{error.param}: " if isinstance(error, ParameterError) else ""
        return msgspec.json.encode(OllamaFaultBody(error=name + _text(error.failure)))


def _text(failure: Failure) -> str:
    """The remedy is part of the message: clients show only that."""
    return f"{failure.message}; {failure.remedy}" if failure.remedy else failure.message


CLUSTER_DIALECT = ClusterDialect()
OPENAI_DIALECT = OpenAiDialect()
ANTHROPIC_DIALECT = AnthropicDialect()
OLLAMA_DIALECT = OllamaDialect()
_DIALECTS: tuple[tuple[str, Dialect], ...] = (
    ("/v1/chat/", OPENAI_DIALECT),
    ("/v1/completions", OPENAI_DIALECT),
    ("/v1/responses", OPENAI_DIALECT),
    ("/v1/embeddings", OPENAI_DIALECT),
    ("/v1/models", OPENAI_DIALECT),
    ("/v1/messages", ANTHROPIC_DIALECT),
    ("/api/", OLLAMA_DIALECT),
    ("/ollama/", OLLAMA_DIALECT),
)


def dialect_of(path: str) -> Dialect:
    """The dialect that clients of a path understand."""
    return next((each for start, each in _DIALECTS if path.startswith(start)), CLUSTER_DIALECT)
