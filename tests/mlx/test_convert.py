"""The converter: whole directories or none, and files that are not what they should be."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from node.model.errors import UsageError
from node.runner.convert import convert_arrays
from node.runner.gguf import GgufHeader, read_header
from tests.mlx.runner_process import ROOT


def run(source: Path, target: Path) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "node.runner.convert", str(source), str(target)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tiny_gguf(
    entries: list[tuple[str, int, bytes]], tensors: list[tuple[str, tuple[int, ...], int, int]]
) -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    for key, kind, value in entries:
        header += text(key) + struct.pack("<I", kind) + value
    for name, shape, kind, offset in tensors:
        header += text(name) + struct.pack("<I", len(shape))
        header += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
    return header


def test_progress_rises_and_the_directory_is_whole(
    smollm2: Path, gguf: Path, tmp_path: Path
) -> None:
    code, lines = run(gguf, tmp_path / "model")
    assert code == 0
    fractions = [line["fraction"] for line in lines if "fraction" in line]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    size = sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    assert lines[-1] == {"done": True, "bytes": size}
    for path in smollm2.iterdir():
        assert (tmp_path / "model" / path.name).read_bytes() == path.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    again, lines = run(gguf, tmp_path / "model")
    assert (again, lines[-1]["done"]) == (0, True)


def test_what_a_killed_converter_left_is_removed(gguf: Path, tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".model.partial-{dead.pid}").mkdir()
    (tmp_path / f".model.partial-{os.getpid()}").mkdir()
    foreign = tmp_path / "broken.gguf"
    with gguf.open("rb") as whole:
        foreign.write_bytes(whole.read(3_000_000))
    code, _ = run(foreign, tmp_path / "model")
    assert code == 1
    assert not (tmp_path / f".model.partial-{dead.pid}").exists()
    assert (tmp_path / f".model.partial-{os.getpid()}").exists()


@pytest.mark.parametrize("kept_bytes", [0, 3, 20, 1000, 100_000, 2_500_000, 90_000_000])
def test_a_truncated_file_is_named_wherever_it_ends(
    gguf: Path, tmp_path: Path, kept_bytes: int
) -> None:
    cut = tmp_path / "cut.gguf"
    with gguf.open("rb") as whole:
        cut.write_bytes(whole.read(min(kept_bytes, 3_000_000)))
    os.truncate(cut, kept_bytes)  # beyond the header a hole will do
    with pytest.raises(UsageError) as refused:
        read_header(cut)
    assert refused.value.failure.code in ("gguf_foreign", "gguf_truncated")


def test_errors_are_one_line_of_json_and_leave_nothing(tmp_path: Path) -> None:
    foreign = tmp_path / "model.gguf"
    foreign.write_bytes(b"PK\x03\x04" + bytes(1000))
    code, lines = run(foreign, tmp_path / "target")
    assert code == 1
    assert lines[-1]["error"]["code"] == "gguf_foreign"
    assert not (tmp_path / "target").exists()
    code, lines = run(tmp_path / "absent.gguf", tmp_path / "target")
    assert (code, lines[-1]["error"]["code"]) == (1, "gguf_unreadable")


MAMBA = (("general.architecture", 8, text("mamba")),)
CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "version": (lambda: b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "gguf_version"),
    "counts": (lambda: b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60), "gguf_truncated"),
    "value type": (lambda: tiny_gguf([("a", 77, b"")], []), "gguf_metadata"),
    "nested list": (
        lambda: tiny_gguf([("a", 9, struct.pack("<IQ", 9, 1) + bytes(64))], []), "gguf_metadata",
    ),
    "huge list": (
        lambda: tiny_gguf([("a", 9, struct.pack("<IQ", 4, 1 << 50))], []), "gguf_truncated",
    ),
    "huge text": (lambda: tiny_gguf([("a", 8, struct.pack("<Q", 1 << 62))], []), "gguf_truncated"),
    "no utf-8": (
        lambda: tiny_gguf([("a", 8, struct.pack("<Q", 2) + b"\xff\xfe")], []), "gguf_metadata",
    ),
    "tensor type": (lambda: tiny_gguf([], [("t", (32,), 12, 0)]), "gguf_quantisation"),
    "tensor shape": (lambda: tiny_gguf([], [("t", (31,), 8, 0)]), "gguf_shape"),
    "tensor overflow": (lambda: tiny_gguf([], [("t", (1 << 40, 1 << 40), 0, 0)]), "gguf_shape"),
    "tensor outside": (lambda: tiny_gguf([], [("t", (32,), 0, 1 << 40)]), "gguf_truncated"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_lying_header_is_refused_before_anything_is_read(tmp_path: Path, case: str) -> None:
    make, code = CASES[case]
    path = tmp_path / "lie.gguf"
    path.write_bytes(make())
    with pytest.raises(UsageError) as refused:
        read_header(path)
    assert refused.value.failure.code == code


def test_another_architecture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mamba.gguf"
    path.write_bytes(tiny_gguf(list(MAMBA), []))
    code, lines = run(path, tmp_path / "target")
    assert (code, lines[-1]["error"]["code"]) == (1, "gguf_architecture")
    assert "mamba" in lines[-1]["error"]["message"]


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
def test_a_count_that_is_no_number_is_named(tmp_path: Path, number: str) -> None:
    path = tmp_path / "odd.gguf"
    entries = [
        ("general.architecture", 8, text("llama")),
        ("llama.embedding_length", 6, struct.pack("<f", float(number))),
    ]
    path.write_bytes(tiny_gguf(entries, []))
    code, lines = run(path, tmp_path / "target")
    assert (code, lines[-1]["error"]["code"]) == (1, "gguf_metadata")
    assert "llama.embedding_length" in lines[-1]["error"]["message"]


def test_without_a_count_of_key_heads_there_are_as_many_as_heads(tmp_path: Path) -> None:
    path = tmp_path / "q.safetensors"
    rows = mx.arange(16).reshape(8, 2).astype(mx.float32)
    mx.save_safetensors(str(path), {"blk.0.attn_q.weight": rows, "blk.0.attn_k.weight": rows})
    header = GgufHeader(metadata={"llama.attention.head_count": 2}, tensors={}, file_bytes=0)
    arrays = convert_arrays(path, header, lambda _: None)
    query, key = (arrays[f"model.layers.0.self_attn.{part}_proj.weight"] for part in "qk")
    assert mx.array_equal(query, key)
    assert not mx.array_equal(query, rows.astype(query.dtype))


def test_a_header_tells_what_is_missing() -> None:
    header = GgufHeader(metadata={"a": "text", "b": True}, tensors={}, file_bytes=0)
    for ask in (header.number, header.integer, header.texts, header.integers):
        for key in ("a", "b", "absent"):
            with pytest.raises(UsageError):
                ask(key)
    assert header.text("absent") == ""
