"""The filters of /summary and /finished, and what they choose among the streams that a process keeps."""

import pytest

from streamgauge.live.answers import Row
from streamgauge.live.stored import BROKEN_OUTCOMES, Wanted, choice_of, matches, sorted_rows, wanted_of, without_age
from streamgauge.live.view import row_of
from tests.metrics.records import make_record, make_timing


def row(number: int, outcome: str = "completed", first_token_s: float | None = 0.2) -> Row:
    name = f"00000000-0000-7000-8000-{number:012}"
    timing = make_timing(first_token_s=first_token_s, end_s=9.0)
    started = f"2026-03-01T12:00:{number:02}.000000Z"
    return row_of(make_record(stream_id=name, outcome=outcome, timing=timing, started_at=started, tenant="river"))


def test_a_query_without_filters_wants_the_worst_of_all() -> None:
    assert wanted_of({}) == Wanted()


def test_an_empty_value_stands_for_streams_without_one() -> None:
    assert choice_of({"tenant": "", "model": "m", "other": "x"}) == (("model", "m"), ("tenant", None))


def test_each_filter_is_read() -> None:
    query = {
        "outcome": "broken",
        "id": " \u2026AB12 ",
        "since": "5",
        "until": "7",
        "age": "60",
        "sort": "newest",
        "limit": "3",
    }
    assert wanted_of(query) == Wanted((), BROKEN_OUTCOMES, "ab12", 5, 7, 60, "newest", 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("outcome", "eror"),
        ("sort", "name"),
        ("id", "xyz"),
        ("limit", "501"),
        ("limit", "-1"),
        ("since", "now"),
        ("age", "\u00b2"),
    ],
)
def test_a_wrong_filter_names_itself(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is"):
        wanted_of({name: value})


def test_an_age_is_a_beginning() -> None:
    assert without_age(Wanted(age_s=60), 1_000).since_s == 940
    assert without_age(Wanted(age_s=60, since_s=960), 1_000).since_s == 960


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        (Wanted(), True),
        (Wanted((("tenant", "river"),)), True),
        (Wanted((("tenant", None),)), False),
        (Wanted(outcomes=BROKEN_OUTCOMES), False),
        (Wanted(part="00000000"), True),
        (Wanted(part="0003"), True),
        (Wanted(part="7000"), False),
        (Wanted(since_s=10.0, until_s=10.5), True),
        (Wanted(since_s=10.1), False),
        (Wanted(until_s=10.0), False),
    ],
)
def test_what_a_filter_chooses(wanted: Wanted, holds: bool) -> None:
    assert matches(row(3), wanted, 10.0) is holds


def test_worst_are_broken_streams_by_time_then_the_slowest() -> None:
    rows = [
        row(1),
        row(2, "stream_error"),
        row(3, first_token_s=0.9),
        row(4, "truncated"),
        row(5, "client_abort", None),
    ]
    order = [one.id[-1] for one in sorted_rows(rows, "worst")]
    assert order == ["4", "2", "5", "3", "1"]
    assert [one.id[-1] for one in sorted_rows(rows, "newest")] == ["5", "4", "3", "2", "1"]
    assert [one.id[-1] for one in sorted_rows(rows, "slowest")] == ["5", "3", "4", "2", "1"]
