"""POST /v1/responses: OpenAI's newer dialect; nothing is stored."""

from typing import Any

import msgspec

from node.api.answer_form import NO_REASONING, require_thinking
from node.api.context import ApiContext
from node.api.exchange import EVENT_STREAM, Exchange
from node.api.model_list import require_model, require_tools
from node.api.openai_chat import ChatLogprobs, chosen_token
from node.api.openai_reply import Answer
from node.api.responses_order import ResponsesOrder, response_request, wants_logprobs
from node.api.single_reply import SingleWriter, answer_with, sse
from node.io.clock import wall
from node.model.ids import RequestId
from node.model.request import Delta, Finished, FinishReason, TokenLogprob, Usage

Json = dict[str, object]


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/v1/responses`."""

    id: str
    created_at: float
    model: str
    status: str
    output: list[dict[str, object]]
    instructions: str | None
    max_output_tokens: int | None
    parallel_tool_calls: bool
    temperature: float
    top_p: float
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, object]]
    text: dict[str, object]
    reasoning: dict[str, object]
    metadata: dict[str, str]
    usage: ResponseUsage | None = None
    error: None = None
    incomplete_details: dict[str, str] | None = None
    previous_response_id: None = None
    store: bool = False
    truncation: str = "disabled"
    object: str = "response"


async def create_response(context: ApiContext, exchange: Exchange) -> None:
    """Answer an input."""
    order = exchange.decode(ResponsesOrder)
    request = response_request(order, exchange.request_id)
    require_model(context.handle, order.model)
    if request.tools:
        require_tools(context.handle, order.model)
    if request.reasoning not in ("", NO_REASONING):
        require_thinking(context.handle, order.model, "reasoning.effort")
    writer: SingleWriter = ResponseWriter(exchange.request_id, order)
    await answer_with(context, exchange, request, writer, stream=bool(order.stream))


class ResponseWriter:
    """The events of one response: each item is added, filled and done before the next."""

    content_type = EVENT_STREAM
    keepalive = b": keep-alive\n\n"

    def __init__(self, request_id: RequestId, order: ResponsesOrder) -> None:
        self._id = str(request_id)
        self._order = order
        self._created = float(int(wall()))
        self._has_logprobs = wants_logprobs(order)
        self._number = 0
        self._output: list[Json] = []
        self._open = ""
        """Type of the item that is being filled."""
        self._text = ""
        self._logprobs: list[Json] = []

    def opening(self, prompt_tokens: int) -> bytes:
        """The response without output."""
        del prompt_tokens
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def delta(self, delta: Delta) -> bytes:
        """What goes on in the open item, or opens the next."""
        events = b""
        if delta.reasoning:
            events += self._enter("reasoning")
            self._text += delta.reasoning
            events += self._part_event("response.reasoning_text.delta", delta=delta.reasoning)
        if delta.text:
            events += self._enter("message")
            self._text += delta.text
            logprobs = self._named(list(delta.logprobs))
            self._logprobs += logprobs
            events += self._part_event(
                "response.output_text.delta", delta=delta.text, logprobs=logprobs
            )
        for call in delta.tool_calls:
            events += self._close() + self._call(call)
        return events

    def closing(self, finished: Finished) -> bytes:
        """The whole response with its counts."""
        is_cut = finished.reason is FinishReason.LENGTH
        events = self._close()
        name = "response.incomplete" if is_cut else "response.completed"
        return events + self._event(name, response=self._ended(finished))

    def whole(self, answer: Answer, finished: Finished) -> msgspec.Struct:
        """Everything in one."""
        reasoning, text = "".join(answer.reasoning), "".join(answer.texts)
        if reasoning:
            self._output.append(self._item("reasoning", reasoning, []))
        if text or not answer.tool_calls:
            self._output.append(self._item("message", text, self._named(answer.logprobs)))
        for call in answer.tool_calls:
            self._output.append(self._call_item(call))
        return self._ended(finished)

    def _ended(self, finished: Finished) -> ResponseObject:
        is_cut = finished.reason is FinishReason.LENGTH
        response = self._response("incomplete" if is_cut else "completed")
        details = {"reason": "max_output_tokens"} if is_cut else None
        return msgspec.structs.replace(
            response, usage=_usage(finished.usage), incomplete_details=details
        )

    def _response(self, status: str) -> ResponseObject:
        order = self._order
        reasoning = order.reasoning
        form: Any = order.text.format if order.text and order.text.format else {"type": "text"}
        return ResponseObject(
            id=f"resp_{self._id}",
            created_at=self._created,
            model=order.model,
            status=status,
            output=list(self._output),
            instructions=order.instructions,
            max_output_tokens=order.max_output_tokens,
            parallel_tool_calls=order.parallel_tool_calls is not False,
            temperature=1.0 if order.temperature is None else order.temperature,
            top_p=1.0 if order.top_p is None else order.top_p,
            tool_choice=order.tool_choice or "auto",
            tools=msgspec.to_builtins(order.tools or []),
            text={"format": msgspec.to_builtins(form)},
            reasoning={"effort": reasoning.effort if reasoning else None, "summary": None},
            metadata=order.metadata or {},
        )

    def _event(self, name: str, /, **fields: object) -> bytes:
        number, self._number = self._number, self._number + 1
        return sse(name, {"type": name, "sequence_number": number, **fields})

    def _part_event(self, name: str, /, **fields: object) -> bytes:
        place = len(self._output)
        return self._event(
            name, item_id=self._item_id(), output_index=place, content_index=0, **fields
        )

    def _item_id(self) -> str:
        prefix = {"reasoning": "rs", "message": "msg"}.get(self._open, "fc")
        return f"{prefix}_{self._id}_{len(self._output)}"

    def _enter(self, kind: str) -> bytes:
        if self._open == kind:
            return b""
        events = self._close()
        self._open = kind
        nothing: list[Json] = []
        item = {**self._item(kind, "", []), "status": "in_progress", "content": nothing}
        events += self._event(
            "response.output_item.added", output_index=len(self._output), item=item
        )
        part = _part(kind, "", [])
        return events + self._part_event("response.content_part.added", part=part)

    def _close(self) -> bytes:
        kind = self._open
        if not kind:
            return b""
        text, logprobs = self._text, self._logprobs
        done: Json = {"text": text}
        if kind == "message":
            done["logprobs"] = logprobs
        name = "output_text" if kind == "message" else "reasoning_text"
        events = self._part_event(f"response.{name}.done", **done)
        events += self._part_event("response.content_part.done", part=_part(kind, text, logprobs))
        item = self._item(kind, text, logprobs)
        events += self._event(
            "response.output_item.done", output_index=len(self._output), item=item
        )
        self._output.append(item)
        self._open, self._text, self._logprobs = "", "", []
        return events

    def _call(self, call: Json) -> bytes:
        item = self._call_item(call)
        place = len(self._output)
        arguments = item["arguments"]
        started = {**item, "arguments": "", "status": "in_progress"}
        events = self._event("response.output_item.added", output_index=place, item=started)
        events += self._event(
            "response.function_call_arguments.delta",
            item_id=item["id"],
            output_index=place,
            delta=arguments,
        )
        events += self._event(
            "response.function_call_arguments.done",
            item_id=item["id"],
            output_index=place,
            name=item["name"],
            arguments=arguments,
        )
        events += self._event("response.output_item.done", output_index=place, item=item)
        self._output.append(item)
        return events

    def _item(self, kind: str, text: str, logprobs: list[Json]) -> Json:
        opened, self._open = self._open, kind
        identity = self._item_id()
        self._open = opened
        plain: Json = {
            "id": identity,
            "type": kind,
            "status": "completed",
            "content": [_part(kind, text, logprobs)],
        }
        return {**plain, "summary": []} if kind == "reasoning" else {**plain, "role": "assistant"}

    def _call_item(self, call: Json) -> Json:
        function: Any = call["function"]
        return {
            "id": f"fc_{self._id}_{len(self._output)}",
            "type": "function_call",
            "status": "completed",
            "call_id": call["id"],
            "name": function["name"],
            "arguments": function["arguments"],
        }

    def _named(self, logprobs: list[TokenLogprob]) -> list[Json]:
        if not self._has_logprobs:
            return []
        listed = ChatLogprobs([chosen_token(each) for each in logprobs])
        return msgspec.to_builtins(listed)["content"]


def _part(kind: str, text: str, logprobs: list[Json]) -> Json:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.prompt_tokens + usage.output_tokens,
        input_tokens_details={"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        output_tokens_details={"reasoning_tokens": usage.reasoning_tokens},
    )
