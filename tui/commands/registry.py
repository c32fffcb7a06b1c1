"""The application, made of the catalogue of commands."""

import inspect
from typing import Annotated

import typer

from node.config import environment_value
from node.version import __version__
from tui.commands import config, up
from tui.commands.catalogue import COMMANDS, GROUPS, OPTIONS, WATCHED, Group
from tui.commands.console import Console, add_command, give_signature
from tui.commands.local import COMPLETION_VARIABLE, PROGRAM
from tui.commands.settings import ALL_OPTIONS, COMMON_OPTIONS, NODE_OPTIONS, parameters

_OWN_OPTIONS = (
    inspect.Parameter(
        "no_ui",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[
            bool,
            typer.Option(
                "--no-ui",
                envvar="EXOCTL_NO_UI",
                show_envvar=False,
                help="No app: run the node alone.",
            ),
        ],
    ),
    inspect.Parameter(
        "version",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, typer.Option("--version", help="Show the version and end.")],
    ),
)


def build() -> typer.Typer:
    """The whole application."""
    app = _typer(PROGRAM)
    _add_root(app)
    for panel, commands in COMMANDS.items():
        for name, function in commands.items():
            options = OPTIONS.get(name, COMMON_OPTIONS)
            watched = name in WATCHED
            add_command(app, name, function, panel=panel, options=options, is_watched=watched)
        for group in GROUPS:
            if group.panel == panel:
                app.add_typer(_made(group), name=group.name, rich_help_panel=panel)
    return app


def _made(group: Group) -> typer.Typer:
    made = _typer(group.name, group.words)
    for name, function in group.commands.items():
        options = NODE_OPTIONS if name in group.with_node_options else COMMON_OPTIONS
        add_command(made, name, function, options=options, is_watched=name in group.watched)
    if group.name == "config":
        _add_explaining(made)
    return made


def _add_explaining(group: typer.Typer) -> None:
    """`exoctl config` alone explains every setting."""

    def explain(typer_context: typer.Context, **arguments: object) -> None:
        """Settings of nodes and of the app: without a command, all of them explained."""
        base: Console = typer_context.obj
        typer_context.obj = console = base.overlaid(arguments)
        if typer_context.invoked_subcommand is None:
            config.config_explain(console)

    give_signature(explain, parameters(NODE_OPTIONS, from_environment=False))
    group.callback(invoke_without_command=True)(explain)


def _add_root(app: typer.Typer) -> None:
    shared = parameters(ALL_OPTIONS, from_environment=True)

    def root(typer_context: typer.Context, **arguments: object) -> None:
        wants_version, no_ui = arguments.pop("version"), arguments.pop("no_ui")
        base: Console = typer_context.obj
        console = base.overlaid(arguments)
        typer_context.obj = console
        if wants_version:
            console.write(f"{PROGRAM} {__version__}")
            raise typer.Exit
        if typer_context.invoked_subcommand is None:
            if no_ui:
                up.up(console)
            from tui.commands.launch import launch

            raise typer.Exit(launch(console))

    root.__doc__ = (
        "Turn the machines you own into one that runs language models.\n\n"
        "Without a command: the app, with a node in it, or attached to the node that runs here.\n"
        "Every option has its EXOCTL_* variable, such as EXOCTL_STATE_DIR."
    )
    give_signature(root, [*_OWN_OPTIONS, *shared])
    app.callback(invoke_without_command=True)(root)


def _typer(name: str, text: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=text,
        # Its two options are of no use here, but they bring the completion's machinery with them.
        add_completion=name == PROGRAM and bool(environment_value(COMPLETION_VARIABLE)),
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
    )
