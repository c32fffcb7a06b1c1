"""Model directories that are not what they should be, and weights unpacked for speed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from node.model.instance import WeightFormat
from node.runner.architecture import find_layers
from node.runner.failures import RunnerError
from node.runner.shard_loader import (
    check_files,
    layer_of,
    materialise,
    open_model,
    open_tokenizer,
    weight_bytes,
)
from tests.mlx.tiny_model import LAYERS, write_tiny_model


def truncate_weights(model: Path) -> None:
    weights = model / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)


def configure(text: str) -> Callable[[Path], object]:
    return lambda model: (model / "config.json").write_text(text)


def rename_weight(model: Path) -> None:
    path = model / "model.safetensors"
    arrays = mx.load(str(path))
    assert isinstance(arrays, dict)
    arrays["model.layers.0.surprise"] = arrays.pop("model.layers.0.mlp.up_proj.weight")
    mx.eval(arrays)
    mx.save_safetensors(str(path), arrays)
    index = {"weight_map": dict.fromkeys(arrays, path.name)}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (shutil.rmtree, "model_file_missing"),
    "truncated": (truncate_weights, "model_file_missing"),
    "other weights": (rename_weight, "bad_config"),
    "no tokenizer": (lambda m: (m / "tokenizer.json").write_text("{"), "model_file_missing"),
    "own code": (configure('{"model_type": "llama", "model_file": "x.py"}'), "remote_code_refused"),
    "unknown": (configure('{"model_type": "llama99"}'), "unsupported_architecture"),
    "half a config": (configure('{"model_type": "llama"}'), "bad_config"),
    "no config": (configure("[1, 2"), "bad_config"),
}


def load(model: Path) -> None:
    loaded = open_model(model)
    check_files(model, 0, LAYERS)
    open_tokenizer(model, loaded.config)


@pytest.mark.parametrize("fault", BROKEN)
def test_what_can_not_be_loaded_is_named(tmp_path: Path, fault: str) -> None:
    model = write_tiny_model(tmp_path / "model")
    damage, code = BROKEN[fault]
    damage(model)
    with pytest.raises(RunnerError) as refused:
        load(model)
    assert refused.value.failure.code == code, refused.value.failure
    assert refused.value.failure.remedy


def test_dense_weights_are_the_packed_ones_unpacked_and_only_the_shards(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "model", bits=8)
    packed, dense = open_model(directory), open_model(directory)
    seen: list[int] = []
    layers: list[Any] = find_layers(dense.model)
    expected = weight_bytes(layers[1])[1]
    materialise(dense, layers, range(1, 3), WeightFormat.DENSE, seen.append)
    assert seen == [1, 2]
    for number, layer in enumerate(layers):
        is_dense = isinstance(layer.mlp.up_proj, nn.Linear)
        assert is_dense == (number in (1, 2))
    assert isinstance(dense.model.model.embed_tokens, nn.QuantizedEmbedding)
    assert weight_bytes(layers[1]) == (expected, expected)
    linear, quantised = layers[1].mlp.up_proj, find_layers(packed.model)[1].mlp.up_proj
    rows = mx.random.normal((3, linear.weight.shape[-1]))
    assert mx.allclose(linear(rows), quantised(rows), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("model.layers.12.mlp.up_proj.weight", 12),
        ("transformer.h.3.attn.weight", 3),
        ("model.blocks.7.norm.weight", 7),
        ("model.embed_tokens.weight", None),
        ("lm_head.weight", None),
        ("vision.hlayers.x", None),
    ],
)
def test_a_tensors_name_tells_its_layer(name: str, layer: int | None) -> None:
    assert layer_of(name) == layer
