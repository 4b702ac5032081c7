"""The list of streams: its cells, its filter and its orders."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.cli.shown_records import short_id
from streamgauge.top.streams import BAD, SORTS, WARN, chosen, error_text, matches, state_of, style_of, table_of
from streamgauge.top.total import Heard, Total
from tests.live.shown import FAILED, SILENT, STALLED, busy_process, id_of
from tests.top.answers import answer_of

ROWS = Total([Heard("up:1", answer_of(busy_process()))]).rows


def row(**values: Any) -> dict[str, Any]:
    finished = next(row for row in ROWS if row["outcome"] == "completed")
    return {**finished, **values}


def cells(rows: list[dict[str, Any]], title: str, labels: tuple[str, ...] = ("up:1",)) -> list[tuple[str, str]]:
    [found] = [column_cells for column, column_cells in table_of(rows, labels) if column.title == title]
    return [(cell.text, cell.style) for cell in found]


def test_a_client_that_left_is_no_error() -> None:
    assert style_of("client_abort") == WARN != style_of("truncated") == style_of("stream_error") == BAD
    assert cells([row(outcome="client_abort")], "outcome") == [("client_abort", WARN)]


def test_cells_of_open_and_finished_streams() -> None:
    silent = next(row for row in ROWS if row["id"] == id_of(SILENT))
    assert cells([silent], "outcome") == [("silent", BAD)]
    assert cells([silent], "silent for") == [("39.8 s", BAD)]
    assert cells([silent], "when")[0][0] == "open 40 s"
    failed = next(row for row in ROWS if row["id"] == id_of(FAILED))
    assert cells([failed], "error") == [("in_stream overloaded_error", BAD)]
    assert error_text(None) == "-"
    stalled = next(row for row in ROWS if row["id"] == id_of(STALLED))
    assert cells([stalled], "when")[0][0].endswith(" ago")
    assert cells([row(model=None)], "model")[0][0] == "-"


def test_ids_are_as_short_as_those_of_the_ledger() -> None:
    assert cells([row(id=id_of(SILENT))], "stream") == [(short_id(id_of(SILENT)), "")]
    assert matches(row(id=id_of(SILENT)), short_id(id_of(SILENT)))


def test_only_several_processes_have_a_column() -> None:
    titles = [column.title for column, _ in table_of(ROWS, ("up:1",))]
    assert "at" not in titles
    assert cells(ROWS[:1], "at", (":9464", ":9465"))[0][0] == ":9464"


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("", True),
        ("GPT", True),
        ("gpt openai", True),
        ("gpt anthropic", False),
        ("model=gpt upstream=openai outcome=completed", True),
        ("upstream=gpt", False),
        ("outcome=trunc", False),
        ("id=99999999", False),
        ("other=gpt", False),
        ("tenant=river", True),
    ],
)
def test_a_filter_has_words_and_fields(text: str, is_there: bool) -> None:
    assert matches(row(model="gpt-4o", upstream="openai", tenant="River"), text) is is_there


def test_streams_that_broke_are_found_by_one_word_as_on_the_page() -> None:
    for text in ("broken", "outcome=broken"):
        assert {state_of(row) for row in chosen(ROWS, text, "worst")} == {"upstream_reset"}


def test_an_open_stream_is_found_by_its_state() -> None:
    assert [state_of(row) for row in chosen(ROWS, "outcome=silent", "worst")] == ["silent"]
    assert {state_of(row) for row in chosen(ROWS, "outcome=open", "worst")} == {"open"}


@given(st.text())
def test_no_filter_fails(text: str) -> None:
    assert [row for row in ROWS if matches(row, text)] == [row for row in ROWS if row in chosen(ROWS, text, "gap")]


def test_the_worst_order_has_silent_and_broken_streams_first() -> None:
    states = [state_of(row) for row in chosen(ROWS, "", "worst")]
    order = ["silent", "upstream_reset", "open", "completed"]
    assert sorted(states, key=order.index) == states
    broken = [row["ended_s_ago"] for row in chosen(ROWS, "outcome=upstream_reset", "worst")]
    assert broken == sorted(broken), "the newest first"


@pytest.mark.parametrize("sort", SORTS)
def test_each_order_has_all_streams_the_largest_first(sort: str) -> None:
    listed = chosen(ROWS, "", sort)
    values = [SORTS[sort][0](row) for row in listed]
    assert values == sorted(values, reverse=True)
    assert len(listed) == len(ROWS)
    unknown = [row(first_token_s=None, longest_gap_s=None, started_at=None), *ROWS]
    assert len(chosen(unknown, "", sort)) == len(unknown)


def test_an_unknown_duration_is_the_last_one() -> None:
    unknown = row(id="unknown", first_token_s=None)
    assert chosen([unknown, *ROWS], "", "first-token")[-1]["id"] == "unknown"
