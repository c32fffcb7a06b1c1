"""POST /v1/chat/completions."""

import msgspec
from msgspec import UNSET, UnsetType

from node.api.answer_form import NO_REASONING, require_thinking
from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.generation import open_choices
from node.api.model_list import require_model, require_tools
from node.api.openai_chat_order import ChatOrder, chat_requests
from node.api.openai_reply import Answer, StreamedReply, UsageCounts, reply_whole
from node.api.request_ids import ids_of_choices
from node.io.clock import wall
from node.model.ids import RequestId
from node.model.request import Delta, Finished, TokenLogprob


class AlternativeToken(msgspec.Struct, frozen=True, kw_only=True):
    """A likely token and its log probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(AlternativeToken, frozen=True, kw_only=True):
    """The token that was chosen."""

    top_logprobs: list[AlternativeToken]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Log probabilities of a choice or of a chunk of it."""

    content: list[ChosenToken]


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message of a whole answer."""

    content: str | None
    role: str = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[dict[str, object]] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One whole answer."""

    index: int
    message: AnswerMessage
    finish_reason: str
    logprobs: ChatLogprobs | None = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/v1/chat/completions`."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageCounts
    object: str = "chat.completion"


class ChunkDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new in a chunk."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[dict[str, object]] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer's part of a chunk."""

    index: int
    delta: ChunkDelta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a streamed answer."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageCounts | UnsetType | None = UNSET
    object: str = "chat.completion.chunk"


async def complete_chat(context: ApiContext, exchange: Exchange) -> None:
    """Answer a conversation."""
    order = exchange.decode(ChatOrder)
    requests = chat_requests(order, ids_of_choices(exchange.request_id, order.choices))
    require_model(context.handle, order.model)
    if requests[0].tools:
        require_tools(context.handle, order.model)
    if order.reasoning_effort not in (None, NO_REASONING):
        require_thinking(context.handle, order.model, "reasoning_effort")
    writer = ChatWriter(exchange.request_id, order)
    async with open_choices(context, requests) as choices:
        if order.stream:
            reply = StreamedReply(
                context, exchange, writer, prompts=1, wants_usage=order.wants_usage
            )
            await reply.send(choices)
        else:
            await reply_whole(context, exchange, choices, writer, 1)


class ChatWriter:
    """Chunks and answers of one chat request."""

    def __init__(self, request_id: RequestId, order: ChatOrder) -> None:
        self._id = f"chatcmpl-{request_id}"
        self._created = int(wall())
        self._model = order.model
        self._has_logprobs = bool(order.logprobs)
        self._usage = None if order.wants_usage else UNSET
        self._single_call = order.parallel_tool_calls is False
        self._calls: dict[int, CallNumbers] = {}

    def opening(self, choice: int) -> list[msgspec.Struct]:
        """The role."""
        return [self._chunk(choice, ChunkDelta(role="assistant", content=""))]

    def delta(self, choice: int, delta: Delta) -> list[msgspec.Struct]:
        """One chunk, or none where nothing can be shown yet."""
        calls = self._number(choice, list(delta.tool_calls))
        if not (delta.text or delta.reasoning or calls or delta.logprobs):
            return []
        change = ChunkDelta(
            content=delta.text or UNSET,
            reasoning_content=delta.reasoning or UNSET,
            tool_calls=calls or UNSET,
        )
        return [self._chunk(choice, change, logprobs=list(delta.logprobs))]

    def finish(self, choice: int, finished: Finished) -> msgspec.Struct:
        """The reason, in a delta of its own."""
        return self._chunk(choice, ChunkDelta(), finish_reason=finished.reason.value)

    def usage(self, counts: UsageCounts) -> msgspec.Struct:
        """The counts, without choices."""
        return ChatChunk(
            id=self._id, created=self._created, model=self._model, choices=[], usage=counts
        )

    def whole(self, answers: list[Answer], counts: UsageCounts) -> msgspec.Struct:
        """The whole answer."""
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            usage=counts,
            choices=[self._choice(number, answer) for number, answer in enumerate(answers)],
        )

    def _choice(self, number: int, answer: Answer) -> ChatChoice:
        calls = merge_calls(self._number(number, answer.tool_calls))
        text = "".join(answer.texts)
        reason = answer.finished.reason.value if answer.finished else ""
        return ChatChoice(
            index=number,
            message=AnswerMessage(
                content=None if calls and not text else text,
                reasoning_content="".join(answer.reasoning) or UNSET,
                tool_calls=calls or UNSET,
            ),
            finish_reason=reason,
            logprobs=self._logprobs(answer.logprobs),
        )

    def _chunk(
        self,
        choice: int,
        delta: ChunkDelta,
        *,
        finish_reason: str | None = None,
        logprobs: list[TokenLogprob] | None = None,
    ) -> ChatChunk:
        return ChatChunk(
            id=self._id,
            created=self._created,
            model=self._model,
            usage=self._usage,
            choices=[
                ChunkChoice(
                    index=choice,
                    delta=delta,
                    finish_reason=finish_reason,
                    logprobs=self._logprobs(logprobs) if logprobs else None,
                )
            ],
        )

    def _logprobs(self, logprobs: list[TokenLogprob]) -> ChatLogprobs | None:
        if not self._has_logprobs:
            return None
        return ChatLogprobs([chosen_token(each) for each in logprobs])

    def _number(self, choice: int, calls: list[dict[str, object]]) -> list[dict[str, object]]:
        numbers = self._calls.setdefault(choice, CallNumbers())
        numbered = [{**call, "index": numbers.of(call)} for call in calls]
        return [call for call in numbered if call["index"] == 0 or not self._single_call]


class CallNumbers:
    """Numbers the tool calls of one answer: a part with a new id begins the next call."""

    def __init__(self) -> None:
        self._ids: list[object] = []

    def of(self, part: dict[str, object]) -> int:
        """The number of the call that a part belongs to."""
        number = part.get("index")
        if isinstance(number, int):
            return number
        call_id = part.get("id")
        if call_id is not None and call_id not in self._ids:
            self._ids.append(call_id)
        if call_id is None:
            return max(0, len(self._ids) - 1)
        return self._ids.index(call_id)


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallPart(msgspec.Struct):
    index: int
    id: str | None = None
    function: _Function | None = None


def merge_calls(parts: list[dict[str, object]]) -> list[dict[str, object]]:
    """Whole tool calls out of numbered parts."""
    merged: dict[int, tuple[str, str, list[str]]] = {}
    for raw in parts:
        part = msgspec.convert(raw, _CallPart)
        function = part.function or _Function()
        call_id, name, arguments = merged.get(part.index, ("", "", []))
        arguments = [*arguments, function.arguments or ""]
        merged[part.index] = (part.id or call_id, function.name or name, arguments)
    return [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": "".join(arguments)},
        }
        for _, (call_id, name, arguments) in sorted(merged.items())
    ]


def chosen_token(each: TokenLogprob) -> ChosenToken:
    """A token as OpenAI shows it."""
    return ChosenToken(
        token=each.token,
        logprob=each.logprob,
        bytes=list(each.token.encode("utf-8", "surrogatepass")),
        top_logprobs=[
            AlternativeToken(
                token=token, logprob=logprob, bytes=list(token.encode("utf-8", "surrogatepass"))
            )
            for token, logprob in each.top
        ],
    )
