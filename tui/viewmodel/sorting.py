"""Tables sorted by a column: figures from the largest, words from A, unknown ones always last."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Sortable = float | str | None
"""A row's value of a column; None where it is not known."""

Row = TypeVar("Row")


def ordered(
    rows: Sequence[Row], value: Callable[[Row], Sortable], *, backwards: bool = False
) -> list[Row]:
    """The rows in the order of a column's values; rows that are equal stay as they were."""
    known: list[tuple[float | str, Row]] = []
    unknown: list[Row] = []
    for row in rows:
        held = value(row)
        if held is None:
            unknown.append(row)
        else:
            known.append((held.casefold() if isinstance(held, str) else held, row))
    falls = not any(isinstance(held, str) for held, _ in known)
    if falls or all(isinstance(held, str) for held, _ in known):
        known.sort(key=lambda pair: pair[0], reverse=falls is not backwards)
    return [row for _, row in known] + unknown


def falls_first(value: Sortable) -> bool:
    """Whether a column of such values is sorted from the largest down at first."""
    return not isinstance(value, str)


def next_column(columns: Sequence[str], column: str) -> str:
    """The column to sort by after this one; empty, the order as it is, comes after the last."""
    cycle = ["", *columns]
    place = cycle.index(column) if column in cycle else 0
    return cycle[(place + 1) % len(cycle)]


def find_column(columns: Sequence[str], words: str) -> str | None:
    """The column that is called so, or begins so; None where none or several do."""
    wanted = words.strip().casefold()
    if wanted in columns:
        return wanted
    found = [column for column in columns if column.startswith(wanted)]
    return found[0] if wanted and len(found) == 1 else None
