"""Values as JSON for people: RFC 3339 times, addresses as host:port, objects in place of arrays."""

import base64
import enum
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from node.model.machine import Address

TIME_NAMES = ("at", "since")
"""Float fields that hold seconds since 1970, beside those that end with `_at`."""
OMITTED = ("answers", "answers_before")
"""The state's answers to commands: only there so that no command runs twice."""


def is_time(name: str) -> bool:
    """Whether a float field of that name is a time of the wall clock."""
    return name.endswith("_at") or name in TIME_NAMES


def format_time(seconds: float) -> str | None:
    """RFC 3339 in UTC; None for 0, which stands for no time, and for what is no time at all."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None
    if moment is None:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_people(value: object, name: str = "") -> Any:
    """JSON-ready form of a value that lies in a field `name`."""
    match value:
        case Address():
            form = str(value)
        case msgspec.Struct():
            form = _struct(value)
        case dict():
            pairs = cast("dict[Any, Any]", value)
            form = {str(key): to_people(item) for key, item in pairs.items()}
        case tuple() | list():
            form = [to_people(item) for item in cast("list[Any]", value)]
        case enum.Enum():
            form = value.value
        case bytes():
            form = base64.b64encode(value).decode()
        case float() if is_time(name):
            form = format_time(value)
        case _:
            form = value
    return form


def _struct(value: msgspec.Struct) -> dict[str, Any]:
    form: dict[str, Any] = {}
    tag = value.__struct_config__.tag
    if tag is not None:
        form["type"] = tag
    for name, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        if name not in OMITTED:
            form[key] = to_people(getattr(value, name), name)
    return form
