"""What the system's own supervisor is given to run a node: a systemd user unit or a launchd plist.

Pure: words in, words out. The node logs into its own rotated file, so the supervisor keeps none.
"""

import plistlib
from pathlib import Path

import msgspec

LABEL = "dev.exoctl.node"
UNIT = "exoctl.service"
STOP_SECONDS = 30
"""A clean stop, runners included; after it the supervisor kills."""
RESTART_SECONDS = 2


class ServicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, and how the person's supervisor is told."""

    command: tuple[str, ...]
    environment: dict[str, str]
    path: Path
    """The file that is written."""
    words: bytes
    install: tuple[tuple[str, ...], ...]
    """Commands after the file is written; each must succeed."""
    remove: tuple[tuple[str, ...], ...]
    """Commands before the file is taken away; they may fail where nothing runs."""
    query: tuple[str, ...]
    """Succeeds while it runs."""
    hint: str = ""


def systemd_plan(
    command: tuple[str, ...], environment: dict[str, str], config_home: Path
) -> ServicePlan:
    """A unit of the person's own systemd."""
    variables = "".join(
        f"Environment={_systemd_quoted(f'{name}={value}')}\n" for name, value in environment.items()
    )
    words = f"""\
[Unit]
Description=exoctl node
After=network.target

[Service]
ExecStart={" ".join(_systemd_word(word) for word in command)}
{variables}Restart=on-failure
RestartSec={RESTART_SECONDS}
# Runners outlive a crash of the node for 30 s, so that the next start takes them over.
KillMode=process
TimeoutStopSec={STOP_SECONDS}
StandardOutput=null
StandardError=null

[Install]
WantedBy=default.target
"""
    control = ("systemctl", "--user")
    return ServicePlan(
        command=command,
        environment=environment,
        path=config_home / "systemd" / "user" / UNIT,
        words=words.encode(),
        install=((*control, "daemon-reload"), (*control, "enable", "--now", UNIT)),
        remove=((*control, "disable", "--now", UNIT), (*control, "daemon-reload")),
        query=(*control, "is-active", "--quiet", UNIT),
        hint="it ends when you log out; `loginctl enable-linger` keeps it running",
    )


def launchd_plan(
    command: tuple[str, ...], environment: dict[str, str], home: Path, user: int
) -> ServicePlan:
    """An agent of the person's own launchd."""
    path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    domain = f"gui/{user}"
    content: dict[str, object] = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "EnvironmentVariables": environment,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_SECONDS,
        "ExitTimeOut": STOP_SECONDS,
        "ProcessType": "Interactive",
        "AbandonProcessGroup": True,
        "StandardOutPath": "/dev/null",
        "StandardErrorPath": "/dev/null",
    }
    return ServicePlan(
        command=command,
        environment=environment,
        path=path,
        words=plistlib.dumps(content),
        install=(("launchctl", "bootstrap", domain, str(path)),),
        remove=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
        query=("launchctl", "print", f"{domain}/{LABEL}"),
    )


def _systemd_word(word: str) -> str:
    """A word of a command as systemd reads it; only there a dollar begins a variable."""
    return _systemd_quoted(word.replace("$", "$$"))


def _systemd_quoted(word: str) -> str:
    """A word as systemd reads it: quoted where needed, nothing expanded."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word}"' if not word or any(c in word for c in " \t'\";\\") else word
