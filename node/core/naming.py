"""Nodes by the names that people gave them, also within words that were written with their ids."""

import re

from node.model.ids import NODE_ID_LENGTH, SHORT_ID_LENGTH, NodeId, short
from node.model.state import State

_ID = re.compile(
    rf"\b[a-z2-7]{{{SHORT_ID_LENGTH}}}(?:[a-z2-7]{{{NODE_ID_LENGTH - SHORT_ID_LENGTH}}})?\b"
)


def name_of(state: State, node: NodeId) -> str:
    """What the node is called now; its last name where it is gone, the start of its id where it
    was never heard of.
    """
    record = state.nodes.get(node)
    known = record.name if record is not None else state.former.get(node)
    return known or short(node)


def with_names(state: State, words: str) -> str:
    """The words with each id of a node that has a name, whole or its start, replaced by it.

    A replica writes why it looks for a master without knowing anybody's name; and a name may be
    given after the words were written.
    """
    if len(words) < SHORT_ID_LENGTH:
        return words
    names = {short(node): name for node, name in state.former.items()}
    names |= {short(node): record.name for node, record in state.nodes.items()}
    return _ID.sub(lambda found: names.get(short(NodeId(found[0])), found[0]), words)
