"""The tokenizer inside a GGUF file, as the files that tokenizer libraries read."""

import json
from pathlib import Path

from node.runner.gguf import GgufHeader, refuse

PRE_TOKENIZERS = ("smollm",)
"""Ways to split text into words that are known to match."""
CONTROL_TOKEN = 3


def write_tokenizer(directory: Path, header: GgufHeader) -> None:
    """Write tokenizer.json and tokenizer_config.json into the directory.

    Raises:
        UsageError: the tokenizer is of another kind, or its tables don't fit together.
    """
    # Imported late: refusing a bad file must not wait for it.
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415

    kind, split = header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in PRE_TOKENIZERS:
        refuse("gguf_tokenizer", f"the file's tokenizer is {kind!r} split by {split!r}")
    tokens = header.texts("tokenizer.ggml.tokens")
    kinds = header.integers("tokenizer.ggml.token_type")
    merges = [_pair(merge) for merge in header.texts("tokenizer.ggml.merges")]
    if len(kinds) != len(tokens):
        refuse("gguf_tokenizer", f"{len(tokens)} tokens, but {len(kinds)} token types")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if any(
        a not in vocabulary or b not in vocabulary or a + b not in vocabulary for a, b in merges
    ):
        refuse("gguf_tokenizer", "a merge of the file's tokenizer names no token of its table")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in control]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps(_settings(header, tokens), ensure_ascii=False, indent=1), encoding="utf-8"
    )


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        refuse("gguf_tokenizer", f"{merge!r} is no merge of two tokens")
    return left, right


def _settings(header: GgufHeader, tokens: list[str]) -> dict[str, object]:
    settings: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": header.integer("llama.context_length"),
    }
    for name, key in (
        ("bos_token", "tokenizer.ggml.bos_token_id"),
        ("eos_token", "tokenizer.ggml.eos_token_id"),
        ("pad_token", "tokenizer.ggml.padding_token_id"),
        ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ):
        number = header.metadata.get(key)
        if isinstance(number, int):
            if not 0 <= number < len(tokens):
                refuse("gguf_tokenizer", f"{key} is {number}, of {len(tokens)} tokens")
            settings[name] = tokens[number]
    template = header.text("tokenizer.chat_template")
    if template:
        settings["chat_template"] = template
    return settings
