"""The options that all commands share, and how those of the command win over those before it."""

import copy
import enum
import inspect
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from node.config import Config, load_config, parse_address
from node.model.errors import UsageError
from tui.commands.units import parse_duration

_COMMON = "Common options"
_NODE = "Options of the node that is started"
_APP = "Options of the app"
PORT_MAX = 65535
_NO_VALUE = " "
"""A flag takes no value; where nothing is said, its type would be shown."""


class OutputFormat(enum.Enum):
    """How data is written to stdout."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    NAME = "name"
    NDJSON = "ndjson"
    YAML = "yaml"


def _option(*names: str, panel: str, text: str, metavar: str = _NO_VALUE) -> typing.Any:
    long = next(name for name in names if name.startswith("--"))
    return typer.Option(
        *names,
        help=text,
        metavar=metavar,
        show_default=False,
        rich_help_panel=panel,
        envvar="EXOCTL_" + long.removeprefix("--").replace("-", "_").upper(),
        show_envvar=False,
    )


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the options said; None, False and empty mean not said.

    Each field carries the option it is read from; every one has its `EXOCTL_*` mirror.
    """

    state_dir: Annotated[
        Path | None,
        _option("--state-dir", panel=_COMMON, metavar="DIR", text="State directory of the node."),
    ] = None
    host: Annotated[
        str | None,
        _option("--host", panel=_COMMON, metavar="URL", text="Talk to the node at this address."),
    ] = None
    cluster: Annotated[
        str | None,
        _option("-C", "--cluster", panel=_COMMON, metavar="NAME", text="One of `exoctl context`."),
    ] = None
    token: Annotated[
        str | None,
        _option("--token", panel=_COMMON, metavar="TEXT", text="Token of the node's API."),
    ] = None
    output: Annotated[
        OutputFormat | None,
        _option(
            *("-o", "--output"),
            panel=_COMMON,
            metavar="FORM",
            text="Data as table, wide, json, yaml, name or ndjson.",
        ),
    ] = None
    json: Annotated[bool, _option("--json", panel=_COMMON, text="The same as -o json.")] = False
    quiet: Annotated[
        bool,
        _option("-q", "--quiet", panel=_COMMON, text="No progress; lists as names alone."),
    ] = False
    verbose: Annotated[
        bool, _option("-v", "--verbose", panel=_COMMON, text="Say more on stderr.")
    ] = False
    no_color: Annotated[bool, _option("--no-color", panel=_COMMON, text="No colours.")] = False
    timeout: Annotated[
        str | None,
        _option(
            "--timeout", panel=_COMMON, metavar="DURATION", text="Give up after this long: 30s, 5m."
        ),
    ] = None
    yes: Annotated[bool, _option("-y", "--yes", panel=_COMMON, text="Do not ask.")] = False

    name: Annotated[
        str | None, _option("--name", panel=_NODE, metavar="NAME", text="Name of the node.")
    ] = None
    port: Annotated[
        int | None,
        _option("--port", panel=_NODE, metavar="PORT", text="Cluster port; 0 takes a free one."),
    ] = None
    api_port: Annotated[
        int | None,
        _option(
            "--api-port",
            panel=_NODE,
            metavar="PORT",
            text="API port; 0 takes a free one, -1 starts no API.",
        ),
    ] = None
    api_host: Annotated[
        str | None,
        _option(
            "--api-host",
            panel=_NODE,
            metavar="HOST",
            text="Where the API listens; off loopback it needs --token.",
        ),
    ] = None
    bind: Annotated[
        str | None,
        _option(
            "--bind",
            panel=_NODE,
            metavar="HOST",
            text="Where to listen for other nodes; 127.0.0.1 keeps to this machine.",
        ),
    ] = None
    peer: Annotated[
        list[str] | None,
        _option(
            "--peer",
            panel=_NODE,
            metavar="HOST:PORT",
            text="A node to dial besides discovery; may be given again.",
        ),
    ] = None
    no_discovery: Annotated[
        bool,
        _option("--no-discovery", panel=_NODE, text="Neither announce nor look for nodes."),
    ] = False
    trust: Annotated[
        str | None,
        _option(
            "--trust",
            panel=_NODE,
            metavar="invite|lan",
            text="Who may join: those with an invite, or anyone on the network.",
        ),
    ] = None

    cluster_secret_file: Annotated[
        Path | None,
        _option(
            "--cluster-secret-file",
            panel=_NODE,
            metavar="FILE",
            text="Join nodes with the same secret without being asked.",
        ),
    ] = None
    until_eof: Annotated[
        bool,
        _option(
            "--until-eof",
            panel=_NODE,
            text="Stop once stdin ends: for a program that starts a node and may die.",
        ),
    ] = False

    read_only: Annotated[
        bool, _option("--read-only", panel=_APP, text="Change nothing in the cluster.")
    ] = False
    ascii: Annotated[bool, _option("--ascii", panel=_APP, text="Draw with ASCII alone.")] = False
    no_mouse: Annotated[
        bool, _option("--no-mouse", panel=_APP, text="Leave the mouse to the terminal.")
    ] = False
    no_anim: Annotated[bool, _option("--no-anim", panel=_APP, text="Nothing moves.")] = False
    theme: Annotated[
        str | None, _option("--theme", panel=_APP, metavar="NAME", text="Colours of the app.")
    ] = None

    @property
    def format(self) -> OutputFormat:
        """The format that `-o`, `--json` and `-q` ask for together."""
        if self.output is not None:
            return self.output
        if self.json:
            return OutputFormat.JSON
        return OutputFormat.NAME if self.quiet else OutputFormat.TABLE

    @property
    def is_json(self) -> bool:
        """Errors too are then written as JSON."""
        return self.format in (OutputFormat.JSON, OutputFormat.NDJSON)

    @property
    def is_plain_data(self) -> bool:
        """Stdout is for programs: JSON, or names alone."""
        return self.is_json or self.format in (OutputFormat.NAME, OutputFormat.YAML)

    def timeout_seconds(self, default: float) -> float:
        """The deadline that was asked for, or the command's own.

        Raises:
            UsageError: it is no duration.
        """
        return default if self.timeout is None else parse_duration(self.timeout)

    def config(self) -> Config:
        """The node's settings: these options over the config file over the defaults.

        Raises:
            UsageError: a value is off, or the config file can't be read.
        """
        if self.name is not None and not self.name.strip():
            raise UsageError.because("bad_name", "--name is empty", "give the node a name")
        _check_port("--port", self.port, lowest=0)
        _check_port("--api-port", self.api_port, lowest=-1)
        directory, secret = self.state_dir, self.cluster_secret_file
        return load_config(
            {
                "state_directory": directory.expanduser().absolute() if directory else None,
                "cluster_port": self.port,
                "api_port": self.api_port,
                "api_host": self.api_host,
                "api_token": self.token,
                "bind": self.bind,
                "name": self.name,
                "peers": tuple(parse_address(peer) for peer in self.peer or ()) or None,
                "discovery": False if self.no_discovery else None,
                "trust": self.trust,
                "cluster_secret_file": str(secret.expanduser().absolute()) if secret else None,
                "log_level": "debug" if self.verbose else None,
            }
        )

    def overlaid(self, said: Mapping[str, object]) -> "Settings":
        """These settings, with whatever a command's own options said over them."""
        defaults = {field.name: field.default for field in msgspec.structs.fields(Settings)}
        changes = {
            key: value
            for key, value in said.items()
            if value != defaults[key] and value not in (None, [])
        }
        if "output" not in changes and ("json" in changes or "quiet" in changes):
            changes["output"] = None
        return msgspec.structs.replace(self, **changes)


def _check_port(option: str, port: int | None, *, lowest: int) -> None:
    if port is not None and not lowest <= port <= PORT_MAX:
        raise UsageError.because(
            "bad_port", f"{option} {port} is no port", f"use {lowest} to {PORT_MAX}"
        )


def _names_in(panel: str) -> tuple[str, ...]:
    hints = typing.get_type_hints(Settings, include_extras=True)
    return tuple(
        field
        for field in Settings.__struct_fields__
        if typing.get_args(hints[field])[1].rich_help_panel == panel
    )


COMMON_OPTIONS = _names_in(_COMMON)
NODE_OPTIONS = COMMON_OPTIONS + _names_in(_NODE)
APP_OPTIONS = COMMON_OPTIONS + _names_in(_APP)
ALL_OPTIONS = Settings.__struct_fields__


def parameters(names: Collection[str], *, from_environment: bool) -> list[inspect.Parameter]:
    """Parameters of a command function that read these settings from its options."""
    hints = typing.get_type_hints(Settings, include_extras=True)
    found: list[inspect.Parameter] = []
    for field in msgspec.structs.fields(Settings):
        if field.name not in names:
            continue
        kind, option = typing.get_args(hints[field.name])
        option = copy.copy(option)
        if not from_environment:
            option.envvar = None
        found.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[kind, option],
            )
        )
    return found
