"""Families of models with oddities of their own give the unsplit tokens in two and three stages."""

import gc
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.generate import BatchGenerator
from mlx_lm.utils import _get_classes as classes_of  # type: ignore[attr-defined]

from node.runner.architecture import Architecture, trace
from node.runner.failures import RunnerError
from node.runner.solo_generator import SoloGenerator, can_batch
from tests.mlx.loop_ring import loop
from tests.mlx.tiny_model import config

MOE = {
    "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "moe_intermediate_size": 32, "norm_topk_prob": True,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {},
    "olmo2": {},
    "phi3": {"rope_scaling": None},
    "gemma3_text": {"sliding_window": 8, "sliding_window_pattern": 3},
    "cohere2": {"sliding_window": 8, "sliding_window_pattern": 3},
    "qwen3_moe": MOE,
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    "deepseek_v3": {
        "moe_intermediate_size": 32, "n_shared_experts": 1, "n_routed_experts": 4, "n_group": 1,
        "topk_group": 1, "num_experts_per_tok": 2, "kv_lora_rank": 16, "q_lora_rank": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 8, "num_key_value_heads": 4,
    },
    "mamba2": {
        "num_heads": 8, "head_dim": 16, "state_size": 16, "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4, "n_groups": 1, "use_bias": False, "use_conv_bias": True,
        "time_step_limit": [0.0, 100.0], "time_step_rank": "auto",
    },
    "rwkv7": {
        "norm_eps": 1e-5, "a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8, "num_attention_heads": 4,
    },
    "qwen3_next": {
        **MOE, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
        "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.5,
        "shared_expert_intermediate_size": 32, "full_attention_interval": 3,
    },
    "lfm2": {
        "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "block_dim": 64,
        "block_ff_dim": 128, "block_multiple_of": 16, "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False, "full_attn_idxs": [2, 5],
    },
    "gemma4_text": {
        "global_head_dim": 16, "sliding_window": 8, "sliding_window_pattern": 3,
        "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 272,
    },
    "hunyuan": {
        "attention_bias": False, "moe_topk": 1, "num_experts": 1, "num_shared_expert": 1,
        "use_mixed_mlp_moe": False, "use_qk_norm": True, "use_cla": True, "cla_share_factor": 2,
        "rope_scaling": {"alpha": 1.0, "factor": 1.0, "type": "dynamic"},
    },
}  # fmt: skip
ALONE = {"gemma2"}
"""Families that mlx-lm can't compute in rows of different lengths."""
PROMPTS = ([5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], [40, 41, 42], [90, 91, 92, 93, 94, 95])


def build(family: str) -> Any:
    settings = config(model_type=family, num_hidden_layers=6, **FAMILIES[family])
    model_class, arguments_class = classes_of(settings)
    mx.random.seed(11)
    model: Any = model_class(arguments_class.from_dict(settings))
    mx.eval(model.parameters())
    parameters: Any = tree_flatten(model.parameters())
    model.load_weights(
        [(name, array * 2 if array.ndim > 1 else array) for name, array in parameters]
    )
    return model


def answers_together(model: Any) -> list[list[int]]:
    """Greedy tokens of three prompts, the last of which comes late; a fourth leaves half-way."""
    generator = BatchGenerator(model, max_tokens=8, prefill_step_size=5)
    first, second, gone = generator.insert([PROMPTS[0], PROMPTS[1], [1, 2, 3, 4]])
    late = -1
    tokens: dict[int, list[int]] = {}
    finished: set[int] = set()
    steps = 0
    while not {first, second, late} <= finished:
        steps += 1
        _, responses = generator.next()
        for response in responses:
            tokens.setdefault(response.uid, []).append(response.token)
            if response.finish_reason:
                finished.add(response.uid)
        if steps == 4:
            (late,) = generator.insert([PROMPTS[2]])
        if steps == 6 and gone not in finished:
            generator.remove([gone])
    generator.close()
    return [tokens[uid] for uid in (first, second, late)]


def answers_alone(model: Any) -> list[list[int]]:
    generator = SoloGenerator(model)
    generator.prefill_step_size = 5
    rows: list[list[int]] = []
    for prompt in PROMPTS:
        generator.insert([prompt], max_tokens=[8])
        row: list[int] = []
        while len(row) < 8:
            row += [response.token for response in generator.next()[1]]
        rows.append(row)
    return rows


def boundaries(architecture: Architecture, stages: int) -> tuple[int, ...]:
    allowed = [
        cut for cut in range(1, architecture.layer_count) if cut not in architecture.forbidden_cuts
    ]
    if len(allowed) < stages - 1:
        pytest.skip(f"only {len(allowed)} cuts are allowed")
    step = len(allowed) / stages
    cuts = sorted({allowed[int(step * number)] for number in range(1, stages)})
    return (0, *cuts, architecture.layer_count)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_split_family_gives_the_unsplit_tokens(family: str) -> None:
    whole = build(family)
    architecture = trace(whole)
    answers = answers_together if can_batch(whole) else answers_alone
    assert (answers is answers_alone) == (family in ALONE)
    expected = answers(whole)
    assert len({token for row in expected for token in row}) > 2, "the model says nothing at all"
    for stages in (2, 3):
        cuts = boundaries(architecture, stages)
        first, workers = loop([build(family) for _ in range(stages)], cuts)
        assert answers(first) == expected, cuts
        gc.collect()
        first.flush()
        for worker in workers:
            worker.listen(lambda: None)
            assert worker.cache_count == 0
            assert worker.cache_bytes == 0


def test_one_at_a_time_and_together_say_the_same() -> None:
    model = build("llama")
    assert answers_alone(model) == answers_together(model)


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
