"""An invoice that is made to use up time or memory is refused: the work is linear, and what is held is bounded."""

import itertools
from collections.abc import Iterator

import pytest

from streamgauge.audit.invoices.contract import BadTextError, repeated_name
from streamgauge.audit.invoices.csv_rows import MAX_BLANK_LINES, MAX_LINE, CsvRows, lines_of
from streamgauge.audit.invoices.json_rows import MAX_VALUE, MAX_WAITING_CHARS, Page, _object, rows_of


class Counted(str):
    """A name that counts how often names are compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


def test_a_name_that_occurs_twice_is_found_in_linear_time() -> None:
    """A row of 4 MB with one name twice took the square of its 250,000 members."""
    names = [Counted(number) for number in range(3_000)]
    pairs: list[tuple[str, object]] = [(name, 1) for name in (*names, Counted(2_999))]
    Counted.comparisons = 0
    with pytest.raises(Exception, match="has the key '2999' twice"):
        _object(pairs)
    assert Counted.comparisons < 20_000
    header = ",".join([*names, names[-1]]) + "\n"
    rows = CsvRows([header], lambda _: True)
    rows.header = [*names, Counted(2_999)]
    Counted.comparisons = 0
    with pytest.raises(BadTextError, match="has the column '2999' twice"):
        next(iter(rows))
    assert Counted.comparisons < 20_000
    assert repeated_name(["a", "b"]) is None


def read_all(chunks: Iterator[str]) -> tuple[str, int]:
    """The refusal of a JSON page, and how many chunks were read of it."""
    read = 0

    def counted() -> Iterator[str]:
        nonlocal read
        for chunk in chunks:
            read += 1
            yield chunk

    with pytest.raises(BadTextError) as refused:
        for _ in rows_of(counted(), Page()):
            pass
    return str(refused.value), read


def chunks_of(pieces: Iterator[str], size: int = 64 * 1024) -> Iterator[str]:
    while piece := "".join(itertools.islice(pieces, size // 16)):
        yield piece


def endless(begin: str, member: str) -> Iterator[str]:
    """A text without an end: a reader that holds all of it never returns."""
    yield begin
    for number in itertools.count():
        yield member.replace("N", f"{number}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "what"),
    [
        ("{", "the page has more than"),
        ('{"data":[{', r"data\[0\] has more than"),
        ('{"data":[],', "the page has more than"),
        ('{"data":[{"results":[],', r"data\[0\] has more than"),
    ],
)
def test_the_members_beside_rows_are_bounded(begin: str, what: str) -> None:
    sentence, read = read_all(chunks_of(endless(begin, '"nN":"0123456789",')))
    assert sentence.startswith(what.replace("\\", ""))
    assert f"{MAX_VALUE} characters beside its rows" in sentence
    assert read < 3 * MAX_VALUE // (16 * 1024)


def test_rows_that_wait_for_their_bucket_are_bounded() -> None:
    row = '{"nN":"' + "x" * 2_000 + '"},'
    sentence, read = read_all(chunks_of(endless('{"data":[{"results":[', row)))
    assert "names its times after more than" in sentence
    assert read * 4_096 * 2_000 < 2 * MAX_WAITING_CHARS


def test_a_csv_row_of_many_lines_is_bounded() -> None:
    def text() -> Iterator[str]:
        yield "a,b\n"
        while True:
            yield '"\n",' * 1_000

    with pytest.raises(BadTextError, match=f"a row is longer than {MAX_LINE} characters"):
        for _ in CsvRows(text(), lambda _: True):
            pass


def test_empty_lines_before_the_header_are_bounded() -> None:
    with pytest.raises(BadTextError, match=f"more than {MAX_BLANK_LINES} empty lines"):
        CsvRows(iter(lambda: "\n" * 1_000, ""), lambda _: True)
    rows = CsvRows(["\n" * MAX_BLANK_LINES + "a,b\n1,2\n"], lambda _: True)
    assert list(rows) == [(MAX_BLANK_LINES + 2, {"a": "1", "b": "2"})]


def test_rows_as_long_as_a_line_may_be_are_read() -> None:
    cell = "x" * 100_000
    text = "a\n" + f'"{cell}\n"\n' * 20
    assert [row["a"] for _, row in CsvRows(lines_of([text]), lambda _: True)] == [cell + "\n"] * 20
