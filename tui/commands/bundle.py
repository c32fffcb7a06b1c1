"""`exoctl support-bundle`: what somebody needs who helps, without what nobody else may know."""

import io
import platform
import re
import tarfile
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import typer

from node.config import config_file, environment_value
from node.handle import NodeHandle
from node.io import clock
from node.io.node_lock import read_lock
from node.model.errors import ExoctlError, InternalError, UsageError
from node.model.session import Entry
from node.version import __version__
from tui.commands.console import Console, Listing
from tui.commands.jsonable import fields_of, jsonable

EVENTS_MAX = 5000
LOG_LINES_MAX = 10_000
QUIET_SECONDS = 2.0
_CODES = re.compile(r"\b[0-9A-HJ-NP-Z]{5}(?:-[0-9A-HJ-NP-Z]{5}){3}\b")
_TOKENS = re.compile(r"(?i)\b(hf_\w{8,}|sk-[\w-]{8,}|exoctl-[0-9a-f]{16,}|bearer\s+\S+)")
_LOGIN = re.compile(r"(://)[^/\s:@\"]+:[^/\s@\"]+@")
_QUERY = re.compile(r"(?i)([?&](?:token|key|signature|x-amz-[\w-]+)=)[^&\s\"]+")


class Redactor:
    """Takes out of words what is nobody else's business."""

    def __init__(self, secrets: tuple[str, ...], home: str) -> None:
        known = {secret for secret in secrets if len(secret) >= 4}
        escaped = {msgspec.json.encode(secret).decode()[1:-1] for secret in known}
        self._secrets = tuple(sorted(known | escaped, key=len, reverse=True))
        self._home = home if len(home) > 1 else ""
        self.count = 0
        """Places where something was taken out."""

    def __call__(self, words: str) -> str:
        """The words without secrets; the home directory is `~`."""
        for secret in self._secrets:
            self.count += words.count(secret)
            words = words.replace(secret, "(secret)")
        for pattern, instead in (
            (_CODES, "(code)"),
            (_TOKENS, "(token)"),
            (_LOGIN, r"\g<1>(login)@"),
            (_QUERY, r"\g<1>(token)"),
        ):
            words, number = pattern.subn(instead, words)
            self.count += number
        return words.replace(self._home, "~") if self._home else words


def support_bundle(
    console: Console,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Written; must not exist yet.")
    ] = Path("exoctl-support.tar.gz"),
) -> None:
    """Collect versions, findings, state, events and logs into one file for whoever helps.

    Tokens, invite codes and your home directory are taken out; prompts and answers are never in it.
    Works without a running node too.
    """
    config = console.settings.config()
    secrets = (
        config.api_token,
        *(environment_value(name) for name in ("HF_TOKEN", "EXOCTL_TOKEN")),
    )
    redact = Redactor(secrets, environment_value("HOME"))
    parts: dict[str, str] = {"versions.json": _json(_versions())}
    parts["config.json"] = _json(
        {**fields_of(config), "api_token": "(set)" * bool(config.api_token)}
    )
    parts |= _log_files(config.state_directory)
    if console.settings.host or read_lock(config.state_directory) is not None:
        try:
            parts |= console.connected(_from_node, follow=True)
        except ExoctlError as error:
            parts["node.txt"] = f"{error.failure.message}\n"
    else:
        parts["node.txt"] = "no node runs here\n"
    parts["doctor.json"] = _json(anyio.run(_findings, console))
    safe = {name: redact(words) for name, words in parts.items()}
    _write(file, safe)
    items: list[object] = [{"name": name, "bytes": len(words)} for name, words in safe.items()]
    if console.settings.is_plain_data:
        console.emit(Listing(kind="SupportBundle", index=-1, items=items, names=tuple(safe)))
        return
    console.write(str(file))
    console.say(
        f"{len(safe)} files; {redact.count} secrets taken out. It names nodes, addresses and "
        "models: look into it before you give it away"
    )


async def _from_node(handle: NodeHandle) -> dict[str, str]:
    """What the node says of itself and of its cluster."""
    state = handle.state
    registers = {
        f"{node}/{kind}": jsonable(register.value)
        for (node, kind), register in handle.registers.items()
    }
    parts = {
        "local.json": _json(fields_of(await handle.local())),
        "state.json": _json(fields_of(state)),
        "registers.json": _json(registers),
    }
    lines = await handle.logs("", LOG_LINES_MAX)
    parts["log.txt"] = "".join(
        f"{line.at:.3f} {line.level:<7} {line.source:<16} {line.text}\n" for line in lines
    )
    events: list[str] = []
    async with handle.subscribe(max(0, state.index - EVENTS_MAX)) as stream:
        with anyio.move_on_after(QUIET_SECONDS):
            async for item in stream:
                if isinstance(item, Entry):
                    events.append(msgspec.json.encode(fields_of(item)).decode() + "\n")
                    if item.index >= state.index:
                        break
    parts["events.ndjson"] = "".join(events)
    return parts


async def _findings(console: Console) -> list[object]:
    from node.io.doctor import examine

    return [fields_of(each) for each in await examine(console.settings.config(), network=False)]


def _versions() -> dict[str, object]:
    return {
        "exoctl": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "at": clock.wall(),
        "settings_file": config_file().is_file(),
        "packages": {each.name: each.version for each in distributions()},
    }


def _log_files(directory: Path) -> dict[str, str]:
    """The node's own log file, its last megabyte, where no node runs to be asked."""
    found: dict[str, str] = {}
    for path in sorted(directory.glob("*.log")) + sorted(directory.glob("logs/*.log")):
        try:
            words = path.read_bytes()[-1_000_000:].decode(errors="replace")
        except OSError as error:
            words = f"not readable: {error.strerror}\n"
        found[f"files/{path.name}"] = words
    return found


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _write(file: Path, parts: Mapping[str, str]) -> None:
    try:
        with file.open("xb") as opened, tarfile.open(fileobj=opened, mode="w:gz") as archive:
            for name, words in parts.items():
                payload = words.encode()
                member = tarfile.TarInfo(f"exoctl-support/{name}")
                member.size, member.mode = len(payload), 0o600
                archive.addfile(member, io.BytesIO(payload))
        file.chmod(0o600)
    except FileExistsError as error:
        raise UsageError.because("file_exists", f"{file} exists already", "name another") from error
    except OSError as error:
        raise InternalError.because("not_written", f"{file}: {error.strerror}") from error
