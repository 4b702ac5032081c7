"""Days of a time zone: whole, half-open, also where the clock changes."""

import pytest

from streamgauge.audit.period import DAY_US, DayOf, Period, day_after
from streamgauge.errors import UsageFault

HOUR_US = 3_600 * 10**6


def test_a_period_is_half_open_and_a_day_either_side_is_read() -> None:
    period = Period.of("2026-11-01", "2026-12-01", "UTC")
    assert period.until_us - period.since_us == 30 * DAY_US
    assert (period.read_since_us, period.read_until_us) == (period.since_us - DAY_US, period.until_us + DAY_US)
    assert [period.has(day) for day in ("2026-10-31", "2026-11-01", "2026-11-30", "2026-12-01")] == [
        False,
        True,
        True,
        False,
    ]
    assert [period.reads(day) for day in ("2026-10-30", "2026-10-31", "2026-12-01", "2026-12-02")] == [
        False, True, True, False
    ]  # fmt: skip


def test_a_day_may_have_23_or_25_hours() -> None:
    assert (
        Period.of("2026-03-29", "2026-03-30", "Europe/Berlin").until_us
        - Period.of("2026-03-29", "2026-03-30", "Europe/Berlin").since_us
        == 23 * HOUR_US
    )
    autumn = Period.of("2026-10-25", "2026-10-26", "Europe/Berlin")
    assert autumn.until_us - autumn.since_us == 25 * HOUR_US
    day_of = DayOf("Europe/Berlin")
    assert [day_of(autumn.since_us - 1), day_of(autumn.since_us), day_of(autumn.until_us - 1)] == [
        "2026-10-24", "2026-10-25", "2026-10-25"
    ]  # fmt: skip


def test_zones_of_quarters_of_an_hour() -> None:
    midnight = Period.of("2026-03-01", "2026-03-02", "Asia/Kathmandu").since_us
    assert (DayOf("Asia/Kathmandu")(midnight - 1), DayOf("Asia/Kathmandu")(midnight)) == ("2026-02-28", "2026-03-01")


@pytest.mark.parametrize(
    ("first", "end", "zone", "says"),
    [
        ("2026-11-31", "2026-12-01", "UTC", "--from 2026-11-31 is not a date"),
        ("2026-11-01", "yesterday", "UTC", "--to yesterday is not a date"),
        ("2026-11-1", "2026-12-01", "UTC", "--from 2026-11-1 is not a date"),
        ("2026-11-01", "2026-11-01", "UTC", "must be later than"),
        ("2026-11-01", "2026-12-01", "Nowhere/Here", "--timezone Nowhere/Here is not a time zone"),
        ("2026-11-01", "2026-12-01", "../etc/passwd", "is not a time zone"),
    ],
)
def test_a_wrong_period_is_refused(first: str, end: str, zone: str, says: str) -> None:
    with pytest.raises(UsageFault, match=says):
        Period.of(first, end, zone)


def test_days_before_and_after() -> None:
    assert (day_after("2026-02-28", 1), day_after("2026-03-01", -1)) == ("2026-03-01", "2026-02-28")


def test_days_that_follow_each_other_are_one_run() -> None:
    period = Period.of("2026-03-01", "2026-04-01", "Europe/Berlin")
    assert period.runs_of(frozenset()) == [(period.read_since_us, period.read_until_us)]
    runs = period.runs_of({"2026-03-30", "2026-03-29", "2026-03-05"})
    assert [end - start for start, end in runs] == [24 * HOUR_US, 47 * HOUR_US]


def test_the_days_of_a_period_and_their_spans() -> None:
    period = Period.of("2026-03-28", "2026-03-31", "Europe/Berlin")
    assert period.days == ["2026-03-28", "2026-03-29", "2026-03-30"]
    spans = [period.span_of(day) for day in period.days]
    assert [end - start for start, end in spans] == [24 * HOUR_US, 23 * HOUR_US, 24 * HOUR_US]
    assert (spans[0][0], spans[-1][1]) == (period.since_us, period.until_us)


def test_the_day_with_the_middle_of_the_period_has_two_spans() -> None:
    period = Period.of("2026-03-01", "2026-03-04", "UTC")
    assert [len(period.halves_of(day)) for day in period.days] == [1, 2, 1]
    (start, middle), (again, end) = period.halves_of("2026-03-02")
    assert (middle, again, (start, end)) == (period.middle_us, middle, period.span_of("2026-03-02"))
    assert [
        len(Period.of("2026-03-01", "2026-03-03", "UTC").halves_of(day)) for day in ("2026-03-01", "2026-03-02")
    ] == [1, 1]


@pytest.mark.parametrize("given", ["9999-12-31", "9000-01-01", "1970-12-31"])
def test_a_day_at_the_end_of_the_calendar_is_refused(given: str) -> None:
    with pytest.raises(UsageFault, match=f"--to {given} is not a date from 1971-01-01 to 8999-12-31"):
        Period.of("1971-01-01", given, "UTC")
    last = Period.of("2026-11-01", "8999-12-31", "Pacific/Kiritimati")
    assert last.read_until_us > last.until_us
    assert day_after(last.end, 366)
