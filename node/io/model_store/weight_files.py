"""Whether a model's files are all there and whole, as their own headers promise."""

import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec

from node.core.failure_text import short_text
from node.io.model_store.names import lies_within
from node.model.errors import Failure

HEADER_BYTES_MAX = 100 * 1024 * 1024
"""What safetensors allows."""
INDEX_BYTES_MAX = 64 * 1024 * 1024
CONFIG_BYTES_MAX = 4 * 1024 * 1024
INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = "config.json"
SOURCE_NAME = ".exoctl-source"
"""One line: where the model comes from; `local` where there is none."""
SOURCE_CHARACTERS_MAX = 300
SOURCE_BYTES_MAX = 64 * 1024
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model")
_LENGTH = struct.Struct("<Q")

NONSENSE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a file that anybody may have written can raise."""

FileStamp = tuple[int, int]
"""Size in bytes, time of the last change in nanoseconds."""


class _Tensor(msgspec.Struct):
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_headers: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
)
_tensor: msgspec.json.Decoder[_Tensor] = msgspec.json.Decoder(_Tensor)
_index: msgspec.json.Decoder[_Index] = msgspec.json.Decoder(_Index)


def stamps_of(directory: Path) -> dict[str, FileStamp]:
    """Every file of a model directory with its stamp; hidden ones and sub-directories left out.

    Raises:
        OSError: the directory can't be read.
    """
    stamps: dict[str, FileStamp] = {}
    for path in directory.iterdir():
        if path.name.startswith("."):
            continue
        try:
            found = path.stat()
        except OSError:
            stamps[path.name] = (-1, 0)  # a link to nowhere
            continue
        if stat.S_ISREG(found.st_mode):
            stamps[path.name] = (found.st_size, found.st_mtime_ns)
    return stamps


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Read a file that ought to be small. Never waits, as reading a pipe of that name would.

    Raises:
        OSError: it can't be read, is no regular file, or is larger.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        if found.st_size > bytes_max:
            raise OSError(f"{path} has {found.st_size} bytes; {bytes_max} are allowed")
        return file.read(bytes_max)


def source_of(directory: Path) -> str:
    """Where a model comes from: `embedded`, `local`, or a hub repository with its revision."""
    try:
        content = read_regular(directory / SOURCE_NAME, SOURCE_BYTES_MAX)
    except OSError:
        return "local"
    line = content.decode(errors="replace").partition("\n")[0][:SOURCE_CHARACTERS_MAX].strip()
    return line if line.isprintable() and line else "local"


def check(directory: Path, stamps: Mapping[str, FileStamp], root: Path) -> Failure | None:
    """What the model in a directory lacks; None where it is complete."""
    for name in stamps:
        if not lies_within(directory / name, root):
            return _failure(
                "model_outside",
                f"{directory / name} leads out of {root}",
                "put the file itself there; links that leave the model directory are not followed",
            )
    try:
        return _check_files(directory, stamps)
    except OSError as error:
        return unreadable(directory, error)


def _check_files(directory: Path, stamps: Mapping[str, FileStamp]) -> Failure | None:
    try:
        expected = _expected_files(directory, stamps)
    except NONSENSE:
        return _incomplete(f"{directory / INDEX_NAME} is no index of weight files")
    if not expected:
        return _incomplete(f"{directory} holds no .safetensors file")
    for name, tensors in expected.items():
        if name not in stamps:
            return _incomplete(f"{name} is missing in {directory} ({len(expected)} files in all)")
        fault = _check_weights(directory / name, stamps[name][0], tensors)
        if fault is not None:
            return fault
    if not any(name in stamps for name in _TOKENIZERS):
        return _incomplete(f"no tokenizer in {directory}: none of {', '.join(_TOKENIZERS)}")
    return None


def _expected_files(directory: Path, stamps: Mapping[str, FileStamp]) -> dict[str, set[str]]:
    """The weight files that belong to the model, each with the tensors that must be in it."""
    if INDEX_NAME not in stamps:
        return {name: set() for name in sorted(stamps) if name.endswith(".safetensors")}
    if stamps[INDEX_NAME][0] > INDEX_BYTES_MAX:
        raise msgspec.ValidationError(f"an index of {stamps[INDEX_NAME][0]} bytes")
    expected: dict[str, set[str]] = {}
    for tensor, name in _index.decode((directory / INDEX_NAME).read_bytes()).weight_map.items():
        if "/" in name or name.startswith("."):
            raise msgspec.ValidationError(f"{name!r} is no file of the model")
        expected.setdefault(name, set()).add(tensor)
    return expected


def _check_weights(path: Path, size: int, tensors: set[str]) -> Failure | None:
    with path.open("rb") as file:
        prefix = file.read(_LENGTH.size)
        length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else 0
        if not 0 < length <= HEADER_BYTES_MAX or _LENGTH.size + length > size:
            return _incomplete(f"{path} is no whole .safetensors file ({size} bytes)")
        header_bytes = file.read(length)
    try:
        header = _headers.decode(header_bytes)
        ends = [
            _tensor.decode(raw).data_offsets[1]
            for name, raw in header.items()
            if name != "__metadata__"
        ]
    except NONSENSE:
        return _incomplete(f"the header of {path} can't be read")
    promised = _LENGTH.size + length + max(ends, default=0)
    if size != promised:
        return _incomplete(f"{path} has {size} bytes, its header promises {promised}")
    absent = tensors - header.keys()
    if absent:
        return _incomplete(f"{path} lacks {len(absent)} tensors, such as {min(absent)}")
    return None


def unreadable(directory: Path, error: OSError | ValueError) -> Failure:
    """Why a directory that may hold a model can't be looked at."""
    message = f"{directory}: {error}"
    if isinstance(error, OSError) and error.strerror:
        message = f"{os.fsdecode(error.filename or directory)}: {error.strerror}"
    return _failure("model_unreadable", message, "check who owns the model's files, and their mode")


def _incomplete(message: str) -> Failure:
    return _failure("model_incomplete", message, "remove the model and fetch it again")


def _failure(code: str, message: str, remedy: str) -> Failure:
    return Failure(code=code, message=short_text(message), remedy=remedy)
