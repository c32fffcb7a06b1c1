"""Settings of one node, read once at start from options, environment and the config file."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import platformdirs

from node.model.errors import UsageError
from node.model.machine import Address

API_PORT = 52415
CLUSTER_PORT = 52416
APPLICATION = "exoctl"


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
    api_token_required: bool = False
    """Callers on loopback need the token as well."""


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
        UsageError: the port is no number from 1 to 65535, or the host is empty.
    """
    host, port_text = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port_text = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port_text = text.partition(":")
    if not port_text and not text.endswith(":"):
        port_text = str(default_port)
    if not host or not port_text.isdecimal() or not 0 < int(port_text) < 65536:
        raise UsageError.because(
            "bad_address",
            f"{text!r} is no address",
            "write host:port, such as 10.0.0.12:52416 or [fe80::1%en0]:52416",
        )
    return Address(host, int(port_text))


_PATHS = {"state_directory"}
_FILE_KEYS: Mapping[str, type] = {
    "name": str,
    "bind": str,
    "cluster_port": int,
    "api_host": str,
    "api_port": int,
    "api_token": str,
    "discovery": bool,
    "trust": str,
    "prefer_master": bool,
    "log_level": str,
    "api_token_required": bool,
    "state_directory": str,
    "model_directories": list,
    "peers": list,
}


def load_config(options: Mapping[str, object]) -> Config:
    """Merge defaults, the config file, and the given options; None among the options means not set.

    Raises:
        UsageError: the file can't be read, names a key that does not exist, or a value is off.
    """
    settings: dict[str, object] = {
        "state_directory": default_state_directory(),
        "model_directories": (default_model_directory(),),
    }
    settings.update(_read_file(config_file()))
    settings.update({key: value for key, value in options.items() if value is not None})
    config = Config(**settings)  # type: ignore[arg-type]
    if config.trust not in ("invite", "lan"):
        raise UsageError.because("bad_trust", f"trust is {config.trust!r}", "use `invite` or `lan`")
    return config


def _read_file(path: Path) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError.because("config_unreadable", f"{path}: {error.strerror}") from error
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError.because("config_syntax", f"{path}: {error}") from error
    node = raw.get("node", {})
    settings: dict[str, object] = {}
    for key, value in node.items():
        expected = _FILE_KEYS.get(key)
        if expected is None:
            raise UsageError.because(
                "config_key",
                f"{path}: no setting is called {key!r}",
                f"known: {', '.join(_FILE_KEYS)}",
            )
        if not isinstance(value, expected):
            raise UsageError.because(
                "config_value", f"{path}: {key} must be {expected.__name__}, not {value!r}"
            )
        settings[key] = value
    if "state_directory" in settings:
        settings["state_directory"] = Path(str(settings["state_directory"])).expanduser()
    if "model_directories" in settings:
        directories: list[object] = settings["model_directories"]  # type: ignore[assignment]
        settings["model_directories"] = tuple(Path(str(item)).expanduser() for item in directories)
    if "peers" in settings:
        peers: list[object] = settings["peers"]  # type: ignore[assignment]
        settings["peers"] = tuple(parse_address(str(item)) for item in peers)
    return settings
