"""Names of models, and the directories that they stand for."""

import re
from pathlib import Path

from node.model.errors import UsageError
from node.model.ids import ModelId

NAME_CHARACTERS_MAX = 96
"""Of each part, as on the hub."""
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")


def parse_model_id(text: str) -> ModelId:
    """Check that a text can name a model: `name` or `owner/name`.

    Raises:
        UsageError: it can't; nothing else is ever turned into a path.
    """
    parts = text.split("/")
    if len(parts) > 2 or not all(_is_part(part) for part in parts):
        raise UsageError.because(
            "bad_model_name",
            f"{text[: 2 * NAME_CHARACTERS_MAX]!r} can't be the name of a model",
            f"write `name` or `owner/name` of letters, digits, `.`, `_` and `-`, at most "
            f"{NAME_CHARACTERS_MAX} characters each, and no `..`",
        )
    return ModelId(text)


def _is_part(part: str) -> bool:
    return len(part) <= NAME_CHARACTERS_MAX and ".." not in part and _PART.match(part) is not None


def directory_in(root: Path, model: ModelId) -> Path:
    """The directory that a model of this name has below `root`.

    Raises:
        UsageError: the name can't be one.
    """
    return root.joinpath(*parse_model_id(model).split("/"))


def lies_within(path: Path, root: Path) -> bool:
    """Whether a path, every link followed, stays below `root`; False where it can't be followed."""
    try:
        return path.resolve(strict=True).is_relative_to(root.resolve(strict=True))
    except (OSError, RuntimeError):
        return False
