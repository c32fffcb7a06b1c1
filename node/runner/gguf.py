"""Headers of GGUF files, checked before anything else reads them."""

import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from node.model.errors import UsageError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEADER_BYTES_MAX = 64 * 1024 * 1024
"""A header beyond this is no header of a language model."""
NAME_BYTES_MAX = 1024
DIMENSIONS_MAX = 4
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING = 8
_ARRAY = 9
TENSOR_BLOCKS: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    8: ("Q8_0", 32, 34),
}
"""Tensor types that unpack without loss: name, values per block, bytes per block."""

Value = int | float | str | list[int] | list[float] | list[str]


class GgufTensor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tensor lies; `shape` has the fastest dimension first, as the file has it."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    bytes_count: int


class GgufHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says of itself."""

    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]
    file_bytes: int

    def number(self, key: str) -> int | float:
        """A number that the conversion can't do without.

        Raises:
            UsageError: it is missing or no number.
        """
        value = self.metadata.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse("gguf_metadata", f"the header has no number called {key}")
        return value

    def integer(self, key: str) -> int:
        """A count that the conversion can't do without.

        Raises:
            UsageError: it is missing or no whole number.
        """
        value = self.number(key)
        if not math.isfinite(value):
            refuse("gguf_metadata", f"the header says {value} for {key}, which is no count")
        return int(value)

    def text(self, key: str) -> str:
        """A text, or an empty one where there is none."""
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> list[str]:
        """A list of texts that the conversion can't do without."""
        value = self.metadata.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            refuse("gguf_metadata", f"the header has no list of texts called {key}")
        return [item for item in value if isinstance(item, str)]

    def integers(self, key: str) -> list[int]:
        """A list of whole numbers that the conversion can't do without."""
        value = self.metadata.get(key)
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            refuse("gguf_metadata", f"the header has no list of numbers called {key}")
        return [item for item in value if isinstance(item, int)]


def refuse(code: str, message: str, remedy: str = "") -> NoReturn:
    """Refuse the file, with a reason that a person can act on."""
    raise UsageError.because(code, message, remedy)


def read_header(path: Path) -> GgufHeader:
    """Read and check a header; every tensor it names is known to lie within the file.

    Raises:
        UsageError: no file, not GGUF, truncated, or of a kind that can't be converted.
    """
    try:
        with path.open("rb") as file:
            return _Reader(file, os.fstat(file.fileno()).st_size, path).header()
    except OSError as error:
        refuse("gguf_unreadable", f"{path}: {error.strerror}")


class _Reader:
    def __init__(self, file: BinaryIO, file_bytes: int, path: Path) -> None:
        self._file = file
        self._file_bytes = file_bytes
        self._path = path

    def header(self) -> GgufHeader:
        if self._file.read(4) != MAGIC:
            refuse("gguf_foreign", f"{self._path} is not a GGUF file")
        version = self._unpack("I")
        if version not in VERSIONS:
            refuse("gguf_version", f"{self._path}: GGUF version {version}, known are 2 and 3")
        tensor_count, entry_count = int(self._unpack("Q")), int(self._unpack("Q"))
        # Each entry takes at least 13 bytes, each tensor 28: a lie is seen before it is followed.
        if entry_count * 13 + tensor_count * 28 > min(self._file_bytes, HEADER_BYTES_MAX):
            refuse("gguf_truncated", f"{self._path}: counts in the header exceed the file")
        metadata: dict[str, Value] = {}
        for _ in range(entry_count):
            key = self._string(NAME_BYTES_MAX)
            metadata[key] = self._value(int(self._unpack("I")))
        infos = [self._tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0:
            refuse("gguf_metadata", f"{self._path}: alignment is {alignment!r}")
        start = -(-self._file.tell() // alignment) * alignment
        for tensor in infos:
            end = start + tensor.offset + tensor.bytes_count
            if end > self._file_bytes:
                refuse(
                    "gguf_truncated",
                    f"{self._path} has {self._file_bytes} bytes, but {tensor.name} ends at {end}",
                    "fetch the file again",
                )
        return GgufHeader(
            metadata=metadata,
            tensors={tensor.name: tensor for tensor in infos},
            file_bytes=self._file_bytes,
        )

    def _take(self, count: int) -> bytes:
        if count > HEADER_BYTES_MAX or self._file.tell() + count > self._file_bytes:
            refuse(
                "gguf_truncated",
                f"{self._path} ends inside its header, at {self._file_bytes} bytes",
                "fetch the file again",
            )
        return self._file.read(count)

    def _unpack(self, letter: str) -> int | float:
        return struct.unpack("<" + letter, self._take(struct.calcsize("<" + letter)))[0]

    def _string(self, bytes_max: int = HEADER_BYTES_MAX) -> str:
        length = int(self._unpack("Q"))
        if length > bytes_max:
            refuse("gguf_truncated", f"{self._path}: a text of {length} bytes in the header")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            refuse("gguf_metadata", f"{self._path}: a text in the header is not UTF-8")

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        letter = _SCALARS.get(kind)
        if letter is None:
            refuse("gguf_metadata", f"{self._path}: value type {kind} in the header")
        return self._unpack(letter)

    def _array(self) -> list[int] | list[float] | list[str]:
        kind, count = int(self._unpack("I")), int(self._unpack("Q"))
        if count > HEADER_BYTES_MAX // 8:
            refuse("gguf_truncated", f"{self._path}: a list of {count} values in the header")
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        letter = _SCALARS.get(kind)
        if letter is None:
            refuse("gguf_metadata", f"{self._path}: list of type {kind} in the header")
        layout = f"<{count}{letter}"
        return list(struct.unpack(layout, self._take(struct.calcsize(layout))))

    def _tensor(self) -> GgufTensor:
        name = self._string(NAME_BYTES_MAX)
        dimensions = int(self._unpack("I"))
        if not 0 < dimensions <= DIMENSIONS_MAX:
            refuse("gguf_metadata", f"{self._path}: {name} has {dimensions} dimensions")
        shape = tuple(int(self._unpack("Q")) for _ in range(dimensions))
        kind, offset = int(self._unpack("I")), int(self._unpack("Q"))
        block = TENSOR_BLOCKS.get(kind)
        if block is None:
            known = ", ".join(name for name, _, _ in TENSOR_BLOCKS.values())
            refuse("gguf_quantisation", f"{name} is of GGUF tensor type {kind}; known: {known}")
        type_name, block_values, block_bytes = block
        count = 1
        for size in shape:
            count *= size
        if not 0 < count < 1 << 40 or shape[0] % block_values:
            refuse("gguf_shape", f"{self._path}: {name} has shape {shape} as {type_name}")
        return GgufTensor(
            name=name,
            shape=shape,
            type_name=type_name,
            offset=offset,
            bytes_count=count // block_values * block_bytes,
        )
