"""The body of `/v1/responses`, and the generation that it asks for."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from node.api.answer_form import ANY_OBJECT, check_effort, schema_text
from node.api.faults import ParameterError
from node.api.openai_order import TOP_LOGPROBS_MAX, ModelName, Refusals, StreamOptions, TokenCount
from node.model.ids import ModelId, RequestId
from node.model.request import GenerationRequest, Message, Sampling

TOOLS_MAX = 128
LOGPROBS = "message.output_text.logprobs"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TEXT_PARTS = ("input_text", "output_text", "text")
_INCLUDABLE = (LOGPROBS, "reasoning.encrypted_content")


class InputPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an item's content."""

    type: str
    text: str | None = None
    refusal: str | None = None


class InputItem(msgspec.Struct, frozen=True, kw_only=True):
    """A turn, a call, what came of one, or earlier reasoning."""

    type: str = "message"
    role: str | None = None
    content: str | list[InputPart] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    summary: Any = None


class TextForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the answer."""

    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None


class TextConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the text is to be."""

    format: TextForm | None = None
    verbosity: str | None = None


class ReasoningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much the model is to think."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: str | None = None
    mode: str | None = None


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the caller's own."""

    type: str
    name: str | None = None
    parameters: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponsesOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Every parameter that OpenAI documents for responses, and the usual further samplers."""

    model: ModelName
    input: str | list[InputItem]
    instructions: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS_MAX)] | None = None
    include: list[str] | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    tools: Annotated[list[FunctionTool], Meta(max_length=TOOLS_MAX)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    store: bool | None = None
    access_programs: Any = None
    background: Any = None
    background_options: Any = None
    context_management: Any = None
    conversation: Any = None
    image: Any = None
    max_tool_calls: Any = None
    moderation: Any = None
    previous_response_id: Any = None
    prompt: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    service_tier: Any = None
    truncation: Any = None


_REFUSALS = Refusals(
    {
        "store": (False,), "access_programs": (), "background": (False,), "background_options": (),
        "context_management": (), "conversation": (), "image": (), "max_tool_calls": (),
        "moderation": (), "previous_response_id": (), "prompt": (), "prompt_cache_options": (),
        "prompt_cache_retention": ("in_memory",), "service_tier": ("auto", "default"),
        "truncation": ("disabled",),
    }
)  # fmt: skip
_TEXT_REFUSALS = Refusals({"verbosity": ("medium",)})
_REASONING_REFUSALS = Refusals(
    {"summary": (), "generate_summary": (), "context": ("auto",), "mode": ("standard",)}
)


def response_request(order: ResponsesOrder, request: RequestId) -> GenerationRequest:
    """The generation that an order asks for.

    Raises:
        ParameterError: a parameter can't be honoured.
    """
    _check(order)
    messages = _messages(order)
    if not messages:
        raise ParameterError("input", "the input is empty", "write something")
    tools = tuple(_tool(at, tool) for at, tool in enumerate(order.tools or ()))
    choice = _choice(order)
    effort = order.reasoning.effort if order.reasoning else None
    return GenerationRequest(
        id=request,
        model=ModelId(order.model),
        messages=tuple(messages),
        sampling=Sampling(
            temperature=1.0 if order.temperature is None else order.temperature,
            top_p=1.0 if order.top_p is None else order.top_p,
            seed=order.seed,
        ),
        tokens_max=order.max_output_tokens or 0,
        top_logprobs=(order.top_logprobs or 0) if wants_logprobs(order) else None,
        tools=() if choice == "none" else tools,
        tool_choice=choice if tools else None,
        single_call=order.parallel_tool_calls is False,
        answer_schema=_schema(order.text),
        reasoning=check_effort("reasoning.effort", effort),
    )


def wants_logprobs(order: ResponsesOrder) -> bool:
    """Whether each token's log probability is asked for."""
    return LOGPROBS in (order.include or ())


def _check(order: ResponsesOrder) -> None:
    _REFUSALS.check(order)
    for name, part, refusals in (
        ("text", order.text, _TEXT_REFUSALS),
        ("reasoning", order.reasoning, _REASONING_REFUSALS),
    ):
        if part is None:
            continue
        try:
            refusals.check(part)
        except ParameterError as error:
            failure = error.failure
            raise ParameterError(
                f"{name}.{error.param}", f"{name}.{failure.message}", failure.remedy
            ) from None
    for each in order.include or ():
        if each not in _INCLUDABLE:
            raise ParameterError("include", f"{each[:60]!r} can't be included")
    if order.top_logprobs is not None and not wants_logprobs(order):
        raise ParameterError("top_logprobs", f"top_logprobs needs include: [{LOGPROBS!r}]")
    if order.stream_options is not None and not order.stream:
        raise ParameterError("stream_options", "stream_options needs stream: true")


def _messages(order: ResponsesOrder) -> list[Message]:
    messages: list[Message] = []
    if order.instructions:
        messages.append(Message(role="system", content=order.instructions))
    if isinstance(order.input, str):
        return [*messages, Message(role="user", content=order.input)] if order.input else messages
    thought = ""
    for at, item in enumerate(order.input):
        if item.type == "reasoning":
            thought += _text(f"input[{at}].content", item.content or "")
            continue
        _add(messages, f"input[{at}]", item, thought)
        thought = ""
    return messages


def _add(messages: list[Message], place: str, item: InputItem, thought: str) -> None:
    """Calls of one turn are items of their own, here they belong to one message."""
    if item.type == "message":
        role = _ROLES.get(item.role or "")
        if role is None:
            raise ParameterError(f"{place}.role", f"{str(item.role)[:40]!r} is no role")
        text = _text(f"{place}.content", item.content or "")
        reasoning = (thought or None) if role == "assistant" else None
        messages.append(Message(role=role, content=text, reasoning=reasoning))
    elif item.type == "function_call":
        if not (item.call_id and item.name):
            raise ParameterError(place, "a function_call needs call_id and name")
        function = {"name": item.name, "arguments": item.arguments or "{}"}
        call: dict[str, object] = {"id": item.call_id, "type": "function", "function": function}
        last = messages[-1] if messages else None
        if last is not None and last.role == "assistant" and not thought:
            messages[-1] = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, call))
        else:
            messages.append(
                Message(role="assistant", reasoning=thought or None, tool_calls=(call,))
            )
    elif item.type == "function_call_output":
        if not item.call_id:
            raise ParameterError(f"{place}.call_id", f"{place}.call_id is missing")
        text = _text(f"{place}.output", item.output or "")
        messages.append(Message(role="tool", content=text, tool_call_id=item.call_id))
    else:
        raise ParameterError(
            place, f"an item of type {item.type[:40]!r} is not supported", "send text and calls"
        )


def _text(place: str, content: str | list[InputPart]) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for number, part in enumerate(content):
        known = part.type in (*_TEXT_PARTS, "reasoning_text")
        text = part.refusal if part.type == "refusal" else part.text if known else None
        if text is None:
            raise ParameterError(
                f"{place}[{number}]",
                f"a part of type {part.type[:40]!r} is not supported, or has no text",
                "send text parts only",
            )
        texts.append(text)
    return "".join(texts)


def _schema(config: TextConfig | None) -> str:
    form = config.format if config is not None else None
    if form is None or form.type == "text":
        return ""
    if form.type == "json_object":
        return ANY_OBJECT
    if form.type != "json_schema":
        raise ParameterError(
            "text.format.type", f"{form.type[:40]!r} is none of text, json_object, json_schema"
        )
    if form.schema is None:
        raise ParameterError("text.format.schema", "text.format.schema is missing")
    return schema_text("text.format.schema", form.schema)


def _choice(order: ResponsesOrder) -> str | dict[str, object]:
    choice = order.tool_choice
    if choice is None or choice == "auto":
        return "auto"
    if not order.tools:
        raise ParameterError("tool_choice", "tool_choice needs tools")
    if choice in ("none", "required"):
        return choice
    name = choice.get("name") if isinstance(choice, dict) else None
    known = [tool.name for tool in order.tools]
    if not isinstance(choice, dict) or choice.get("type") != "function" or name not in known:
        raise ParameterError("tool_choice", "tool_choice is neither a word for it nor a tool")
    return {"type": "function", "function": {"name": name}}


def _tool(at: int, tool: FunctionTool) -> dict[str, object]:
    if tool.type != "function" or not tool.name:
        raise ParameterError(
            f"tools[{at}]", f"a tool of type {tool.type[:40]!r} is not supported, or has no name"
        )
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.parameters or {"type": "object"}
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}
