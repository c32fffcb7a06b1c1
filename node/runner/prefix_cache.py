"""Key/value caches of earlier prompts, so that a shared beginning is computed once."""

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import LRUPromptCache, can_trim_prompt_cache, trim_prompt_cache

ENTRIES_MAX = 64


class PrefixCache:
    """mlx-lm's cache of prompts, bounded in bytes, with a last token always left to feed."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._caches = LRUPromptCache(max_size=ENTRIES_MAX, max_bytes=bytes_max)

    @property
    def bytes_held(self) -> int:
        """Bytes of what it keeps."""
        return self._caches.nbytes

    def fetch(self, tokens: list[int]) -> tuple[list[Any] | None, int]:
        """The longest known beginning of the tokens: its cache and how many tokens it holds.

        Always fewer than all tokens, as the model must be fed at least one to answer.
        """
        if len(self._caches) == 0 or len(tokens) < 2:
            return None, 0
        cache, rest = self._caches.fetch_nearest_cache("", tokens)
        if cache is None:
            return None, 0
        if not rest:
            if not can_trim_prompt_cache(cache):
                return None, 0
            trim_prompt_cache(cache, 1)
            rest = tokens[-1:]
        held = len(tokens) - len(rest)
        return (cache, held) if held > 0 else (None, 0)

    def keep(self, tokens: list[int], cache: list[Any]) -> None:
        """Remember the cache of these tokens."""
        if tokens and cache:
            # A row taken out lazily would keep the whole batch it came from in memory.
            mx.eval([layer.state for layer in cache])
            self._caches.insert_cache("", tokens, cache)

    def leave_room(self, bytes_elsewhere: int) -> None:
        """Shrink, so that with what is in use elsewhere the bound holds."""
        self._caches.trim_to(n_bytes=max(0, self._bytes_max - bytes_elsewhere))

    def clear(self) -> None:
        """Forget everything."""
        self._caches.trim_to(n_sequences=0)
