"""A refusal as a value: the kind of exception a caller raises, and the failure that says why."""

import msgspec

from node.model.errors import ExoctlError, Failure


class Refusal(msgspec.Struct, frozen=True):
    """The command is not carried out."""

    kind: str
    """Name of the exception class in `model.errors`."""
    failure: Failure


def refusal(
    kind: type[ExoctlError], code: str, message: str, remedy: str = "", node: str = ""
) -> Refusal:
    """Build a refusal from the parts of its failure."""
    return Refusal(kind.__name__, Failure(code=code, message=message, remedy=remedy, node=node))
