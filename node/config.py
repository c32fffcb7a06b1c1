"""Settings of one node, read once at start from options, environment and the config file."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
import platformdirs
from msgspec import UNSET, Meta, UnsetType

from node.model.errors import UsageError
from node.model.machine import Address

API_PORT = 52415
CLUSTER_PORT = 52416
APPLICATION = "exoctl"
TOKENS_NAME = "tokens.json"
"""Named tokens of the API, in the state directory."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a node is told from outside. Sent as a value to whoever needs it."""

    state_directory: Path
    model_directories: tuple[Path, ...]
    """The first is written to, further ones are only read."""
    name: str = ""
    """Empty: the machine's host name."""
    bind: str = ""
    """Host to listen on for other nodes; empty: every address; `127.0.0.1`: this machine only."""
    cluster_port: int = CLUSTER_PORT
    """0 asks for a free one."""
    api_host: str = "127.0.0.1"
    api_port: int = API_PORT
    """0 asks for a free one; -1: no API."""
    api_token: str = ""
    """Needed by every caller that is not on loopback."""
    peers: tuple[Address, ...] = ()
    discovery: bool = True
    trust: str = "invite"
    """`invite`, or `lan`: admit anyone on the network."""
    prefer_master: bool = False
    log_level: str = "info"
    cluster_secret_file: str = ""
    """Nodes with the same secret join each other without being asked; empty: there is none."""
    api_token_required: bool = False
    """Callers on loopback need the token as well."""


Host = Annotated[str, Meta(max_length=253)]
Directories = Annotated[tuple[Path, ...], Meta(min_length=1, max_length=100)]
Peers = Annotated[tuple[Address | Host, ...], Meta(max_length=1000)]


class FileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the table `[node]` of the config file may hold; options have the same bounds."""

    name: Annotated[str, Meta(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$")] | UnsetType = UNSET
    bind: Host | UnsetType = UNSET
    cluster_port: Annotated[int, Meta(ge=0, le=65535)] | UnsetType = UNSET
    api_host: Host | UnsetType = UNSET
    api_port: Annotated[int, Meta(ge=-1, le=65535)] | UnsetType = UNSET
    api_token: Annotated[str, Meta(max_length=1000, pattern="^[!-~]*$")] | UnsetType = UNSET
    """As it can stand in a header: printable ASCII without spaces."""
    discovery: bool | UnsetType = UNSET
    trust: Literal["invite", "lan"] | UnsetType = UNSET
    prefer_master: bool | UnsetType = UNSET
    log_level: Literal["debug", "info", "warning", "error"] | UnsetType = UNSET
    api_token_required: bool | UnsetType = UNSET
    cluster_secret_file: Annotated[str, Meta(max_length=4096)] | UnsetType = UNSET
    state_directory: Path | UnsetType = UNSET
    model_directories: Directories | UnsetType = UNSET
    peers: Peers | UnsetType = UNSET


class AppFileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the table `[app]` of the config file may hold: how the terminal app looks."""

    theme: Annotated[str, Meta(max_length=64)] = ""
    ascii: bool = False
    mouse: bool = True
    animations: bool = True
    read_only: bool = False
    view: Annotated[str, Meta(max_length=64)] = "overview"


Key = Annotated[str, Meta(min_length=1, max_length=32)]
KeyTable = dict[Annotated[str, Meta(max_length=64)], Key | tuple[Key, ...]]


class ConfigFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole config file."""

    node: FileSettings = FileSettings()
    app: AppFileSettings = AppFileSettings()
    keys: KeyTable = {}
    """Keys of the app's actions, by action."""


Kind = TypeVar("Kind")
_NEVER_IN_HOSTS = set(' /\\?#@<>"')


def default_state_directory() -> Path:
    """Where a node keeps its identity, log and lock unless told otherwise."""
    override = os.environ.get("EXOCTL_STATE_DIR")
    return Path(override) if override else platformdirs.user_state_path(APPLICATION)


def default_model_directory() -> Path:
    """Where models lie, shared by all nodes of the machine."""
    override = os.environ.get("EXOCTL_MODEL_DIR")
    return Path(override) if override else platformdirs.user_data_path(APPLICATION) / "models"


def config_file() -> Path:
    """The settings file; it need not exist."""
    override = os.environ.get("EXOCTL_CONFIG")
    if override:
        return Path(override)
    return platformdirs.user_config_path(APPLICATION) / "config.toml"


def environment_for_child() -> dict[str, str]:
    """A copy of the environment for a child process to start from."""
    return dict(os.environ)


def environment_value(name: str, default: str = "") -> str:
    """One variable of the environment, such as `TERM` or `NO_COLOR`."""
    return os.environ.get(name, default)


def parse_address(text: str, default_port: int = CLUSTER_PORT) -> Address:
    """Read `host`, `host:port` or `[v6]:port`.

    Raises:
        UsageError: the port is no number from 1 to 65535, or the host is empty or can't be one.
    """
    host, port_text = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port_text = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port_text = text.partition(":")
    if not port_text and not text.endswith(":"):
        port_text = str(default_port)
    is_host = bool(host) and host.isprintable() and not set(host) & _NEVER_IN_HOSTS
    is_port = port_text.isdecimal() and len(port_text) <= 5 and 0 < int(port_text) < 65536
    if not is_host or not is_port:
        raise UsageError.because(
            "bad_address",
            f"{text!r} is no address",
            "write host:port, such as 10.0.0.12:52416 or [fe80::1%en0]:52416",
        )
    return Address(host, int(port_text))


def load_config(options: Mapping[str, object]) -> Config:
    """Merge defaults, the config file, and the given options; None among the options means not set.

    Raises:
        UsageError: the file can't be read, names a key that does not exist, or a value is off.
    """
    given = {key: value for key, value in options.items() if value is not None}
    settings: dict[str, object] = {
        "state_directory": default_state_directory(),
        "model_directories": (default_model_directory(),),
        **_as_given(read_config_file(config_file()).node),
        **_as_given(_convert(given, FileSettings, "options")),
    }
    config = msgspec.convert(settings, Config, dec_hook=_read_path)
    has_tokens = bool(config.api_token) or (config.state_directory / TOKENS_NAME).exists()
    if config.api_token_required and not has_tokens:
        raise UsageError.because(
            "api_token_missing",
            "api_token_required is set and there is no token: nobody could call the API",
            "make one: exoctl token create NAME --scope admin",
        )
    return config


def read_config_file(path: Path) -> ConfigFile:
    """The settings file; every setting has its default where there is no file.

    Raises:
        UsageError: it can't be read, names a key that does not exist, or a value is off.
    """
    try:
        words = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ConfigFile()
    except UnicodeDecodeError as error:
        raise UsageError.because("config_syntax", f"{path}: {error}") from error
    except OSError as error:
        raise UsageError.because("config_unreadable", f"{path}: {error.strerror}") from error
    return parse_config(words, str(path))


def parse_config(words: str, source: str) -> ConfigFile:
    """Settings from the words of a file.

    Raises:
        UsageError: as above.
    """
    try:
        raw = tomllib.loads(words)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError.because("config_syntax", f"{source}: {error}") from error
    return _convert(raw, ConfigFile, source)


def _convert(raw: object, kind: type[Kind], source: str) -> Kind:
    try:
        return msgspec.convert(raw, kind, dec_hook=_read_path)
    except msgspec.ValidationError as error:
        raise UsageError.because(
            "config_value",
            f"{source}: {error}",
            "`exoctl config` explains every setting, and `exoctl config keys` the keys",
        ) from error


def _read_path(kind: type, value: object) -> object:
    """A directory, written as text; called for the one type that TOML does not have."""
    if isinstance(value, kind):
        return value
    if kind is not Path or not isinstance(value, str) or not value.isprintable() or not value:
        raise ValueError(f"{value!r} is no directory")
    try:
        return Path(value).expanduser()
    except RuntimeError as error:  # ~somebody, who has no home here
        raise ValueError(f"{value!r}: {error}") from error


def _as_given(settings: FileSettings) -> dict[str, object]:
    given: dict[str, object] = {}
    for name in FileSettings.__struct_fields__:
        value: object = getattr(settings, name)
        if value is not UNSET:
            given[name] = value
    if settings.peers is not UNSET:
        given["peers"] = tuple(
            parse_address(peer) if isinstance(peer, str) else peer for peer in settings.peers
        )
    return given
