"""Clusters that the command line knows by name: where a node of each answers, and the token."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from node.config import config_file
from node.model.errors import NotFoundError, UsageError
from tui.settings_file import put_file

FILE_NAME = "contexts.json"
CONTEXTS_MAX = 100
FILE_BYTES_MAX = 256 * 1024
HERE = "-"
"""What `context use` takes for the node of this machine."""


class ClusterContext(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
    host: Annotated[str, Meta(min_length=1, max_length=253)]
    token: Annotated[str, Meta(max_length=1000, pattern="^[!-~]*$")] = ""


class Contexts(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, and the one that commands go to; empty: the node of this machine."""

    current: str = ""
    contexts: tuple[ClusterContext, ...] = ()

    def find(self, name: str) -> ClusterContext:
        """The context of a name.

        Raises:
            NotFoundError: there is none; those that there are are named.
        """
        found = next((each for each in self.contexts if each.name == name), None)
        if found is None:
            known = ", ".join(each.name for each in self.contexts) or "none"
            raise NotFoundError.because(
                "no_such_context", f"no cluster is called {name!r}", f"known: {known}"
            )
        return found


def contexts_file() -> Path:
    """Beside the settings file; it need not exist."""
    return config_file().parent / FILE_NAME


def read_contexts() -> Contexts:
    """What the file says; nothing where there is none.

    Raises:
        UsageError: it can't be read.
    """
    path = contexts_file()
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX)
        return msgspec.json.decode(content, type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError.because(
            "contexts_unreadable", f"{path}: {error}", "mend the file, or delete it"
        ) from error


def write_contexts(contexts: Contexts) -> None:
    """Put the file in place at once, readable by its owner alone: it holds tokens.

    Raises:
        InternalError: it can't be written.
    """
    body = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
    put_file(contexts_file(), body + b"\n")


def chosen_context(name: str | None) -> ClusterContext | None:
    """The cluster that commands go to: the named one, else the current one; None: this machine.

    Raises:
        NotFoundError: no cluster is called so.
    """
    if name == HERE:
        return None
    contexts = read_contexts()
    wanted = name or contexts.current
    return contexts.find(wanted) if wanted else None
