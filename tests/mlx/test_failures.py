import msgspec
import pytest

from node.core.failure_text import TEXT_CHARACTERS_MAX
from node.model.errors import BusyError, Failure
from node.runner.failures import RunnerError, failure_of, request_refused

NAMES = "model.layers.0.mlp.experts.1.gate_proj.weight\n" * 10_000


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError(NAMES), "runner_failed"),
        (MemoryError(NAMES), "out_of_memory"),
        (RunnerError(Failure(code="bad_config", message=NAMES, remedy=NAMES)), "bad_config"),
        (FileNotFoundError(2, "No such file", "\udcff" * 100_000), "system_error"),
    ],
)
def test_whatever_was_raised_the_failure_can_be_told(error: Exception, code: str) -> None:
    failure = failure_of(error)
    assert failure.code == code
    assert max(len(failure.message), len(failure.remedy)) <= TEXT_CHARACTERS_MAX
    assert msgspec.msgpack.encode(failure)


def test_a_refusal_is_never_long() -> None:
    failure = request_refused(BusyError, "busy", NAMES, NAMES).failure
    assert max(len(failure.message), len(failure.remedy)) <= TEXT_CHARACTERS_MAX
