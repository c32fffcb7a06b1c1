"""`python -m node.runner.convert GGUF DIRECTORY`: a packed llama model into an MLX directory.

Says how far it is in lines of JSON: `{"fraction": 0.4, "step": "layers"}`, at last
`{"done": true, "bytes": N}`, or `{"error": {...}}` and exit code 1.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import mlx.core as mx
import msgspec

from node.model.errors import ExoctlError, Failure, UsageError
from node.runner.gguf import GgufHeader, read_header, refuse
from node.runner.gguf_tokenizer import write_tokenizer

GROUP_SIZE = 32
"""Values per scale in every packed GGUF type that is converted."""
SPACE_FACTOR = 1.3
"""Room asked for on disk, in sizes of the source: float32 scales and the tokenizer come on top."""
_LAYER_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_WHOLE_PARTS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

Progress = Callable[[float, str], None]


def convert(source: Path, target: Path, progress: Progress) -> int:
    """Write the MLX directory `target` and return its size in bytes.

    It is written beside its place and renamed at the end, so `target` is either whole or not there.

    Raises:
        UsageError: the source is no llama model in GGUF, or is truncated.
        ExoctlError: no room on the disk, or it can't be written.
    """
    _remove_abandoned(target)
    progress(0.0, "header")
    header = read_header(source)
    config = llama_config(header)
    _require_room(target.parent, int(header.file_bytes * SPACE_FACTOR))
    partial = target.parent / f".{target.name}.partial-{os.getpid()}"
    try:
        partial.mkdir(parents=True, mode=0o755)
        progress(0.1, "weights")
        arrays = convert_arrays(source, header, lambda part: progress(0.2 + 0.4 * part, "layers"))
        config["quantization"] = quantization_of(arrays)
        if config["quantization"] is None:
            del config["quantization"]
        _write_weights(partial, arrays, progress)
        _write_json(partial / "config.json", config)
        _write_json(
            partial / "generation_config.json",
            {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        )
        progress(0.9, "tokenizer")
        write_tokenizer(partial, header)
        size = _settle(partial, target)
    except OSError as error:
        raise ExoctlError.because(
            "model_not_written", f"{error.filename or partial}: {error.strerror}"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    progress(1.0, "done")
    return size


def llama_config(header: GgufHeader) -> dict[str, object]:
    """config.json of the model, out of the GGUF header."""
    architecture = header.text("general.architecture")
    if architecture != "llama":
        refuse(
            "gguf_architecture", f"the file holds a {architecture or 'nameless'} model, not llama"
        )
    if "rope_freqs.weight" in header.tensors or header.text("llama.rope.scaling.type"):
        refuse("gguf_rope", "the file scales its rotary positions, which is not converted")
    hidden = header.integer("llama.embedding_length")
    heads = header.integer("llama.attention.head_count")
    epsilon = header.number("llama.attention.layer_norm_rms_epsilon")
    if heads <= 0 or hidden % heads:
        refuse("gguf_shape", f"{hidden} values don't divide among {heads} heads")
    kv_heads = _kv_heads(header)
    tokens = header.texts("tokenizer.ggml.tokens")
    eos = header.integer("tokenizer.ggml.eos_token_id")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": header.integer("llama.block_count"),
        "intermediate_size": header.integer("llama.feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": header.metadata.get("llama.rope.dimension_count", hidden // heads),
        # Kept as a 32-bit float in the file: 1e-05 reads as 9.99999975e-06.
        "rms_norm_eps": float(f"{epsilon:.6g}"),
        "vocab_size": len(tokens),
        "max_position_embeddings": header.integer("llama.context_length"),
        "rope_theta": header.metadata.get("llama.rope.freq_base", 10000.0),
        "rope_traditional": False,
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "bos_token_id": header.integer("tokenizer.ggml.bos_token_id"),
        "eos_token_id": eos,
        "pad_token_id": header.metadata.get("tokenizer.ggml.padding_token_id", eos),
    }


def convert_arrays(
    source: Path, header: GgufHeader, progress: Callable[[float], None]
) -> dict[str, mx.array]:
    """Tensors by MLX name, rotary rows reordered, scales in the precision this machine wants."""
    # MLX on a processor is 10 to 40 times slower with 16-bit scales; a Mac's GPU is not.
    precision = mx.float16 if mx.metal.is_available() else mx.float32
    heads = header.integer("llama.attention.head_count")
    kv_heads = _kv_heads(header)
    loaded = mx.load(str(source))
    if not isinstance(loaded, dict):
        refuse("gguf_foreign", f"{source} holds no named tensors")
    arrays: dict[str, mx.array] = {}
    for position, (name, stored) in enumerate(sorted(loaded.items())):
        array = stored
        stem, _, kind = name.rpartition(".")
        part = stem.split(".")[-1]
        if part in ("attn_q", "attn_k"):
            array = _unpermute(array, heads if part == "attn_q" else kv_heads, name)
        if array.dtype != mx.uint32:
            array = array.astype(precision)
        arrays[f"{_mlx_name(stem)}.{kind}"] = mx.contiguous(array)
        mx.eval(arrays[f"{_mlx_name(stem)}.{kind}"])
        if position % 32 == 0:
            progress(position / len(loaded))
    return arrays


def _kv_heads(header: GgufHeader) -> int:
    """As many as there are heads, where the header names none."""
    key = "llama.attention.head_count_kv"
    return header.integer(key if key in header.metadata else "llama.attention.head_count")


def quantization_of(arrays: dict[str, mx.array]) -> dict[str, object] | None:
    """The `quantization` entry of config.json: the commonest width, and the modules that differ."""
    widths = {
        name.removesuffix(".scales"): arrays[name.removesuffix("scales") + "weight"].shape[-1]
        * 32
        // (scales.shape[-1] * GROUP_SIZE)
        for name, scales in arrays.items()
        if name.endswith(".scales")
    }
    if not widths:
        return None
    common = max(set(widths.values()), key=list(widths.values()).count)
    entry: dict[str, object] = {"group_size": GROUP_SIZE, "bits": common, "mode": "affine"}
    for name, bits in sorted(widths.items()):
        if bits != common:
            entry[name] = {"group_size": GROUP_SIZE, "bits": bits}
    return entry


def _unpermute(array: mx.array, heads: int, name: str) -> mx.array:
    """GGUF keeps rotary pairs side by side; MLX wants the two halves of a head. Rows only, so it
    holds for packed weights, scales and biases alike.
    """
    rows = array.shape[0]
    if heads <= 0 or rows % (2 * heads):
        refuse("gguf_shape", f"{name} has {rows} rows for {heads} heads")
    paired = array.reshape(heads, rows // heads // 2, 2, *array.shape[1:])
    return paired.swapaxes(1, 2).reshape(array.shape)


def _mlx_name(stem: str) -> str:
    if stem in _WHOLE_PARTS:
        return _WHOLE_PARTS[stem]
    words = stem.split(".")
    if (
        len(words) != 3
        or words[0] != "blk"
        or not words[1].isdecimal()
        or words[2] not in _LAYER_PARTS
    ):
        refuse("gguf_tensor", f"the file has a tensor {stem!r} that no llama model has")
    return f"model.layers.{words[1]}.{_LAYER_PARTS[words[2]]}"


def _write_weights(directory: Path, arrays: dict[str, mx.array], progress: Progress) -> None:
    progress(0.6, "writing")
    file_name = "model.safetensors"
    try:
        mx.save_safetensors(str(directory / file_name), arrays, metadata={"format": "mlx"})
    except RuntimeError as error:
        raise ExoctlError.because("model_not_written", f"{directory}: {error}") from error
    total = sum(array.nbytes for array in arrays.values())
    _write_json(
        directory / "model.safetensors.index.json",
        {
            "metadata": {"total_size": total},
            "weight_map": dict.fromkeys(sorted(arrays), file_name),
        },
    )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


def _require_room(directory: Path, needed_bytes: int) -> None:
    existing = directory
    while not existing.exists():
        existing = existing.parent
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < needed_bytes:
        raise ExoctlError.because(
            "disk_full",
            f"{directory} has {free_bytes // 10**6} MB free, {needed_bytes // 10**6} MB are needed",
            "free some disk space, or choose another model directory",
        )


def _remove_abandoned(target: Path) -> None:
    """Remove what converters left that were killed."""
    prefix = f".{target.name}.partial-"
    for leftover in target.parent.glob(prefix + "*"):
        process_text = leftover.name.removeprefix(prefix)
        if not process_text.isdecimal() or not _process_lives(int(process_text)):
            shutil.rmtree(leftover, ignore_errors=True)


def _process_lives(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _settle(partial: Path, target: Path) -> int:
    """Make the files durable, then give the directory its name; returns its size."""
    size = 0
    for path in sorted(partial.iterdir()):
        size += path.stat().st_size
        _synchronise(path)
    _synchronise(partial)
    try:
        partial.rename(target)
    except OSError:
        # Another converter of the same model was first; its result is as good as ours.
        if not (target / "config.json").is_file():
            raise
    _synchronise(target.parent)
    return size


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _terminated(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def main(arguments: list[str]) -> int:
    """Convert as the command line says; returns the exit code."""
    # An ordinary exit, so that what was half written is removed.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        if len(arguments) != 2:
            raise UsageError.because("bad_arguments", "needs two paths: GGUF DIRECTORY")
        size = convert(
            Path(arguments[0]),
            Path(arguments[1]).absolute(),
            lambda fraction, step: _say({"fraction": round(fraction, 3), "step": step}),
        )
    except ExoctlError as error:
        _say({"error": msgspec.to_builtins(error.failure)})
        return 1
    except (RuntimeError, ValueError, ArithmeticError, MemoryError) as error:
        # MLX itself refuses the tensors in spite of a sound header.
        _say({"error": msgspec.to_builtins(Failure(code="gguf_unconvertible", message=str(error)))})
        return 1
    _say({"done": True, "bytes": size})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
