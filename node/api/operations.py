"""Every operation of the API."""

import msgspec

from node.api import (
    cluster_generate,
    cluster_orders,
    cluster_views,
    events,
    metrics,
    model_orders,
    service,
)
from node.api.context import ApiContext
from node.api.dialect_operations import DIALECT_OPERATIONS
from node.api.exchange import Exchange
from node.api.faults import CLUSTER_DIALECT, OPENAI_DIALECT
from node.api.model_list import OpenAiModel, OpenAiModelList, list_models, show_model
from node.api.openai_chat import ChatCompletion, complete_chat
from node.api.openai_chat_order import ChatOrder
from node.api.openai_completions import Completion, CompletionOrder, complete_text
from node.api.openapi import build_document
from node.api.operation import Handler, Operation, QueryParameter
from node.api.pages import local_facts
from node.handle import Invite, LocalView, LogLine, Rotation
from node.model.card import ModelCard
from node.model.command import Accepted, Answer, Command
from node.model.download import HubModel, OrderDone
from node.model.register import JoinRequest, LinkRecord, Register
from node.model.request import GenerationRequest, RequestRecord
from node.model.state import State
from node.model.topology import Plan
from node.wire.surface import (
    NDJSON,
    AskOrder,
    Cancellation,
    DownloadChange,
    FinishOrder,
    InviteOrder,
    JoinOrder,
    JudgeOrder,
    NodeOrder,
    PingOrder,
    PlaceOrder,
    PullOrder,
)

_STATUSES = {
    "POST /v1/cluster/instances": 201,
    "POST /v1/cluster/invite": 201,
    "POST /v1/cluster/downloads": 201,
    "POST /v1/cluster/asks": 201,
    "POST /v1/cluster/shutdown": 202,
}
_TIMEOUT = QueryParameter("timeout", "number", "seconds to wait for the outcome")
_COMMAND_ID = QueryParameter(
    "id", "string", "names the command: asked again with it, of any node, it runs once"
)


def _openai(
    method: str, path: str, summary: str, handler: Handler, *, body: object = None, answer: object
) -> Operation:
    return Operation(
        method=method,
        path=path,
        summary=summary,
        handler=handler,
        dialect=OPENAI_DIALECT,
        body=body,
        answer=answer,
    )


def _view(
    path: str, summary: str, handler: Handler, page: str, item: object, *query: QueryParameter
) -> Operation:
    return Operation(
        method="GET",
        path=path,
        summary=summary,
        handler=handler,
        dialect=CLUSTER_DIALECT,
        page=page,
        answer=item,
        query=query,
    )


def _service(path: str, summary: str, handler: Handler, answer: object, content: str) -> Operation:
    return Operation(
        method="GET",
        path=path,
        summary=summary,
        handler=handler,
        dialect=CLUSTER_DIALECT,
        answer=answer,
        content_type=content,
    )


def _order(
    route: str,
    summary: str,
    handler: Handler,
    *,
    body: object = None,
    page: tuple[str, object] = ("Done", cluster_orders.Done),
    query: tuple[QueryParameter, ...] = (),
) -> Operation:
    method, _, path = route.partition(" ")
    return Operation(
        method=method,
        path=path,
        summary=summary,
        handler=handler,
        dialect=CLUSTER_DIALECT,
        body=body,
        page=page[0],
        answer=page[1],
        status=_STATUSES.get(route, 200),
        query=query,
    )


async def _show_document(context: ApiContext, exchange: Exchange) -> None:
    local = await local_facts(context)
    document = build_document(OPERATIONS, local.version)
    await exchange.answer(msgspec.json.encode(document))


_OPENAI = (
    _openai(
        "POST",
        "/v1/chat/completions",
        "Answer a conversation",
        complete_chat,
        body=ChatOrder,
        answer=ChatCompletion,
    ),
    _openai(
        "POST",
        "/v1/completions",
        "Continue a text",
        complete_text,
        body=CompletionOrder,
        answer=Completion,
    ),
    _openai("GET", "/v1/models", "List the models", list_models, answer=OpenAiModelList),
    _openai("GET", "/v1/models/{model:path}", "Show a model", show_model, answer=OpenAiModel),
)

_INSTANCE = ("Instance", cluster_views.InstanceView)
_VIEWS = (
    _view(
        "/v1/cluster",
        "The cluster in figures",
        cluster_views.show_cluster,
        "Cluster",
        cluster_views.ClusterSummary,
    ),
    _view("/v1/cluster/state", "The whole state", cluster_views.show_state, "State", State),
    _view(
        "/v1/cluster/local",
        "Facts of the node that answers",
        cluster_views.show_local,
        "LocalView",
        LocalView,
    ),
    _view(
        "/v1/cluster/nodes", "Every node", cluster_views.list_nodes, "Node", cluster_views.NodeView
    ),
    _view(
        "/v1/cluster/nodes/{node}",
        "One node, by name or id",
        cluster_views.show_node,
        "Node",
        cluster_views.NodeView,
    ),
    _view(
        "/v1/cluster/topology",
        "Every link, as each end sees it",
        cluster_views.list_links,
        "Link",
        cluster_views.LinkView,
    ),
    _view(
        "/v1/cluster/downloads",
        "Every download",
        cluster_views.list_downloads,
        "Download",
        cluster_views.DownloadView,
    ),
    _view("/v1/cluster/instances", "Every instance", cluster_views.list_instances, *_INSTANCE),
    _view(
        "/v1/cluster/instances/{instance}",
        "One instance",
        cluster_views.show_instance,
        *_INSTANCE,
    ),
    _view(
        "/v1/cluster/instances/{instance}/wait",
        "Answer once the instance is ready",
        cluster_orders.wait_for_instance,
        *_INSTANCE,
        _TIMEOUT,
    ),
    _view(
        "/v1/cluster/requests",
        "Generations, the running ones and the last",
        cluster_views.list_requests,
        "Request",
        RequestRecord,
    ),
    _view(
        "/v1/cluster/requests/{request}",
        "One generation",
        cluster_views.show_request,
        "Request",
        RequestRecord,
    ),
    _view(
        "/v1/cluster/joins",
        "Machines that ask to be let in, each by the member that they ask",
        cluster_views.list_joins,
        "JoinRequest",
        JoinRequest,
    ),
    _view(
        "/v1/cluster/registers",
        "What every node last said of itself",
        cluster_views.list_registers,
        "Register",
        Register,
    ),
    _view(
        "/v1/cluster/logs",
        "The last lines of this node's log",
        cluster_views.read_logs,
        "LogLine",
        LogLine,
        QueryParameter("source", "string", "a part of the node, or a runner; all where empty"),
        QueryParameter("lines", "integer", "how many at most"),
    ),
    _view(
        "/v1/cluster/log_sources",
        "Names that the log's source takes",
        cluster_views.list_log_sources,
        "LogSource",
        str,
    ),
)

_ACCEPTED = ("Accepted", Accepted)
_ORDERS = (
    _order(
        "POST /v1/cluster/commands",
        "Have the master decide a command",
        cluster_orders.submit_command,
        body=Command,
        page=("Answer", Answer),
        query=(_TIMEOUT, _COMMAND_ID),
    ),
    _order(
        "POST /v1/cluster/instances",
        "Place a model",
        cluster_orders.place_instance,
        body=PlaceOrder,
        page=_ACCEPTED,
        query=(_TIMEOUT, _COMMAND_ID),
    ),
    _order(
        "DELETE /v1/cluster/instances/{instance}",
        "Stop an instance",
        cluster_orders.stop_instance,
        page=_ACCEPTED,
        query=(_TIMEOUT, _COMMAND_ID),
    ),
    _order(
        "POST /v1/cluster/plan",
        "Every way to place a model, with numbers",
        cluster_orders.make_plan,
        body=PlaceOrder,
        page=("Plan", Plan),
    ),
    _order(
        "POST /v1/cancel/{request}",
        "End a generation",
        cluster_orders.cancel_request,
        page=("Cancellation", Cancellation),
    ),
    _order(
        "POST /v1/cluster/invite",
        "A code that lets another machine join",
        cluster_orders.make_invite,
        body=InviteOrder,
        page=("Invite", Invite),
    ),
    _order(
        "POST /v1/cluster/join",
        "Join the cluster that a code came from",
        cluster_orders.join_cluster,
        body=JoinOrder,
    ),
    _order(
        "POST /v1/cluster/asks",
        "Ask another cluster to be let in by a person",
        cluster_orders.ask_to_join,
        body=AskOrder,
        page=("JoinRequest", JoinRequest),
    ),
    _order(
        "POST /v1/cluster/asks/{request}",
        "Say whether the codes are equal; answers once this node is a member",
        cluster_orders.finish_join,
        body=FinishOrder,
        query=(_TIMEOUT,),
    ),
    _order(
        "POST /v1/cluster/joins/{request}",
        "Let a machine in that asks, or send it away",
        cluster_orders.judge_join,
        body=JudgeOrder,
        page=("JoinRequest", JoinRequest),
    ),
    _order(
        "POST /v1/cluster/rotate",
        "Withdraw open codes and waiting machines, and change the fleet's secret",
        cluster_orders.rotate,
        page=("Rotation", Rotation),
    ),
    _order(
        "POST /v1/cluster/nodes/{node}/ping",
        "Measure the link of the answering node with another",
        cluster_orders.ping_node,
        body=PingOrder,
        page=("Link", LinkRecord),
    ),
    _order("POST /v1/cluster/leave", "Become a cluster of one", cluster_orders.leave_cluster),
    _order("POST /v1/cluster/shutdown", "End this node", cluster_orders.shut_down),
)

_NODE = QueryParameter("node", "string", "name or id; the node that answers where empty")
_ORDER_DONE = ("OrderDone", OrderDone)
_MODELS = (
    _order(
        "POST /v1/cluster/downloads",
        "Have nodes fetch a model",
        model_orders.start_downloads,
        body=PullOrder,
        page=_ORDER_DONE,
    ),
    _order(
        "PATCH /v1/cluster/downloads/{model:path}",
        "Pause a download, let it go on, try again, or move it",
        model_orders.change_download,
        body=DownloadChange,
        page=_ORDER_DONE,
        query=(_NODE,),
    ),
    _order(
        "DELETE /v1/cluster/downloads/{model:path}",
        "Give a download up",
        model_orders.drop_download,
        page=_ORDER_DONE,
        query=(_NODE,),
    ),
    _order(
        "POST /v1/cluster/orders",
        "Have a node do something with its models",
        model_orders.submit_order,
        body=NodeOrder,
        page=_ORDER_DONE,
        query=(_TIMEOUT,),
    ),
    _view(
        "/v1/cluster/search",
        "Models on the hub that match",
        model_orders.search_models,
        "HubModel",
        HubModel,
        QueryParameter("text", "string", "what to look for"),
    ),
    _view(
        "/v1/cluster/hub_card",
        "The card of a model on the hub, from its headers alone",
        model_orders.describe_model,
        "ModelCard",
        ModelCard,
        QueryParameter("model", "string", "owner/name"),
        QueryParameter("revision", "string", "branch, tag or commit"),
    ),
)

_STREAMS = (
    Operation(
        method="POST",
        path="/v1/cluster/generate",
        summary="A generation's items, for exoctl's own client",
        handler=cluster_generate.generate_items,
        dialect=CLUSTER_DIALECT,
        body=GenerationRequest,
        content_type=NDJSON,
    ),
    Operation(
        method="GET",
        path="/v1/cluster/events",
        summary="The log as it grows, and the registers",
        handler=events.stream_events,
        dialect=CLUSTER_DIALECT,
        content_type=NDJSON,
        query=(
            QueryParameter("since", "integer", "first index wanted; a snapshot where empty"),
            QueryParameter("follow", "boolean", "0: end with what there is now"),
            QueryParameter("type", "string", "types of records or events, separated by commas"),
            QueryParameter("node", "string", "only what this node wrote or what is about it"),
        ),
    ),
)

_JSON = "application/json"
_SERVICES = (
    _service("/", "What listens here", service.show_welcome, service.Welcome, _JSON),
    _service("/health", "The process lives", service.show_health, service.Health, _JSON),
    _service("/ready", "A master is known", service.show_readiness, service.Readiness, _JSON),
    _service("/metrics", "Figures for Prometheus", metrics.show_metrics, None, "text/plain"),
    _service("/openapi.json", "This document", _show_document, None, _JSON),
)

OPERATIONS: tuple[Operation, ...] = (
    *_OPENAI,
    *DIALECT_OPERATIONS,
    *_VIEWS,
    *_ORDERS,
    *_MODELS,
    *_STREAMS,
    *_SERVICES,
)
