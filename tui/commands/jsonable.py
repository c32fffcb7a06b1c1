"""The JSON contract: how values of the model look to a program that reads our output."""

import base64
import enum
import pathlib
from collections.abc import Mapping

import msgspec

from node.model.errors import Failure
from node.model.machine import Address
from tui.commands.units import rfc3339

API_VERSION = "exoctl/v1"
_WALL_CLOCK_NAMES = {"at", "since"}


def jsonable(value: object, name: str = "") -> object:
    """The value in plain JSON types: times as RFC 3339 in UTC, addresses as `host:port`, a tagged
    struct with its `type`. `name` is the field it came from.
    """
    match value:
        case Address() | pathlib.PurePath():
            return str(value)
        case msgspec.Struct():
            return fields_of(value)
        case enum.Enum():
            return value.value
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case float() if name in _WALL_CLOCK_NAMES or name.endswith("_at"):
            return rfc3339(value)
        case _:
            return _container(value)


def fields_of(value: msgspec.Struct) -> dict[str, object]:
    """The struct's fields in plain JSON types."""
    tag = value.__struct_config__.tag
    fields: dict[str, object] = {} if tag is None else {"type": tag}
    for field in value.__struct_fields__:
        fields[field] = jsonable(getattr(value, field), field)
    return fields


def _container(value: object) -> object:
    if isinstance(value, Mapping):
        mapping: Mapping[object, object] = value  # pyright: ignore[reportUnknownVariableType]
        return {str(key): jsonable(item, str(key)) for key, item in mapping.items()}
    if isinstance(value, list | tuple | set | frozenset):
        sequence: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return [jsonable(item) for item in sequence]
    return value


def envelope(
    kind: str, index: int, items: list[object], extra: Mapping[str, object]
) -> dict[str, object]:
    """The one shape of every object on stdout."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "index": index,
        **{key: jsonable(item, key) for key, item in extra.items()},
        "items": items,
    }


def error_object(failure: Failure, reason: str) -> dict[str, object]:
    """The one shape of every error on stderr with `-o json`."""
    return {
        "error": {
            "code": failure.code,
            "message": failure.message,
            "reason": reason,
            "remedy": failure.remedy,
            "node": failure.node,
        }
    }


def encode(value: object, *, pretty: bool) -> str:
    """JSON text, on one line or indented."""
    payload = msgspec.json.encode(value)
    return (msgspec.json.format(payload, indent=2) if pretty else payload).decode()
