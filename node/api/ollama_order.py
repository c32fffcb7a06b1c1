"""What the Ollama dialect takes, and the generations that it asks for."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from node.api.answer_form import ANY_OBJECT, NO_REASONING, check_effort, schema_text
from node.api.faults import ParameterError
from node.api.openai_order import TOP_LOGPROBS_MAX, ModelName, Refusals
from node.model.ids import ModelId, RequestId
from node.model.request import GenerationRequest, Message, Sampling

LATEST = ":latest"
REPEAT_LAST = 64
_ROLES = ("system", "user", "assistant", "tool")
_Text = Annotated[str, Meta(min_length=1)]


class OllamaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are drawn, with Ollama's own defaults."""

    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    num_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    num_ctx: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-100, le=100)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-100, le=100)] | None = None
    stop: Annotated[list[_Text], Meta(max_length=16)] | _Text | None = None
    numa: Any = None
    num_batch: Any = None
    num_gpu: Any = None
    main_gpu: Any = None
    low_vram: Any = None
    f16_kv: Any = None
    logits_all: Any = None
    vocab_only: Any = None
    use_mmap: Any = None
    use_mlock: Any = None
    embedding_only: Any = None
    num_thread: Any = None
    num_keep: Any = None
    tfs_z: Any = None
    typical_p: Any = None
    mirostat: Any = None
    mirostat_tau: Any = None
    mirostat_eta: Any = None
    penalize_newline: Any = None


_OPTION_REFUSALS = Refusals(
    {
        "numa": (False,), "num_batch": (), "num_gpu": (), "main_gpu": (0,), "low_vram": (False,),
        "f16_kv": (True,), "logits_all": (False,), "vocab_only": (False,), "use_mmap": (True,),
        "use_mlock": (False,), "embedding_only": (False,), "num_thread": (0,), "num_keep": (0, 4),
        "tfs_z": (1, 1.0), "typical_p": (1, 1.0), "mirostat": (0,), "mirostat_tau": (5, 5.0),
        "mirostat_eta": (0.1,), "penalize_newline": (True, False),
    }
)  # fmt: skip


class OllamaOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What its two ways of generating share."""

    model: ModelName
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    options: OllamaOptions | None = None
    think: bool | str | None = None
    keep_alive: float | str | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS_MAX)] | None = None

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream, as it is where nothing is said."""
        return self.stream is not False


class OllamaFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The function of an earlier call."""

    name: str
    arguments: dict[str, Any] = {}


class OllamaCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model made earlier in the conversation."""

    function: OllamaFunction
    id: str | None = None


class OllamaMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One turn."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: Any = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[OllamaCall] | None = None


class OllamaToolFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function that the model may call."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OllamaTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool."""

    function: OllamaToolFunction
    type: str | None = None


class OllamaChatOrder(OllamaOrder, frozen=True, kw_only=True):
    """The body of `/api/chat`."""

    messages: list[OllamaMessage] = []
    tools: Annotated[list[OllamaTool], Meta(max_length=128)] | None = None


class OllamaTextOrder(OllamaOrder, frozen=True, kw_only=True):
    """The body of `/api/generate`."""

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    suffix: str | None = None
    template: str | None = None
    context: list[int] | None = None
    images: Any = None
    width: Any = None
    height: Any = None
    steps: Any = None


_TEXT_REFUSALS = Refusals(
    {
        "suffix": ("",), "template": ("",), "context": ([],), "images": ([],), "width": (),
        "height": (), "steps": (),
    }
)  # fmt: skip


def model_of(order: OllamaOrder) -> ModelId:
    """The model's name, without the tag that clients add by themselves."""
    return ModelId(order.model.removesuffix(LATEST))


def chat_request(order: OllamaChatOrder, request: RequestId) -> GenerationRequest:
    """The generation that a conversation asks for.

    Raises:
        ParameterError: a parameter can't be honoured.
    """
    tools = tuple(_tool(tool) for tool in order.tools or ())
    messages = tuple(_message(at, message) for at, message in enumerate(order.messages))
    return msgspec.structs.replace(
        _common(order, request),
        messages=messages,
        tools=tools,
        tool_choice="auto" if tools else None,
    )


def text_request(order: OllamaTextOrder, request: RequestId) -> GenerationRequest:
    """The generation that a prompt asks for: as the user's turn, or `raw` as it is.

    Raises:
        ParameterError: a parameter can't be honoured.
    """
    _TEXT_REFUSALS.check(order)
    common = _common(order, request)
    if order.raw:
        if order.system:
            raise ParameterError("system", "a raw prompt takes no system text")
        return msgspec.structs.replace(common, prompt=order.prompt or "")
    turns = [Message(role="user", content=order.prompt or "")]
    if order.system:
        turns.insert(0, Message(role="system", content=order.system))
    return msgspec.structs.replace(common, messages=tuple(turns))


def _common(order: OllamaOrder, request: RequestId) -> GenerationRequest:
    options = order.options or OllamaOptions()
    _OPTION_REFUSALS.check(options)
    if order.keep_alive in (0, "0", "0s"):
        raise ParameterError(
            "keep_alive", "models stay until they are stopped", "stop it with `exoctl unload`"
        )
    if order.top_logprobs is not None and not order.logprobs:
        raise ParameterError("top_logprobs", "top_logprobs needs logprobs: true")
    stops = options.stop or ()
    return GenerationRequest(
        id=request,
        model=model_of(order),
        sampling=_sampling(options),
        tokens_max=max(0, options.num_predict or 0),
        stop=(stops,) if isinstance(stops, str) else tuple(stops),
        top_logprobs=(order.top_logprobs or 0) if order.logprobs else None,
        answer_schema=_schema(order.format),
        reasoning=effort_of(order.think),
    )


def _sampling(options: OllamaOptions) -> Sampling:
    def or_default(value: float | None, default: float) -> float:
        return default if value is None else value

    window = REPEAT_LAST if options.repeat_last_n is None else options.repeat_last_n
    return Sampling(
        temperature=or_default(options.temperature, 0.8),
        top_k=40 if options.top_k is None else options.top_k,
        top_p=or_default(options.top_p, 0.9),
        min_p=or_default(options.min_p, 0.0),
        seed=options.seed,
        presence_penalty=or_default(options.presence_penalty, 0.0),
        frequency_penalty=or_default(options.frequency_penalty, 0.0),
        repetition_penalty=or_default(options.repeat_penalty, 1.1) if window else 1.0,
        repetition_window=max(0, window),
    )


def _schema(form: str | dict[str, Any] | None) -> str:
    if isinstance(form, dict):
        return schema_text("format", form)
    if form not in (None, "", "json"):
        raise ParameterError("format", f"format {form[:40]!r} is neither json nor a schema")
    return ANY_OBJECT if form else ""


def effort_of(think: bool | str | None) -> str:  # noqa: FBT001 - Ollama's own parameter
    """The effort of reasoning that `think` names."""
    if isinstance(think, str):
        return check_effort("think", think)
    if think is None:
        return ""
    return "medium" if think else NO_REASONING


def _message(at: int, message: OllamaMessage) -> Message:
    place = f"messages[{at}]"
    if message.role not in _ROLES:
        raise ParameterError(
            f"{place}.role",
            f"role {message.role[:40]!r} is not supported",
            f"use one of {', '.join(_ROLES)}",
        )
    if message.images:
        raise ParameterError(f"{place}.images", "images are not supported", "send text only")
    return Message(
        role=message.role,
        content=message.content or "",
        name=message.tool_name,
        reasoning=message.thinking,
        tool_call_id=message.tool_call_id,
        tool_calls=tuple(
            {
                "id": call.id or f"call_{at}_{number}",
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": msgspec.json.encode(call.function.arguments).decode(),
                },
            }
            for number, call in enumerate(message.tool_calls or ())
        ),
    )


def _tool(tool: OllamaTool) -> dict[str, object]:
    if tool.type not in (None, "function"):
        raise ParameterError("tools", f"a tool of type {tool.type[:40]!r} is not supported")
    return {"type": "function", "function": msgspec.to_builtins(tool.function)}
