"""What is fetched, and what a person may order a node to do with its models."""

import msgspec

from node.model.ids import ModelId, NodeId


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a repository, as its hub describes it."""

    path: str
    size: int
    hash: str
    """Lower-case hexadecimal: SHA-256 where `is_sha256`, else git's SHA-1 of a blob."""
    is_sha256: bool = True


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one commit of a repository."""

    repo: ModelId
    revision: str
    """As it was asked for, such as `main`."""
    commit: str
    """40 hexadecimal characters; what is fetched is pinned to it."""
    files: tuple[RemoteFile, ...]


class HubModel(msgspec.Struct, frozen=True, kw_only=True):
    """One hit of a search."""

    model: ModelId
    downloads: int = 0
    likes: int = 0
    gated: bool = False
    origin: str = "hub"
    """`hub`, or `catalogue` where no hub could be asked."""


class PullModel(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Fetch a repository, and go on until it is whole."""

    model: ModelId
    revision: str = "main"
    priority: int = 0
    bytes_per_second: int = 0
    """A cap for this download; 0: none."""
    source: str = "auto"
    """`auto`: peers first, then the hub; `hub` or `peer`: only that."""
    companions: tuple[NodeId, ...] = ()
    """All nodes that were told to fetch it together; the first of them asks the hub."""


class SteerDownload(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Change how a download goes on."""

    model: ModelId
    action: str
    """`pause`, `resume`, `retry`, `cancel`."""


class PrioritiseDownload(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Let a download go before those of lower priority."""

    model: ModelId
    priority: int


class LimitDownloads(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Bounds of a node's downloads together; None leaves one as it is."""

    bytes_per_second: int | None = None
    """0: no bound."""
    at_once: int | None = None


class RemoveModel(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Delete a model's files; refused while an instance uses it."""

    model: ModelId


class VerifyModel(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Hash a model's files anew and fetch again what is damaged."""

    model: ModelId


class ImportModel(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Copy a model that lies in a directory of the node's machine, or unpack a GGUF file."""

    path: str
    model: ModelId


class PruneModels(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Delete what no model needs: files of downloads that were given up, replaced revisions."""


ModelOrder = (
    PullModel
    | SteerDownload
    | PrioritiseDownload
    | LimitDownloads
    | RemoveModel
    | VerifyModel
    | ImportModel
    | PruneModels
)


class OrderDone(msgspec.Struct, frozen=True, kw_only=True):
    """What an order brought about, or began."""

    words: str
    bytes_freed: int = 0
