"""Identifiers, as distinct string types."""

from typing import NewType

NodeId = NewType("NodeId", str)
"""52 characters of lower-case base32: SHA-256 of the node's public key (SubjectPublicKeyInfo)."""
ClusterId = NewType("ClusterId", str)
"""32 hexadecimal characters, chosen at random when a cluster of one is created."""
ModelId = NewType("ModelId", str)
"""Name of a model as people type it: `smollm2-135m-instruct` or `owner/name`."""
InstanceId = NewType("InstanceId", str)
"""`i-` and 8 hexadecimal characters."""
RunnerId = NewType("RunnerId", str)
"""`r-` and 8 hexadecimal characters; one shard of one instance has one for life."""
CommandId = NewType("CommandId", str)
"""`c-` and 16 hexadecimal characters; a command that is sent again keeps it."""
RequestId = NewType("RequestId", str)
"""`q-` and 16 hexadecimal characters; the same id is in the API, the logs and the TUI."""

NODE_ID_LENGTH = 52
SHORT_ID_LENGTH = 12


def short(node: NodeId) -> str:
    """The first 12 characters of a node id, enough to name it on a screen."""
    return node[:SHORT_ID_LENGTH]
