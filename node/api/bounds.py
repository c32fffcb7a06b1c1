"""Bounds of decoded bodies: what a body says must fit between nodes, where it goes as msgpack."""

import re
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from node.api.faults import ParameterError

INTEGER_BITS = 63
COMMAND_INTEGER_BITS = 31
"""Integers of commands are counts: products of two of them still fit into 64 bits."""
TEXT_CHARACTERS_MAX = 255
"""Of a name, a reason, a host or an id in a command."""
ITEMS_MAX = 1000
"""Of a list in a command: a cluster has no more nodes, and a model no more layers."""

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def check_integers(raw: bytes, value: object) -> None:
    """Raise where a body holds an integer that does not fit into 64 bits, however deep.

    Raises:
        ParameterError: names the place.
    """
    if _LONG_NUMBER.search(raw):  # spares the walk through all that was sent
        for place, part in _parts("", value):
            _check_integer(place, part, INTEGER_BITS)


def check_command(value: msgspec.Struct) -> None:
    """Raise where a command or an order is larger than any that can be meant.

    Raises:
        ParameterError: names the place.
    """
    for place, part in _parts("", value):
        _check_integer(place, part, COMMAND_INTEGER_BITS)
        if isinstance(part, str) and len(part) > TEXT_CHARACTERS_MAX:
            raise ParameterError(
                place, f"{place} has {len(part)} characters; {TEXT_CHARACTERS_MAX} are the limit"
            )
        if len(_items(part)) > ITEMS_MAX:
            raise ParameterError(place, f"{place} has more than {ITEMS_MAX} items")


def _check_integer(place: str, part: object, bits: int) -> None:
    if isinstance(part, int) and not -(2**bits) <= part < 2**bits:
        raise ParameterError(
            place, f"{place} is out of range: from {-(2**bits)} to {2**bits - 1} is possible"
        )


def _parts(place: str, value: object) -> Iterator[tuple[str, object]]:
    """A value and everything in it, each with its place; no deeper than the decoder went."""
    waiting: list[tuple[str, object]] = [(place, value)]
    while waiting:
        place, part = waiting.pop()
        yield place.removeprefix(".") or "$", part
        if isinstance(part, msgspec.Struct):
            fields = type(part).__struct_fields__
            waiting += [(f"{place}.{name}", getattr(part, name)) for name in fields]
        elif isinstance(part, dict):
            for key, held in cast("dict[object, object]", part).items():
                inner = f"{place}.{str(key)[:40]}"
                waiting += [(inner, key), (inner, held)]
        else:
            waiting += [(f"{place}[{at}]", each) for at, each in enumerate(_items(part))]


def _items(part: object) -> Sequence[object]:
    """What is in a list; nothing where it is none."""
    return cast("Sequence[object]", part) if isinstance(part, tuple | list) else ()
