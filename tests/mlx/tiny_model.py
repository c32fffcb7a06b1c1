"""A random llama of four narrow layers with a tokenizer of single bytes: loads in no time."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
LAYERS = 4
CONTEXT = 512
TEMPLATE = (
    "{% for m in messages %}{% if m.role not in ['user', 'assistant', 'system', 'tool'] %}"
    "{{ raise_exception('roles are user, assistant, system and tool, not ' + m.role) }}{% endif %}"
    "<|{{ m.role if m.role != 'tool' else 'user' }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if tools %}<|system|>tools{% endif %}<|assistant|>"
)
TOOL_TEMPLATE = TEMPLATE + "{# <tool_call> tool_call.name #}"


def byte_tokenizer(*, with_markers: bool = False) -> Tokenizer:
    """One token for each byte, and the special ones after them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    special = SPECIAL + (MARKERS if with_markers else ())
    for token in special:
        vocabulary[token] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    if with_markers:
        tokenizer.add_tokens([AddedToken(token, special=False) for token in MARKERS])
    return tokenizer


def write_tokenizer(directory: Path, *, with_markers: bool = False) -> None:
    """Its files, as transformers reads them."""
    byte_tokenizer(with_markers=with_markers).save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "pad_token": "<|end|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": TOOL_TEMPLATE if with_markers else TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def config(**changes: Any) -> dict[str, Any]:
    """Settings of the tiny llama."""
    return {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "vocab_size": 272,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "eos_token_id": 256,
        **changes,
    }


def write_tiny_model(directory: Path, *, bits: int = 0, with_markers: bool = False) -> Path:
    """The whole model directory; `bits` packs its weights."""
    directory.mkdir(parents=True)
    settings = config()
    mx.random.seed(3)
    model = llama.Model(llama.ModelArgs.from_dict(settings))
    # Spread out, or every prompt would lead to the same token again and again.
    plain: Any = tree_flatten(model.parameters())
    model.load_weights([(name, array * 6 if "proj" in name else array) for name, array in plain])
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
        settings["quantization"] = {"group_size": 32, "bits": bits, "mode": "affine"}
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(directory / "model.safetensors"), weights, metadata={"format": "mlx"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "model.safetensors")}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "config.json").write_text(json.dumps(settings))
    write_tokenizer(directory, with_markers=with_markers)
    return directory
