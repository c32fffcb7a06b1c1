"""Every command, under its noun, and where it stands in the help."""

from collections.abc import Callable, Mapping

import msgspec

from tui.commands import (
    apply,
    approval,
    bench,
    bundle,
    chat,
    cluster,
    config,
    contexts,
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
    programs,
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
from tui.commands.demo import command as demo
from tui.commands.settings import APP_OPTIONS, NODE_OPTIONS

_RUN = "Run models"
_WATCH = "Watch"
_NODES = "Nodes and clusters"
_HERE = "This machine"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Commands under one noun."""

    name: str
    words: str
    panel: str
    commands: Mapping[str, Callable[..., None]]
    watched: tuple[str, ...] = ()
    """Commands with `--watch`."""
    with_node_options: tuple[str, ...] = ()
    """Commands that take the options of a node that is started."""


COMMANDS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    _RUN: {
        "run": run.run,
        "chat": chat.chat,
        "plan": plan.plan,
        "load": load.load,
        "unload": load.unload,
        "swap": moves.swap,
        "scale": moves.scale,
        "export": apply.export,
        "diff": apply.diff,
        "apply": apply.apply,
        "ps": instances.ps,
        "launch": programs.launch,
        "bench": bench.bench,
    },
    _WATCH: {
        "status": status.status,
        "events": events.events,
        "logs": logs.logs,
        "wait": wait.wait,
    },
    _NODES: {"topology": topology.topology, "up": up.up, "down": up.down},
    _HERE: {
        "doctor": local.doctor,
        "support-bundle": bundle.support_bundle,
        "demo": demo.demo,
        "serve": serve.serve,
        "record": replay.record,
        "replay": replay.replay,
        "completion": local.completion,
        "version": local.version,
    },
}
OPTIONS = {
    "up": NODE_OPTIONS,
    "doctor": NODE_OPTIONS,
    "serve": APP_OPTIONS,
    "replay": APP_OPTIONS,
}
"""Commands that take more than the common options."""
WATCHED = ("ps", "status", "topology")

GROUPS = (
    Group(
        name="model",
        words="The models of the nodes: what is there, fetching, deleting.",
        panel=_RUN,
        commands={
            "ls": models.model_ls,
            "show": models.model_show,
            "search": model_files.model_search,
            "pull": pull.model_pull,
            "rm": model_files.model_rm,
            "verify": model_files.model_verify,
            "import": model_files.model_import,
            "prune": model_files.model_prune,
        },
    ),
    Group(
        name="download",
        words="What is on its way to the nodes.",
        panel=_RUN,
        commands={
            "ls": downloads.download_ls,
            "pause": downloads.download_pause,
            "resume": downloads.download_resume,
            "retry": downloads.download_retry,
            "cancel": downloads.download_cancel,
            "move": downloads.download_move,
            "limit": downloads.download_limit,
        },
        watched=("ls",),
    ),
    Group(
        name="req",
        words="Generations that run, and ending one.",
        panel=_WATCH,
        commands={
            "ls": requests.req_ls,
            "show": requests.req_show,
            "cancel": requests.req_cancel,
        },
        watched=("ls", "show"),
    ),
    Group(
        name="node",
        words="The nodes of the cluster.",
        panel=_NODES,
        commands={
            "ls": nodes.node_ls,
            "show": nodes.node_show,
            "cordon": nodes.node_cordon,
            "uncordon": nodes.node_uncordon,
            "drain": moves.node_drain,
            "rename": nodes.node_rename,
            "label": nodes.node_label,
            "ping": ping.node_ping,
            "rm": nodes.node_rm,
        },
        watched=("ls", "show"),
    ),
    Group(
        name="cluster",
        words="Who belongs together.",
        panel=_NODES,
        commands={
            "status": cluster.cluster_status,
            "invite": cluster.cluster_invite,
            "join": cluster.cluster_join,
            "pending": approval.cluster_pending,
            "approve": approval.cluster_approve,
            "deny": approval.cluster_deny,
            "revoke": nodes.node_rm,
            "rotate": approval.cluster_rotate,
            "leave": cluster.cluster_leave,
        },
    ),
    Group(
        name="master",
        words="Who decides in the cluster.",
        panel=_NODES,
        commands={
            "show": master.master_show,
            "history": master.master_history,
            "step-down": master.master_step_down,
        },
        watched=("show",),
    ),
    Group(
        name="context",
        words="Clusters by name, and which of them commands go to.",
        panel=_NODES,
        commands={
            "ls": contexts.context_ls,
            "add": contexts.context_add,
            "use": contexts.context_use,
            "rm": contexts.context_rm,
        },
    ),
    Group(
        name="service",
        words="The node as a service that starts with your session.",
        panel=_HERE,
        commands={
            "install": service.service_install,
            "status": service.service_status,
            "uninstall": service.service_uninstall,
        },
        with_node_options=("install", "status", "uninstall"),
    ),
    Group(
        name="token",
        words="Who may call this machine's API.",
        panel=_HERE,
        commands={
            "create": tokens.token_create,
            "ls": tokens.token_ls,
            "revoke": tokens.token_revoke,
        },
    ),
    Group(
        name="config",
        words="Settings of a node that is started now.",
        panel=_HERE,
        commands={
            "path": local.config_path,
            "get": local.config_get,
            "set": config.config_set,
            "explain": config.config_explain,
            "template": config.config_template,
            "keys": config.config_keys,
        },
        with_node_options=("get", "explain", "template"),
    ),
)
