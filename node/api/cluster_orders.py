"""What the cluster is told to do: place, stop, plan, cancel, invite, join, leave, end."""

import anyio
import msgspec

from node.api.bounds import TEXT_CHARACTERS_MAX, check_command
from node.api.cluster_views import require_found, view_instance
from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.names import (
    command_id,
    instance_id,
    instance_name,
    join_id,
    model_name,
    node_name,
    read_seconds,
    request_id,
)
from node.api.pages import send_page, time_limit
from node.config import parse_address
from node.core.lookup import find_instance, find_node
from node.model.command import Accepted, Command, PlaceInstance, Refused, StopInstance
from node.model.errors import UsageError
from node.wire.surface import (
    AskOrder,
    Cancellation,
    FinishOrder,
    InviteOrder,
    JoinOrder,
    JudgeOrder,
    PingOrder,
    PlaceOrder,
    error_of_kind,
)

COMMAND_SECONDS = 30.0
COMMAND_SECONDS_MAX = 300.0
WAIT_SECONDS = 300.0
WAIT_SECONDS_MAX = 24 * 3600.0
INVITE_SECONDS_MAX = 7 * 24 * 3600.0
CODE_CHARACTERS_MAX = 500
ASK_SECONDS = 600.0
GRACE_SECONDS = 5.0
"""What the node may take longer than the deadline that it was given."""


_command_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Something was done, or begun where the status is 202."""

    what: str


async def _submit(context: ApiContext, exchange: Exchange, command: Command) -> Accepted | Refused:
    seconds = read_seconds(exchange.query, "timeout", COMMAND_SECONDS, COMMAND_SECONDS_MAX)
    chosen = exchange.query.get("id")
    id_ = None if chosen is None else command_id(chosen)
    with time_limit(seconds + GRACE_SECONDS, type(command).__name__):
        return await context.handle.submit(command, seconds, id_)


def _require_accepted(answer: Accepted | Refused) -> Accepted:
    if isinstance(answer, Refused):
        raise error_of_kind(answer.kind, answer.failure)
    return answer


async def submit_command(context: ApiContext, exchange: Exchange) -> None:
    """Have the master decide a command; a refusal is an answer here, not an error."""
    command = exchange.decode_with(_command_decoder)
    check_command(command)
    answer = await _submit(context, exchange, command)
    await send_page(context, exchange, "Answer", [answer])


async def place_instance(context: ApiContext, exchange: Exchange) -> None:
    """Place a model; its runners are being started when this answers."""
    order = exchange.decode(PlaceOrder)
    check_command(order)
    command = PlaceInstance(model=model_name("model", order.model), wish=order.wish)
    answer = _require_accepted(await _submit(context, exchange, command))
    await send_page(context, exchange, "Accepted", [answer], 201)


async def stop_instance(context: ApiContext, exchange: Exchange) -> None:
    """Stop an instance."""
    name = instance_name(exchange.path["instance"])
    command = StopInstance(instance=require_found(find_instance(context.handle.state, name)))
    answer = _require_accepted(await _submit(context, exchange, command))
    await send_page(context, exchange, "Accepted", [answer])


async def wait_for_instance(context: ApiContext, exchange: Exchange) -> None:
    """Answer once an instance is ready."""
    instance = instance_id(exchange.path["instance"])
    seconds = read_seconds(exchange.query, "timeout", WAIT_SECONDS, WAIT_SECONDS_MAX)
    with time_limit(seconds + GRACE_SECONDS, f"waiting for {instance}"):
        await context.handle.wait_instance(instance, seconds)
    state = context.handle.state
    found = state.instances.get(instance)
    views = [] if found is None else [view_instance(context.handle, found)]
    await send_page(context, exchange, "Instance", views)


async def make_plan(context: ApiContext, exchange: Exchange) -> None:
    """Every way to place a model."""
    order = exchange.decode(PlaceOrder)
    check_command(order)
    model = model_name("model", order.model)
    with time_limit(context.timing.call_seconds, f"planning {model}"):
        plan = await context.handle.plan(model, order.wish)
    await send_page(context, exchange, "Plan", [plan])


async def cancel_request(context: ApiContext, exchange: Exchange) -> None:
    """End a generation, with all its choices."""
    request = request_id(exchange.path["request"])
    cancelled = False
    with time_limit(context.timing.call_seconds, f"cancelling {request}"):
        for each in context.groups.get(request, (request,)):
            cancelled |= await context.handle.cancel(each)
    answer = Cancellation(request=request, cancelled=cancelled)
    await send_page(context, exchange, "Cancellation", [answer])


async def make_invite(context: ApiContext, exchange: Exchange) -> None:
    """A code that lets another machine join."""
    order = exchange.decode(InviteOrder) if exchange.body else InviteOrder()
    if not 0 < order.lifetime_seconds <= INVITE_SECONDS_MAX:
        raise UsageError.because(
            "bad_lifetime",
            f"lifetime_seconds is {order.lifetime_seconds:g}; more than 0 and at most"
            f" {INVITE_SECONDS_MAX:g} are possible",
        )
    with time_limit(context.timing.call_seconds, "making an invitation"):
        invite = await context.handle.invite(order.lifetime_seconds)
    await send_page(context, exchange, "Invite", [invite], 201)


async def join_cluster(context: ApiContext, exchange: Exchange) -> None:
    """Join the cluster that a code came from."""
    order = exchange.decode(JoinOrder)
    if len(order.peer) > TEXT_CHARACTERS_MAX:
        raise UsageError.because("bad_address", "that is no node's address")
    if not 0 < len(order.code) <= CODE_CHARACTERS_MAX:
        raise UsageError.because("bad_code", "that is no invitation's code")
    peer = parse_address(order.peer) if order.peer else None
    with time_limit(context.timing.call_seconds, "joining"):
        await context.handle.join(order.code, peer)
    await send_page(context, exchange, "Done", [Done(what="joined")])


async def ask_to_join(context: ApiContext, exchange: Exchange) -> None:
    """Ask another cluster to be let in by a person there."""
    order = exchange.decode(AskOrder) if exchange.body else AskOrder()
    if len(order.peer) > TEXT_CHARACTERS_MAX:
        raise UsageError.because("bad_address", "that is no node's address")
    peer = parse_address(order.peer) if order.peer else None
    with time_limit(context.timing.call_seconds, "asking to join"):
        request = await context.handle.ask_to_join(peer)
    await send_page(context, exchange, "JoinRequest", [request], 201)


async def finish_join(context: ApiContext, exchange: Exchange) -> None:
    """Go on with a request, or withdraw it; answers once this node is a member."""
    order = exchange.decode(FinishOrder)
    request = join_id(exchange.path["request"])
    seconds = read_seconds(exchange.query, "timeout", ASK_SECONDS, ASK_SECONDS)
    with time_limit(seconds + context.timing.call_seconds, "joining"):
        await context.handle.finish_join(request, matches=order.matches, timeout_seconds=seconds)
    what = "joined" if order.matches else "withdrawn"
    await send_page(context, exchange, "Done", [Done(what=what)])


async def judge_join(context: ApiContext, exchange: Exchange) -> None:
    """Let a machine in that asks, or send it away."""
    order = exchange.decode(JudgeOrder)
    request = join_id(exchange.path["request"])
    with time_limit(context.timing.call_seconds, "deciding on a request"):
        judged = await context.handle.judge_join(request, approve=order.approve)
    await send_page(context, exchange, "JoinRequest", [judged])


async def rotate(context: ApiContext, exchange: Exchange) -> None:
    """Withdraw open codes and waiting machines, and change the fleet's secret."""
    with time_limit(context.timing.call_seconds, "rotating"):
        rotation = await context.handle.rotate()
    await send_page(context, exchange, "Rotation", [rotation])


async def ping_node(context: ApiContext, exchange: Exchange) -> None:
    """Measure the link of the answering node with another."""
    order = exchange.decode(PingOrder) if exchange.body else PingOrder()
    name = node_name(exchange.path["node"])
    node = require_found(find_node(context.handle.state, name))
    with time_limit(context.timing.call_seconds, "measuring a link"):
        record = await context.handle.ping(node, bandwidth=order.bandwidth)
    await send_page(context, exchange, "Link", [record])


async def leave_cluster(context: ApiContext, exchange: Exchange) -> None:
    """Become a cluster of one."""
    with time_limit(context.timing.call_seconds, "leaving"):
        await context.handle.leave()
    await send_page(context, exchange, "Done", [Done(what="left")])


async def shut_down(context: ApiContext, exchange: Exchange) -> None:
    """End the node; answers first."""
    await send_page(context, exchange, "Done", [Done(what="stopping")], 202)
    # shielded: an answer that is out counts as a client that is gone
    with anyio.move_on_after(context.timing.call_seconds, shield=True):
        await context.handle.shutdown()
