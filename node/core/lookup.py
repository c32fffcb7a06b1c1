"""Finding what a person named: nodes by id, name or the start of an id; instances likewise."""

from collections.abc import Iterable

from node.core.refusal import Refusal, refusal
from node.model.errors import NotFoundError, UsageError
from node.model.ids import InstanceId, NodeId, short
from node.model.state import State

_SHOWN_MAX = 12


def find_node(state: State, text: str) -> NodeId | Refusal:
    """The node that is meant; a whole id wins over a name, and a name over the start of an id."""
    node = NodeId(text)
    if node in state.nodes:
        return node
    named = [key for key, record in state.nodes.items() if record.name == text]
    begun = [key for key in state.nodes if text and key.startswith(text)]
    matches = named or begun
    if len(matches) == 1:
        return matches[0]
    known = _shown(f"{record.name} ({short(key)})" for key, record in state.nodes.items())
    if not matches:
        return refusal(
            NotFoundError, "node_not_found", f"no node is called {text!r}", f"nodes: {known}"
        )
    return refusal(
        UsageError,
        "node_ambiguous",
        f"{text!r} may mean any of {len(matches)} nodes: {_shown(short(key) for key in matches)}",
        "write more of the id",
    )


def find_instance(state: State, text: str) -> InstanceId | Refusal:
    """The instance that is meant: by id, by the start of its id (`i-` may be left out), or by its
    model where only one instance has that model.
    """
    instance = InstanceId(text)
    if instance in state.instances:
        return instance
    begun = [key for key in state.instances if text and key.startswith((text, f"i-{text}"))]
    of_model = [key for key, placed in state.instances.items() if placed.model == text]
    matches = of_model or begun
    if len(matches) == 1:
        return matches[0]
    if not matches:
        known = _shown(f"{key} ({placed.model})" for key, placed in state.instances.items())
        return refusal(
            NotFoundError,
            "instance_not_found",
            f"no instance is called {text!r}",
            f"instances: {known}" if known else "nothing is placed",
        )
    return refusal(
        UsageError,
        "instance_ambiguous",
        f"{text!r} may mean any of {len(matches)} instances: {_shown(matches)}",
        "write the whole id",
    )


def _shown(names: Iterable[str]) -> str:
    every = sorted(names)
    left = len(every) - _SHOWN_MAX
    return ", ".join(every[:_SHOWN_MAX]) + (f" and {left} more" if left > 0 else "")
