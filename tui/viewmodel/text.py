"""Figures and names as short text. Memory in binary units, files and links in decimal ones."""

from tui.viewmodel.glyphs import ELLIPSIS, EM_DASH, EN_DASH

GIB = 1024**3
UNKNOWN = EM_DASH


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


def shorten(text: str, width: int) -> str:
    """Cut at the end, marked by an ellipsis, to at most `width` characters."""
    if len(text) <= width:
        return text
    return text[: width - 1] + ELLIPSIS if width > 0 else ""


def middle(text: str, width: int) -> str:
    """Cut in the middle, where names of machines and models say least."""
    if len(text) <= width:
        return text
    if width < 4:
        return text[:width] if width > 0 else ""
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + ELLIPSIS + text[-tail:]


def layers(first: int, end: int) -> str:
    """A layer range, both ends included: `L0-27`."""
    return f"L{first}{EN_DASH}{end - 1}" if end - first > 1 else f"L{first}"


def plural(number: int, word: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def wrap(words: str, width: int) -> list[str]:
    """Lines of plain text, broken at spaces."""
    lines: list[str] = []
    for paragraph in words.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            while len(word) > width:
                if line:
                    lines.append(line)
                    line = ""
                lines.append(word[:width])
                word = word[width:]  # noqa: PLW2901
            if line and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines
