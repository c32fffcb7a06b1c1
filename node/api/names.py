"""Names and numbers that come from outside, in paths, queries and bodies."""

import math
import re
from collections.abc import Mapping

from node.api.faults import ParameterError
from node.model.ids import CommandId, InstanceId, ModelId, RequestId

MODEL_NAME_MAX = 200
ID_MAX = 64
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*(/[A-Za-z0-9][A-Za-z0-9._:@+-]*)?")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


def model_name(param: str, text: str) -> ModelId:
    """A model's name.

    Raises:
        ParameterError: it can't be one.
    """
    if len(text) > MODEL_NAME_MAX or ".." in text or not _MODEL.fullmatch(text):
        raise ParameterError(
            param,
            f"{text[:60]!r} can't be the name of a model",
            f"write `name` or `owner/name` of A-Z a-z 0-9 . _ : @ + -, {MODEL_NAME_MAX} at most",
        )
    return ModelId(text)


def _identifier(param: str, text: str) -> str:
    if len(text) > ID_MAX or not _ID.fullmatch(text):
        raise ParameterError(param, f"{text[:60]!r} can't be the id of a {param}")
    return text


def instance_id(text: str) -> InstanceId:
    """An instance's id, checked for its characters."""
    return InstanceId(_identifier("instance", text))


def command_id(text: str) -> CommandId:
    """The id that an asker has chosen for its command."""
    return CommandId(_identifier("command", text))


def instance_name(text: str) -> str:
    """What may name an instance: its id, the start of it, or its model."""
    return _printable("instance", text)


def node_name(text: str) -> str:
    """What may name a node: its id, the start of it, or its name."""
    return _printable("node", text)


def _printable(param: str, text: str) -> str:
    if not text.isprintable() or not 0 < len(text) <= MODEL_NAME_MAX:
        raise ParameterError(param, f"{text[:60]!r} can't be the name of a {param}")
    return text


def request_id(text: str) -> RequestId:
    """A request's id, with or without the prefix that a dialect's clients see."""
    for prefix in ("chatcmpl-", "cmpl-", "msg_", "resp_"):
        text = text.removeprefix(prefix)
    return RequestId(_identifier("request", text))


def join_id(text: str) -> str:
    """The id of a request to be let in."""
    return _identifier("request", text)


def read_seconds(query: Mapping[str, str], name: str, default: float, maximum: float) -> float:
    """A duration out of a query.

    Raises:
        ParameterError: no number, or out of bounds.
    """
    text = query.get(name)
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= maximum:
        raise ParameterError(name, f"{name} must be seconds from 0 to {maximum:g}")
    return seconds


def read_count(query: Mapping[str, str], name: str, default: int, maximum: int) -> int:
    """A whole number out of a query.

    Raises:
        ParameterError: no whole number, or out of bounds.
    """
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= maximum):
        raise ParameterError(name, f"{name} must be a whole number from 0 to {maximum}")
    return int(text)


def read_flag(query: Mapping[str, str], name: str, *, default: bool) -> bool:
    """A yes or no out of a query.

    Raises:
        ParameterError: neither.
    """
    text = query.get(name)
    if text is None:
        return default
    if text.lower() in ("1", "true", "yes", ""):
        return True
    if text.lower() in ("0", "false", "no"):
        return False
    raise ParameterError(name, f"{name} must be 1 or 0")
