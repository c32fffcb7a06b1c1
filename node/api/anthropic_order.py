"""The body of `/v1/messages`, and the generation that it asks for."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from node.api.answer_form import NO_REASONING, schema_text
from node.api.faults import ParameterError
from node.api.openai_order import TOP_K_MAX, ModelName, Refusals, TokenCount
from node.model.ids import ModelId, RequestId
from node.model.request import GenerationRequest, Message, Sampling

TOOLS_MAX = 128
BUDGET_LEAST = 1024
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "xhigh"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a turn: text, thinking, a call, or what came of one."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    cache_control: dict[str, Any] | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation."""

    role: str
    content: str | list[Block]


class AnthropicTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the caller's own."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    type: str | None = None
    strict: bool | None = None
    cache_control: dict[str, Any] | None = None


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether tools are to be called, and which."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the model thinks first, and for how long."""

    type: str
    budget_tokens: Annotated[int, Meta(ge=BUDGET_LEAST)] | None = None
    display: str | None = None


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the answer."""

    type: str
    schema: dict[str, Any] = {}


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much effort goes into the answer, and its form."""

    effort: str | None = None
    format: OutputFormat | None = None


class CountOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/v1/messages/count_tokens`, and what `/v1/messages` has in common with it."""

    model: ModelName
    messages: Annotated[list[Turn], Meta(min_length=1)]
    system: str | list[Block] | None = None
    tools: Annotated[list[AnthropicTool], Meta(max_length=TOOLS_MAX)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: dict[str, Any] | None = None
    """Beginnings are kept by themselves."""
    speed: Any = None
    user_profile_id: Any = None
    workspace_id: Any = None


class MessagesOrder(CountOrder, frozen=True, kw_only=True):
    """Every parameter that Anthropic documents for messages."""

    max_tokens: TokenCount
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=TOP_K_MAX)] | None = None
    stop_sequences: (
        Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=16)] | None
    ) = None
    metadata: dict[str, Any] | None = None
    container: Any = None
    diagnostics: Any = None
    inference_geo: Any = None
    service_tier: Any = None


_COUNT_REFUSALS = Refusals({"speed": ("standard",), "user_profile_id": (), "workspace_id": ()})
_REFUSALS = Refusals(
    {
        "container": (),
        "diagnostics": (),
        "inference_geo": (),
        "service_tier": ("auto", "standard_only"),
    }
)


def count_request(order: CountOrder, request: RequestId) -> GenerationRequest:
    """A generation that only tells how long its prompt is.

    Raises:
        ParameterError: a parameter can't be honoured.
    """
    return msgspec.structs.replace(_common(order, request), count_only=True)


def message_request(order: MessagesOrder, request: RequestId) -> GenerationRequest:
    """The generation that an order asks for.

    Raises:
        ParameterError: a parameter can't be honoured.
    """
    _REFUSALS.check(order)
    return msgspec.structs.replace(
        _common(order, request),
        sampling=Sampling(
            temperature=1.0 if order.temperature is None else order.temperature,
            top_p=1.0 if order.top_p is None else order.top_p,
            top_k=order.top_k or 0,
        ),
        tokens_max=order.max_tokens,
        stop=tuple(order.stop_sequences or ()),
    )


def thinks(order: CountOrder) -> bool:
    """Whether thinking is asked for."""
    return order.thinking is not None and order.thinking.type != "disabled"


def _common(order: CountOrder, request: RequestId) -> GenerationRequest:
    _COUNT_REFUSALS.check(order)
    choice = order.tool_choice
    messages = [*_system(order.system), *_turns(order.messages)]
    tools = tuple(_tool(at, tool) for at, tool in enumerate(order.tools or ()))
    wanted = _choice(order)
    return GenerationRequest(
        id=request,
        model=ModelId(order.model),
        messages=tuple(messages),
        continue_last=messages[-1].role == "assistant",
        tools=() if wanted == "none" else tools,
        tool_choice=wanted if tools else None,
        single_call=choice is not None and choice.disable_parallel_tool_use is True,
        answer_schema=_schema(order.output_config),
        reasoning=_effort(order),
        reasoning_tokens_max=(order.thinking.budget_tokens or 0) if order.thinking else 0,
    )


def _choice(order: CountOrder) -> str | dict[str, object]:
    choice = order.tool_choice
    if choice is None:
        return "auto"
    if not order.tools:
        raise ParameterError("tool_choice", "tool_choice needs tools")
    if choice.type == "tool":
        if choice.name not in [tool.name for tool in order.tools]:
            raise ParameterError("tool_choice.name", f"no tool is called {choice.name!r}")
        return {"type": "function", "function": {"name": choice.name}}
    if choice.type not in _CHOICES:
        raise ParameterError("tool_choice.type", f"{choice.type[:40]!r} is no tool choice")
    return _CHOICES[choice.type]


def _effort(order: CountOrder) -> str:
    thinking, config = order.thinking, order.output_config
    if thinking is not None and thinking.type not in ("enabled", "disabled", "adaptive"):
        raise ParameterError("thinking.type", f"{thinking.type[:40]!r} is no kind of thinking")
    effort = config.effort if config is not None else None
    if effort is not None and effort not in _EFFORTS:
        raise ParameterError(
            "output_config.effort", f"effort {effort[:40]!r} is none of {', '.join(_EFFORTS)}"
        )
    if thinking is None or thinking.type == "disabled":
        return NO_REASONING  # Anthropic's models think only where they are told to
    if thinking.type == "enabled" and thinking.budget_tokens is None:
        raise ParameterError("thinking.budget_tokens", "thinking.budget_tokens is missing")
    return _EFFORTS[effort or "medium"]


def _schema(config: OutputConfig | None) -> str:
    if config is None or config.format is None:
        return ""
    if config.format.type != "json_schema":
        raise ParameterError(
            "output_config.format.type", f"{config.format.type[:40]!r} is not json_schema"
        )
    return schema_text("output_config.format.schema", config.format.schema)


def _system(system: str | list[Block] | None) -> list[Message]:
    if not system:
        return []
    text = system if isinstance(system, str) else _texts("system", system)
    return [Message(role="system", content=text)]


def _texts(place: str, blocks: list[Block]) -> str:
    for at, block in enumerate(blocks):
        if block.type != "text" or block.text is None:
            raise _unsupported(f"{place}[{at}]", block.type)
    return "".join(block.text or "" for block in blocks)


def _unsupported(place: str, kind: str) -> ParameterError:
    return ParameterError(
        place, f"a block of type {kind[:40]!r} is not supported here", "send text"
    )


def _turns(turns: list[Turn]) -> Iterator[Message]:
    for at, turn in enumerate(turns):
        place = f"messages[{at}]"
        if not turn.content and isinstance(turn.content, list):
            raise ParameterError(f"{place}.content", f"{place}.content is empty", "write something")
        if isinstance(turn.content, str):
            if turn.role not in ("user", "assistant", "system"):
                raise ParameterError(f"{place}.role", f"{turn.role[:40]!r} is no role")
            yield Message(role=turn.role, content=turn.content)
        elif turn.role == "user":
            yield from _user(f"{place}.content", turn.content)
        elif turn.role == "assistant":
            yield _assistant(f"{place}.content", turn.content)
        else:
            raise ParameterError(f"{place}.role", f"{turn.role[:40]!r} is no role")


def _user(place: str, blocks: list[Block]) -> Iterator[Message]:
    """What came of calls first, each as a turn of its own; then the text that stands beside."""
    texts: list[str] = []
    for at, block in enumerate(blocks):
        if block.type == "tool_result" and block.tool_use_id is not None:
            content = _result(f"{place}[{at}]", block)
            yield Message(role="tool", content=content, tool_call_id=block.tool_use_id)
        elif block.type == "text" and block.text is not None:
            texts.append(block.text)
        else:
            raise _unsupported(f"{place}[{at}]", block.type)
    if texts:
        yield Message(role="user", content="\n".join(texts))


def _result(place: str, block: Block) -> str:
    content = block.content
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        for part in content:
            if part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise _unsupported(f"{place}.content", str(part.get("type")))
        text = "".join(part["text"] for part in content)
    return f"Error: {text}" if block.is_error else text


def _assistant(place: str, blocks: list[Block]) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, object]] = []
    for at, block in enumerate(blocks):
        match block:
            case Block(type="text", text=str(text)):
                texts.append(text)
            case Block(type="thinking", thinking=str(thought)):
                thoughts.append(thought)
            case Block(type="tool_use", id=str(call), name=str(name)):
                arguments = json.dumps(block.input or {})
                function = {"name": name, "arguments": arguments}
                calls.append({"id": call, "type": "function", "function": function})
            case _:
                raise _unsupported(f"{place}[{at}]", block.type)
    return Message(
        role="assistant",
        content="".join(texts),
        reasoning="".join(thoughts) or None,
        tool_calls=tuple(calls),
    )


def _tool(at: int, tool: AnthropicTool) -> dict[str, object]:
    if tool.type not in (None, "custom"):
        raise ParameterError(
            f"tools[{at}].type", f"a tool of type {tool.type[:40]!r} is not supported"
        )
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema or {"type": "object"}
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}
