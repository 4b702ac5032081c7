"""Which columns fit a width, and how wide each is. A column that does not fit falls away with all less important ones."""

from collections.abc import Sequence
from dataclasses import dataclass

# Blanks between two columns.
GAP = 2


@dataclass(frozen=True)
class Column:
    """A column. `rank`: 1 is the most important. `least`, `most`: its width (characters); it is never cut below `least`."""

    title: str
    rank: int
    least: int
    most: int
    right: bool = False


def fitted(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """The columns that fit `width` characters, in the given order, each with its width.

    The most important column is always there, cut if need be. What is left over goes to the columns that are shorter than
    their `most`, the most important one last, since the first column is an id.
    """
    by_rank = sorted(columns, key=lambda column: column.rank)
    widths = {by_rank[0]: max(min(by_rank[0].least, width), 0)} if by_rank else {}
    left = width - sum(widths.values())
    for column in by_rank[1:]:
        if column.least + GAP > left:
            break
        widths[column] = column.least
        left -= column.least + GAP
    for column in [*by_rank[1:], *by_rank[:1]]:
        if column in widths:
            more = min(max(column.most - widths[column], 0), max(left, 0))
            widths[column] += more
            left -= more
    return [(column, widths[column]) for column in columns if column in widths]
