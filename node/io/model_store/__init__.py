"""Models that lie on this machine: found, checked, described, and the embedded one made ready."""

from node.io.model_store.store import ModelStore

__all__ = ["ModelStore"]
