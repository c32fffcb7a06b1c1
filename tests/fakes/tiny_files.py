"""Model directories of a few hundred bytes, with sound safetensors headers."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path


def safetensors(tensors: Mapping[str, int]) -> bytes:
    """A file with the given tensors, by name and bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for name, size in tensors.items():
        offsets = [offset, offset + size]
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": offsets}
        offset += size
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + bytes(offset)


def write_model(directory: Path, *, files: int = 1, config: Mapping[str, object] = {}) -> Path:
    """A complete model of that many weight files; one alone has no index."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (directory / "tokenizer.json").write_text("{}")
    weight_map: dict[str, str] = {}
    for number in range(files):
        name = "model.safetensors" if files == 1 else f"model-{number + 1:05}.safetensors"
        tensors = {f"layers.{number}.{part}": 10 + part for part in range(3)}
        (directory / name).write_bytes(safetensors(tensors))
        weight_map.update(dict.fromkeys(tensors, name))
    if files > 1:
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory
