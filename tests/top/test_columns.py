"""Columns that fit a width: for any columns and any width."""

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.top.columns import GAP, Column, fitted


@st.composite
def tables(draw: st.DrawFn) -> list[Column]:
    ranks = draw(st.permutations(range(1, draw(st.integers(1, 12)) + 1)))
    sizes = [(draw(st.integers(1, 20)), draw(st.integers(0, 30))) for _ in ranks]
    return [
        Column(f"column {rank}", rank, least, least + more) for rank, (least, more) in zip(ranks, sizes, strict=True)
    ]


def used(found: list[tuple[Column, int]]) -> int:
    return sum(size for _, size in found) + GAP * (len(found) - 1)


@given(tables(), st.integers(0, 250))
def test_what_fits_is_never_wider_and_nothing_that_fits_is_left_out(columns: list[Column], width: int) -> None:
    found = fitted(columns, width)
    kept = [column for column, _ in found]
    assert used(found) <= width
    assert kept == [column for column in columns if column in kept], "in the given order"
    assert sorted(column.rank for column in kept) == list(range(1, len(kept) + 1)), "the most important ones"
    for column, size in found:
        assert size <= column.most
        assert size >= column.least or column.rank == 1
    following = next((column for column in columns if column.rank == len(kept) + 1), None)
    if following is not None:
        assert sum(column.least for column in kept) + GAP * len(kept) + following.least > width
    if any(size < column.most for column, size in found):
        assert used(found) == width, "no blank is left while a column is cut"


@given(tables(), st.integers(0, 249))
def test_a_wider_terminal_shows_no_column_less(columns: list[Column], width: int) -> None:
    narrow, wide = (dict(fitted(columns, size)) for size in (width, width + 1))
    assert narrow.keys() <= wide.keys()


def test_no_columns() -> None:
    assert fitted([], 80) == []
