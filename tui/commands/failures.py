"""Failures out of task groups, which wrap whatever their tasks raise."""

from typing import cast


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions within, however deep groups are nested; the error itself where it is none."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for each in group.exceptions for leaf in leaves(each)]
