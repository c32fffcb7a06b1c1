"""Addresses at which members answered, kept over restarts: discovery may be off or blocked."""

import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from node.io import clock
from node.log import logger
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address

BOOK_NAME = "addresses.json"
BOOK_BYTES_MAX = 256 * 1024
NODES_MAX = 256
ADDRESSES_PER_NODE_MAX = 4

_log = logger("mesh")


class _Book(msgspec.Struct, frozen=True, kw_only=True):
    """The file. Nodes in the order in which they last answered, the latest last."""

    version: int = 1
    nodes: dict[NodeId, tuple[Address, ...]] = {}
    cluster: ClusterId = ClusterId("")
    """Whose members they are: what is left to go by where the log is lost."""


class AddressBook:
    """A cache: a damaged or missing file only costs the addresses in it. Any thread may call."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / BOOK_NAME
        self._nodes: dict[NodeId, tuple[Address, ...]] = {}
        self._members: frozenset[NodeId] | None = None
        self._cluster = ClusterId("")
        self._lock = threading.Lock()

    def load(self) -> Mapping[NodeId, tuple[Address, ...]]:
        """Read the file; what was remembered, the latest address of each node first."""
        with self._lock:
            book = self._read()
            self._nodes, self._cluster = dict(book.nodes), book.cluster
            self._bound()
            return dict(self._nodes)

    @property
    def cluster(self) -> ClusterId:
        """Whose members are in it; empty where that was never noted."""
        return self._cluster

    def belong_to(self, cluster: ClusterId) -> None:
        """Note whose members they are."""
        with self._lock:
            if cluster != self._cluster:
                self._cluster = cluster
                self._write()

    def _read(self) -> _Book:
        try:
            with self._path.open("rb") as file:
                content = file.read(BOOK_BYTES_MAX)  # cut off, it is no JSON any more
            return msgspec.json.decode(content, type=_Book)
        except FileNotFoundError:
            return _Book()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _log.warning("%s is not used: %s", self._path, error)
            return _Book()

    def remember(self, proved: Mapping[NodeId, Address]) -> None:
        """Note where nodes have answered, and write the file where that is news.

        A full disk or a read-only directory is logged: the addresses are lost with the process.
        """
        with self._lock:
            changed = {
                node: address
                for node, address in proved.items()
                if self._nodes.get(node, ())[:1] != (address,) and self._is_wanted(node)
            }
            if not changed:
                return
            for node, address in changed.items():
                others = tuple(one for one in self._nodes.pop(node, ()) if one != address)
                self._nodes[node] = (address, *others)
            self._bound()
            self._write()

    def keep_only(self, members: Collection[NodeId]) -> None:
        """Forget every other node, also what is still to be remembered of it."""
        with self._lock:
            self._members = frozenset(members)
            gone = self._nodes.keys() - self._members
            for node in gone:
                del self._nodes[node]
            if gone:
                self._write()

    def replace(self, members: Mapping[NodeId, tuple[Address, ...]]) -> None:
        """Hold exactly these: the members of another cluster than before."""
        with self._lock:
            self._members = frozenset(members)
            self._nodes = {node: addresses for node, addresses in members.items() if addresses}
            self._bound()
            self._write()

    def _is_wanted(self, node: NodeId) -> bool:
        return self._members is None or node in self._members

    def _bound(self) -> None:
        while len(self._nodes) > NODES_MAX:
            del self._nodes[next(iter(self._nodes))]
        for node, addresses in self._nodes.items():
            self._nodes[node] = addresses[:ADDRESSES_PER_NODE_MAX]

    def _write(self) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{clock.random_hex(8)}")
        content = msgspec.json.encode(_Book(nodes=self._nodes, cluster=self._cluster))
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            _log.warning("%s could not be written: %s", self._path, error)
            temporary.unlink(missing_ok=True)
