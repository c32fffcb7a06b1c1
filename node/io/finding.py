"""What a check found: a value for people and for scripts."""

from typing import Literal

import msgspec

State = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found."""

    name: str
    state: State
    reason: str
    """What was seen, with the numbers."""
    remedy: str = ""
    """What the person can do; empty where all is well."""


def good(name: str, reason: str) -> Finding:
    """All is well."""
    return Finding(name=name, state="ok", reason=reason)


def warning(name: str, reason: str, remedy: str) -> Finding:
    """It works, but not as well as it could, or not for long."""
    return Finding(name=name, state="warn", reason=reason, remedy=remedy)


def failure(name: str, reason: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(name=name, state="fail", reason=reason, remedy=remedy)
