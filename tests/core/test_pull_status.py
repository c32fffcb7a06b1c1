"""How far a pull is, out of a node's registers."""

import pytest

from node.core.pull_status import TELL_SECONDS, download_record, is_whole, raise_failure
from node.model.errors import (
    ExoctlError,
    Failure,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from node.model.ids import ModelId, NodeId
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    HeldModel,
    ModelFigures,
    Register,
    RegisterValue,
)
from tests.fakes.fake_handle import ALPHA, BETA, MODEL, make_card

BROKEN = Failure(code="bad_config", message="it is no model")


def registers(*values: RegisterValue) -> dict[tuple[NodeId, str], Register]:
    return {
        (ALPHA, type(value).__name__): Register(node=ALPHA, incarnation=1, sequence=1, value=value)
        for value in values
    }


def queue(phase: str, failure: Failure | None = None, retry_at: float = 0.0) -> DownloadFigures:
    return DownloadFigures(
        downloads=(
            DownloadRecord(model=ModelId("other"), phase="queued", bytes_done=0, bytes_total=0),
            DownloadRecord(
                model=MODEL, phase=phase, bytes_done=1, bytes_total=9, failure=failure,
                retry_at=retry_at,
            ),
        )
    )  # fmt: skip


def held(*, complete: bool = True, failure: Failure | None = None) -> ModelFigures:
    model = HeldModel(card=make_card(), complete=complete, bytes_on_disk=9, failure=failure)
    return ModelFigures(held=(model,))


def test_a_record_is_that_of_the_node_and_the_model() -> None:
    known = registers(queue("downloading"))
    found = download_record(known, ALPHA, MODEL)
    assert found is not None
    assert found.phase == "downloading"
    assert download_record(known, BETA, MODEL) is None
    assert download_record(known, ALPHA, ModelId("unknown")) is None


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        ((queue("complete"), held()), True),
        ((queue("complete"), held(complete=False)), False),
        ((queue("complete"),), False),
        ((queue("complete"), ModelFigures()), False),
        ((queue("verifying"), held()), False),
        ((held(),), False),
    ],
)
def test_it_is_whole_once_it_is_fetched_and_looked_at(
    values: tuple[RegisterValue, ...], *, whole: bool
) -> None:
    assert is_whole(registers(*values), ALPHA, MODEL) is whole


def test_what_is_whole_and_no_model_is_told() -> None:
    with pytest.raises(ExoctlError, match="it is no model"):
        is_whole(registers(queue("complete"), held(complete=False, failure=BROKEN)), ALPHA, MODEL)


def test_a_failure_is_raised_once_no_further_try_comes() -> None:
    found = [
        download_record(registers(queue("failed", BROKEN, retry)), ALPHA, MODEL)
        for retry in (5.0, 0.0)
    ]
    raise_failure(found[0], 1.0)
    with pytest.raises(ExoctlError, match="it is no model"):
        raise_failure(found[1], 1.0)


@pytest.mark.parametrize(
    ("code", "kind"), [("hub_not_found", NotFoundError), ("hub_gated", RefusedError)]
)
def test_the_kind_of_a_failure_is_that_of_its_cause(code: str, kind: type[ExoctlError]) -> None:
    record = download_record(
        registers(queue("failed", Failure(code=code, message="no"))), ALPHA, MODEL
    )
    with pytest.raises(kind):
        raise_failure(record, 1.0)


def test_a_node_may_take_a_while_to_tell_of_a_download_and_not_longer() -> None:
    raise_failure(None, TELL_SECONDS)
    with pytest.raises(NotFoundError, match="not in the node's queue"):
        raise_failure(None, TELL_SECONDS + 0.1)


@pytest.mark.parametrize(("bytes_done", "attempts_max"), [(0, 3), (1, 8)])
def test_what_fails_time_and_again_is_not_waited_for_without_end(
    bytes_done: int, attempts_max: int
) -> None:
    unreachable = Failure(code="hub_unreachable", message="no hub", remedy="check the network")
    for attempts in range(1, attempts_max + 1):
        record = DownloadRecord(
            model=MODEL, phase="failed", bytes_done=bytes_done, bytes_total=9, failure=unreachable,
            retry_at=1.0, attempts=attempts,
        )  # fmt: skip
        if attempts < attempts_max:
            raise_failure(record, 1.0)
            continue
        with pytest.raises(UnreachableError, match=f"no hub .failed {attempts} times") as caught:
            raise_failure(record, 1.0)
        assert caught.value.failure.remedy.startswith("check the network; the node goes on trying")
