"""The body of `/v1/chat/completions`, and the generations that it asks for."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from node.api.answer_form import ANY_OBJECT, check_effort, schema_text
from node.api.faults import ParameterError
from node.api.openai_order import TOP_LOGPROBS_MAX, CommonOrder, Refusals, TokenCount
from node.model.ids import ModelId, RequestId
from node.model.request import GenerationRequest, Message

TOOLS_MAX = 128
TOOL_CHOICES = ("none", "auto", "required")
_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The function of an earlier call."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model made earlier in the conversation."""

    id: str
    type: str
    function: CalledFunction | None = None


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One turn."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    audio: Any = None
    function_call: Any = None


class ToolFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool; only functions are honoured."""

    type: str
    function: ToolFunction | None = None


class SchemaFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The schema of an answer."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None
    """It is always obeyed."""


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the answer: `text`, `json_object` or `json_schema`."""

    type: str
    json_schema: SchemaFormat | None = None


class ChatOrder(CommonOrder, frozen=True, kw_only=True):
    """Every parameter that OpenAI documents for chat, and the usual further samplers."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS_MAX)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=TOOLS_MAX)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = None
    metadata: dict[str, str] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    modalities: Any = None
    moderation: Any = None
    prediction: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    service_tier: Any = None
    store: Any = None
    verbosity: Any = None
    web_search_options: Any = None


_REFUSALS = Refusals(
    {
        "audio": (),
        "function_call": (),
        "functions": (),
        "modalities": (["text"],),
        "moderation": (),
        "prediction": (),
        "prompt_cache_options": (),
        "prompt_cache_retention": ("in_memory",),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "verbosity": ("medium",),
        "web_search_options": (),
    }
)


def chat_requests(order: ChatOrder, ids: Sequence[RequestId]) -> tuple[GenerationRequest, ...]:
    """The generations that an order asks for, one for each id.

    Raises:
        ParameterError: a parameter can't be honoured.
    """
    _REFUSALS.check(order)
    order.check_stream_options()
    if order.top_logprobs is not None and not order.logprobs:
        raise ParameterError("top_logprobs", "top_logprobs needs logprobs: true")
    messages = tuple(_message(at, message) for at, message in enumerate(order.messages))
    tools = _tools(order)
    schema = _answer_schema(order.response_format)
    reasoning = check_effort("reasoning_effort", order.reasoning_effort)
    return tuple(
        GenerationRequest(
            id=request_id,
            model=ModelId(order.model),
            messages=messages,
            sampling=order.sampling(choice),
            tokens_max=order.max_completion_tokens or order.max_tokens or 0,
            stop=order.stops,
            top_logprobs=(order.top_logprobs or 0) if order.logprobs else None,
            tools=tools,
            tool_choice=order.tool_choice or "auto" if tools else None,
            single_call=order.parallel_tool_calls is False,
            answer_schema=schema,
            reasoning=reasoning,
        )
        for choice, request_id in enumerate(ids)
    )


def _answer_schema(wanted: ResponseFormat | None) -> str:
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_object":
        return ANY_OBJECT
    if wanted.type != "json_schema":
        raise ParameterError(
            "response_format.type",
            f"response_format {wanted.type[:40]!r} is none of text, json_object, json_schema",
        )
    if wanted.json_schema is None:
        raise ParameterError("response_format.json_schema", "json_schema is missing")
    return schema_text("response_format.json_schema.schema", wanted.json_schema.schema or {})


def _message(at: int, message: ChatMessage) -> Message:
    place = f"messages[{at}]"
    role = _ROLES.get(message.role)
    if role is None:
        raise ParameterError(
            f"{place}.role",
            f"role {message.role[:40]!r} is not supported",
            f"use one of {', '.join(_ROLES)}",
        )
    for name in ("audio", "function_call"):
        if getattr(message, name) is not None:
            raise ParameterError(f"{place}.{name}", f"{place}.{name} is not supported")
    if message.content is None and message.role != "assistant":
        raise ParameterError(f"{place}.content", f"{place}.content is missing")
    if message.role == "tool" and not message.tool_call_id:
        raise ParameterError(f"{place}.tool_call_id", f"{place}.tool_call_id is missing")
    return Message(
        role=role,
        content=_text(place, message),
        name=message.name,
        reasoning=message.reasoning_content,
        tool_calls=tuple(
            _tool_call(f"{place}.tool_calls[{number}]", call)
            for number, call in enumerate(message.tool_calls or ())
        ),
        tool_call_id=message.tool_call_id,
    )


def _text(place: str, message: ChatMessage) -> str:
    if message.content is None:
        return message.refusal or ""
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for number, part in enumerate(message.content):
        text = {"text": part.text, "refusal": part.refusal}.get(part.type)
        if text is None:
            raise ParameterError(
                f"{place}.content[{number}]",
                f"a part of type {part.type[:40]!r} is not supported, or has no text",
                "send text parts only",
            )
        texts.append(text)
    return "".join(texts)


def _tool_call(place: str, call: ToolCall) -> dict[str, object]:
    if call.type != "function" or call.function is None:
        raise ParameterError(place, f"a tool call of type {call.type[:40]!r} is not supported")
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": call.function.arguments},
    }


def _tools(order: ChatOrder) -> tuple[dict[str, object], ...]:
    choice = order.tool_choice
    if isinstance(choice, str) and choice not in TOOL_CHOICES:
        raise ParameterError(
            "tool_choice", f"tool_choice {choice[:40]!r} is none of {', '.join(TOOL_CHOICES)}"
        )
    if choice is not None and not order.tools:
        raise ParameterError("tool_choice", "tool_choice needs tools")
    tools = tuple(_tool(at, tool) for at, tool in enumerate(order.tools or ()))
    if isinstance(choice, dict):
        _check_chosen(choice, order.tools or [])
    return () if choice == "none" else tools


def _check_chosen(choice: dict[str, Any], tools: list[Tool]) -> None:
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None  # type: ignore[union-attr]
    names = [tool.function.name for tool in tools if tool.function is not None]
    if choice.get("type") != "function" or name not in names:
        raise ParameterError(
            "tool_choice",
            "tool_choice must name one of the tools, as"
            ' {"type": "function", "function": {"name": ...}}',
        )


def _tool(at: int, tool: Tool) -> dict[str, object]:
    place = f"tools[{at}]"
    if tool.type != "function":
        raise ParameterError(place, f"a tool of type {tool.type[:40]!r} is not supported")
    if tool.function is None or not _FUNCTION_NAME.fullmatch(tool.function.name):
        raise ParameterError(
            f"{place}.function.name", "a function's name is 1 to 64 of A-Z a-z 0-9 _ . -"
        )
    strict = tool.function.strict or None  # false is what is meant without it
    if strict:
        schema_text(f"{place}.function.parameters", tool.function.parameters or {})
    function = msgspec.structs.replace(tool.function, strict=strict)
    return {"type": "function", "function": msgspec.to_builtins(function)}
