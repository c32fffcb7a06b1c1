"""What an answer may look like, as grammars of llguidance: JSON of a schema, and tool calls."""

import json
from collections.abc import Callable
from typing import Any

from node.model.errors import ExoctlError, UsageError
from node.model.request import GenerationRequest
from node.runner.prompt import Tokenizer, forces_call, is_strict, tools_of

WHITESPACE = r"[\x20\x0A\x09]{0,16}"
"""Between the parts of a JSON text: small models would else go on with it for ever."""
JSON_CALLS = "json_tools"
"""mlx-lm's parser of calls that are JSON between markers: the form that a grammar is known for."""


def grammar_of(
    request: GenerationRequest, tokenizer: Tokenizer, special: Callable[[str], int | None]
) -> str:
    """The grammar that the answer must obey; empty where it is free.

    `special` tells the token of a text that is one in the vocabulary but none in a grammar's texts.

    Raises:
        UsageError: the schema or the tools can't be made into one.
    """
    tools = tools_of(request)
    forced = forces_call(request)
    has_calls = bool(tools) and (forced or any(is_strict(tool) for tool in tools))
    if not request.answer_schema and not has_calls:
        return ""
    ways: list[str] = []
    rules: list[str] = []
    if tools:
        rules = _call_rules(tools, tokenizer, special, several=not request.single_call)
        ways = ["call more"] if forced or request.answer_schema else ["TEXT", "before more"]
    if request.answer_schema and not forced:
        ways.append("answer")
        rules.append(f"answer: %json {_schema(request.answer_schema)}")
    return "\n".join([f"start: {' | '.join(ways)}", *rules])


def _call_rules(
    tools: list[dict[str, object]],
    tokenizer: Tokenizer,
    special: Callable[[str], int | None],
    *,
    several: bool,
) -> list[str]:
    parser = str(getattr(tokenizer.tool_parser, "__module__", ""))
    if not tokenizer.has_tool_calling or not parser.endswith(f".{JSON_CALLS}"):
        raise UsageError.because(
            "tools_not_guaranteed",
            "this model's form of tool calls can't be enforced, so neither a call nor strict"
            " arguments can be promised",
            "use tool_choice auto, and leave strict out",
        )
    marker = tokenizer.tool_call_start or ""
    start, end = (
        json.dumps(text) if special(text) is None else f"<[{special(text)}]>"
        for text in (marker, tokenizer.tool_call_end or "")
    )
    each = _written({"anyOf": [_call_schema(tool) for tool in tools]})
    anything = r"(.|\n)*"
    if special(marker) is not None:  # then no text holds it
        free = [f"TEXT: /{anything}/", "before: TEXT call"]
    else:
        free = [
            f"TEXT: /{anything}/ & ~/{anything}{_in_regex(marker)}{anything}/",
            "before: head body",
            f"head[suffix={start}]: /{anything}/",
        ]
    return [
        *free,
        f"call: {start} body",
        f"body: BREAK each BREAK {end}",
        "more: (BREAK call)*" if several else 'more: ""',
        f"each: %json {each}",
        "BREAK: /\\n?/",
    ]


def _call_schema(tool: dict[str, object]) -> dict[str, object]:
    function: Any = tool.get("function") or tool
    parameters = function.get("parameters") or {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": function.get("name")}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _schema(text: str) -> str:
    try:
        schema = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise bad_schema(f"it is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise bad_schema("it is no JSON object")
    return _written(schema)


def _written(schema: dict[str, Any]) -> str:
    return json.dumps({"x-guidance": {"whitespace_pattern": WHITESPACE}, **schema})


def bad_schema(reason: str) -> ExoctlError:
    """A schema, of the answer or of a tool, that can't be obeyed."""
    return UsageError.because(
        "bad_schema",
        f"the JSON schema can't be obeyed: {reason[:500]}",
        "leave out what it names, or ask for json_object",
    )


def _in_regex(text: str) -> str:
    return "".join(f"\\{sign}" if sign in r"\^$.|?*+()[]{}/" else sign for sign in text)
