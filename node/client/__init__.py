"""A node over HTTP: the same surface as the embedded one, for the CLI and an attached screen."""

from node.client.remote_handle import RemoteHandle, connect

__all__ = ["RemoteHandle", "connect"]
