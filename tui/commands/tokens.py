"""`exoctl token`: who may call this machine's API, and for what."""

import enum
from typing import Annotated

import typer

from node.io import clock
from node.io.token_file import TokenFile, TokenRecord
from tui.commands.changes import check_may_change
from tui.commands.console import Console, Listing
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, parse_duration, rfc3339
from tui.viewmodel.text import clean

_COLUMNS = (
    Column("NAME", shrinks=True),
    Column("SCOPE"),
    Column("STATE", toned=True),
    Column("CREATED"),
    Column("EXPIRES"),
)


class TokenScope(enum.Enum):
    """What a token opens."""

    INFERENCE = "inference"
    ADMIN = "admin"


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.")]


def token_create(
    console: Console,
    name: NameArgument,
    *,
    scope: Annotated[
        TokenScope,
        typer.Option("--scope", metavar="inference|admin", help="Ask models only, or everything."),
    ] = TokenScope.INFERENCE,
    expires: Annotated[
        str, typer.Option("--expires", metavar="30d", help="How long it is good; for ever without.")
    ] = "",
) -> None:
    """Make a token for this machine's API; it is shown this once and kept nowhere."""
    check_may_change(console)
    now = clock.wall()
    lifetime_seconds = parse_duration(expires) if expires else 0.0
    tokens = _tokens(console)
    token = tokens.create(name, scope.value, lifetime_seconds, now)
    if console.settings.is_plain_data:
        record = next(one for one in tokens.tokens() if one.name == name)
        item = {**_item(record, now), "token": token}
        console.emit(Listing(kind="Token", index=-1, items=[item], names=(token,)))
        return
    console.write(token)
    console.say(f"Send it as `Authorization: Bearer TOKEN`; `exoctl token revoke {name}` ends it.")


def token_ls(console: Console) -> None:
    """List the tokens of this machine's API; what they are is not kept."""
    now = clock.wall()
    records = _tokens(console).tokens()
    console.emit(
        Listing(
            kind="Token",
            index=-1,
            items=[_item(record, now) for record in records],
            table=Table(
                _COLUMNS, tuple(_row(record, now) for record in records), empty="there is no token"
            ),
            names=tuple(record.name for record in records),
        )
    )


def token_revoke(console: Console, name: NameArgument) -> None:
    """End a token: a node that runs refuses it from its next request on."""
    check_may_change(console)
    record = _tokens(console).revoke(name)
    if console.settings.is_plain_data:
        item = {**_item(record, clock.wall()), "state": "revoked"}
        console.emit(Listing(kind="Token", index=-1, items=[item], names=(name,)))
    else:
        console.write(clean(f"{name} revoked"))


def _tokens(console: Console) -> TokenFile:
    return TokenFile(console.settings.config().state_directory)


def _item(record: TokenRecord, now: float) -> dict[str, object]:
    return {
        "name": record.name,
        "scope": record.scope,
        "state": _state(record, now),
        "created_at": rfc3339(record.created_at),
        "expires_at": rfc3339(record.expires_at) if record.expires_at else None,
    }


def _row(record: TokenRecord, now: float) -> tuple[str, ...]:
    return (
        record.name,
        record.scope,
        _state(record, now),
        rfc3339(record.created_at) or NOTHING,
        (rfc3339(record.expires_at) or NOTHING) if record.expires_at else "never",
    )


def _state(record: TokenRecord, now: float) -> str:
    return "ok" if record.is_good(now) else "expired"
