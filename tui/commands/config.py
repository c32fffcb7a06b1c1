"""`exoctl config`: every setting with its meaning, its default and what it is now."""

from typing import Annotated

import msgspec
import typer
from msgspec import UNSET

from node.config import (
    AppFileSettings,
    Config,
    FileSettings,
    config_file,
    parse_config,
    read_config_file,
)
from node.model.errors import NotFoundError, UsageError
from tui.actions.action import key_text
from tui.actions.catalogue import ACTIONS
from tui.actions.keymap import read_keymap
from tui.commands.changes import check_may_change
from tui.commands.console import Console, Listing
from tui.commands.jsonable import fields_of, jsonable
from tui.commands.plain import Column, Table
from tui.settings_file import with_setting, write_settings
from tui.viewmodel.app_settings import APP_WORDS

NODE_WORDS = {
    "name": "Name of this node in every list; the machine's host name where it is empty.",
    "bind": "Where to listen for other nodes; empty: every address; 127.0.0.1: this machine alone.",
    "cluster_port": "Port for other nodes; 0 takes a free one.",
    "api_host": "Where the HTTP API listens; beyond loopback it needs a token.",
    "api_port": "Port of the HTTP API; 0 takes a free one, -1 starts none.",
    "api_token": "What callers of the API from other machines must send.",
    "discovery": "Announce this node on the local network, and look for others there.",
    "trust": "Who may join: invite (those with a code), or lan (anyone on the network).",
    "cluster_secret_file": "Nodes whose files hold the same secret join each other unasked.",
    "prefer_master": "Where several may become master, prefer this node.",
    "log_level": "Least level that is logged: debug, info, warning or error.",
    "api_token_required": "Callers on this machine need the token as well.",
    "state_directory": "Where identity, ordered log and lock lie.",
    "model_directories": "Where models lie; the first is written to, the others are only read.",
    "peers": "Nodes to dial besides those that are discovered, as host:port.",
}
_SECRETS = ("api_token",)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as people see it."""

    table: str
    name: str
    words: str
    default: object
    now: object
    is_set: bool
    """In the settings file."""

    @property
    def path(self) -> str:
        """As `exoctl config set` takes it."""
        return f"{self.table}.{self.name}"


def settings_of(console: Console) -> list[Setting]:
    """Every setting, in the order of the file."""
    file = read_config_file(config_file())
    config = console.settings.config()
    found: list[Setting] = []
    defaults = {f.name: f.default for f in msgspec.structs.fields(Config) if not f.required}
    for name in FileSettings.__struct_fields__:
        held = getattr(config, name)
        found.append(
            Setting(
                table="node",
                name=name,
                words=NODE_WORDS.get(name, ""),
                default=jsonable(defaults.get(name, held)),
                now="(set)" if name in _SECRETS and held else jsonable(held),
                is_set=getattr(file.node, name) is not UNSET,
            )
        )
    for field in msgspec.structs.fields(AppFileSettings):
        held = getattr(file.app, field.name)
        found.append(
            Setting(
                table="app",
                name=field.name,
                words=APP_WORDS.get(field.name, ""),
                default=field.default,
                now=held,
                is_set=held != field.default,
            )
        )
    return found


def config_explain(console: Console) -> None:
    """Explain every setting: its value now, whether the file sets it, and what it is for."""
    settings = settings_of(console)
    rows = tuple(
        (each.path, _toml(each.now), "file" if each.is_set else "", each.words) for each in settings
    )
    columns = (Column("SETTING"), Column("NOW", shrinks=True), Column("SET IN"))
    columns += (Column("WHAT IT IS FOR", shrinks=True),)
    console.emit(
        Listing(
            kind="Setting",
            index=-1,
            items=[fields_of(each) for each in settings],
            table=Table(columns, rows),
            names=tuple(each.path for each in settings),
        )
    )
    if not console.settings.is_plain_data:
        console.say(f"settings file: {config_file()}; `exoctl config template` shows a whole one")
        for fault in read_keymap(read_config_file(config_file()).keys).faults:
            console.say(f"! {fault}")


def config_template(console: Console) -> None:
    """Print a whole settings file: every setting explained, what is not set commented out."""
    table = ""
    for each in settings_of(console):
        if each.table != table:
            table = each.table
            console.write(f"{chr(10) if table == 'app' else ''}[{table}]")
        console.write(f"# {each.words}")
        is_secret = each.name in _SECRETS
        value = _toml(each.now if each.is_set and not is_secret else each.default)
        console.write(f"{'' if each.is_set and not is_secret else '# '}{each.name} = {value}")
    console.write("\n[keys]\n# Keys of the app by action; `exoctl config keys` lists all of them.")
    console.write('# "placements.stop" = ["x", "ctrl+d"]')


def config_keys(console: Console) -> None:
    """List every action of the app with its keys, and what clashes in the settings file."""
    keymap = read_keymap(read_config_file(config_file()).keys)
    items: list[object] = []
    rows: list[tuple[str, ...]] = []
    for action in ACTIONS:
        keys = tuple(key_text(key) for key in keymap.of(action))
        changed = "file" if action.id in keymap.keys else ""
        rows.append((action.id, " ".join(keys), f":{action.command}", changed, action.title))
        items.append({"action": action.id, "keys": keys, "command": action.command})
    columns = tuple(Column(name) for name in ("ACTION", "KEYS", "COMMAND", "SET IN"))
    columns += (Column("WHAT IT DOES", shrinks=True),)
    console.emit(
        Listing(
            kind="Key",
            index=-1,
            items=items,
            table=Table(columns, tuple(rows)),
            names=tuple(action.id for action in ACTIONS),
            extra={"faults": list(keymap.faults)},
        )
    )
    for fault in keymap.faults:
        console.say(f"! {fault}")
    if keymap.faults:
        console.exit(1)


def config_set(
    console: Console,
    name: Annotated[str, typer.Argument(metavar="TABLE.NAME", help="Such as node.name.")],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="As in TOML; text needs no quotes.")
    ],
) -> None:
    """Set one setting in the settings file; the rest of the file stays as it is.

    Takes effect with the next start of the node or the app.
    """
    check_may_change(console)
    table, _, key = name.partition(".")
    known = {"node": FileSettings, "app": AppFileSettings}.get(table)
    if table != "keys" and (known is None or key not in known.__struct_fields__):
        raise NotFoundError.because(
            "no_such_setting", f"no setting is called {name!r}", "`exoctl config` lists them"
        )
    path = config_file()
    after = with_setting(path, table, key, value)
    if table == "keys" and (faults := read_keymap(parse_config(after, str(path)).keys).faults):
        raise UsageError.because("bad_key", faults[0])
    write_settings(path, after)
    console.say(f"{name} is set in {path}; it takes effect with the next start")


def _toml(value: object) -> str:
    return msgspec.json.encode(value).decode()
