"""Tokens of one generation turned into text, reasoning and tool calls; stop strings never leak."""

import json
import logging
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
from mlx_lm.generate import TextStateMachine

from node.runner.prompt import Tokenizer

CONTEXT_TOKENS = 6
"""Tokens of the prompt that the answer is decoded after, for its first space to be right."""
HELD_TOKENS_MAX = 16
"""A character split over more tokens than this is none."""
REPLACEMENT = "\ufffd"
REASONING = "reasoning"
TOOL = "tool"
logger = logging.getLogger(__name__)


class Piece(msgspec.Struct, kw_only=True):
    """What some tokens added."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, object]] = []
    stopped: bool = False
    """A stop string was met: what came after it is dropped."""


class Detokenizer:
    """Decodes as tokens come, and holds back characters that are not whole yet."""

    def __init__(self, decode: Callable[[list[int]], str], context: list[int]) -> None:
        self._decode = decode
        self._tokens = context[-CONTEXT_TOKENS:]
        self._read = len(self._tokens)

    def add(self, token: int) -> str:
        """The text that the token completes, or an empty one."""
        self._tokens.append(token)
        return self._advance(at_end=len(self._tokens) - self._read > HELD_TOKENS_MAX)

    def finish(self) -> str:
        """What was held back."""
        return self._advance(at_end=True)

    def _advance(self, *, at_end: bool) -> str:
        before = self._decode(self._tokens[: self._read])
        after = self._decode(self._tokens)
        if len(after) <= len(before) or (after.endswith(REPLACEMENT) and not at_end):
            return ""
        # Only the tokens just read are kept, as the context of the next.
        self._tokens = self._tokens[self._read :] or self._tokens
        self._read = len(self._tokens)
        return after[len(before) :]


class OutputText:
    """One generation's way from tokens to what the person sees."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: list[int],
        stop: tuple[str, ...],
        tools: list[dict[str, object]],
    ) -> None:
        self._tokenizer = tokenizer
        self._tools = tools
        self._detokenizer = Detokenizer(tokenizer.decode, prompt)
        machine = TextStateMachine(_transitions(tokenizer, stop, with_tools=bool(tools)))
        initial = _initial_state(tokenizer, prompt)
        self._state = machine.make_state(initial)
        self.begins_thinking = initial == REASONING
        self._tool_text: str | None = None
        self._stop = stop
        self.called_tools = False
        self.stop_text = ""
        """The stop string that was met."""
        self.reasoning_tokens = 0
        """Tokens that came while the model was thinking."""

    def add(self, token: int) -> Piece:
        """Take one token."""
        self.reasoning_tokens += self._state[0] == REASONING
        return self._take(self._detokenizer.add(token))

    def finish(self) -> Piece:
        """Give out everything held back; the generation has ended."""
        piece = self._take(self._detokenizer.finish())
        if not piece.stopped:
            self._state, held, name = TextStateMachine.flush(self._state)
            self._route(piece, name, held)
        self._end_tool_call(piece, closed=False)
        return piece

    def _take(self, text: str) -> Piece:
        piece = Piece()
        if self._state[0] is None:
            piece.stopped = True
            return piece
        if text:
            whole = self._state[3] + text
            self._state, segments = TextStateMachine.split(self._state, text)
            if self._state[0] is None:
                met = whole.removesuffix(self._state[3])
                self.stop_text = max(filter(met.endswith, self._stop), key=len, default="")
            for name, segment in segments:
                self._route(piece, name, segment)
        return piece

    def _route(self, piece: Piece, name: str | None, segment: str) -> None:
        if name == TOOL:
            self._tool_text = (self._tool_text or "") + segment
            return
        self._end_tool_call(piece, closed=True)
        if name is None:
            piece.stopped = True
        elif name == REASONING:
            piece.reasoning += segment
        else:
            piece.text += segment

    def _end_tool_call(self, piece: Piece, *, closed: bool) -> None:
        text, self._tool_text = self._tool_text, None
        if text is None:
            return
        calls = self._parse(text)
        if calls:
            self.called_tools = True
            piece.tool_calls.extend(calls)
        else:
            end = (self._tokenizer.tool_call_end or "") if closed else ""
            piece.text += f"{self._tokenizer.tool_call_start}{text}{end}"

    def _parse(self, text: str) -> list[dict[str, object]]:
        try:
            parsed: Any = self._tokenizer.tool_parser(text, self._tools)
            calls = parsed if isinstance(parsed, list) else [parsed]
            return [_openai_call(call) for call in calls]
        except Exception as error:  # noqa: BLE001 - parsers meet whatever a model has made up
            logger.warning("no tool call, but text: %s: %s", type(error).__name__, error)
            return []


def _openai_call(call: dict[str, Any]) -> dict[str, object]:
    name, arguments = call["name"], call.get("arguments", {})
    if not isinstance(name, str):
        raise TypeError("a tool call needs a name")
    # As ASCII, since half a character, "\ud83d", is a value in JSON but none that can be sent.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=True)
    identity = str(call.get("id") or f"call_{secrets.token_hex(12)}")
    for part in (name, text, identity):
        part.encode()  # or the call is refused, and stays text
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": text}}


def _initial_state(tokenizer: Tokenizer, prompt: list[int]) -> str:
    if tokenizer.response_initial_state:
        return tokenizer.response_initial_state
    if tokenizer.has_thinking:
        # Some templates open the reasoning themselves.
        began, ended = tokenizer.rfind_think_start(prompt), tokenizer.rfind_think_end(prompt)
        if began > ended:
            return REASONING
    return "normal"


def _transitions(
    tokenizer: Tokenizer, stop: tuple[str, ...], *, with_tools: bool
) -> dict[str, list[tuple[str, str | None]]]:
    """Which text in which state leads where; a stop string leads to None, the end."""
    edges: dict[str, list[tuple[str, str | None]]] = {"normal": []}
    if tokenizer.has_thinking:
        edges["normal"].append((tokenizer.think_start or "", REASONING))
        edges[REASONING] = [(tokenizer.think_end or "", "normal")]
    for state, markers in tokenizer.response_transitions.items():
        kept = [(marker, target) for marker, target in markers if with_tools or target != TOOL]
        edges.setdefault(state, []).extend(kept)
    if with_tools and tokenizer.has_tool_calling:
        start, end = tokenizer.tool_call_start or "", tokenizer.tool_call_end
        listed = [target for markers in edges.values() for _, target in markers]
        if TOOL not in listed:
            edges["normal"].append((start, TOOL))
        if REASONING in edges:
            edges[REASONING].append((start, TOOL))
        edges.setdefault(TOOL, []).extend([(end, "normal")] if end else [])
    edges["normal"].extend((marker, "normal") for marker in tokenizer.structural_markers)
    for markers in edges.values():
        markers.extend((word, None) for word in stop if word)
    return edges
