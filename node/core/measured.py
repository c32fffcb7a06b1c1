"""What requests were measured to take, against what the table of chips had promised for them."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from node.model.ids import NodeId
from node.model.instance import WeightFormat
from node.model.request import RequestPhase, RequestRecord

RATIO_MAX = 20.0
"""What is further off than this, either way, is no measurement of a machine."""
OUTPUT_TOKENS_MIN = 6
PROMPT_TOKENS_MIN = 16
"""Shorter ones measure the way there and back alone."""
PROMPT_TOKENS_GOOD = 128
"""Of shorter ones the time goes for other things in part: a machine reads at least so fast."""


class Ratio(msgspec.Struct, frozen=True):
    """By how much a machine is faster than the table of chips says; below 1, slower."""

    decode: float = 1.0
    prompt: float = 1.0
    is_measured: bool = False


Ratios = Mapping[tuple[NodeId, WeightFormat], Ratio]
UNKNOWN = Ratio()


def ratios(requests: Iterable[RequestRecord]) -> dict[tuple[NodeId, WeightFormat], Ratio]:
    """For each node and weight format the best that was measured: what one request alone may
    expect. Others beside it, and a busy machine, only ever make one slower.
    """
    found: dict[tuple[NodeId, WeightFormat], Ratio] = {}
    for record in requests:
        measured = _ratio(record)
        if measured is None:
            continue
        for key in _keys(record):
            known = found.get(key, measured)
            found[key] = Ratio(
                decode=max(known.decode, measured.decode),
                prompt=max(known.prompt, measured.prompt),
                is_measured=True,
            )
    return found


def _keys(record: RequestRecord) -> Iterator[tuple[NodeId, WeightFormat]]:
    for node in record.nodes:
        yield node, WeightFormat(record.weight_format)


def _ratio(record: RequestRecord) -> Ratio | None:
    """None where the request says nothing of how fast its nodes are."""
    promised = record.table_tokens_per_second
    promised_prompt = record.table_prompt_tokens_per_second
    formats = {form.value for form in WeightFormat}
    if record.phase is not RequestPhase.DONE or record.weight_format not in formats:
        return None
    if promised <= 0 or promised_prompt <= 0 or record.tokens_per_second <= 0:
        return None
    if record.output_tokens < OUTPUT_TOKENS_MIN:
        return None
    decode = _held(record.tokens_per_second / promised)
    read = record.prompt_tokens - record.cached_tokens
    if read < PROMPT_TOKENS_MIN or record.prefill_seconds <= 0:
        return Ratio(decode=decode, prompt=decode, is_measured=True)
    reading = record.prefill_seconds - 1 / record.tokens_per_second
    seconds = max(reading, record.prefill_seconds / 2)  # the first token is in it
    prompt = _held(read / seconds / promised_prompt)
    if read < PROMPT_TOKENS_GOOD:
        prompt = max(prompt, decode)
    return Ratio(decode=decode, prompt=prompt, is_measured=True)


def _held(ratio: float) -> float:
    return min(RATIO_MAX, max(1 / RATIO_MAX, ratio))
