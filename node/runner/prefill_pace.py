"""How many tokens of a prompt to compute at once, so that others' answers don't stall."""

CHUNK_TOKENS_MAX = 2048
CHUNK_TOKENS_MIN = 8
CHUNK_TOKENS_FIRST = 64
"""Before anything was measured."""
SECONDS_WHILE_DECODING = 0.4
SECONDS_ALONE = 2.0
"""Bounds how long a cancel waits, and how often progress is told."""


class PrefillPace:
    """Chunk sizes from the measured speed."""

    def __init__(self) -> None:
        self._tokens_per_second = 0.0

    def chunk_tokens(self, *, is_decoding: bool) -> int:
        """Tokens to compute in the next step."""
        if not self._tokens_per_second:
            return CHUNK_TOKENS_FIRST
        seconds = SECONDS_WHILE_DECODING if is_decoding else SECONDS_ALONE
        wanted = int(self._tokens_per_second * seconds)
        # Steps of powers of two: each new size costs mlx a plan of its own.
        size = CHUNK_TOKENS_MIN
        while size * 2 <= min(wanted, CHUNK_TOKENS_MAX):
            size *= 2
        return size

    def observe(self, tokens: int, seconds: float) -> None:
        """A step computed so many tokens of prompts in so much time."""
        if tokens < CHUNK_TOKENS_MIN or seconds <= 0:
            return
        speed = tokens / seconds
        earlier = self._tokens_per_second
        self._tokens_per_second = speed if not earlier else 0.5 * earlier + 0.5 * speed
