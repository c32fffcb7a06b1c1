"""`exoctl service`: the node as a service of the person's own session, only where they ask."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import anyio

from node.config import config_file, environment_value
from node.io.node_lock import read_lock
from node.model.errors import ConflictError, InternalError, UsageError
from tui.commands.changes import check_may_change
from tui.commands.console import Console, Listing
from tui.commands.jsonable import fields_of
from tui.commands.plain import Column, Table
from tui.commands.service_files import STOP_SECONDS, ServicePlan, launchd_plan, systemd_plan

CONTROL_SECONDS = 60.0
_LOOK_SECONDS = 0.2
NOT_RUNNING = 1
_NO_SESSION = re.compile(r"connect to (user scope )?bus", re.IGNORECASE)
"""What systemctl says, in whichever version, where it has no user's manager to speak to."""
_KEPT_VARIABLES = (
    *("EXOCTL_STATE_DIR", "EXOCTL_MODEL_DIR", "EXOCTL_CONFIG"),
    *("HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "PATH"),
)


def service_install(console: Console) -> None:
    """Have the system start this node at login, and again should it fail.

    Options of the node given here are kept in it; everything else is read from the settings file.
    On macOS it is a launchd agent, on Linux a systemd user unit. Nothing needs root.
    """
    check_may_change(console)
    plan = _plan(console)
    record = read_lock(console.settings.config().state_directory)
    if record is not None and not _is_running(plan):
        raise ConflictError.because(
            "node_runs",
            f"{record.name} (process {record.process_id}) runs here already, not as a service",
            "`exoctl down` first: the service starts it again",
        )
    console.confirm(f"Write {plan.path} and start it?")
    if plan.path.exists():
        _stop(plan)  # a supervisor keeps running what it was told before
    try:
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        plan.path.write_bytes(plan.words)
    except OSError as error:
        raise InternalError.because("not_written", f"{plan.path}: {error.strerror}") from error
    for command in plan.install:
        _control(command)
    _say(console, plan, "installed")
    if plan.hint and not console.settings.is_plain_data:
        console.say(plan.hint)


def service_status(console: Console) -> None:
    """Tell whether the service is installed and runs: exit 0 if it does, else 1."""
    plan = _plan(console)
    is_installed, is_running = plan.path.exists(), _is_running(plan)
    is_stale = is_installed and plan.path.read_bytes() != plan.words
    rows = (
        ("installed", str(plan.path) if is_installed else "no"),
        ("running", "yes" if is_running else "no"),
        ("command", " ".join(plan.command)),
        ("logs", f"{console.settings.config().state_directory}, rotated; `exoctl logs`"),
    )
    item: dict[str, object] = {
        "installed": is_installed,
        "running": is_running,
        "differs": is_stale,
        "path": str(plan.path),
        "command": list(plan.command),
    }
    console.emit(
        Listing(
            kind="Service",
            index=-1,
            items=[item],
            table=Table((Column("SERVICE"), Column("VALUE", shrinks=True)), rows),
            names=("running" if is_running else "stopped",),
        )
    )
    if is_stale and not console.settings.is_plain_data:
        console.say("it was installed with other options: `exoctl service install` renews it")
    console.exit(0 if is_running else NOT_RUNNING)


def service_uninstall(console: Console) -> None:
    """Stop the service cleanly and take its file away. Models and state stay."""
    check_may_change(console)
    plan = _plan(console)
    if not plan.path.exists():
        console.say(f"there is no service ({plan.path})")
        return
    console.confirm(f"Stop the node and remove {plan.path}?")
    _stop(plan)
    plan.path.unlink(missing_ok=True)
    _say(console, plan, "removed")


def _say(console: Console, plan: ServicePlan, change: str) -> None:
    if console.settings.is_plain_data:
        item = fields_of(plan)
        kept = {"path": item["path"], "change": change, "command": item["command"]}
        console.emit(Listing(kind="Change", index=-1, items=[kept], names=(str(plan.path),)))
    else:
        console.write(f"service {change}: {plan.path}")


def _plan(console: Console) -> ServicePlan:
    command = (*_program(), *_options(console))
    environment = {name: value for name in _KEPT_VARIABLES if (value := environment_value(name))}
    system = platform.system()
    home = Path(environment_value("HOME") or "~").expanduser()
    if system == "Darwin":
        return launchd_plan(command, environment, home, os.getuid())
    if system == "Linux":
        base = environment_value("XDG_CONFIG_HOME")
        return systemd_plan(command, environment, Path(base) if base else home / ".config")
    raise UsageError.because(
        "no_service_here", f"{system} has no service that exoctl knows", "run `exoctl up` by hand"
    )


def _program() -> tuple[str, ...]:
    beside = Path(sys.executable).with_name("exoctl")
    return (str(beside),) if beside.exists() else (sys.executable, "-m", "tui")


def _options(console: Console) -> tuple[str, ...]:
    """The node's options that were said, as they are said again at each start."""
    settings = console.settings
    if settings.token:
        raise UsageError.because(
            "token_in_service",
            "a token on the command line could be read by everybody on this machine",
            f"put it into {config_file()}: `exoctl config set node.api_token …`",
        )
    said: list[str] = ["up"]
    if settings.state_dir:
        said += ["--state-dir", str(settings.state_dir.expanduser().absolute())]
    for name, value in (
        ("--name", settings.name),
        ("--port", settings.port),
        ("--api-port", settings.api_port),
        ("--api-host", settings.api_host),
        ("--bind", settings.bind),
        ("--trust", settings.trust),
    ):
        if value is not None:
            said += [name, str(value)]
    if settings.cluster_secret_file:
        said += ["--cluster-secret-file", str(settings.cluster_secret_file.expanduser().absolute())]
    for peer in settings.peer or ():
        said += ["--peer", peer]
    if settings.no_discovery:
        said.append("--no-discovery")
    return tuple(said)


def _stop(plan: ServicePlan) -> None:
    for command in plan.remove:
        _control(command, may_fail=True)

    async def until_stopped() -> None:
        with anyio.move_on_after(2 * STOP_SECONDS):
            while True:
                if not _is_running(plan):
                    return
                await anyio.sleep(_LOOK_SECONDS)

    anyio.run(until_stopped)


def _is_running(plan: ServicePlan) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            plan.query, capture_output=True, timeout=CONTROL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _control(command: tuple[str, ...], *, may_fail: bool = False) -> None:
    words = " ".join(command)
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            command, capture_output=True, text=True, timeout=CONTROL_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise UsageError.because(
            "no_supervisor",
            f"there is no {command[0]} here: this system runs no services of people",
            "run `exoctl up` by hand, or from whatever supervises here",
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InternalError.because("control_failed", f"{words}: {error}") from error
    said = (done.stderr or done.stdout).strip()
    if done.returncode and not may_fail and _NO_SESSION.search(said):
        raise UsageError.because(
            "no_session",
            f"{words}: systemd runs no session of this user ({said})",
            "log in as that user anew, or `loginctl enable-linger` first; then repeat this",
        )
    if done.returncode and not may_fail:
        raise InternalError.because(
            "control_failed",
            f"{words} ended with {done.returncode}: {said}",
            "`exoctl service uninstall` takes back what was begun",
        )
