"""Stdin as text, and words about what is none."""

import sys
from collections.abc import Sequence

from node.config import environment_for_child
from node.model.errors import ExoctlError, UsageError


class InputLines:
    """Stdin line by line, where it is no terminal."""

    def __init__(self) -> None:
        self._offset = 0

    def next(self) -> str:
        """One line with its end; empty where stdin has ended.

        Raises:
            UsageError: it is no text.
        """
        line = sys.stdin.buffer.readline()
        start, self._offset = self._offset, self._offset + len(line)
        return _decoded(line, start)


def read_input(bytes_max: int) -> str:
    """All of stdin.

    Raises:
        UsageError: it is no text, or longer than that.
    """
    data = sys.stdin.buffer.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise UsageError.because("input_too_long", f"stdin has more than {bytes_max:,} bytes")
    return _decoded(data, 0)


def check_text(arguments: Sequence[str]) -> None:
    """Refuse arguments, and variables of ours, that hold bytes which are no text.

    Raises:
        UsageError: one does.
    """
    ours = {k: v for k, v in environment_for_child().items() if k.startswith("EXOCTL_")}
    given = {f"argument {number}": text for number, text in enumerate(arguments, start=1)}
    for what, text in (given | ours).items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            offset = len(text[: error.start].encode())
            byte = ord(text[error.start]) & 0xFF  # how Python keeps a byte that it can't read
            raise not_text(what, byte, offset, "UTF-8") from error


def not_text(what: str, byte: int, offset: int, encoding: str) -> ExoctlError:
    """What was given holds a byte that is no text."""
    return UsageError.because(
        "not_text",
        f"{what} is no {encoding} text: byte 0x{byte:02x} at offset {offset}",
        "give it as UTF-8; `iconv` converts",
    )


def _decoded(data: bytes, offset: int) -> str:
    encoding = sys.stdin.encoding
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise not_text(
            "stdin", data[error.start], offset + error.start, encoding.upper()
        ) from error
