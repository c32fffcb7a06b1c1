"""Figures and names as short text. Memory in binary units, files and links in decimal ones."""

import unicodedata
from collections.abc import Mapping

from tui.viewmodel.glyphs import ELLIPSIS, EM_DASH, EN_DASH

GIB = 1024**3
UNKNOWN = EM_DASH
MEDIA_SHORT = {
    "thunderbolt": "TB",
    "ethernet": "Eth",
    "wifi": "Wi-Fi",
    "loopback": "local",
    "vpn": "VPN",
}
_HARMFUL = frozenset(("Cc", "Cs", "Zl", "Zp"))
_TURNING = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that have a terminal write from right to left: a name could show as another."""


def clean(text: str, *, keep: str = "") -> str:
    """The text with what moves a cursor or commands a terminal replaced, but for `keep`.

    Whatever a peer, a model or a log wrote goes through this before it is drawn. Tabs and ends
    of lines become blanks.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character in keep or not _is_harmful(character) else _stand_in(character)
        for character in text
    )


def _is_harmful(character: str) -> bool:
    return character in _TURNING or unicodedata.category(character) in _HARMFUL


def _stand_in(character: str) -> str:
    return " " if character in "\t\n\r" else "\N{REPLACEMENT CHARACTER}"


def memory(count: int, *, unit: bool = True) -> str:
    """Bytes of memory: `98 GiB`, `5.4 GiB`, `312 MiB`."""
    if abs(count) < GIB:
        return f"{count / 1024**2:.0f}" + (" MiB" if unit else "M")
    value = count / GIB
    digits = 1 if abs(value) < 9.95 else 0
    return f"{value:.{digits}f}" + (" GiB" if unit else "G")


def memory_pair(used: int, total: int) -> str:
    """Used and total memory in few cells: `98/192G`."""
    if total >= GIB:
        return f"{used / GIB:.0f}/{total / GIB:.0f}G"
    return f"{used / 1024**2:.0f}/{total / 1024**2:.0f}M"


def memory_of(used: int, total: int) -> str:
    """Used and total memory, written out: `98 of 192 GiB`."""
    if total >= GIB:
        return f"{used / GIB:.0f} of {total / GIB:.0f} GiB"
    return f"{used / 1024**2:.0f} of {total / 1024**2:.0f} MiB"


def size(count: float) -> str:
    """Bytes of a file: `40.1 GB`, `270 MB`."""
    for limit, suffix in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit * 0.9995:
            value = count / limit
            return f"{value:.{1 if value < 99.95 else 0}f} {suffix}"
    return f"{count:.0f} B"


def rate(bytes_per_second: float) -> str:
    """Speed of a transfer: `118 MB/s`."""
    if bytes_per_second <= 0:
        return UNKNOWN
    return size(bytes_per_second).replace(".0 ", " ") + "/s"


def bandwidth(bits_per_second: float | None) -> str:
    """Speed of a link: `61.2 Gb/s`."""
    if not bits_per_second:
        return "?"
    if bits_per_second >= 1e9:
        value = bits_per_second / 1e9
        return f"{value:.{1 if value < 99.95 else 0}f} Gb/s"
    return f"{bits_per_second / 1e6:.0f} Mb/s"


def link(medium: str, bits_per_second: float | None) -> str:
    """What a link is and how fast: `TB 61.2 Gb/s`, or its medium alone where nobody measured."""
    return f"{medium} {bandwidth(bits_per_second)}".strip() if bits_per_second else medium


def parameters(number: int) -> str:
    """How large a model is: `70.6B`, `135M`."""
    if number >= 1e9:
        value = number / 1e9
        return f"{value:.{1 if value < 99.95 else 0}f}B"
    return f"{number / 1e6:.0f}M"


def labels(held: Mapping[str, str]) -> str:
    """Labels of a node: `owner=ann room=cellar`."""
    return " ".join(f"{key}={held[key]}" for key in sorted(held))


def round_trip(seconds: float | None) -> str:
    """Round trip of a link: `0.05 ms`."""
    if seconds is None:
        return "?"
    milliseconds = seconds * 1000
    digits = 2 if milliseconds < 9.995 else 1 if milliseconds < 99.95 else 0
    return f"{milliseconds:.{digits}f} ms"


def speed(tokens_per_second: float) -> str:
    """Tokens a second: `31.4 tok/s`."""
    digits = 1 if tokens_per_second < 99.95 else 0
    return f"{tokens_per_second:.{digits}f} tok/s"


def duration(seconds: float) -> str:
    """A span in at most six cells: `0.8s`, `42s`, `7m12s`, `3h08m`, `2d04h`."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def seconds(span: float) -> str:
    """A short span to be compared with another: `0.31 s`, `12.4 s`, `2m05s`."""
    if span >= 59.95:
        return duration(span)
    return f"{span:.{2 if span < 9.995 else 1}f} s"


def count(number: int) -> str:
    """A whole number with its thousands parted; a dash below zero."""
    return f"{number:,}" if number >= 0 else UNKNOWN


def percent(fraction: float) -> str:
    """A fraction as four cells: ` 51%`, `100%`."""
    return f"{max(0.0, min(1.0, fraction)) * 100:3.0f}%"


def clock(at: float, *, milliseconds: bool = False) -> str:
    """Time of day in UTC of a wall clock, as `12:41:07`."""
    if at <= 0:
        return UNKNOWN
    seconds = at % 86_400
    whole = int(seconds)
    text = f"{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{text}.{int((seconds - whole) * 1000):03d}" if milliseconds else text


def cells(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _beginning(text: str, width: int) -> str:
    """As much of the beginning as fits in so many cells."""
    taken = 0
    for place, character in enumerate(text):
        taken += _cells_of(character)
        if taken > width:
            return text[:place]
    return text


def _ending(text: str, width: int) -> str:
    taken = 0
    for place in range(len(text) - 1, -1, -1):
        taken += _cells_of(text[place])
        if taken > width:
            return text[place + 1 :]
    return text


def shorten(text: str, width: int) -> str:
    """Clean, and cut at the end, marked by an ellipsis, to at most `width` cells."""
    text = clean(text)
    if cells(text) <= width:
        return text
    return _beginning(text, width - 1) + ELLIPSIS if width > 0 else ""


def middle(text: str, width: int) -> str:
    """Clean, and cut in the middle, where names of machines and models say least."""
    text = clean(text)
    if cells(text) <= width:
        return text
    if width < 4:
        return _beginning(text, width) if width > 0 else ""
    tail = (width - 1) // 2
    return _beginning(text, width - 1 - tail) + ELLIPSIS + _ending(text, tail)


def pad(text: str, width: int) -> str:
    """Blanks behind it, up to so many cells."""
    return text + " " * (width - cells(text))


def layers(first: int, end: int) -> str:
    """A layer range, both ends included: `L0-27`."""
    return f"L{first}{EN_DASH}{end - 1}" if end - first > 1 else f"L{first}"


def plural(number: int, word: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def wrap(words: str, width: int) -> list[str]:
    """Clean lines of plain text, broken at spaces, none of more than `width` cells."""
    lines: list[str] = []
    for paragraph in clean(words, keep="\n").split("\n"):
        line, taken = "", 0
        for word in paragraph.split(" "):
            rest = word
            while (wide := cells(rest)) > width:
                if line:
                    lines.append(line)
                    line, taken = "", 0
                head = _beginning(rest, width) or rest[:1]
                lines.append(head)
                rest = rest[len(head) :]
            if line and taken + 1 + wide > width:
                lines.append(line)
                line, taken = rest, wide
            elif line:
                line, taken = f"{line} {rest}", taken + 1 + wide
            else:
                line, taken = rest, wide
        lines.append(line)
    return lines


def wrap_in(words: str, width: int, lines_max: int) -> list[str]:
    """Wrapped to at most so many lines; the last is shortened where they don't do."""
    lines = wrap(words, width)
    if len(lines) <= lines_max:
        return lines
    return [*lines[: lines_max - 1], shorten(" ".join(lines[lines_max - 1 :]), width)]


def grouped(code: str) -> str:
    """Six digits as they are read aloud."""
    return f"{code[:3]} {code[3:]}"
