"""The settings file, changed one line at a time: what a person wrote there beside it stays."""

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec

from node.config import parse_config
from node.model.errors import InternalError, UsageError


def _with_line(words: str, table: str, key: str, value: str) -> str:
    """The file with that setting in its table.

    Raises:
        UsageError: the value can't be one of this setting.
    """
    error: UsageError | None = None
    for written in (value, msgspec.json.encode(value).decode()):
        name = key if key.isidentifier() else f'"{key}"'
        after = _put(words.splitlines(), table, name, f"{name} = {written}")
        try:
            parse_config(after, f"{table}.{key} = {written}")
        except UsageError as raised:
            if error is None or error.failure.code == "config_syntax":
                error = raised  # that it is no TOML says less than what is wrong with the value
        else:
            return after
    assert error is not None
    raise error


def _put(lines: list[str], table: str, name: str, line: str) -> str:
    heads = [place for place, each in enumerate(lines) if each.strip().startswith("[")]
    start = next((place for place in heads if lines[place].strip() == f"[{table}]"), None)
    if start is None:
        return "\n".join([*lines, *([""] if lines else []), f"[{table}]", line, ""])
    end = next((place for place in heads if place > start), len(lines))
    for place in range(start + 1, end):
        if lines[place].partition("=")[0].strip() == name:
            return "\n".join([*lines[:place], line, *lines[place + 1 :], ""])
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    return "\n".join([*lines[:end], line, *lines[end:], ""])


def write_settings(path: Path, words: str) -> None:
    """Put the file in place at once, or not at all; where it is a link, what it leads to.

    Raises:
        InternalError: it can't be written.
    """
    put_file(path.resolve(), words.encode())  # it may be a link into somebody's own settings


def put_file(path: Path, content: bytes) -> None:
    """Put a file in place at once or not at all, readable by its owner alone.

    Raises:
        InternalError: it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")  # mode 600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise InternalError.because("not_written", f"{path}: {error.strerror}") from error


def with_setting(path: Path, table: str, key: str, value: str) -> str:
    """What the file says once that setting is in it.

    Raises:
        UsageError: the file can't be read, or the value can't be one of this setting.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
    except OSError as error:
        raise UsageError.because("config_unreadable", f"{path}: {error.strerror}") from error
    return _with_line(before, table, key, value)
