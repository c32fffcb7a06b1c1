"""Filters as people type them: words, `!` for not, `/…/` for a regular expression."""

import re
from collections.abc import Callable

Matcher = Callable[[str], bool]


def matcher(words: str) -> Matcher:
    """A predicate on text: every word must be in it, none of those with `!`.

    Raises:
        ValueError: a regular expression can't be read.
    """
    tests = [_test(word) for word in words.split()]
    return lambda text: all(test(text) for test in tests)


def _test(word: str) -> Matcher:
    if word.startswith("!") and len(word) > 1:
        inner = _test(word[1:])
        return lambda text: not inner(text)
    if word.startswith("/") and len(word) > 1:
        try:
            pattern = re.compile(word.strip("/"), re.IGNORECASE)
        except re.error as error:
            raise ValueError(f"{word}: {error}") from error
        return lambda text: pattern.search(text) is not None
    lowered = word.lower()
    return lambda text: lowered in text.lower()
