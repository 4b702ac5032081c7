"""Ways to cut bytes into pieces, none of which may change the result of a parser."""

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st


def at(data: bytes, places: Sequence[int]) -> list[bytes]:
    """`data` cut at these positions, in any order; a position that occurs twice gives an empty piece."""
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def every_way(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and in two at each position."""
    yield [data]
    yield [data[index : index + 1] for index in range(len(data))]
    for place in range(len(data) + 1):
        yield [data[:place], data[place:]]


def places(most: int = 400) -> st.SearchStrategy[list[int]]:
    """Positions to cut at; those beyond the data's end give empty pieces."""
    return st.lists(st.integers(0, most), max_size=12)
