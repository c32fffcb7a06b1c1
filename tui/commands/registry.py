"""Every command, where it stands in the help, and what runs it."""

import inspect
from typing import Annotated

import typer

from node.config import environment_value
from node.version import __version__
from tui.commands import (
    apply,
    approval,
    bench,
    bundle,
    chat,
    cluster,
    config,
    downloads,
    events,
    instances,
    load,
    local,
    logs,
    master,
    model_files,
    models,
    moves,
    nodes,
    ping,
    plan,
    pull,
    replay,
    requests,
    run,
    serve,
    service,
    status,
    tokens,
    topology,
    up,
    wait,
)
from tui.commands.console import Console, add_command, give_signature
from tui.commands.demo import command as demo
from tui.commands.local import COMPLETION_VARIABLE, PROGRAM
from tui.commands.settings import ALL_OPTIONS, APP_OPTIONS, NODE_OPTIONS, parameters

_RUN = "Run models"
_WATCH = "Watch"
_NODES = "Nodes and clusters"
_HERE = "This machine"
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
    app = _group(PROGRAM)
    _add_root(app)
    add_command(app, "run", run.run, panel=_RUN)
    add_command(app, "chat", chat.chat, panel=_RUN)
    add_command(app, "plan", plan.plan, panel=_RUN)
    add_command(app, "load", load.load, panel=_RUN)
    add_command(app, "unload", load.unload, panel=_RUN)
    add_command(app, "swap", moves.swap, panel=_RUN)
    add_command(app, "scale", moves.scale, panel=_RUN)
    add_command(app, "export", apply.export, panel=_RUN)
    add_command(app, "diff", apply.diff, panel=_RUN)
    add_command(app, "apply", apply.apply, panel=_RUN)
    add_command(app, "ps", instances.ps, panel=_RUN)
    add_command(app, "bench", bench.bench, panel=_RUN)
    app.add_typer(_models(), name="model", rich_help_panel=_RUN)
    app.add_typer(_downloads(), name="download", rich_help_panel=_RUN)

    add_command(app, "status", status.status, panel=_WATCH)
    add_command(app, "events", events.events, panel=_WATCH)
    add_command(app, "logs", logs.logs, panel=_WATCH)
    add_command(app, "wait", wait.wait, panel=_WATCH)
    app.add_typer(_requests(), name="req", rich_help_panel=_WATCH)

    app.add_typer(_nodes(), name="node", rich_help_panel=_NODES)
    add_command(app, "topology", topology.topology, panel=_NODES)
    app.add_typer(_cluster(), name="cluster", rich_help_panel=_NODES)
    app.add_typer(_master(), name="master", rich_help_panel=_NODES)
    add_command(app, "up", up.up, panel=_NODES, options=NODE_OPTIONS)
    add_command(app, "down", up.down, panel=_NODES)

    add_command(app, "doctor", local.doctor, panel=_HERE, options=NODE_OPTIONS)
    add_command(app, "support-bundle", bundle.support_bundle, panel=_HERE)
    add_command(app, "demo", demo.demo, panel=_HERE)
    app.add_typer(_config(), name="config", rich_help_panel=_HERE)
    add_command(app, "serve", serve.serve, panel=_HERE, options=APP_OPTIONS)
    app.add_typer(_service(), name="service", rich_help_panel=_HERE)
    app.add_typer(_tokens(), name="token", rich_help_panel=_HERE)
    add_command(app, "record", replay.record, panel=_HERE)
    add_command(app, "replay", replay.replay, panel=_HERE, options=APP_OPTIONS)
    add_command(app, "completion", local.completion, panel=_HERE)
    add_command(app, "version", local.version, panel=_HERE)
    return app


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


def _group(name: str, text: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=text,
        # Its two options are of no use here, but they bring the completion's machinery with them.
        add_completion=name == PROGRAM and bool(environment_value(COMPLETION_VARIABLE)),
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
    )


def _models() -> typer.Typer:
    group = _group("model", "The models of the nodes: what is there, fetching, deleting.")
    add_command(group, "ls", models.model_ls)
    add_command(group, "show", models.model_show)
    add_command(group, "search", model_files.model_search)
    add_command(group, "pull", pull.model_pull)
    add_command(group, "rm", model_files.model_rm)
    add_command(group, "verify", model_files.model_verify)
    add_command(group, "import", model_files.model_import)
    add_command(group, "prune", model_files.model_prune)
    return group


def _downloads() -> typer.Typer:
    group = _group("download", "What is on its way to the nodes.")
    add_command(group, "ls", downloads.download_ls)
    add_command(group, "pause", downloads.download_pause)
    add_command(group, "resume", downloads.download_resume)
    add_command(group, "retry", downloads.download_retry)
    add_command(group, "cancel", downloads.download_cancel)
    add_command(group, "move", downloads.download_move)
    add_command(group, "limit", downloads.download_limit)
    return group


def _requests() -> typer.Typer:
    group = _group("req", "Generations that run, and ending one.")
    add_command(group, "ls", requests.req_ls)
    add_command(group, "show", requests.req_show)
    add_command(group, "cancel", requests.req_cancel)
    return group


def _nodes() -> typer.Typer:
    group = _group("node", "The nodes of the cluster.")
    add_command(group, "ls", nodes.node_ls)
    add_command(group, "show", nodes.node_show)
    add_command(group, "cordon", nodes.node_cordon)
    add_command(group, "uncordon", nodes.node_uncordon)
    add_command(group, "drain", moves.node_drain)
    add_command(group, "rename", nodes.node_rename)
    add_command(group, "label", nodes.node_label)
    add_command(group, "ping", ping.node_ping)
    add_command(group, "rm", nodes.node_rm)
    return group


def _cluster() -> typer.Typer:
    group = _group("cluster", "Who belongs together.")
    add_command(group, "status", cluster.cluster_status)
    add_command(group, "invite", cluster.cluster_invite)
    add_command(group, "join", cluster.cluster_join)
    add_command(group, "pending", approval.cluster_pending)
    add_command(group, "approve", approval.cluster_approve)
    add_command(group, "deny", approval.cluster_deny)
    add_command(group, "revoke", nodes.node_rm)
    add_command(group, "rotate", approval.cluster_rotate)
    add_command(group, "leave", cluster.cluster_leave)
    return group


def _service() -> typer.Typer:
    group = _group("service", "The node as a service that starts with your session.")
    add_command(group, "install", service.service_install, options=NODE_OPTIONS)
    add_command(group, "status", service.service_status, options=NODE_OPTIONS)
    add_command(group, "uninstall", service.service_uninstall, options=NODE_OPTIONS)
    return group


def _master() -> typer.Typer:
    group = _group("master", "Who decides in the cluster.")
    add_command(group, "show", master.master_show)
    add_command(group, "history", master.master_history)
    add_command(group, "step-down", master.master_step_down)
    return group


def _tokens() -> typer.Typer:
    group = _group("token", "Who may call this machine's API.")
    add_command(group, "create", tokens.token_create)
    add_command(group, "ls", tokens.token_ls)
    add_command(group, "revoke", tokens.token_revoke)
    return group


def _config() -> typer.Typer:
    group = _group("config", "Settings of a node that is started now.")
    add_command(group, "path", local.config_path)
    add_command(group, "get", local.config_get, options=NODE_OPTIONS)
    add_command(group, "set", config.config_set)
    add_command(group, "explain", config.config_explain, options=NODE_OPTIONS)
    add_command(group, "template", config.config_template, options=NODE_OPTIONS)
    add_command(group, "keys", config.config_keys)

    def explain(typer_context: typer.Context, **arguments: object) -> None:
        """Settings of nodes and of the app: without a command, all of them explained."""
        base: Console = typer_context.obj
        typer_context.obj = console = base.overlaid(arguments)
        if typer_context.invoked_subcommand is None:
            config.config_explain(console)

    give_signature(explain, parameters(NODE_OPTIONS, from_environment=False))
    group.callback(invoke_without_command=True)(explain)
    return group
