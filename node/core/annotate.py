"""Decisions on what people call a node and tell it apart by."""

import re

from node.core.refusal import Refusal, refusal
from node.model.errors import ConflictError, UsageError
from node.model.event import Event, NodeLabelled, NodeNamed
from node.model.ids import NodeId
from node.model.state import State

NAME_LENGTH_MAX = 64
LABELS_MAX = 16
LABEL_LENGTH_MAX = 63
_LABEL_KEY = re.compile(r"[a-z0-9]([a-z0-9._/-]*[a-z0-9])?")


def name_problem(name: str) -> Refusal | None:
    """Why a node can't be called so; None where it can."""
    if name.isprintable() and 0 < len(name) <= NAME_LENGTH_MAX and name == name.strip():
        return None
    return refusal(
        UsageError,
        "bad_node_name",
        f"a node can't be called {name[:NAME_LENGTH_MAX]!r}",
        f"use 1 to {NAME_LENGTH_MAX} printable characters",
    )


def name_node(state: State, node: NodeId, name: str) -> tuple[Event, ...] | Refusal:
    """The event that has it called so; by its own name again where the name is empty."""
    record = state.nodes[node]
    if name:
        problem = name_problem(name)
        if problem is not None:
            return problem
        other = next(
            (o for o, held in state.nodes.items() if held.name == name and o != node), None
        )
        if other is not None:
            return refusal(
                ConflictError,
                "node_name_taken",
                f"another node is called {name!r} already",
                "choose a name that no node of the cluster has",
                name,
            )
    if name == (record.name if name or record.own_name else ""):
        return ()
    return (NodeNamed(node=node, name=name),)


def label_node(state: State, node: NodeId, changes: dict[str, str]) -> tuple[Event, ...] | Refusal:
    """The event that sets these labels, and takes off those without a value."""
    for key, value in changes.items():
        if not _LABEL_KEY.fullmatch(key) or max(len(key), len(value)) > LABEL_LENGTH_MAX:
            return _bad_label(f"{key[:LABEL_LENGTH_MAX]}={value[:LABEL_LENGTH_MAX]}")
        if not value.isprintable() or "," in value or value != value.strip():
            return _bad_label(f"{key}={value}")
    before = state.nodes[node].labels
    after = {key: value for key, value in {**before, **changes}.items() if value}
    if len(after) > LABELS_MAX:
        return refusal(
            UsageError,
            "too_many_labels",
            f"{state.nodes[node].name} would have {len(after)} labels, {LABELS_MAX} are the most",
            "take some off: `exoctl node label NODE KEY-`",
        )
    if after == before:
        return ()
    return (NodeLabelled(node=node, labels=after),)


def _bad_label(shown: str) -> Refusal:
    return refusal(
        UsageError,
        "bad_label",
        f"{shown!r} is no label",
        f"write key=value: a key of a-z 0-9 . _ / -, a value without comma, each up to"
        f" {LABEL_LENGTH_MAX} characters",
    )
