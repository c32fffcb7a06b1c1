"""A request's conversation or text, as the tokens a model reads."""

import json
from typing import Any, Protocol

import msgspec

from node.model.errors import UsageError
from node.model.request import GenerationRequest, Message

CHARACTERS_PER_TOKEN_MAX = 256
NO_REASONING = "none"
CONTEXT_REMEDY = "shorten the prompt, or place the model with more context"


class Tokenizer(Protocol):
    """What the engine uses of mlx-lm's tokenizer."""

    has_chat_template: bool
    bos_token_id: int | None
    eos_token_ids: set[int]
    has_thinking: bool
    think_start: str | None
    think_end: str | None
    has_tool_calling: bool
    tool_call_start: str | None
    tool_call_end: str | None
    tool_parser: Any
    structural_markers: tuple[str, ...]
    response_transitions: dict[str, list[tuple[str, str]]]
    response_initial_state: str | None

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, special ones as the tokenizer adds them."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """Text of some tokens."""
        ...

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: object) -> list[int]:
        """Tokens of a conversation."""
        ...

    def rfind_think_start(self, tokens: list[int]) -> int:
        """Where thinking begins for the last time, or -1."""
        ...

    def rfind_think_end(self, tokens: list[int]) -> int:
        """Where thinking ends for the last time, or -1."""
        ...


def prompt_tokens(
    tokenizer: Tokenizer, request: GenerationRequest, vocabulary_size: int
) -> list[int]:
    """Tokens of the request's prompt, never none.

    Raises:
        UsageError: the template or the tokenizer can't take it, with what they said.
    """
    try:
        if request.prompt is not None:
            tokens = list(tokenizer.encode(request.prompt))
        else:
            tokens = _conversation_tokens(tokenizer, request)
    except UsageError:
        raise
    except Exception as error:  # a template is a program of the model's author
        raise UsageError.because(
            "bad_prompt",
            f"the model's chat template refuses the conversation: {type(error).__name__}: {error}",
            "check the order of roles and the shape of tools",
        ) from error
    if not tokens and tokenizer.bos_token_id is not None:
        tokens = [tokenizer.bos_token_id]
    if not tokens:
        raise UsageError.because("empty_prompt", "the prompt is empty", "write something")
    if max(tokens) >= vocabulary_size:
        raise UsageError.because(
            "bad_prompt",
            f"the tokenizer made token {max(tokens)}, but the model knows {vocabulary_size}",
        )
    return tokens


def refuse_oversize(request: GenerationRequest, context_tokens: int) -> None:
    """Refuse what no tokenizer could fit, before it keeps everybody waiting to find that out.

    Raises:
        UsageError: context_too_long.
    """
    characters = len(request.prompt or "") + sum(len(turn.content) for turn in request.messages)
    if characters > context_tokens * CHARACTERS_PER_TOKEN_MAX:
        raise UsageError.because(
            "context_too_long",
            f"the prompt has {characters} characters, but this instance's context is"
            f" {context_tokens} tokens",
            CONTEXT_REMEDY,
        )


def tools_of(request: GenerationRequest) -> list[dict[str, object]]:
    """The tools that the model is shown: all, none, or the one that was chosen.

    Raises:
        UsageError: the chosen one is not among them.
    """
    choice = request.tool_choice
    if choice == "none":
        return []
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        chosen = [tool for tool in request.tools if _tool_name(tool) == name]
        if not chosen:
            raise UsageError.because("bad_tool_choice", f"no tool is called {name!r}")
        return chosen
    return list(request.tools)


def forces_call(request: GenerationRequest) -> bool:
    """Whether the answer must be a tool call."""
    return isinstance(request.tool_choice, dict) or request.tool_choice == "required"


def is_strict(tool: dict[str, object]) -> bool:
    """Whether the tool's arguments must obey its schema."""
    function = tool.get("function")
    return isinstance(function, dict) and function.get("strict") is True


def _shown(tool: dict[str, object]) -> dict[str, object]:
    """A tool as templates know it; `strict` is for the grammar."""
    function = tool.get("function")
    if not isinstance(function, dict) or "strict" not in function:
        return tool
    return {**tool, "function": {key: function[key] for key in function if key != "strict"}}


def _tool_name(tool: dict[str, object]) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else tool.get("name")


def _conversation_tokens(tokenizer: Tokenizer, request: GenerationRequest) -> list[int]:
    if not tokenizer.has_chat_template:
        raise UsageError.because(
            "no_chat_template",
            "this model has no chat template, so it can't take a conversation",
            "send a raw prompt instead",
        )
    if not request.messages:
        raise UsageError.because("empty_prompt", "the conversation is empty", "write something")
    options: dict[str, object] = {"add_generation_prompt": not request.continue_last}
    if request.continue_last:
        options["continue_final_message"] = True
    if request.reasoning:
        options["enable_thinking"] = request.reasoning != NO_REASONING
        options["reasoning_effort"] = request.reasoning
    return list(
        tokenizer.apply_chat_template(
            [_template_message(message) for message in request.messages],
            tools=[_shown(tool) for tool in tools_of(request)] or None,
            **options,
        )
    )


def _template_message(message: Message) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        turn["name"] = message.name
    if message.reasoning is not None:
        turn["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        turn["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    return turn


def _template_call(call: dict[str, object]) -> dict[str, Any]:
    """Templates want arguments as values; clients send them as text."""
    plain: dict[str, Any] = msgspec.to_builtins(call)
    function = plain.get("function")
    if not isinstance(function, dict):
        return plain
    arguments: Any = function.get("arguments")
    if isinstance(arguments, str):
        try:
            plain["function"] = {**function, "arguments": json.loads(arguments or "{}")}
        except json.JSONDecodeError as error:
            raise UsageError.because(
                "bad_tool_call", f"the arguments of an earlier tool call are no JSON: {error}"
            ) from error
    return plain
