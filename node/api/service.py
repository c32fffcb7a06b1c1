"""Whether the node lives and can work, for people and for supervisors."""

import msgspec

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.pages import local_facts
from node.model.ids import NodeId
from node.model.register import RouterFigures


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/health`: the process is there and its loop runs."""

    node: str
    name: str
    version: str
    status: str = "ok"
    disk: str = ""
    """What is wrong with the disk of the node's log; a restart does not help, room or a mended disk
    does."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/ready`: commands can be decided."""

    ready: bool
    master: str
    """The master's node id; empty where none is known."""
    waiting: tuple[str, ...] = ()
    """What is being waited for, in words."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/`: what listens here, and where to go on."""

    name: str
    """Of the node."""
    version: str
    exoctl: str = "a node of a cluster that runs language models"
    openai: str = "/v1"
    anthropic: str = "/v1/messages"
    ollama: str = "/api"
    cluster: str = "/v1/cluster/state"
    health: str = "/health"
    metrics: str = "/metrics"
    documentation: str = "/openapi.json"


async def show_welcome(context: ApiContext, exchange: Exchange) -> None:
    """Answer what this is, to people and programs that only know host and port."""
    local = await local_facts(context)
    welcome = Welcome(name=local.name, version=local.version)
    body = msgspec.json.format(msgspec.json.encode(welcome), indent=2)
    await exchange.answer(body + b"\n")


async def show_health(context: ApiContext, exchange: Exchange) -> None:
    """Answer that the process lives."""
    local = await local_facts(context)
    router = _router(context, local.node)
    health = Health(
        node=local.node,
        name=local.name,
        version=local.version,
        disk="" if router is None else router.disk_trouble,
    )
    await exchange.answer(msgspec.json.encode(health))


async def show_readiness(context: ApiContext, exchange: Exchange) -> None:
    """Answer whether a master is known."""
    local = await local_facts(context)
    router = _router(context, local.node)
    looking = router is not None and router.role == "looking"
    master = "" if looking else context.handle.state.master
    readiness = Readiness(ready=bool(master), master=master, waiting=local.waiting)
    await exchange.answer(msgspec.json.encode(readiness), status=200 if readiness.ready else 503)


def _router(context: ApiContext, node: NodeId) -> RouterFigures | None:
    register = context.handle.registers.get((node, RouterFigures.__name__))
    value = None if register is None else register.value
    return value if isinstance(value, RouterFigures) else None
