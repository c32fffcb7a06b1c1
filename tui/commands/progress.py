"""One line on stderr that tells a waiting person how far it is."""

import shutil
import sys
from typing import Self

from tui.commands.console import Console
from tui.commands.plain import shorten
from tui.viewmodel.text import clean

SAID_MAX = 1000
"""Stages that are remembered; there are a dozen."""
_ERASE = "\r\x1b[K"


class ProgressLine:
    """Rewrites itself on a terminal; elsewhere says each stage once, even if it comes back."""

    def __init__(self, console: Console) -> None:
        self._quiet = console.settings.quiet or console.is_json
        self._rewrites = sys.stderr.isatty()
        self._shown = ""
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def update(self, stage: str, detail: str = "", *, fleeting: bool = False) -> None:
        """Show the stage, and with it what changes often; a fleeting one on a terminal alone."""
        if self._quiet:
            return
        if self._rewrites:
            width = shutil.get_terminal_size().columns - 1
            line = shorten(clean(f"{stage}  {detail}".rstrip()), width)
            if line != self._shown:
                sys.stderr.write(_ERASE + line)
                sys.stderr.flush()
                self._shown = line
        elif stage not in self._said and not fleeting:
            if len(self._said) < SAID_MAX:
                self._said.add(stage)
            sys.stderr.write(clean(stage) + "\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line off the terminal."""
        if self._shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
            self._shown = ""
