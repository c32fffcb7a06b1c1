"""What is known of a machine and of a node on it."""

import msgspec

from node.model.ids import NodeId


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed facts of the machine a node runs on."""

    hostname: str
    system: str
    """`darwin` or `linux`."""
    release: str
    architecture: str
    """`arm64`, `x86_64`."""
    chip: str
    """Marketing name where it is known (`Apple M3 Ultra`), else the processor's model name."""
    cores: int
    memory_bytes: int
    unified_memory: bool = False
    """Apple silicon: the GPU works in main memory."""
    python: str = ""
    mlx: str = ""
    """Version of mlx, empty where it is not installed."""


class Address(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A place where a node listens for other nodes."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was admitted to the cluster."""

    node: NodeId
    name: str
    admitted_by: NodeId
    admitted_index: int
    machine: Machine | None = None
    """None until the node has described itself."""
    version: str = ""
    addresses: tuple[Address, ...] = ()
    incarnation: int = 0
    lost: bool = False
    lost_reason: str = ""
    lost_at: float = 0.0
    """Wall clock, seconds since 1970."""
    cordoned: bool = False
    """No new shards are placed on it."""
    stopped: bool = False
    """It is lost because it was stopped in order, and said so."""
    own_name: str = ""
    """What it calls itself, where people have named it otherwise; empty where it is called so."""
    labels: dict[str, str] = {}
    """What people tell nodes apart by, such as `room: cellar`."""
