"""What nodes are told to do with models: pull, pause, cancel, remove, verify, search."""

import msgspec

from node.api.bounds import TEXT_CHARACTERS_MAX, check_command
from node.api.cluster_orders import GRACE_SECONDS
from node.api.cluster_views import require_found
from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.faults import ParameterError
from node.api.names import model_name, node_name, read_seconds
from node.api.pages import local_facts, send_page, time_limit
from node.core.hub_files import is_revision
from node.core.lookup import find_node
from node.model.download import (
    LimitDownloads,
    ModelOrder,
    OrderDone,
    PrioritiseDownload,
    PruneModels,
    PullModel,
    SteerDownload,
)
from node.model.ids import NodeId
from node.wire.surface import DownloadChange, NodeOrder, PullOrder

ORDER_SECONDS = 30.0
ORDER_SECONDS_MAX = 3600.0
SEARCH_SECONDS = 65.0
DESCRIBE_SECONDS = 190.0


async def submit_order(context: ApiContext, exchange: Exchange) -> None:
    """Have one node carry out an order."""
    body = exchange.decode(NodeOrder)
    check_command(body)
    if not isinstance(body.order, LimitDownloads | PruneModels):
        model_name("order.model", body.order.model)
    node = require_found(find_node(context.handle.state, node_name(body.node)))
    done = await _order(context, exchange, node, body.order)
    await send_page(context, exchange, "OrderDone", [done])


async def start_downloads(context: ApiContext, exchange: Exchange) -> None:
    """Have nodes fetch a model; together they ask the hub once."""
    body = exchange.decode(PullOrder)
    check_command(body)
    model = model_name("model", body.model)
    nodes = tuple(_node(context, name) for name in body.nodes)
    if not nodes:
        nodes = ((await local_facts(context)).node,)
    order = PullModel(
        model=model,
        revision=body.revision,
        priority=body.priority,
        bytes_per_second=body.bytes_per_second,
        source=body.source,
        companions=nodes,
    )
    done = [await _order(context, exchange, node, order) for node in nodes]
    await send_page(context, exchange, "OrderDone", done, 201)


async def change_download(context: ApiContext, exchange: Exchange) -> None:
    """Pause a download, let it go on, try again, or move it in its queue."""
    body = exchange.decode(DownloadChange)
    check_command(body)
    model = model_name("model", exchange.path["model"])
    node = await _named(context, exchange)
    orders: list[ModelOrder] = []
    if body.priority is not None:
        orders.append(PrioritiseDownload(model=model, priority=body.priority))
    if body.action:
        orders.append(SteerDownload(model=model, action=body.action))
    if not orders:
        raise ParameterError("action", "neither an action nor a priority is given")
    done = [await _order(context, exchange, node, order) for order in orders]
    await send_page(context, exchange, "OrderDone", done)


async def drop_download(context: ApiContext, exchange: Exchange) -> None:
    """Give a download up; what came in part is deleted."""
    model = model_name("model", exchange.path["model"])
    node = await _named(context, exchange)
    done = await _order(context, exchange, node, SteerDownload(model=model, action="cancel"))
    await send_page(context, exchange, "OrderDone", [done])


async def search_models(context: ApiContext, exchange: Exchange) -> None:
    """Models on the hub that match."""
    text = exchange.query.get("text", "")
    if len(text) > TEXT_CHARACTERS_MAX or not text.isprintable():
        raise ParameterError("text", "that is nothing to search for")
    with time_limit(SEARCH_SECONDS, "the search"):
        found = await context.handle.search_models(text)
    await send_page(context, exchange, "HubModel", found)


async def describe_model(context: ApiContext, exchange: Exchange) -> None:
    """The card of a model on the hub."""
    model = model_name("model", exchange.query.get("model", ""))
    revision = exchange.query.get("revision", "main")
    if not is_revision(revision):
        raise ParameterError("revision", f"{revision[:60]!r} can't name a revision")
    with time_limit(DESCRIBE_SECONDS, f"looking at {model}"):
        card = await context.handle.describe_model(model, revision)
    await send_page(context, exchange, "ModelCard", [card])


async def carry_out(
    context: ApiContext, node: NodeId, order: ModelOrder, seconds: float = ORDER_SECONDS
) -> OrderDone:
    """Have a node carry out an order within a time.

    Raises:
        ExoctlError: it refuses, can't, or has not answered.
    """
    with time_limit(seconds + GRACE_SECONDS, msgspec.structs.asdict(order).get("model", "it")):
        return await context.handle.order(node, order, seconds)


async def _order(
    context: ApiContext, exchange: Exchange, node: NodeId, order: ModelOrder
) -> OrderDone:
    seconds = read_seconds(exchange.query, "timeout", ORDER_SECONDS, ORDER_SECONDS_MAX)
    return await carry_out(context, node, order, seconds)


def _node(context: ApiContext, name: str) -> NodeId:
    return require_found(find_node(context.handle.state, node_name(name)))


async def _named(context: ApiContext, exchange: Exchange) -> NodeId:
    """The node that the query names; this one where it names none."""
    name = exchange.query.get("node", "")
    if name:
        return _node(context, name)
    return (await local_facts(context)).node
