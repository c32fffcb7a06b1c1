"""What the cluster is: nodes, instances, links, downloads, requests, logs."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.model_list import instance_status
from node.api.names import instance_name, node_name, read_count, request_id
from node.api.pages import local_facts, send_page, time_limit
from node.core.lookup import find_instance, find_node
from node.core.refusal import Refusal
from node.handle import NodeHandle
from node.model.errors import NotFoundError
from node.model.ids import ClusterId, NodeId
from node.model.instance import Instance, RunnerRecord
from node.model.machine import NodeRecord
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    JoinFigures,
    LinkFigures,
    LinkRecord,
    RegisterValue,
    RequestFigures,
)
from node.model.request import RequestPhase, RequestRecord
from node.model.session import Session
from node.wire.surface import error_of_kind

LOG_LINES_DEFAULT = 1000
LOG_LINES_MAX = 10_000
SOURCE_CHARACTERS_MAX = 200
_RUNNING = (RequestPhase.QUEUED, RequestPhase.PREFILL, RequestPhase.DECODE)

Value = TypeVar("Value")


class ClusterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster in a few figures."""

    cluster: ClusterId
    name: str
    session: Session
    index: int
    master: NodeId
    master_name: str
    nodes: int
    nodes_lost: int
    instances: int
    instances_ready: int
    requests_running: int
    answered_by: NodeId
    version: str


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node and what it last said of itself."""

    record: NodeRecord
    is_master: bool
    in_sync: bool
    """Its disk must hold an entry before that counts as committed."""
    registers: dict[str, RegisterValue]


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """An instance and its runners."""

    instance: Instance
    status: str
    """`loading`, `ready`, `degraded`, `failed`, `stopping`."""
    attempt: int
    runners: tuple[RunnerRecord, ...]


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A link as one of its ends sees it."""

    node: NodeId
    link: LinkRecord


class DownloadView(msgspec.Struct, frozen=True, kw_only=True):
    """A download and where it goes on."""

    node: NodeId
    download: DownloadRecord


def view_instance(handle: NodeHandle, instance: Instance) -> InstanceView:
    """An instance with its runners in rank order."""
    state = handle.state
    runners = tuple(
        state.runners[shard.runner] for shard in instance.shards if shard.runner in state.runners
    )
    return InstanceView(
        instance=instance,
        status=instance_status(handle, instance.instance),
        attempt=state.attempts.get(instance.instance, 1),
        runners=runners,
    )


Found = TypeVar("Found", bound=str)


def require_found(found: Found | Refusal) -> Found:
    """What a look-up found.

    Raises:
        NotFoundError: nothing. UsageError: several.
    """
    if isinstance(found, Refusal):
        raise error_of_kind(found.kind, found.failure)
    return found


def _values(handle: NodeHandle, kind: type[Value]) -> Iterator[tuple[NodeId, Value]]:
    for (node, _), register in sorted(handle.registers.items()):
        if isinstance(register.value, kind):
            yield node, register.value


def running_requests(handle: NodeHandle) -> list[RequestRecord]:
    """Generations that every node took, the running ones and the last that ended."""
    return [record for _, figures in _values(handle, RequestFigures) for record in figures.requests]


async def show_cluster(context: ApiContext, exchange: Exchange) -> None:
    """The summary."""
    handle = context.handle
    local = await local_facts(context)
    state = handle.state
    master = state.nodes.get(state.master)
    statuses = [instance_status(handle, each) for each in state.instances]
    summary = ClusterSummary(
        cluster=state.cluster,
        name=state.cluster_name,
        session=state.session,
        index=state.index,
        master=state.master,
        master_name=master.name if master else "",
        nodes=len(state.nodes),
        nodes_lost=sum(node.lost for node in state.nodes.values()),
        instances=len(statuses),
        instances_ready=statuses.count("ready"),
        requests_running=sum(each.phase in _RUNNING for each in running_requests(handle)),
        answered_by=local.node,
        version=local.version,
    )
    await send_page(context, exchange, "Cluster", [summary])


async def show_state(context: ApiContext, exchange: Exchange) -> None:
    """The whole state."""
    await send_page(context, exchange, "State", [context.handle.state])


async def show_local(context: ApiContext, exchange: Exchange) -> None:
    """Facts of the node that answers."""
    local = await local_facts(context)
    await send_page(context, exchange, "LocalView", [local])


def _view_node(handle: NodeHandle, record: NodeRecord) -> NodeView:
    state = handle.state
    registers = {
        kind: register.value
        for (node, kind), register in sorted(handle.registers.items())
        if node == record.node
    }
    return NodeView(
        record=record,
        is_master=record.node == state.master,
        in_sync=record.node in state.in_sync,
        registers=registers,
    )


async def list_nodes(context: ApiContext, exchange: Exchange) -> None:
    """Every node."""
    handle = context.handle
    nodes = [_view_node(handle, record) for record in handle.state.nodes.values()]
    await send_page(context, exchange, "Node", nodes)


async def show_node(context: ApiContext, exchange: Exchange) -> None:
    """One node, by its id, the beginning of it, or its name."""
    state = context.handle.state
    node = require_found(find_node(state, node_name(exchange.path["node"])))
    await send_page(context, exchange, "Node", [_view_node(context.handle, state.nodes[node])])


async def list_links(context: ApiContext, exchange: Exchange) -> None:
    """Every link, from the view of each of its ends."""
    links = [
        LinkView(node=node, link=link)
        for node, figures in _values(context.handle, LinkFigures)
        for link in figures.links
    ]
    await send_page(context, exchange, "Link", links)


async def list_downloads(context: ApiContext, exchange: Exchange) -> None:
    """Every download."""
    downloads = [
        DownloadView(node=node, download=download)
        for node, figures in _values(context.handle, DownloadFigures)
        for download in figures.downloads
    ]
    await send_page(context, exchange, "Download", downloads)


async def list_instances(context: ApiContext, exchange: Exchange) -> None:
    """Every instance."""
    handle = context.handle
    views = [view_instance(handle, each) for each in handle.state.instances.values()]
    await send_page(context, exchange, "Instance", views)


async def show_instance(context: ApiContext, exchange: Exchange) -> None:
    """One instance, by its id, the beginning of it, or its model."""
    state = context.handle.state
    found = require_found(find_instance(state, instance_name(exchange.path["instance"])))
    view = view_instance(context.handle, state.instances[found])
    await send_page(context, exchange, "Instance", [view])


async def list_requests(context: ApiContext, exchange: Exchange) -> None:
    """Generations of all nodes."""
    await send_page(context, exchange, "Request", running_requests(context.handle))


async def show_request(context: ApiContext, exchange: Exchange) -> None:
    """One generation."""
    wanted = request_id(exchange.path["request"])
    found = [each for each in running_requests(context.handle) if each.request == wanted]
    if not found:
        raise NotFoundError.because(
            "request_not_found",
            f"no node knows a request {wanted}; each remembers only its last ones",
        )
    await send_page(context, exchange, "Request", found)


async def list_joins(context: ApiContext, exchange: Exchange) -> None:
    """Machines that ask any member to be let in."""
    requests = [
        request
        for _, figures in _values(context.handle, JoinFigures)
        for request in figures.requests
    ]
    await send_page(context, exchange, "JoinRequest", requests)


async def list_registers(context: ApiContext, exchange: Exchange) -> None:
    """The latest registers of all nodes."""
    await send_page(context, exchange, "Register", list(context.handle.registers.values()))


async def read_logs(context: ApiContext, exchange: Exchange) -> None:
    """The last lines of the answering node's log."""
    source = exchange.query.get("source", "")[:SOURCE_CHARACTERS_MAX]
    lines_max = read_count(exchange.query, "lines", LOG_LINES_DEFAULT, LOG_LINES_MAX)
    with time_limit(context.timing.call_seconds, "logs"):
        lines = await context.handle.logs(source, lines_max)
    await send_page(context, exchange, "LogLine", lines)


async def list_log_sources(context: ApiContext, exchange: Exchange) -> None:
    """Names that the log's `source` takes."""
    with time_limit(context.timing.call_seconds, "log sources"):
        sources = await context.handle.log_sources()
    await send_page(context, exchange, "LogSource", sources)
