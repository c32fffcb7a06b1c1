"""A dozen families with oddities of their own are exact in stages; `make exactness` does all."""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.utils import _get_classes as classes_of  # type: ignore[attr-defined]

from node.runner.architecture import INEXACT, trace
from node.runner.failures import RunnerError
from tests.mlx.exactness import (
    FAMILIES,
    UNTRIED,
    all_families,
    answers_alone,
    answers_together,
    build,
    check,
    difference,
    tokens_of,
)
from tests.mlx.tiny_model import config

DOZEN = (
    "llama", "qwen3", "gemma2", "gemma3_text", "cohere2", "gpt_oss", "deepseek_v3", "mamba2",
    "rwkv7", "qwen3_next", "lfm2", "gemma4_text", "hunyuan",
)  # fmt: skip
ALONE = {"gemma2"}
"""Families that mlx-lm can't compute in rows of different lengths."""


@pytest.mark.parametrize("family", DOZEN)
def test_a_split_family_gives_the_unsplit_answers(family: str) -> None:
    outcome = check(family, alone_too=False)
    assert (outcome.stages, outcome.reason) == ([2, 3], "")
    assert outcome.batched == (family not in ALONE)


@pytest.mark.parametrize("family", INEXACT)
def test_a_family_that_is_not_exact_in_stages_is_refused(family: str) -> None:
    with pytest.raises(RunnerError, match=INEXACT[family]):
        trace(build(family))


def test_the_answers_that_are_compared_say_something() -> None:
    rows = answers_together(build("llama"))
    assert len({token for row in tokens_of(rows) for token in row}) > 2
    assert difference(rows, rows) == 0.0
    assert difference(rows, answers_together(build("qwen3"))) > 0.01


def test_no_family_is_left_out_silently() -> None:
    assert set(all_families()) - set(FAMILIES) - set(UNTRIED) == set()


def test_one_at_a_time_and_together_say_the_same() -> None:
    model = build("llama")
    assert tokens_of(answers_alone(model)) == tokens_of(answers_together(model))


def test_a_trace_reads_no_weight() -> None:
    settings = config(
        hidden_size=4096, intermediate_size=16384, num_hidden_layers=40, head_dim=1024
    )
    model_class, arguments_class = classes_of(settings)
    model: Any = model_class(arguments_class.from_dict(settings))
    before = mx.get_active_memory()
    architecture = trace(model)
    assert architecture.layer_count == 40
    assert mx.get_active_memory() - before < 1_000_000


def test_what_crosses_a_cut_is_counted() -> None:
    assert trace(build("llama")).bytes_per_token(2) == 64 * 4
    rwkv = trace(build("rwkv7"))
    assert rwkv.carried(3), "the first layer's values go along"
    assert rwkv.bytes_per_token(3) > 64 * 4


def test_a_model_that_runs_its_layers_twice_can_not_be_cut() -> None:
    model = build("llama")
    inner = model.model
    inner.layers = [*inner.layers[:3], inner.layers[0]]
    with pytest.raises(RunnerError) as refused:
        trace(model)
    assert refused.value.failure.code == "model_not_cuttable"
