"""Which instance has read the beginning of a conversation already, so that it need not be again."""

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from node.model.ids import InstanceId
from node.model.request import GenerationRequest

REMEMBERED_MAX = 4096
"""Beginnings that are remembered; the ones used longest ago go first."""
TURNS_MAX = 64
"""Turns at the end of a conversation whose beginnings are told apart."""
LOAD_MAX = 1 << 62
"""Of an instance that is not to be had."""
LOAD_SLACK = 2
"""An instance with so many more requests than the least busy one is not waited for."""


class Affinity:
    """Remembers where conversations went. Only ever a hint: what was forgotten costs time alone."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, InstanceId] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def choose(self, request: GenerationRequest, loads: Mapping[InstanceId, int]) -> InstanceId:
        """One of the instances: that with the longest known beginning, unless it is much busier
        than the least busy one.
        """
        least = min(loads, key=lambda instance: (loads[instance], instance))
        chosen = least
        beginnings = _beginnings(request) if len(loads) > 1 else []
        for beginning in reversed(beginnings):
            known = self._known.get(beginning)
            if known is not None and loads.get(known, LOAD_MAX) < loads[least] + LOAD_SLACK:
                chosen = known
                break
        for beginning in beginnings:
            self._known[beginning] = chosen
            self._known.move_to_end(beginning)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return chosen


def _beginnings(request: GenerationRequest) -> list[bytes]:
    """A digest for each beginning of the conversation, the shortest first."""
    digest = blake2b(request.model.encode(), digest_size=16)
    if request.prompt is not None:
        digest.update(request.prompt.encode("utf-8", "surrogatepass"))
        return [digest.digest()]
    found: list[bytes] = []
    for message in request.messages:
        digest.update(msgspec.msgpack.encode(message))
        found.append(digest.digest())
    return found[-TURNS_MAX:]
