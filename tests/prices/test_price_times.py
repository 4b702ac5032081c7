"""The times at which an entry of the price file holds."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.prices.price_times import WEEKDAYS, PriceTimes, times_of

FIRST = date(2026, 11, 2)  # a Monday
SHANGHAI = "Asia/Shanghai"


def times(**entry: Any) -> PriceTimes:
    return times_of("price 1", {"from": FIRST, **entry})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        ({}, ["2026-11-02T00:00", "2030-01-01T12:00"], ["2026-11-01T23:59"]),
        ({"until": date(2026, 11, 4)}, ["2026-11-03T23:59"], ["2026-11-04T00:00"]),
        ({"weekdays": ["mon", "sun"]}, ["2026-11-02T00:00", "2026-11-08T23:59"], ["2026-11-03T12:00"]),
        ({"hours": "09:00-12:30"}, ["2026-11-02T09:00", "2026-11-05T12:29"], ["2026-11-02T08:59", "2026-11-02T12:30"]),
        ({"hours": "18:00-24:00"}, ["2026-11-02T18:00", "2026-11-02T23:59"], ["2026-11-02T17:59", "2026-11-03T00:00"]),
        # Hours over midnight belong to the day on which they begin.
        ({"hours": "16:30-00:30"}, ["2026-11-02T16:30", "2026-11-03T00:29"], ["2026-11-02T00:29", "2026-11-03T00:30"]),
        (
            {"hours": "22:00-02:00", "weekdays": ["fri"], "until": date(2026, 11, 7)},
            ["2026-11-06T22:00", "2026-11-07T01:59"],
            ["2026-11-06T01:00", "2026-11-07T22:00", "2026-11-13T22:00"],
        ),
        (  # Monday in Shanghai is from Sunday 16:00 to Monday 16:00
            {"weekdays": ["mon"], "timezone": SHANGHAI},
            ["2026-11-01T16:00", "2026-11-02T15:59"],
            ["2026-11-01T15:59", "2026-11-02T16:00"],
        ),
        # The clock goes back in Berlin on 25 October 2026.
        (
            {"from": date(2026, 10, 1), "hours": "08:00-09:00", "timezone": "Europe/Berlin"},
            ["2026-10-24T06:30", "2026-10-26T07:30"],
            ["2026-10-24T07:30", "2026-10-26T06:30"],
        ),
    ],
)
def test_when_it_holds(entry: dict[str, Any], inside: list[str], outside: list[str]) -> None:
    known = times(**entry)
    assert [text for text in inside if not known.has(at(text))] == []
    assert [text for text in outside if known.has(at(text))] == []


@given(
    moment=st.datetimes(datetime(2026, 11, 1), datetime(2027, 3, 1), timezones=st.just(UTC)),
    hours=st.tuples(st.integers(0, 1_439), st.integers(0, 1_439)).filter(lambda hours: hours[0] != hours[1]),
    weekdays=st.sets(st.sampled_from(WEEKDAYS), min_size=1),
    zone=st.sampled_from(("UTC", SHANGHAI, "America/St_Johns", "Europe/Berlin")),
)
def test_hours_and_the_others_of_the_day_are_all_times(
    moment: datetime, hours: tuple[int, int], weekdays: set[str], zone: str
) -> None:
    """Peak and off-peak prices of a file leave no time without a price, and none with two."""
    start, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in hours)
    peak, others = times(hours=f"{start}-{end}", timezone=zone), times(hours=f"{end}-{start}", timezone=zone)
    is_later = moment - timedelta(days=2) > datetime(2026, 11, 2, tzinfo=UTC)
    assert peak.has(moment) + others.has(moment) == 1 or not is_later
    chosen = times(weekdays=list(weekdays), timezone=zone)
    day = WEEKDAYS[moment.astimezone(ZoneInfo(zone)).weekday()]
    assert chosen.has(moment) == (day in weekdays) or not is_later


def test_the_ends_of_all_times_are_no_error() -> None:
    known = times(hours="10:00-09:00", timezone=SHANGHAI)
    assert not known.has(datetime.min.replace(tzinfo=UTC))
    assert not known.has(datetime.max.replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"from": None}, "from is missing"),
        ({"from": "2026-11-01"}, "from must be a date"),
        ({"until": FIRST}, "until must be later than from"),
        ({"hours": "9:00-12:00"}, "hours must be a beginning and another end"),
        ({"hours": "09:00-24:01"}, "hours must be"),
        ({"hours": "24:00-09:00"}, "hours must be"),
        ({"hours": "09:00-09:00"}, "hours must be"),
        ({"hours": "09:00-12:00\n"}, "hours must be"),
        ({"hours": 9}, "hours must be"),
        ({"weekdays": []}, "weekdays must be a list of mon, tue"),
        ({"weekdays": ["monday"]}, "weekdays must be"),
        ({"weekdays": "mon"}, "weekdays must be"),
        ({"weekdays": [["mon"]]}, "weekdays must be"),
        ({"timezone": "Mars"}, "timezone must be the name of a time zone"),
        ({"timezone": 1}, "timezone must be"),
        ({"timezone": "../etc/passwd"}, "timezone must be"),
    ],
)
def test_wrong_times_are_refused(entry: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=f"price 1: {says}"):
        times(**entry)
