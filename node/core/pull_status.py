"""How far a node is with a model that it was told to fetch, out of what it tells of itself."""

from collections.abc import Mapping

import msgspec

from node.model.errors import ExoctlError, Failure, NotFoundError, RefusedError, UnreachableError
from node.model.ids import ModelId, NodeId
from node.model.register import DownloadFigures, DownloadRecord, ModelFigures, Register

TELL_SECONDS = 10.0
"""For a node to tell of a download that it has taken."""
TRIES_BEFORE_A_BYTE = 3
"""So many failures in a row and not a byte of the model: nobody should wait for it blindly."""
TRIES = 8
"""The same where it has begun to come: some four minutes of failures."""
_KINDS: Mapping[str, type[ExoctlError]] = {
    "hub_not_found": NotFoundError,
    "hub_unauthorised": RefusedError,
    "hub_gated": RefusedError,
    "hub_forbidden": RefusedError,
    "hub_offline": UnreachableError,
}
"""What kind of failure a cause is that no further try would mend."""


def download_record(
    registers: Mapping[tuple[NodeId, str], Register], node: NodeId, model: ModelId
) -> DownloadRecord | None:
    """The model's place in the node's queue; None where it has none (yet)."""
    register = registers.get((node, DownloadFigures.__name__))
    if register is None or not isinstance(register.value, DownloadFigures):
        return None
    return next((each for each in register.value.downloads if each.model == model), None)


def is_whole(
    registers: Mapping[tuple[NodeId, str], Register], node: NodeId, model: ModelId
) -> bool:
    """Whether the node has fetched it and has looked at it, so that it can be placed.

    Raises:
        ExoctlError: all of it is there, and it is no model that can be used.
    """
    record = download_record(registers, node, model)
    held = registers.get((node, ModelFigures.__name__))
    if record is None or record.phase != "complete" or held is None:
        return False
    assert isinstance(held.value, ModelFigures)
    for each in held.value.held:
        if each.card.model == model:
            if each.failure is not None:
                raise ExoctlError(each.failure)
            return each.complete
    return False


def raise_failure(record: DownloadRecord | None, seconds: float) -> None:
    """Raises:
    NotFoundError: the node was told `seconds` ago, and has no such download.
    ExoctlError: it has failed, and is not tried again by itself, or has failed too often to be
        waited for: the node goes on trying.
    """
    if record is None and seconds > TELL_SECONDS:
        raise NotFoundError.because(
            "download_gone", "the download is not in the node's queue any more"
        )
    if record is None or record.failure is None:
        return
    if not record.retry_at:
        raise _KINDS.get(record.failure.code, ExoctlError)(record.failure)
    if record.attempts >= (TRIES if record.bytes_done else TRIES_BEFORE_A_BYTE):
        raise _KINDS.get(record.failure.code, UnreachableError)(_in_vain(record, record.failure))


def _in_vain(record: DownloadRecord, failure: Failure) -> Failure:
    """The failure of one that is tried again, to somebody who does not wait for that."""
    goes_on = f"the node goes on trying: `exoctl download cancel {record.model}` gives it up"
    return msgspec.structs.replace(
        failure,
        message=f"{failure.message} (failed {record.attempts} times in a row)",
        remedy=f"{failure.remedy}; {goes_on}" if failure.remedy else goes_on,
    )
