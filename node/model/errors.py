"""Failures as values, and the exceptions that carry them.

ExoctlError
├── UsageError          the person asked for something that can't be meant
├── UnreachableError    no node answers there
├── NotFoundError       no such model, instance, node, request
├── ConflictError       busy, taken, already there
├── RefusedError        a policy, a proof or the guard says no
├── NoFitError          it does not fit, with the numbers
├── TimeoutExpiredError a deadline passed
└── InternalError       our mistake; the report says where
"""

from typing import ClassVar

import msgspec


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, where, and what helps. Shown alike by the TUI, the CLI and the API."""

    code: str
    """Stable snake_case word, such as `model_not_found`; never renamed."""
    message: str
    """What happened, with the numbers."""
    remedy: str = ""
    """What the person can do next; empty where nothing would help."""
    node: str = ""
    """Name of the node where it happened."""
    retry_seconds: float = 0.0
    """When trying again is likely to help, by what was measured; 0 where nothing is known."""


class ExoctlError(Exception):
    """Base of every failure that reaches a person."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    @classmethod
    def because(cls, code: str, message: str, remedy: str = "", node: str = "") -> "ExoctlError":
        """Build the error from the parts of its failure."""
        return cls(Failure(code=code, message=message, remedy=remedy, node=node))


class UsageError(ExoctlError):
    """The request can't be meant as written."""

    exit_code = 2
    http_status = 400


class UnreachableError(ExoctlError):
    """No node answers at the given place."""

    exit_code = 2
    http_status = 503


class NotFoundError(ExoctlError):
    """The named thing does not exist."""

    exit_code = 3
    http_status = 404


class ConflictError(ExoctlError):
    """The thing is busy, taken or already there."""

    exit_code = 4
    http_status = 409


class RefusedError(ExoctlError):
    """A policy, a proof of identity or the guard refuses."""

    exit_code = 5
    http_status = 403


class NoFitError(ExoctlError):
    """It does not fit; the message carries the numbers."""

    exit_code = 6
    http_status = 409


class BusyError(ExoctlError):
    """No capacity now; trying again later helps."""

    exit_code = 4
    http_status = 503


class TimeoutExpiredError(ExoctlError):
    """A deadline passed."""

    exit_code = 124
    http_status = 504


class InternalError(ExoctlError):
    """A mistake of exoctl itself."""


KINDS: tuple[type[ExoctlError], ...] = (
    UsageError,
    UnreachableError,
    NotFoundError,
    ConflictError,
    RefusedError,
    NoFitError,
    BusyError,
    TimeoutExpiredError,
    InternalError,
)
"""Every kind, so that a client can rebuild the exception that a node sent by its class name."""
