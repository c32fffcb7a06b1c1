"""`exoctl context`: clusters by name, and which of them commands go to."""

from typing import Annotated

import msgspec
import typer

from node.model.errors import ConflictError, UsageError
from tui.commands.console import Console, Listing, parse_url
from tui.commands.contexts_file import (
    CONTEXTS_MAX,
    HERE,
    ClusterContext,
    Contexts,
    read_contexts,
    write_contexts,
)
from tui.commands.plain import Column, Table

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What you call the cluster.")]


def context_ls(console: Console) -> None:
    """List the clusters you have named; the one that commands go to is marked."""
    contexts = read_contexts()
    items: list[object] = [
        {
            "name": each.name,
            "host": each.host,
            "token": bool(each.token),
            "current": each.name == contexts.current,
        }
        for each in contexts.contexts
    ]
    rows = tuple(
        (
            "*" if each.name == contexts.current else "",
            each.name,
            each.host,
            "yes" if each.token else "no",
        )
        for each in contexts.contexts
    )
    columns = (Column(""), Column("NAME"), Column("HOST", shrinks=True), Column("TOKEN"))
    console.emit(
        Listing(
            kind="Context",
            index=-1,
            items=items,
            table=Table(columns, rows, empty="none: `exoctl context add NAME URL` names one"),
            names=tuple(each.name for each in contexts.contexts),
            extra={"current": contexts.current},
        )
    )
    if not contexts.current and not console.settings.is_plain_data and rows:
        console.say("commands go to the node of this machine")


def context_add(
    console: Console,
    name: NameArgument,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where the API of one of its nodes answers.")
    ],
    *,
    use: Annotated[bool, typer.Option("--use", help="Have commands go there from now on.")] = False,
) -> None:
    """Name a cluster, with --token where its API asks for one; naming it again changes it."""
    contexts = read_contexts()
    parse_url(url)
    try:
        added = msgspec.convert(
            {"name": name, "host": url.strip(), "token": console.settings.token or ""},
            ClusterContext,
        )
    except msgspec.ValidationError as error:
        raise UsageError.because(
            "bad_context", f"{name!r}: {error}", "use letters, digits, . _ and -"
        ) from error
    others = tuple(each for each in contexts.contexts if each.name != name)
    if len(others) >= CONTEXTS_MAX:
        raise ConflictError.because(
            "too_many_contexts", f"there are {len(others)} already", "`exoctl context rm NAME`"
        )
    current = name if use else contexts.current
    write_contexts(Contexts(current=current, contexts=(*others, added)))
    console.write(f"{name} is {url.strip()}{', and commands go there' if use else ''}")


def context_use(
    console: Console,
    name: Annotated[
        str, typer.Argument(metavar="NAME|-", help="Or - for the node of this machine.")
    ],
) -> None:
    """Have commands, and `exoctl` itself, go to a cluster from now on."""
    contexts = read_contexts()
    chosen = "" if name == HERE else contexts.find(name).name
    write_contexts(msgspec.structs.replace(contexts, current=chosen))
    console.write(f"commands go to {chosen or 'the node of this machine'}")


def context_rm(console: Console, name: NameArgument) -> None:
    """Forget a cluster's name; nothing changes in the cluster."""
    contexts = read_contexts()
    gone = contexts.find(name)
    left = tuple(each for each in contexts.contexts if each != gone)
    current = "" if contexts.current == name else contexts.current
    write_contexts(Contexts(current=current, contexts=left))
    console.write(f"{name} is forgotten")
