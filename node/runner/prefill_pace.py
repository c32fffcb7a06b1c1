"""How much of the prompts to compute at once, so that others' answers don't stall."""

import msgspec

CHUNK_TOKENS_MAX = 2048
CHUNK_TOKENS_MIN = 8
CHUNK_TOKENS_FIRST = 64
"""Before anything was measured."""
SECONDS_WHILE_DECODING = 0.4
SECONDS_ALONE = 2.0
"""Bounds how long a cancel waits, and how often progress is told."""
PROMPTS_TOGETHER_MAX = 4
PROMPT_TOKENS_LEAST = 32
"""Side by side only where each prompt gets that much: a slow machine reads one after the other."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """What to compute of the prompts in one step."""

    prompts: int
    tokens_each: int


class PrefillPace:
    """Chunk sizes from the measured speed."""

    def __init__(self) -> None:
        self._tokens_per_second = 0.0

    def chunk(self, *, prompts: int, is_decoding: bool) -> Chunk:
        """Share of each prompt in the next step, of so many that wait to be read."""
        budget = self._budget_tokens(is_decoding=is_decoding)
        together = max(1, min(prompts, PROMPTS_TOGETHER_MAX, budget // PROMPT_TOKENS_LEAST))
        return Chunk(prompts=together, tokens_each=max(CHUNK_TOKENS_MIN, budget // together))

    def observe(self, tokens: int, seconds: float) -> None:
        """A step computed so many tokens of prompts in so much time."""
        if tokens < CHUNK_TOKENS_MIN or seconds <= 0:
            return
        speed = tokens / seconds
        earlier = self._tokens_per_second
        self._tokens_per_second = speed if not earlier else 0.5 * earlier + 0.5 * speed

    def _budget_tokens(self, *, is_decoding: bool) -> int:
        if not self._tokens_per_second:
            return CHUNK_TOKENS_FIRST
        seconds = SECONDS_WHILE_DECODING if is_decoding else SECONDS_ALONE
        wanted = int(self._tokens_per_second * seconds)
        # Powers of two: few different shapes, each of which costs mlx a plan of its own.
        size = CHUNK_TOKENS_MIN
        while size * 2 <= min(wanted, CHUNK_TOKENS_MAX):
            size *= 2
        return size
