"""Room for several requests at once, each with its whole context."""

from node.core.decide import Decided, decide
from node.core.placement.plan import plan
from node.core.placement.room import RUNNER_BYTES, bytes_kept_free
from node.model.command import PlaceInstance, Wish
from node.model.event import InstancePlaced
from node.model.ids import ModelId
from tests.fakes.fleet import GIB, MIB, card, counted, fleet, request

MODEL = card((GIB // 2,) * 8, kv_per_token=16 * 1024)
CONTEXT = 8192
CACHE = 8 * 16 * 1024 * CONTEXT
FREE = {"a": 8 * GIB + bytes_kept_free(16 * GIB)}


def test_every_request_has_its_whole_context_in_the_promise() -> None:
    state, facts = fleet(FREE, MODEL)
    for requests in (1, 3):
        wish = Wish(context_tokens=CONTEXT, requests=requests)
        asked = request(PlaceInstance(model=ModelId("m"), wish=wish))
        found = decide(state, asked, facts, counted())
        assert isinstance(found, Decided)
        (event,) = found.events
        assert isinstance(event, InstancePlaced)
        (shard,) = event.instance.shards
        assert shard.cache_bytes == requests * CACHE
        (share,) = plan(state, MODEL, wish, facts).candidates[0].shares
        assert share.bytes_added == MODEL.weight_bytes + requests * CACHE + RUNNER_BYTES


def test_too_many_requests_are_refused_in_numbers_before_anything_loads() -> None:
    state, facts = fleet(FREE, MODEL)
    refused = plan(state, MODEL, Wish(context_tokens=CONTEXT, requests=5), facts).refusal
    assert refused is not None
    assert "8192 tokens of context for each of 5 requests" in refused.message
    needed = (MODEL.weight_bytes + 5 * CACHE + RUNNER_BYTES) / GIB
    assert f"a needs {needed:.1f} GiB and has 8.0 GiB" in refused.message
    fits = (8 * GIB - MODEL.weight_bytes - RUNNER_BYTES) // (5 * CACHE // CONTEXT) // 256 * 256
    assert f"a context of {fits} tokens for each of 5 requests fits there" in refused.remedy
    assert plan(state, MODEL, Wish(context_tokens=fits, requests=5), facts).refusal is None


def test_a_number_of_requests_that_makes_no_sense_is_refused() -> None:
    state, facts = fleet({"a": 20 * MIB}, MODEL)
    for requests in (0, 65):
        refused = plan(state, MODEL, Wish(requests=requests), facts).refusal
        assert refused is not None
        assert refused.code == "bad_wish"
