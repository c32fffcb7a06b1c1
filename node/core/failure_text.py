"""Texts of failures kept within what an event can carry, and within what can be encoded."""

import msgspec

from node.model.errors import Failure

TEXT_CHARACTERS_MAX = 4000
"""Of a message and of a remedy; libraries can name every one of ten thousand tensors."""
_NAME_CHARACTERS_MAX = 200
_CUT_CHARACTERS = 60
"""Room for the words that say how much was cut out."""


def short_failure(failure: Failure, characters_max: int = TEXT_CHARACTERS_MAX) -> Failure:
    """The failure with message and remedy of at most so many characters, fit for any encoder."""
    return msgspec.structs.replace(
        failure,
        code=short_text(failure.code, _NAME_CHARACTERS_MAX),
        message=short_text(failure.message, characters_max),
        remedy=short_text(failure.remedy, characters_max),
        node=short_text(failure.node, _NAME_CHARACTERS_MAX),
    )


def without_subject(message: str, subject: str) -> str:
    """The message for a place that names its subject already: `owner/name: the disk is full` and
    `owner/name is not on the hub` without the name.
    """
    rest = message.removeprefix(subject)
    if not subject or rest == message or rest[:1] not in (":", " ", "/"):
        return message
    return rest.lstrip(":/ ") or message


def about(subject: str, message: str) -> str:
    """The message with its subject before it, once."""
    return message if without_subject(message, subject) != message else f"{subject}: {message}"


def short_text(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """The text without its middle where it is longer: causes stand at either end.

    What no encoder takes, as of a file name that is not UTF-8, is written out as an escape.
    """
    if len(text) > characters_max:
        kept = (characters_max - _CUT_CHARACTERS) // 2
        left_out = len(text) - 2 * kept
        text = f"{text[:kept]} … {left_out} characters left out … {text[-kept:]}"
    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return whole if len(whole) <= characters_max else short_text(whole, characters_max)
