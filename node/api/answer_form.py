"""What dialects ask of an answer's form, as a generation takes it."""

from typing import Any

import msgspec

from node.api.faults import ParameterError
from node.api.model_list import held_cards
from node.handle import NodeHandle
from node.model.ids import ModelId

SCHEMA_BYTES_MAX = 64 * 1024
ANY_OBJECT = '{"type":"object"}'
NO_REASONING = "none"
EFFORTS = (NO_REASONING, "minimal", "low", "medium", "high", "xhigh")


def schema_text(param: str, schema: dict[str, Any]) -> str:
    """A JSON schema as text.

    Raises:
        ParameterError: it is longer than a schema may be.
    """
    text = msgspec.json.encode(schema)
    if len(text) > SCHEMA_BYTES_MAX:
        raise ParameterError(
            param, f"the schema has {len(text)} bytes, {SCHEMA_BYTES_MAX} are allowed"
        )
    return text.decode()


def check_effort(param: str, effort: str | None) -> str:
    """The effort of reasoning, empty where none is named.

    Raises:
        ParameterError: there is no such effort.
    """
    if effort is not None and effort not in EFFORTS:
        raise ParameterError(param, f"{param} {effort[:40]!r} is none of {', '.join(EFFORTS)}")
    return effort or ""


def require_thinking(handle: NodeHandle, name: str, param: str) -> None:
    """Raise where it is known that the model can't think.

    Raises:
        ParameterError: names the parameter.
    """
    card = held_cards(handle).get(ModelId(name))
    if card is not None and not card.supports_thinking:
        raise ParameterError(
            param,
            f"the model {name} does not reason before it answers",
            f"leave {param} out, or use another model",
        )
