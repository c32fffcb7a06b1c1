"""What a node keeps of the requests that it takes."""

from collections.abc import AsyncGenerator

import pytest

from node.model.errors import BusyError
from node.model.ids import NodeId, RequestId
from node.model.request import GenerationItem, GenerationRequest, Message, Queued, RequestPhase
from node.model.state import Snapshot
from node.services.feed import Feed
from node.services.register_store import RegisterStore
from node.services.requests import Requests
from tests.fakes.fake_handle import ALPHA, MODEL, make_state


async def refuses(request: GenerationRequest) -> AsyncGenerator[GenerationItem]:
    if request.model:
        raise BusyError.because("runner_full", "256 generations are open")
    yield Queued(ahead=0)


async def reads(node: NodeId, request: GenerationRequest) -> AsyncGenerator[GenerationItem]:
    pytest.fail(f"{node} was asked for {request.id}")
    yield Queued(ahead=0)


async def test_what_the_runner_refuses_is_kept_as_failed_and_not_as_cancelled() -> None:
    state = make_state()
    requests = Requests(
        ALPHA,
        RegisterStore(ALPHA, 1, Feed(lambda: Snapshot(state=state))),
        lambda: state,
        refuses,
        reads,
    )
    request = GenerationRequest(
        id=RequestId("q-1"), model=MODEL, messages=(Message(role="user", content="hello"),)
    )
    with pytest.raises(BusyError, match="256 generations"):
        await anext(requests.generate(request))
    figures = requests.figures()
    (kept,) = figures.requests
    assert kept.phase is RequestPhase.FAILED
    assert kept.failure is not None
    assert kept.failure.code == "runner_full"
    assert figures.failed_total == 1
