"""What a node and its runner child say to each other over a Unix socket.

Frames are a 4-byte big-endian length and the msgpack of one message; 16 MiB at most. The runner
listens, the node dials: so a node that comes back can find a runner that is still alive. On each
connection the runner sends a `Challenge`, the node answers with its `Claim`, and the runner with
`Introduced`, which proves the runner in its turn; whoever can't prove itself hears no more.
"""

import msgspec

from node.model.errors import Failure
from node.model.ids import InstanceId, ModelId, RequestId, RunnerId
from node.model.instance import RunnerPhase, StageAddress, WeightFormat
from node.model.register import RunnerProgress
from node.model.request import GenerationItem, GenerationRequest

FRAME_BYTES_MAX = 16 * 1024 * 1024
ORPHAN_SECONDS = 30.0
"""How long a runner lives without its node before it ends by itself."""


class Prepare(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """First command: what this runner is to hold."""

    runner: RunnerId
    instance: InstanceId
    model: ModelId
    model_directory: str
    rank: int
    stages: int
    """1: the whole model, no links."""
    boundaries: tuple[int, ...]
    """First layer of each stage and the layer count last: (0, 12, 30) for two stages."""
    weight_format: WeightFormat
    context_tokens: int
    batch_max: int = 8
    """Generations computed at once; further ones queue."""
    queue_max: int = 64
    cache_bytes_max: int = 0
    """Bound of key/value cache, prefix cache included; 0 leaves the default."""
    stage_host: str = "127.0.0.1"
    """Where to listen for the stage before."""
    encrypt: bool = False
    """TLS on stage links; on unless every stage is on loopback."""
    attempt: int = 1
    """Frames of another attempt are dropped."""
    tensor: bool = False
    """Each of the `stages` holds a part of every layer; `boundaries` are those of one stage."""


class Connect(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Second command, with several stages: the neighbours. Each dials the next, in a circle."""

    next_stage: StageAddress
    previous_certificate: bytes = b""


class Generate(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Rank 0 only: start a generation. Its items come back as `Item`s."""

    request: GenerationRequest


class Cancel(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Rank 0 only: end a generation at the next step, with a `Finished(CANCELLED)`."""

    request: RequestId


class Shutdown(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """End: fail what runs, free everything, exit 0."""


class Claim(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """First on each connection: the node that started the runner is back, or there at last."""

    incarnation: int
    """Which life of the node; a later one takes the runner over from an earlier, never the other
    way round."""
    nonce: bytes
    """What the runner is to prove itself for."""
    proof: bytes
    """For the nonce of its `Challenge`."""


NodeMessage = Prepare | Connect | Generate | Cancel | Shutdown | Claim


class Challenge(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Sent to whoever connects: prove that the runner is yours."""

    nonce: bytes


class Introduced(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Sent on every new connection, once it is claimed: who this is and how far it is."""

    runner: RunnerId
    process_id: int
    phase: RunnerPhase
    attempt: int
    """0: it has not been prepared yet."""
    address: StageAddress | None = None
    proof: bytes = b""
    """For the nonce of the `Claim`."""


class Listening(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The stage before may dial here."""

    address: StageAddress


class PhaseChanged(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A transition; FAILED carries why, and the process then exits."""

    phase: RunnerPhase
    failure: Failure | None = None


class Beat(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Every second, and at each loaded layer: progress. Silence while busy means stuck."""

    progress: RunnerProgress
    busy: bool = False


class Item(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Something of a generation; `Finished` or `Failed` is its last."""

    request: RequestId
    item: GenerationItem


RunnerMessage = Challenge | Introduced | Listening | PhaseChanged | Beat | Item
