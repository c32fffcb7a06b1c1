"""Nodes, instances and models by what people type: a name, an id, or the start of either."""

from collections.abc import Iterable, Mapping

from node.core.naming import name_of
from node.handle import NodeHandle
from node.model.command import Refused
from node.model.errors import KINDS, ExoctlError, Failure, InternalError, NotFoundError, UsageError
from node.model.ids import ModelId, NodeId, short
from node.model.instance import Instance
from node.model.machine import NodeRecord
from node.model.register import ModelFigures
from node.model.request import Failed
from node.model.state import State


def node_name(state: State, node: NodeId) -> str:
    """The node's name, or the start of its id where it is not known."""
    return name_of(state, node) or "-"


def find_node(state: State, text: str) -> NodeId:
    """The node of a name or id; the start of either is enough where it is the only one.

    Raises:
        NotFoundError: no such node. UsageError: several match; all are named.
    """
    names = {node: record.name for node, record in state.nodes.items()}
    exact = [node for node, name in names.items() if text in (node, name)]
    found = exact or [
        node for node, name in names.items() if node.startswith(text) or name.startswith(text)
    ]
    if not text or not found:
        known = ", ".join(sorted(names.values())) or "none"
        raise NotFoundError.because(
            "node_not_found", f"no node is called {text!r}", f"nodes here: {known}"
        )
    if len(found) > 1:
        raise _ambiguous("node", text, [f"{names[node]} ({short(node)})" for node in found])
    return found[0]


def has_labels(record: NodeRecord, selector: str) -> bool:
    """Whether the node has all labels of a selector such as `room=cellar,fast`."""
    wanted = [part.strip().partition("=") for part in selector.split(",") if part.strip()]
    return all(
        record.labels.get(key) == value if separator else key in record.labels
        for key, separator, value in wanted
    )


def find_nodes(state: State, text: str) -> tuple[NodeId, ...]:
    """The nodes of a comma-separated list."""
    return tuple(find_node(state, part.strip()) for part in text.split(",") if part.strip())


def find_instance(state: State, text: str) -> Instance:
    """The instance of an id, the start of one, or a model that has just one instance.

    Raises:
        NotFoundError: no such instance. UsageError: several match; all are named.
    """
    by_id = [
        instance
        for key, instance in state.instances.items()
        if key == text or (len(text) > 2 and key.startswith(text)) or key.removeprefix("i-") == text
    ]
    found = by_id or instances_of(state, text)
    if not found:
        known = ", ".join(f"{item.instance} ({item.model})" for item in state.instances.values())
        raise NotFoundError.because(
            "instance_not_found",
            f"no instance is called {text!r}",
            f"running: {known}" if known else "nothing is loaded; see `exoctl load MODEL`",
        )
    if len(found) > 1:
        of_one_model = len({i.model for i in found}) == 1
        raise _ambiguous(
            "instance",
            text,
            [f"{i.instance} ({i.model})" for i in found],
            "write one's id; `unload --all` means every one, `exoctl scale` changes how many run"
            if of_one_model
            else "",
        )
    return found[0]


def instances_of(state: State, model: str) -> list[Instance]:
    """The instances of the model that the text names among the placed ones."""
    placed = {instance.model for instance in state.instances.values()}
    matches = _matching_models(placed, model)
    if len(matches) > 1:
        raise _ambiguous("model", model, sorted(matches))
    return [i for i in state.instances.values() if i.model in matches]


def known_models(handle: NodeHandle) -> set[ModelId]:
    """Models that some node holds, in part too, or runs."""
    models = models_at_hand(handle)
    for register in handle.registers.values():
        if isinstance(register.value, ModelFigures):
            models.update(held.card.model for held in register.value.held)
    return models


def models_at_hand(handle: NodeHandle) -> set[ModelId]:
    """Models that lie whole on some node, or run, or can't be read where they lie."""
    models = {instance.model for instance in handle.state.instances.values()}
    for register in handle.registers.values():
        if isinstance(register.value, ModelFigures):
            models.update(
                held.card.model for held in register.value.held if held.complete or held.failure
            )
    return models


def find_model(handle: NodeHandle, text: str) -> ModelId:
    """The model that the text names among the known ones; the text itself where none matches, for
    the node to judge.

    Raises:
        UsageError: several match, or it is empty.
    """
    if not text.strip():
        raise UsageError.because("bad_model", "the model's name is empty", "see `exoctl model ls`")
    matches = _matching_models(known_models(handle), text)
    if len(matches) > 1:
        raise _ambiguous("model", text, sorted(matches))
    return matches[0] if matches else ModelId(text)


def _matching_models(known: Iterable[ModelId], text: str) -> list[ModelId]:
    wanted = text.casefold()
    folded: Mapping[ModelId, str] = {model: model.casefold() for model in known}
    exact = [model for model, name in folded.items() if name == wanted]
    by_tail = [model for model, name in folded.items() if name.rpartition("/")[2] == wanted]
    by_start = [
        model
        for model, name in folded.items()
        if wanted and (name.startswith(wanted) or name.rpartition("/")[2].startswith(wanted))
    ]
    return exact or by_tail or by_start


def _ambiguous(what: str, text: str, matches: list[str], remedy: str = "") -> ExoctlError:
    return UsageError.because(
        f"ambiguous_{what}",
        f"{text!r} names more than one {what}: {', '.join(matches)}",
        remedy or "write more of the name or the id",
    )


def error_of(refusal: Refused | Failed) -> ExoctlError:
    """The exception that a refusal or a failed generation stands for."""
    return error_of_kind(refusal.kind, refusal.failure)


def error_of_kind(kind: str, failure: Failure) -> ExoctlError:
    """The exception of that class name; an internal one where the name is not known."""
    found = next((each for each in KINDS if each.__name__ == kind), InternalError)
    return found(failure)
