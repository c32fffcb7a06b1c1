"""Commands that need no running node: version, completion, config, doctor."""

import enum
import platform
from typing import Annotated

import typer

from node.config import config_file
from node.handle import NodeHandle
from node.io.finding import Finding, failure
from node.model.errors import ExoctlError, NotFoundError
from node.version import __version__
from tui.commands.console import Console, Listing
from tui.commands.jsonable import fields_of
from tui.commands.plain import Column, Table
from tui.commands.settings import OutputFormat

UNWELL = 1
PROGRAM = "exoctl"
COMPLETION_VARIABLE = "_EXOCTL_COMPLETE"
_SECRETS = ("api_token",)


class Shell(enum.Enum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_SCRIPTS = {
    Shell.BASH: """\
_{program}() {{
    local IFS=$'\\n'
    COMPREPLY=($(COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD=$COMP_CWORD \\
        {variable}=complete_bash "$1" 2>/dev/null))
}}
complete -o default -F _{program} {program}""",
    Shell.ZSH: """\
#compdef {program}
_{program}() {{
    eval "$(_TYPER_COMPLETE_ARGS="${{words[1,$CURRENT]}}" \\
        {variable}=complete_zsh {program} 2>/dev/null)"
}}
if [ "$funcstack[1]" = "_{program}" ]; then
    _{program} "$@"
else
    compdef _{program} {program}
fi""",
    Shell.FISH: """\
function __{program}_complete
    set --local --export {variable} complete_fish
    set --local --export _TYPER_COMPLETE_FISH_ACTION get-args
    set --local --export _TYPER_COMPLETE_ARGS (commandline --cut-at-cursor)
    {program} 2>/dev/null
end
complete --command {program} --no-files --arguments '(__{program}_complete)'""",
}


def version(console: Console) -> None:
    """Show the version of exoctl and what it runs on."""
    facts: dict[str, object] = {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    if console.settings.format is OutputFormat.TABLE:
        console.write(f"{PROGRAM} {__version__} (Python {facts['python']}, {facts['system']})")
        return
    console.emit(
        Listing(
            kind="Version",
            index=-1,
            items=[facts],
            table=Table(
                (Column("FACT"), Column("VALUE")), tuple((k, str(v)) for k, v in facts.items())
            ),
            names=(__version__,),
        )
    )


def completion(
    console: Console,
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print the completion script of a shell.

    bash: exoctl completion bash > ~/.local/share/bash-completion/completions/exoctl
    zsh: exoctl completion zsh > a file `_exoctl` in your $fpath
    fish: exoctl completion fish > ~/.config/fish/completions/exoctl.fish
    """
    console.write(_SCRIPTS[shell].format(program=PROGRAM, variable=COMPLETION_VARIABLE))


def config_path(console: Console) -> None:
    """Print where the settings file is read from; it need not exist."""
    path = config_file()
    item: dict[str, object] = {"path": str(path), "exists": path.is_file()}
    if console.is_json:
        console.emit(Listing(kind="ConfigPath", index=-1, items=[item], names=(str(path),)))
        return
    console.write(str(path))
    if not path.is_file():
        console.say("(there is no such file yet; every setting has its default)")


def config_get(
    console: Console,
    key: Annotated[
        str, typer.Argument(metavar="[KEY]", help="One setting; all of them without.")
    ] = "",
) -> None:
    """Show the settings that a node started now would have."""
    values = {
        name: "(set)" if name in _SECRETS and value else value
        for name, value in fields_of(console.settings.config()).items()
    }
    if key:
        name = key.replace("-", "_")
        if name not in values:
            raise NotFoundError.because(
                "no_such_setting", f"no setting is called {key!r}", f"there are {', '.join(values)}"
            )
        values = {name: values[name]}
    texts = tuple((name, _text(value)) for name, value in values.items())
    if key and not console.settings.is_plain_data:
        console.write(texts[0][1])
        return
    console.emit(
        Listing(
            kind="Config",
            index=-1,
            items=[values],
            table=Table((Column("SETTING"), Column("VALUE")), texts),
            names=tuple(values),
        )
    )


def _text(value: object) -> str:
    if isinstance(value, list):
        parts: list[object] = value  # pyright: ignore[reportUnknownVariableType]
        return ", ".join(str(part) for part in parts)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_the_cluster(console: Console) -> list[Finding]:
    """What the node that runs here knows of others; nothing where none runs."""
    from node.io.doctor_cluster import cluster_findings
    from node.io.node_lock import read_lock

    record = read_lock(console.settings.config().state_directory)
    if record is None or record.api != console.target()[0]:
        return []

    async def work(handle: NodeHandle) -> list[Finding]:
        local = await handle.local()
        return cluster_findings(handle.state, handle.registers, local.node)

    try:
        return console.connected(work)
    except ExoctlError as error:
        reason = f"it does not answer: {error.failure.message}"
        return [failure("node's answer", reason, error.failure.remedy or "exoctl logs")]


def doctor(
    console: Console,
    *,
    network: Annotated[
        bool,
        typer.Option(
            "--network", help="Also send one multicast packet on each interface, and ask the hub."
        ),
    ] = False,
) -> None:
    """Look for what would keep a node from running well here: exit 0 if nothing was found."""
    import anyio

    from node.io.doctor import examine

    config = console.settings.config()

    async def work() -> list[Finding]:
        return await examine(config, network=network)

    findings = [*anyio.run(work), *_of_the_cluster(console)]
    rows = tuple((each.name, each.state, each.reason) for each in findings)
    console.emit(
        Listing(
            kind="Finding",
            index=-1,
            items=[fields_of(finding) for finding in findings],
            table=Table(
                (Column("CHECK"), Column("STATE", toned=True), Column("REASON", shrinks=True)), rows
            ),
            names=tuple(each.name for each in findings if each.state != "ok"),
        )
    )
    unwell = [each for each in findings if each.state != "ok"]
    if not console.settings.is_plain_data:
        for finding in unwell:
            if finding.remedy:
                console.say(f"! {finding.name}: {finding.remedy}")
    console.exit(UNWELL if unwell else 0)
