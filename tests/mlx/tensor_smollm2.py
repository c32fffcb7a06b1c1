"""The embedded model over three ranks; a part of `make exactness`, as sums take their time."""

from pathlib import Path

import pytest

from node.model.instance import WeightFormat
from tests.mlx.runner_process import stages
from tests.mlx.test_smollm2 import GOLDEN, LIGHTHOUSE


@pytest.mark.parametrize("weight_format", WeightFormat)
def test_three_ranks_give_the_golden_tokens(
    short_path: Path, smollm2: Path, weight_format: WeightFormat
) -> None:
    with stages(
        short_path, smollm2, (0, 30), stages=3, tensor=True, weight_format=weight_format
    ) as children:
        answer = children[0].ask("q", LIGHTHOUSE, tokens_max=len(GOLDEN))
        assert answer.tokens == GOLDEN
