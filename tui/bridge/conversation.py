"""A chat: what was said, what is being generated, and its figures."""

import msgspec

from node.model.errors import Failure
from node.model.ids import ModelId, RequestId
from node.model.request import (
    Delta,
    Failed,
    Finished,
    GenerationRequest,
    Message,
    Prefilled,
    Queued,
    Sampling,
    Usage,
)
from tui.bridge.inbox import Generated

CHAT = "chat"
TOPICS = frozenset((CHAT,))
TURNS_MAX = 400
TEMPERATURE = 0.3
"""Small models wander at more."""


class Turn(msgspec.Struct, kw_only=True):
    """One side's words; the model's grow while it answers."""

    role: str
    at: float
    model: ModelId = ModelId("")
    text: str = ""
    reasoning: str = ""
    progress: str = ""
    """What is being waited for before the first token."""
    tokens: int = 0
    started_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    usage: Usage | None = None
    failure: Failure | None = None
    is_stopped: bool = False
    is_open: bool = False
    """Still being generated."""

    @property
    def speed(self) -> float:
        """Tokens a second after the first: as measured here, or as the node says at the end."""
        if self.usage is not None and self.usage.decode_seconds > 0:
            return (self.usage.output_tokens - 1) / self.usage.decode_seconds
        span = self.last_at - self.first_at
        return (self.tokens - 1) / span if span > 0 and self.tokens > 1 else 0.0

    @property
    def first_seconds(self) -> float:
        """Seconds from the question to the first token; 0 while there is none."""
        return max(0.0, self.first_at - self.started_at) if self.first_at else 0.0


class Conversation:
    """Turns in order; at most one answer at a time."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.model: ModelId | None = None
        self.request: RequestId | None = None
        self.shows_reasoning = False
        self.version = 0
        """Rises when turns are taken away: whoever holds lines of them drops them."""
        self._now = 0.0

    @property
    def is_generating(self) -> bool:
        """An answer is under way."""
        return self.request is not None

    def ask(self, words: str, request: RequestId, now: float) -> GenerationRequest:
        """Add a question and the answer's beginning; returns the request to send."""
        assert self.model is not None
        self.turns.append(Turn(role="user", at=now, text=words))
        return self._answer(request, now)

    def retry(self, request: RequestId, now: float) -> GenerationRequest | None:
        """Drop the last answer and have it given again; None where there is no question."""
        if self.is_generating or self.model is None:
            return None
        while self.turns and self.turns[-1].role != "user":
            self.turns.pop()
        self.version += 1
        return self._answer(request, now) if self.turns else None

    def _answer(self, request: RequestId, now: float) -> GenerationRequest:
        assert self.model is not None
        self.request = request
        messages = self._told()
        turn = Turn(role="assistant", at=now, model=self.model, started_at=now, is_open=True)
        turn.progress = "waiting"
        self.turns.append(turn)
        if len(self.turns) > TURNS_MAX:
            del self.turns[: len(self.turns) - TURNS_MAX]
            self.version += 1
        return GenerationRequest(
            id=request,
            model=self.model,
            messages=messages,
            sampling=Sampling(temperature=TEMPERATURE),
        )

    def _told(self) -> tuple[Message, ...]:
        """What the model is told: each question with its answer, and the last question.

        Models want the sides to take turns: where an answer failed or holds no words, its question
        is left out with it.
        """
        told: list[Message] = []
        for turn in self.turns:
            if told and told[-1].role == turn.role:
                told.pop()
            if turn.role == "user" or (turn.text.strip() and turn.failure is None and told):
                told.append(Message(role=turn.role, content=turn.text))
        return tuple(told)

    def clear(self) -> None:
        """Begin anew."""
        self.turns = []
        self.request = None
        self.version += 1

    def accept(self, generated: Generated, now: float) -> frozenset[str]:
        """Take an item of a generation; returns the topics touched."""
        if generated.request != self.request or not self.turns:
            return frozenset()
        turn = self.turns[-1]
        match generated.item:
            case Queued(ahead=ahead):
                turn.progress = f"queued, {ahead} ahead"
            case Prefilled(done=done, total=total):
                turn.progress = f"reading the prompt, {done} of {total} tokens"
            case Delta():
                self._grow(turn, generated.item, now)
            case Finished(usage=usage):
                turn.usage = usage
                turn.tokens = usage.output_tokens
            case Failed(failure=failure):
                turn.failure = failure
            case None:
                turn.is_open = False
                turn.progress = ""
                turn.is_stopped = turn.usage is None and turn.failure is None
                self.request = None
        return TOPICS

    @staticmethod
    def _grow(turn: Turn, delta: Delta, now: float) -> None:
        if not turn.first_at:
            turn.first_at = now
        turn.last_at = now
        turn.progress = ""
        turn.text += delta.text
        turn.reasoning += delta.reasoning
        turn.tokens += len(delta.tokens)
