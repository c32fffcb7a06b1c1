"""Messages between the stages of one instance, and how arrays are laid out in bytes."""

import math
from typing import Any

import mlx.core as mx
import msgspec

from node.model.ids import InstanceId, RunnerId
from node.runner.journal import Operation

HEADER_BYTES_MAX = 16 * 1024 * 1024
ARRAYS_MAX = 256
ARRAY_BYTES_MAX = 1 << 31
DIMENSIONS_MAX = 8
_TYPES: dict[str, mx.Dtype] = {
    "float32": mx.float32,
    "float16": mx.float16,
    "bfloat16": mx.bfloat16,
    "int32": mx.int32,
    "uint32": mx.uint32,
    "int64": mx.int64,
    "bool": mx.bool_,
}
_NAMES: dict[mx.Dtype, str] = {dtype: name for name, dtype in _TYPES.items()}


class StageHello(msgspec.Struct, frozen=True, tag="hello", kw_only=True):
    """First frame in both directions: only neighbours in the same attempt go on."""

    runner: RunnerId
    instance: InstanceId
    attempt: int
    rank: int


class StageLoaded(msgspec.Struct, frozen=True, tag="loaded", kw_only=True):
    """Goes round once when every stage has its weights."""


class StageStep(msgspec.Struct, frozen=True, tag="step", kw_only=True):
    """From stage to stage: what became of the caches, then tokens, hidden state and extras."""

    sequence: int
    operations: list[Operation]
    cache: int = 0
    """Handle of the caches to use; 0: only the operations, nothing to compute."""
    wants_hidden: bool = False
    """Whether rank 0 waits for the last stage's hidden state."""
    extras: list[str] = []
    """Names of the arrays after tokens and hidden state."""
    seconds: float = 0.0
    """How long rank 0 gives each stage for it, and so how long a stage may make another wait."""


class StageAnswer(msgspec.Struct, frozen=True, tag="answer", kw_only=True):
    """From the last stage to rank 0: a step is through, with its hidden state where wanted."""

    sequence: int
    extras: list[str] = []


class StageHosts(msgspec.Struct, frozen=True, tag="hosts", kw_only=True):
    """Where ranks of a tensor instance will listen for one another's sums, from rank 0 on."""

    hosts: list[str]


class StageGoodbye(msgspec.Struct, frozen=True, tag="goodbye", kw_only=True):
    """The sender ends, and means to."""


StageMessage = StageHello | StageLoaded | StageStep | StageAnswer | StageGoodbye | StageHosts


class ArrayLayout(msgspec.Struct, frozen=True, array_like=True):
    """Type and shape of an array that follows its header."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes_count(self) -> int:
        """Bytes that follow."""
        return math.prod(self.shape) * _TYPES[self.dtype].size


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message and what follows it."""

    message: StageMessage
    arrays: list[ArrayLayout] = []


class StageFrameError(Exception):
    """Bytes that are no frame between stages."""


_decoder = msgspec.msgpack.Decoder(Envelope)


def encode_header(message: StageMessage, arrays: list[mx.array]) -> bytes:
    """The length and header of a frame; the arrays' bytes come after it."""
    layouts = [ArrayLayout(_NAMES[array.dtype], tuple(array.shape)) for array in arrays]
    payload = msgspec.msgpack.encode(Envelope(message, layouts))
    return len(payload).to_bytes(4, "big") + payload


def header_length(prefix: bytearray) -> int:
    """Bytes of the header that follows.

    Raises:
        StageFrameError: too many.
    """
    length = int.from_bytes(prefix, "big")
    if length > HEADER_BYTES_MAX:
        raise StageFrameError(f"a header of {length} bytes, {HEADER_BYTES_MAX} at most")
    return length


def decode_header(payload: bytes) -> Envelope:
    """A header with bounded arrays.

    Raises:
        StageFrameError: it is none, or promises too much.
    """
    try:
        envelope = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StageFrameError(str(error)) from error
    if len(envelope.arrays) > ARRAYS_MAX:
        raise StageFrameError(f"{len(envelope.arrays)} arrays, {ARRAYS_MAX} at most")
    for layout in envelope.arrays:
        if (
            layout.dtype not in _TYPES
            or len(layout.shape) > DIMENSIONS_MAX
            or any(size < 0 for size in layout.shape)
            or layout.bytes_count > ARRAY_BYTES_MAX
        ):
            raise StageFrameError(f"an array of {layout.dtype} {layout.shape}")
    return envelope


def array_bytes(array: mx.array) -> memoryview:
    """Its bytes, without a copy where it lies in one piece."""
    flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
    mx.eval(flat)
    return memoryview(flat)  # type: ignore[arg-type]


def array_from_bytes(layout: ArrayLayout, received: bytearray) -> mx.array:
    """The array that the bytes are."""
    dtype = _TYPES[layout.dtype]
    if not received:
        return mx.zeros(layout.shape, dtype)
    flat: Any = memoryview(received)
    return mx.array(flat).view(dtype).reshape(layout.shape)
