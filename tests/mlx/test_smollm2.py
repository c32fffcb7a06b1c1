"""The embedded model for real: it answers rightly, and alike however it is split."""

from pathlib import Path

import pytest

from node.model.instance import WeightFormat
from node.model.request import FinishReason
from tests.mlx.runner_process import stages

LIGHTHOUSE = "Tell me a short story about a lighthouse keeper."
GOLDEN = [504, 33059, 40061, 28, 253, 1942, 29, 20461, 284, 45420, 555, 3365]


@pytest.mark.parametrize("weight_format", WeightFormat)
@pytest.mark.parametrize("boundaries", [(0, 30), (0, 14, 30), (0, 9, 19, 30)])
def test_any_split_gives_the_golden_tokens(
    short_path: Path, smollm2: Path, boundaries: tuple[int, ...], weight_format: WeightFormat
) -> None:
    with stages(short_path, smollm2, boundaries, weight_format=weight_format) as children:
        answer = children[0].ask("q", LIGHTHOUSE, tokens_max=len(GOLDEN))
        assert answer.tokens == GOLDEN
        held = [
            child.beat(lambda beat: beat.progress.memory_bytes > 0).progress.memory_bytes
            for child in children
        ]
    # Each stage reads its own layers alone: 2.7 MB each, 14.2 MB unpacked.
    layer_bytes = 2_658_816 if weight_format is WeightFormat.AS_STORED else 14_160_384
    for number, memory_bytes in enumerate(held[1:], start=1):
        layers = boundaries[number + 1] - boundaries[number]
        assert memory_bytes < layers * layer_bytes + 40_000_000


def test_it_knows_the_capital_of_france_and_never_leaks_a_stop_string(
    short_path: Path, smollm2: Path
) -> None:
    with stages(short_path, smollm2, (0, 30), weight_format=WeightFormat.DENSE) as (child,):
        question = "What is the capital of France?"
        answer = child.ask("q1", question)
        assert "Paris" in answer.text
        assert answer.finished.reason is FinishReason.STOP
        assert answer.finished.usage.output_tokens == len(answer.tokens)
        stopped = child.ask("q2", question, stop=("Paris",))
        assert stopped.text == answer.text.partition("Paris")[0]
        assert stopped.finished.reason is FinishReason.STOP
        partial = child.ask("q3", question, stop=("France is Par!",))
        assert partial.text == answer.text
