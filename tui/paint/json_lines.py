"""JSON as inked lines."""

import re

import msgspec

_TOKEN = re.compile(
    r'("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|(true|false|null)|([^"\w-]+)|(\w+)'
)

Parts = list[tuple[str, str]]


def json_lines(value: object) -> list[Parts]:
    """The value as indented JSON, one list of (text, ink) for each line."""
    payload = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return [_ink(line) for line in payload.splitlines()]


def _ink(line: str) -> Parts:
    parts: Parts = []
    for quoted, colon, number, word, other, rest in _TOKEN.findall(line):
        if quoted:
            parts.append((quoted, "accent" if colon else "hue2"))
            parts.append((colon, "dim"))
        elif number:
            parts.append((number, "hue4"))
        elif word:
            parts.append((word, "hue1"))
        else:
            parts.append((other or rest, "dim"))
    return parts
