"""Tables and CSV: aligned, cut for the eye, and nothing in a cell that is not to be shown."""

import csv
import io
import json

import pytest

from streamgauge.commands.tables import MAX_WIDTH, print_records, print_table
from streamgauge.core.record import encode_record
from tests.metrics.records import make_record, make_timing, make_usage


def test_columns_are_aligned_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "n"], [["a", 1], ["bcdef", 1000], [None, None]])
    assert capsys.readouterr().out == "name      n\na         1\nbcdef  1000\n\n"


def test_a_cell_is_cut_and_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [["x" * 100], ["\x1b[2Jred\nline"]])
    _, first, second = capsys.readouterr().out.splitlines()
    assert first == "x" * (MAX_WIDTH - 1) + "\u2026"
    assert second == "?[2Jred?line"


def test_records_show_what_they_know_and_nothing_for_what_they_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    known = make_record(timing=make_timing(first_token_s=0.25), usage=make_usage(11, 7))
    unknown = make_record(timing=make_timing(first_token_s=None), usage=make_usage(None, None), response_model=None)
    records = [json.loads(encode_record(record)) for record in (known, unknown)]
    print_records(records, "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["ttft_s"] for row in rows] == ["0.25", ""]
    assert [row["input"] for row in rows] == ["11", ""]
    assert rows[1]["model"] == (records[1]["request_model"] or "")
    print_records(records, "table")
    head, first, second = capsys.readouterr().out.splitlines()
    place = head.index("ttft_s")
    assert first[place : place + 6].strip() == "0.250"
    assert second[place : place + 6].strip() == ""
