"""Filters as people type them: words, `!` not, `~` about, `/…/` regular expressions."""

import contextlib
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


def hits(words: str, text: str) -> list[tuple[int, int]]:
    """Where in the text the words of a filter are: first and end. What must not be there, and
    letters that lie apart, are nowhere.
    """
    found: list[tuple[int, int]] = []
    for word in words.split():
        if len(word) > 1 and word[0] in "!~":
            continue
        is_pattern = word.startswith("/") and len(word) > 1
        pattern = word.strip("/") if is_pattern else re.escape(word)
        with contextlib.suppress(re.error):
            found += [
                match.span() for match in re.finditer(pattern, text, re.IGNORECASE) if match.group()
            ]
    return found


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
