"""Filters as people type them: words, `!` not, `~` about, `/…/` regular expressions."""

import re
from collections.abc import Callable

Matcher = Callable[[str], bool]


def matcher(words: str) -> Matcher:
    """A predicate on text: every word must be in it, none of those with `!`.

    The letters of a word with `~` must be in it in their order, whatever stands between them.

    Raises:
        ValueError: a regular expression can't be read.
    """
    tests = [_test(word) for word in words.split()]
    return lambda text: all(test(text) for test in tests)


def _test(word: str) -> Matcher:
    if word.startswith("!") and len(word) > 1:
        inner = _test(word[1:])
        return lambda text: not inner(text)
    if word.startswith("~") and len(word) > 1:
        loose = re.compile(".*?".join(re.escape(letter) for letter in word[1:]), re.IGNORECASE)
        return lambda text: loose.search(text) is not None
    if word.startswith("/") and len(word) > 1:
        try:
            pattern = re.compile(word.strip("/"), re.IGNORECASE)
        except re.error as error:
            raise ValueError(f"{word}: {error}") from error
        return lambda text: pattern.search(text) is not None
    lowered = word.lower()
    return lambda text: lowered in text.lower()
