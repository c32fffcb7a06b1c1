"""What placement learns of a model directory, without a weight being read."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from node.model.card import ModelCard
from node.runner import shard_loader
from node.runner.failures import RunnerError
from node.runner.inspect import inspect_model
from tests.mlx.runner_process import ROOT
from tests.mlx.tiny_model import LAYERS, config, write_tiny_model


def run(directory: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "node.runner.inspect", str(directory)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_the_card_of_the_embedded_model(smollm2: Path) -> None:
    code, output = run(smollm2)
    assert code == 0
    card = msgspec.json.decode(output, type=ModelCard)
    assert (card.layer_count, card.hidden_size, card.context_tokens_max) == (30, 576, 8192)
    assert (card.attention_heads, card.kv_heads, card.quantisation_bits) == (9, 3, 4)
    assert card.parameters == 134_515_008
    assert {layer.kv_per_token for layer in card.layers} == {2 * 3 * 64 * 4}
    assert card.activation_bytes_per_token == 576 * 4
    assert (card.forbidden_cuts, card.uncuttable_reason) == ((), "")
    file_bytes = (smollm2 / "model.safetensors").stat().st_size
    assert 0 < file_bytes - card.weight_bytes < 200_000
    dense = card.dense_embedding_bytes + sum(layer.dense_weights for layer in card.layers)
    assert dense == card.parameters * 4


def test_tools_and_thinking_are_seen(tmp_path: Path) -> None:
    code, output = run(write_tiny_model(tmp_path / "model", with_markers=True))
    assert code == 0
    card = msgspec.json.decode(output, type=ModelCard)
    assert (card.supports_tools, card.supports_thinking) == (True, True)
    assert card.layer_count == LAYERS
    assert card.quantisation_bits == 0


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"model_file": "evil.py"}, "remote_code_refused"),
        ({"model_type": "../llama"}, "bad_config"),
        ({"model_type": "no_such"}, "unsupported_architecture"),
        ({"num_attention_heads": 0}, "bad_config"),
    ],
)
def test_unusable_directories_are_named(
    tmp_path: Path, settings: dict[str, Any], code: str
) -> None:
    model = write_tiny_model(tmp_path / "model")
    (model / "config.json").write_text(json.dumps(config(**settings)))
    with pytest.raises(RunnerError) as refused:
        inspect_model(model)
    assert refused.value.failure.code == code


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"num_hidden_layers": 10**9}, "1,000,000,000 layers (num_hidden_layers); at most 1,024"),
        ({"num_hidden_layers": 1025}, "1,025 layers (num_hidden_layers); at most 1,024"),
        ({"num_hidden_layers": 10**4000}, "more than 1,000,000,000,000,000 layers (num_hidden"),
        ({"text_config": {"n_layers": 5000}}, "5,000 layers (n_layers); at most 1,024"),
        ({"num_experts": 10**6}, "1,000,000 experts (num_experts); at most 1,024"),
        ({"num_hidden_layers": 1000, "num_experts": 100}, "100,000 parts; at most 65,536"),
    ],
)
def test_absurd_counts_are_refused_with_the_number_and_the_bound_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], told: str
) -> None:
    def build(*_: object, **__: object) -> None:
        raise AssertionError("it was built")

    monkeypatch.setattr(shard_loader, "load_model", build)
    (tmp_path / "config.json").write_text(json.dumps(config(**settings)))
    with pytest.raises(RunnerError) as refused:
        inspect_model(tmp_path)
    assert refused.value.failure.code == "config_out_of_bounds"
    assert told in refused.value.failure.message
    assert len(refused.value.failure.message) < 1000
    assert refused.value.failure.remedy


def test_the_child_says_so_of_an_absurd_model(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    (model / "config.json").write_text(json.dumps(config(num_hidden_layers=10**9)))
    code, output = run(model)
    assert code == 1
    assert json.loads(output)["error"]["code"] == "config_out_of_bounds"


def test_an_empty_directory_is_named(tmp_path: Path) -> None:
    code, output = run(tmp_path)
    assert code == 1
    error = json.loads(output)["error"]
    assert error["code"] == "model_file_missing"
    assert str(tmp_path) in error["message"]
