"""JSON values as YAML in blocks; what might be read as something else is written as JSON is."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./ -]*[A-Za-z0-9_./]|[A-Za-z_]")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def yaml_lines(value: object, indent: int = 0) -> Iterator[str]:
    """The lines of a value of plain JSON types."""
    space = "  " * indent
    mapping, sequence = _mapping(value), _sequence(value)
    for key, item in mapping.items():
        name = _scalar(str(key))
        if _mapping(item) or _sequence(item):
            yield f"{space}{name}:"
            yield from yaml_lines(item, indent + bool(_mapping(item)))
        else:
            yield f"{space}{name}: {_scalar(item)}"
    for item in sequence:
        first, *rest = yaml_lines(item, indent + 1)
        yield f"{space}- {first.lstrip()}"
        yield from rest
    if not mapping and not sequence:
        yield f"{space}{_scalar(value)}"


def _mapping(value: object) -> Mapping[object, object]:
    return value if isinstance(value, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()  # pyright: ignore[reportUnknownVariableType]


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return msgspec.json.encode(value).decode()
