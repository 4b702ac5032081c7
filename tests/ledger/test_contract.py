"""The contract of every ledger. A new ledger needs its line in tests/ledger/places.py."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from streamgauge.core.record import ReportedCost, Usage
from streamgauge.ledger import (
    ALL_RECORDS,
    KEYS,
    LEDGERS,
    NUMBER_KEYS,
    Comparison,
    Cost,
    CostOfRecord,
    Expired,
    Filter,
    Inserted,
    Ledger,
    LedgerRow,
    NewCost,
    Total,
    UnknownKeyError,
    open_ledger,
)
from streamgauge.ledger.cost import PROVIDER, Unpriced
from tests.ledger.places import PLACES, SCHEMES, fresh_url
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import ABSENT, make_timing, make_usage


@pytest.fixture(params=SCHEMES)
def url(request: pytest.FixtureRequest) -> str:
    return fresh_url(request, request.param)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened


def ids(
    ledger: Ledger, limit: int | None = None, chosen: Filter = ALL_RECORDS, *, newest_first: bool = False
) -> list[str]:
    records = ledger.query(limit, chosen, newest_first=newest_first)
    return [json.loads(record)["stream_id"] for record in records]


def names(*numbers: int) -> list[str]:
    return [stream_id(number) for number in numbers]


def at(second: int) -> int:
    """The start of the row of stream `second`, as a filter takes it (us)."""
    started = make_row(second).started_us
    assert started is not None
    return started


def test_every_ledger_is_tested() -> None:
    assert set(PLACES) == set(LEDGERS)


def test_a_record_is_stored_once(ledger: Ledger) -> None:
    row = make_row(1)
    assert ledger.insert([row]) == Inserted(new=1)
    assert ledger.insert([row, row]) == Inserted(same=2)
    assert list(ledger.query()) == [row.record]


def test_a_known_id_with_other_bytes_is_counted_and_the_first_kept(ledger: Ledger) -> None:
    first, forged = make_row(1), make_row(1, outcome="truncated")
    assert ledger.insert([first, forged]) == Inserted(new=1, different=1)
    assert list(ledger.query()) == [first.record]


def test_the_places_of_what_is_new(ledger: Ledger) -> None:
    ledger.insert([make_row(2)])
    rows = [make_row(2), make_row(1), make_row(2, outcome="truncated"), make_row(3), make_row(3)]
    assert ledger.insert(rows).new_places == (1, 3)


def test_an_insert_of_nothing(ledger: Ledger) -> None:
    assert ledger.insert([]) == Inserted()
    assert list(ledger.query()) == []


def test_records_outlive_the_process(url: str) -> None:
    with open_ledger(url) as first:
        first.insert([make_row(1)])
    with open_ledger(url) as second:
        assert second.insert([make_row(1), make_row(2)]) == Inserted(new=1, same=1)


def test_oldest_first_those_without_a_start_last_equal_ones_by_id(ledger: Ledger) -> None:
    same = "2026-03-01T00:00:03Z"
    rows = [
        make_row(9, started_at=None),
        make_row(3),
        make_row(5, started_at=same),
        make_row(2),
        make_row(4, started_at=same),
        make_row(8, started_at=None),
        make_row(1, started_at="1969-12-31T23:59:59Z"),
    ]
    ledger.insert(rows)
    assert ids(ledger) == [stream_id(number) for number in (1, 2, 3, 4, 5, 8, 9)]


def test_a_limit_cuts_and_pages_do_not_show(ledger: Ledger) -> None:
    ledger.insert([make_row(number) for number in range(2_500)])
    for limit in (0, 1, 999, 1_000, 1_001, 2_500, 9_999):
        assert ids(ledger, limit) == [stream_id(number) for number in range(min(limit, 2_500))], limit


def test_newest_first_with_a_limit_and_records_without_a_start_last(ledger: Ledger) -> None:
    ledger.insert([make_row(number) for number in range(2_000)])
    ledger.insert([make_row(number, started_at=None) for number in range(2_000, 3_100)])
    newest = [*range(1_999, -1, -1), *range(3_099, 1_999, -1)]
    for limit in (None, 0, 1, 999, 1_000, 1_001, 2_001, 2_300, 9_999):
        assert ids(ledger, limit, newest_first=True) == names(*newest[:limit]), limit


def test_a_range_has_its_first_moment_and_not_its_last(ledger: Ledger) -> None:
    ledger.insert([*(make_row(number) for number in range(6)), make_row(9, started_at=None)])
    ledger.insert([make_row(number, started_at="2026-03-01T00:00:04Z") for number in (7, 8)])
    for chosen, found in (
        (Filter(since_us=at(2), until_us=at(4)), (2, 3)),
        (Filter(since_us=at(4)), (4, 7, 8, 5)),
        (Filter(since_us=at(4) + 1), (5,)),
        (Filter(until_us=at(2)), (0, 1)),
        (Filter(until_us=at(2) + 1), (0, 1, 2)),
        (Filter(since_us=at(100)), ()),
    ):
        assert ids(ledger, chosen=chosen) == names(*found)
        assert ids(ledger, chosen=chosen, newest_first=True) == names(*reversed(found))
        assert sum(total.streams for total in ledger.totals(["day"], chosen)) == len(found)


def test_pages_do_not_show_in_a_range_either(ledger: Ledger) -> None:
    ledger.insert([make_row(number, tenant="even" if number % 2 == 0 else None) for number in range(5_000)])
    chosen = Filter(at(100), at(4_900), (("tenant", "even"),))
    assert ids(ledger, chosen=chosen) == names(*range(100, 4_900, 2))
    assert ids(ledger, 1_500, chosen, newest_first=True) == names(*range(4_898, 1_898, -2))


def test_values_of_one_key_are_alternatives_and_keys_must_all_match(ledger: Ledger) -> None:
    outcomes = ("completed", "truncated", "upstream_reset")
    ledger.insert([make_row(n, outcome=outcomes[n % 3], tenant=None if n < 3 else "a") for n in range(6)])
    broken = (("outcome", "truncated"), ("outcome", "upstream_reset"))
    for where, found in (
        ((), (0, 1, 2, 3, 4, 5)),
        ((("outcome", "truncated"),), (1, 4)),
        (broken, (1, 2, 4, 5)),
        ((*broken, ("tenant", "a")), (4, 5)),
        ((("tenant", None),), (0, 1, 2)),
        ((("tenant", None), ("tenant", "a")), (0, 1, 2, 3, 4, 5)),
        ((("tenant", "A"),), ()),
        ((("tenant", "' OR 1 --"),), ()),
    ):
        assert ids(ledger, chosen=Filter(where=where)) == names(*found)
        assert sum(total.streams for total in ledger.totals(["upstream"], Filter(where=where))) == len(found)


# The reason why there is no cost is no field of a record: a test of its own chooses by it.
@pytest.mark.parametrize("key", [key for key in KEYS if key != "cost_unknown"])
def test_records_are_chosen_by_every_key(ledger: Ledger, key: str) -> None:
    values: dict[str, Any] = {
        "attempt": 2,
        "day": "2026-03-01",
        "month": "2026-03",
        "usage_source": "final",
        "model": "m",
        "stream_id": stream_id(1),
    }
    value = values.get(key, "value")
    assert isinstance(value, int) == (key in NUMBER_KEYS)
    fields: dict[str, Any] = {
        "day": {},
        "month": {},
        "usage_source": {},
        "stream_id": {},
        "model": {"response_model": value},
        "upstream_host": {"host": value},
    }.get(key, {key: value})
    undated: dict[str, Any] = {"started_at": None}
    others: dict[str, Any] = {"day": undated, "month": undated, "usage_source": {"usage": ABSENT}}.get(key, {})
    ledger.insert([make_row(1, **fields), make_row(2, **others)])
    chosen = Filter(where=((key, value),))
    assert ids(ledger, chosen=chosen) == names(1)
    assert [total.keys for total in ledger.totals([key], chosen)] == [(value,)]


def test_records_are_chosen_by_measures_and_by_what_they_are_not(url: str) -> None:
    dollar = 10**12
    costs = {stream_id(1): 2 * dollar, stream_id(2): dollar}
    with open_ledger(url, prices=CostsById(costs)) as ledger:
        ledger.insert([
            make_row(1, status_code=200, tenant="a", timing=make_timing(first_token_s=2.5, end_s=30.0)),
            make_row(2, status_code=404, timing=make_timing(first_token_s=None, end_s=3.0), outcome="http_error"),
            make_row(3, status_code=None, tenant="b", timing=make_timing(first_token_s=2.0, end_s=None)),
        ])  # fmt: skip
        for key, sign, value, found in (
            ("ttft", ">", 2.0, (1,)),
            ("ttft", ">=", 2.0, (1, 3)),
            ("ttft", "<", 2.5, (3,)),
            ("ttft", "<=", 2.5, (1, 3)),
            ("ttft", "=", None, (2,)),
            ("ttft", "!=", None, (1, 3)),
            ("ttft", "!=", 2.5, (2, 3)),
            ("duration", ">", 3.0, (1,)),
            ("duration", "=", 3.0, (2,)),
            ("cost", ">", dollar, (1,)),
            ("cost", "=", None, (3,)),
            ("cost", "<=", dollar, (2,)),
            ("status", ">=", 300.0, (2,)),
            ("status", "=", 200.0, (1,)),
            ("status", "=", None, (3,)),
            ("outcome", "!=", "http_error", (1, 3)),
            ("tenant", "!=", "a", (2, 3)),
            ("tenant", "!=", None, (1, 3)),
            ("attempt", "!=", 2, (1, 2, 3)),
        ):
            chosen = Filter(compared=(Comparison(key, sign, value),))  # type: ignore[arg-type]
            assert ids(ledger, chosen=chosen) == names(*found), (key, sign, value)
            assert sum(total.streams for total in ledger.totals(["upstream"], chosen)) == len(found)
        both = Filter(where=(("tenant", "a"),), compared=(Comparison("status", "<", 300.0),) * 2)
        assert ids(ledger, chosen=both) == names(1)
        mapped = Filter(tenants=(("key", "a"),), compared=(Comparison("tenant", "!=", "a"),))
        ledger.insert([make_row(4, credential_id="key")])
        assert ids(ledger, chosen=mapped) == names(2, 3)
        with pytest.raises(UnknownKeyError):
            ids(ledger, chosen=Filter(compared=(Comparison("colour", "!=", "x"),)))


def test_the_slowest_waited_longest_for_a_token_or_for_the_end_without_one(ledger: Ledger) -> None:
    waits = {1: (0.5, 90.0), 2: (None, 60.0), 3: (7.0, 8.0), 4: (None, None), 5: (7.0, 9.0)}
    ledger.insert(
        [make_row(n, timing=make_timing(first_token_s=first, end_s=end)) for n, (first, end) in waits.items()]
    )
    slowest = [json.loads(record)["stream_id"] for record in ledger.slowest(10)]
    assert slowest == names(2, 3, 5, 1), "the wait that is not known is none of the longest"
    assert len(ledger.slowest(2)) == 2
    chosen = Filter(since_us=at(3), compared=(Comparison("duration", ">", 8.5),))
    assert [json.loads(record)["stream_id"] for record in ledger.slowest(10, chosen)] == names(5)
    with pytest.raises(UnknownKeyError):
        ledger.slowest(1, Filter(where=(("colour", "x"),)))


def test_records_are_counted_by_minute_and_outcome(ledger: Ledger) -> None:
    starts = {1: "00:00.000000", 2: "00:59.999999", 3: "01:00.000000", 4: "01:30.000000", 5: "03:00.000000"}
    ledger.insert(
        [
            make_row(number, started_at=f"2026-03-01T10:{start}Z", outcome="truncated" if number == 4 else "completed")
            for number, start in starts.items()
        ]
    )
    ledger.insert([make_row(6, started_at=None)])
    first_s = int(datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp())
    expected = [(first_s, "completed", 2), (first_s + 60, "completed", 1), (first_s + 60, "truncated", 1)]
    assert ledger.minutes(Filter()) == [*expected, (first_s + 180, "completed", 1)]
    assert ledger.minutes(Filter(until_us=(first_s + 180) * 1_000_000)) == expected
    assert ledger.minutes(Filter(where=(("outcome", "truncated"),))) == expected[2:]
    with pytest.raises(UnknownKeyError):
        ledger.minutes(Filter(where=(("colour", "x"),)))


def test_a_record_is_found_by_its_id_or_by_the_beginning_or_the_end_of_it(ledger: Ledger) -> None:
    first, second, third = (
        "01a1eb37-0406-7072-8eb1-d94bcdf84404",
        "01a1eb37-0407-7072-8eb1-d94bcdf80404",
        "01b00000-0000-7000-8000-00000001a1eb",
    )
    ledger.insert([make_row(number, stream_id=name) for number, name in enumerate((third, first, second))])

    def found(part: str, limit: int = 9) -> list[str]:
        return [json.loads(record)["stream_id"] for record in ledger.with_id(part, limit)]

    assert found(first) == [first]
    assert found("01a1eb37-0406") == [first]
    assert found("01a1eb") == [first, second], "an id that begins so comes before one that ends so"
    assert found("01a1eb", 1) == [first]
    assert found("0404") == [second]
    assert found("404") == [first, second]
    assert found("0001a1eb") == [third]
    for unknown in ("02", "%", "_", "ff"):
        assert found(unknown) == []


@pytest.mark.parametrize("key", ["colour", "record", "1 = 1 OR day"])
def test_records_selected_by_an_unknown_key_are_refused(ledger: Ledger, key: str) -> None:
    chosen = Filter(where=((key, "x"),))
    with pytest.raises(UnknownKeyError, match="day, model"):
        list(ledger.query(chosen=chosen))
    with pytest.raises(UnknownKeyError, match="day, model"):
        ledger.totals(["day"], chosen)


def test_a_query_goes_on_while_others_write(ledger: Ledger) -> None:
    ledger.insert([make_row(number) for number in range(1_500)])
    records = ledger.query()
    found = [next(records)]
    assert ledger.insert([make_row(number) for number in range(1_500, 2_000)]) == Inserted(new=500)
    found += records
    assert len(found) == len(set(found)) == 2_000


def test_totals_add_up_what_is_known(ledger: Ledger) -> None:
    ledger.insert(
        [
            make_row(1, usage=make_usage(10, 5)),
            make_row(2, usage=make_usage(20, 7)),
            make_row(3, usage=ABSENT),
            make_row(4, usage=ABSENT, outcome="client_abort", response_model=None),
            make_row(5, usage=make_usage(0, 0), outcome="client_abort", response_model=None),
        ]
    )
    assert ledger.totals(["day", "model", "outcome"]) == [
        Total(("2026-03-01", "gpt-4o", "client_abort"), 2, 1, 0, 0, 0),
        Total(("2026-03-01", "gpt-4o-2024-08-06", "completed"), 3, 2, 30, 12, 42),
    ]


def test_totals_of_streams_without_usage_are_null_and_not_zero(ledger: Ledger) -> None:
    ledger.insert([make_row(1, usage=ABSENT)])
    assert ledger.totals(["upstream"]) == [Total(("nimbus",), 1, 0, None, None, None, None, None)]


def test_totals_have_the_tokens_that_are_part_of_input_and_of_output(ledger: Ledger) -> None:
    ledger.insert(
        [
            make_row(1, usage=make_usage(10, 5, input_cached_tokens=4)),
            make_row(2, usage=make_usage(20, 7, input_cached_tokens=6, reasoning_tokens=3)),
            make_row(3),
            make_row(4, tenant="zero", usage=make_usage(1, 1, input_cached_tokens=0, reasoning_tokens=0)),
            make_row(5, tenant="none", usage=make_usage(1, 1)),
        ]
    )
    assert ledger.totals(["tenant"]) == [
        Total(("none",), 1, 1, 1, 1, 2, None, None),
        Total(("zero",), 1, 1, 1, 1, 2, 0, 0),
        Total((None,), 3, 3, 40, 17, 57, 10, 3),
    ]


def test_every_number_that_is_summed_counts_as_usage(ledger: Ledger) -> None:
    usages = [{"input_tokens": 1}, {"output_tokens": 1}, {"total_tokens": 1}, {"input_cached_tokens": 1}]
    for number, known in enumerate([*usages, {"reasoning_tokens": 1}, {"audio_input_tokens": 1}]):
        ledger.insert([make_row(number, usage=make_usage(**{"input_tokens": None, "output_tokens": None, **known}))])
    (total,) = ledger.totals(["day"])
    assert (total.streams, total.with_usage) == (6, 5)
    assert total == Total(("2026-03-01",), 6, 5, 1, 1, 1, 1, 1)


def test_totals_by_the_tap_tell_two_records_of_one_call_apart(ledger: Ledger) -> None:
    ledger.insert([make_row(1, tap="httpx"), make_row(2, tap="asgi"), make_row(3, tap="asgi"), make_row(4, tap=None)])
    assert [(total.keys, total.input_tokens) for total in ledger.totals(["tap"])] == [
        (("asgi",), 20),
        (("httpx",), 10),
        ((None,), 10),
    ]
    assert ids(ledger, chosen=Filter(where=(("tap", "httpx"),))) == names(1)


def test_totals_newest_first_are_by_their_latest_record(ledger: Ledger) -> None:
    tenants = {1: "a", 2: "b", 3: "c", 4: "a"}
    ledger.insert([make_row(number, tenant=tenant) for number, tenant in tenants.items()])
    ledger.insert([make_row(5, tenant="undated", started_at=None), make_row(3_600, tenant="d")])
    newest = ledger.totals(["tenant"], newest_first=True)
    assert [total.keys[0] for total in newest] == ["d", "a", "c", "b", "undated"]
    assert [total.keys[0] for total in ledger.totals(["tenant"])] == ["a", "b", "c", "d", "undated"]


def test_totals_sort_by_their_keys_null_last(ledger: Ledger) -> None:
    ledger.insert([make_row(1, tenant=None), make_row(2, tenant="b"), make_row(3, tenant="a"), make_row(4, tenant="a")])
    assert [(total.keys, total.streams) for total in ledger.totals(["tenant"])] == [
        (("a",), 2),
        (("b",), 1),
        ((None,), 1),
    ]


def test_totals_do_not_overflow(ledger: Ledger) -> None:
    huge = make_usage(2**53, 2**53, total_tokens=2**60)
    ledger.insert([make_row(number, usage=huge) for number in range(20)])
    (total,) = ledger.totals(["dialect"])
    assert (total.input_tokens, total.total_tokens) == (20 * 2**53, 20 * 2**60)


# A stream that broke after its input was reported, and the resumed stream: the same request again (Last-Event-ID).
BROKEN: dict[str, Any] = {
    "request_digest": "d" * 32,
    "last_event_id": "17",
    "outcome": "truncated",
    "usage": make_usage(41, None, source="partial"),
}
WENT_ON: dict[str, Any] = {
    "request_digest": "d" * 32,
    "resumed_from": "17",
    "endpoint": "/messages",
    "usage": make_usage(None, 20),
}


def test_origin_and_resumed_streams_are_separate_records_and_count_once(ledger: Ledger) -> None:
    again = {**WENT_ON, "last_event_id": "20"}
    ledger.insert(
        [make_row(1, **BROKEN), make_row(2, **again), make_row(3, **{**again, "resumed_from": "20"}), make_row(4)]
    )
    assert ledger.totals(["day"]) == [Total(("2026-03-01",), 4, 2, 51, 25, 76)]
    assert len(ids(ledger)) == 4


def test_tokens_count_under_the_keys_of_the_origin(ledger: Ledger) -> None:
    ledger.insert([make_row(1, **BROKEN), make_row(100_000, **WENT_ON, started_at="2026-03-02T00:00:05Z")])
    assert ledger.totals(["day", "outcome", "usage_source"]) == [
        Total(("2026-03-01", "truncated", "final"), 1, 1, 41, 20, 61),
        Total(("2026-03-02", "completed", "final"), 1, 0, None, None, None),
    ]


def test_a_filter_does_not_change_what_a_stream_used(ledger: Ledger) -> None:
    """The totals of what a value chooses are the line of that value: no token is lost or counted twice between filters."""
    ledger.insert([make_row(1, **BROKEN), make_row(100_000, **WENT_ON, started_at="2026-03-02T00:00:05Z")])
    ledger.insert([make_row(2), make_row(3, outcome="truncated", usage=ABSENT, tenant="a")])
    for key in KEYS:
        lines = ledger.totals([key])
        assert sum(line.with_usage for line in lines) == 2
        for line in lines:
            assert ledger.totals([key], Filter(where=((key, line.keys[0]),))) == [line]
    first, second = 1_772_323_200_000_000, 1_772_409_600_000_000
    assert ledger.totals(["day"], Filter(first, second)) == [Total(("2026-03-01",), 3, 2, 51, 25, 76)]
    assert ledger.totals(["day"], Filter(second)) == [Total(("2026-03-02",), 1, 0, None, None, None)]


def test_parts_of_input_and_output_count_once_for_origin_and_resumed_streams(ledger: Ledger) -> None:
    broken = {**BROKEN, "usage": make_usage(41, None, source="partial", input_cached_tokens=30)}
    went_on = {**WENT_ON, "usage": make_usage(41, 20, input_cached_tokens=31, reasoning_tokens=8)}
    ledger.insert([make_row(1, **broken), make_row(2, **went_on)])
    assert ledger.totals(["day"]) == [Total(("2026-03-01",), 2, 1, 41, 20, 61, 31, 8)]


def test_the_order_of_arrival_does_not_matter(ledger: Ledger) -> None:
    ledger.insert([make_row(3, **WENT_ON)])
    assert ledger.totals(["day"]) == [Total(("2026-03-01",), 1, 1, None, 20, None)], "until its stream is known"
    ledger.insert([make_row(1, **BROKEN)])
    assert ledger.totals(["day"]) == [Total(("2026-03-01",), 2, 1, 41, 20, 61)]


def test_one_moment_for_both_is_enough(ledger: Ledger) -> None:
    ledger.insert([make_row(1, **WENT_ON, started_at=None), make_row(2, **BROKEN, started_at=None)])
    assert ledger.totals(["upstream"]) == [Total(("nimbus",), 2, 1, 41, 20, 61)]


def test_a_stored_response_is_continued_by_its_id(ledger: Ledger) -> None:
    ledger.insert([make_row(1, response_id="resp_1", outcome="truncated", usage=ABSENT)])
    resumed = {"response_id": "resp_1", "resumed_from": "4", "usage": make_usage(30, 12)}
    ledger.insert([make_row(number, **resumed) for number in (2, 3)])
    assert ledger.totals(["upstream"]) == [Total(("nimbus",), 3, 1, 30, 12, 42)]


def test_streams_that_are_resumed_at_the_same_number_are_not_one(ledger: Ledger) -> None:
    ledger.insert(
        [make_row(n, response_id=f"r{n}", last_event_id="4", outcome="truncated", usage=ABSENT) for n in (1, 2)]
    )
    ledger.insert([make_row(n + 2, response_id=f"r{n}", resumed_from="4", usage=make_usage(n, n)) for n in (1, 2)])
    ledger.insert([make_row(5, resumed_from="4", usage=make_usage(10, 10))])
    assert [(total.keys, total.input_tokens) for total in ledger.totals(["response_id"])] == [
        (("r1",), 1),
        (("r2",), 2),
        ((None,), 10),
    ]


def test_without_a_body_an_events_own_id_names_the_stream(ledger: Ledger) -> None:
    ledger.insert([make_row(1, **{**BROKEN, "last_event_id": "1720000000:8"})])
    ledger.insert([make_row(2, **{**WENT_ON, "request_digest": None, "resumed_from": "1720000000:8"})])
    assert ledger.totals(["outcome"])[0] == Total(("completed",), 1, 0, None, None, None)


def test_requests_that_share_a_response_id_are_never_one(ledger: Ledger) -> None:
    ledger.insert([make_row(number, response_id="chat-1", request_digest="d" * 32) for number in (1, 2)])
    assert ledger.totals(["response_id"]) == [Total(("chat-1",), 2, 2, 20, 10, 30)]
    ledger.insert([make_row(3, response_id="chat-1", resumed_from="17")])
    assert ledger.totals(["response_id"]) == [Total(("chat-1",), 3, 2, 20, 10, 30)]


def test_rejected_resumed_stream_changes_nothing(ledger: Ledger) -> None:
    ledger.insert([make_row(1, **BROKEN), make_row(2, **{**WENT_ON, "outcome": "http_error", "usage": ABSENT})])
    assert ledger.totals(["upstream"]) == [Total(("nimbus",), 2, 1, 41, None, None)]


def test_retries_of_one_request_are_found_together(ledger: Ledger) -> None:
    tries = [make_row(n, request_digest="a" * 32, attempt=n, outcome="http_error", usage=ABSENT) for n in (1, 2, 10)]
    ledger.insert([*tries, make_row(11, request_digest="a" * 32, attempt=11), make_row(12, request_digest="b" * 32)])
    assert [(total.keys, total.output_tokens) for total in ledger.totals(["request_digest", "attempt"])] == [
        (("a" * 32, 1), None),
        (("a" * 32, 2), None),
        (("a" * 32, 10), None),
        (("a" * 32, 11), 5),
        (("b" * 32, None), 5),
    ]


@pytest.mark.parametrize("key", [key for key in KEYS if key != "stream_id"])
def test_totals_by_every_key(ledger: Ledger, key: str) -> None:
    ledger.insert([make_row(1), make_row(2)])
    (total,) = ledger.totals([key])
    assert total.streams == 2


@pytest.mark.parametrize("by", [[], ["colour"], ["day", "record"], ["day; DROP TABLE records"]])
def test_totals_by_an_unknown_key_are_refused(ledger: Ledger, by: list[str]) -> None:
    with pytest.raises(UnknownKeyError, match="day, model"):
        ledger.totals(by)


def test_threads_share_a_ledger(ledger: Ledger) -> None:
    results: list[Inserted] = []

    def work() -> None:
        results.extend(ledger.insert([make_row(number)]) for number in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.new for result in results) == 50
    assert sum(result.same for result in results) == 150
    assert len(ids(ledger)) == 50


# --- attributes -----------------------------------------------------------------------------------------------------


def test_totals_and_records_by_an_attribute(ledger: Ledger) -> None:
    """Also one whose name is a word of SQL, and with values that look like SQL or JSON."""
    hostile = "'); DROP TABLE records; --"
    ledger.insert(
        [
            make_row(1, attributes={"agent": "planner", "select": hostile}),
            make_row(2, attributes={"agent": "planner"}, tenant="acme"),
            make_row(3, attributes={"agent": '"}{'}),
            make_row(4),
        ]
    )
    assert [(total.keys, total.streams) for total in ledger.totals(["agent"])] == [
        (('"}{',), 1),
        (("planner",), 2),
        ((None,), 1),
    ]
    by_two = ledger.totals(["tenant", "agent"], Filter(where=(("agent", "planner"),)))
    assert [total.keys for total in by_two] == [("acme", "planner"), (None, "planner")]
    assert [total.keys for total in ledger.totals(["select"], newest_first=True)] == [(None,), (hostile,)]
    assert ids(ledger, chosen=Filter(where=(("agent", "planner"),))) == names(1, 2)
    assert ids(ledger, chosen=Filter(where=(("agent", None), ("tenant", None)))) == names(4)
    assert ids(ledger, chosen=Filter(where=(("select", hostile),))) == names(1)


def test_an_attribute_is_a_key_once_a_record_has_it(ledger: Ledger) -> None:
    for name in ("agent", "day", "record", "stream_id", "1 = 1 OR day", "", "a'b", "x" * 33):
        assert not ledger.has_attribute(name)
    with pytest.raises(UnknownKeyError, match="agent"):
        ledger.totals(["agent"])
    ledger.insert([make_row(1, attributes={"agent": "planner"})])
    assert ledger.has_attribute("agent")
    assert [total.keys for total in ledger.totals(["agent"])] == [("planner",)]


def test_usage_of_a_resumed_stream_counts_under_the_attributes_of_its_origin(ledger: Ledger) -> None:
    same: dict[str, Any] = {"request_digest": "d" * 32, "credential_id": "key", "response_id": "msg_1"}
    origin = {**same, "outcome": "truncated", "last_event_id": "9", "attributes": {"agent": "a"}}
    resumed = {**same, "resumed_from": "9", "attributes": {"agent": "b"}}
    ledger.insert([make_row(1, **origin), make_row(2, **resumed)])
    totals = {total.keys: (total.streams, total.with_usage) for total in ledger.totals(["agent"])}
    assert totals == {("a",): (1, 1), ("b",): (1, 0)}


# --- kinds of tokens, cost, time zones, tenants ------------------------------------------------------------------------


class CostsById:
    """Costs by stream id (10**-12 USD), divided between the sides; None for the others."""

    def __init__(self, costs: dict[str, int]) -> None:
        self._costs = costs

    def cost_of(self, row: LedgerRow) -> Cost | None:
        cost = self._costs.get(row.stream_id)
        return None if cost is None else Cost(cost - 1, 1, "test", None)


class FixedPrices:
    """Each input token costs 2, each output token 10 (10**-12 USD); models named `free` have no price."""

    def cost_of(self, row: LedgerRow) -> Cost | None:
        if row.model == "free":
            return None
        given = None if row.input_tokens is None else row.input_tokens * 2
        made = None if row.output_tokens is None else row.output_tokens * 10
        return Cost(given, made, source="test", date="2026-03-01")


def test_totals_have_disjoint_kinds_that_add_up(ledger: Ledger) -> None:
    cached = make_usage(1_000, 300, input_cached_tokens=800, input_cache_write_tokens=150, reasoning_tokens=100)
    ledger.insert(
        [
            make_row(1, usage=cached),
            make_row(2, usage=make_usage(10, 5, audio_output_tokens=2)),
            make_row(3, usage=ABSENT),
        ]
    )
    (total,) = ledger.totals(["upstream"])
    assert total.kinds == {
        "input_uncached": 60,
        "input_cached": 800,
        "input_cache_write": 150,
        "output_text": 203,
        "reasoning": 100,
        "output_audio": 2,
    }
    assert sum(count for kind, count in total.kinds.items() if kind.startswith("input")) == total.input_tokens
    assert (total.without_usage, total.unknown_share) == (1, "0.3333")


def test_a_cost_is_added_once_and_counts_as_no_difference(url: str) -> None:
    with open_ledger(url, prices=FixedPrices()) as ledger:
        rows = [
            make_row(1),
            make_row(2, response_model="free"),
            make_row(3, usage=ABSENT),
            make_row(4, usage=make_usage(7, None)),
        ]
        assert ledger.insert(rows).unpriced == 1
        costs = [json.loads(record)["cost"] for record in ledger.query()]
        assert [cost and cost["usd"] for cost in costs] == ["0.00000000007", None, "0", "0.000000000014"]
        assert costs[0] == {
            "usd": "0.00000000007", "price_source": "test", "price_date": "2026-03-01", "list_usd": "0.00000000007"
        }  # fmt: skip
        (total,) = ledger.totals(["upstream"])
        assert (total.cost, total.cost_usd, total.without_price) == (84, "0.000000000084", 1)
        assert (total.with_cost, total.without_cost) == (2, 2)
    with open_ledger(url) as later:
        assert later.insert(rows[:2]) == Inserted(same=2)
        assert later.insert([make_row(1, outcome="truncated")]) == Inserted(different=1)
        assert [json.loads(record)["cost"] for record in later.query()] == costs


def test_costs_beyond_64_bits_add_up(url: str) -> None:
    class Dear(FixedPrices):
        def cost_of(self, row: LedgerRow) -> Cost | None:
            return Cost(2**62, 2**62, "test", None)

    with open_ledger(url, prices=Dear()) as ledger:
        ledger.insert([make_row(number) for number in range(20)])
        (total,) = ledger.totals(["day"])
        assert total.cost == 20 * 2**63


def test_a_continued_stream_costs_what_its_counted_records_cost(url: str) -> None:
    with open_ledger(url, prices=FixedPrices()) as ledger:
        ledger.insert([make_row(1, **BROKEN), make_row(2, **WENT_ON), make_row(3, **{**WENT_ON, "usage": ABSENT})])
        (total,) = ledger.totals(["day"])
        assert (total.cost, total.kinds) == (41 * 2 + 20 * 10, {"input_uncached": 41, "output_text": 20})
        assert (total.streams, total.with_usage, total.without_usage, total.without_price) == (3, 1, 0, 0)


def test_days_and_months_of_a_time_zone(ledger: Ledger) -> None:
    """New York: clocks went forward on 8 March 2026 at 07:00 UTC, from UTC-5 to UTC-4."""
    times = ("2026-03-01T04:59:59Z", "2026-03-01T05:00:00Z", "2026-03-08T04:59:59.999999Z", "2026-03-08T05:00:00Z",
             "2026-03-08T06:59:59Z", "2026-03-08T07:00:00Z", "2026-03-09T03:59:59Z", "2026-03-09T04:00:00Z")  # fmt: skip
    ledger.insert([make_row(number, started_at=time) for number, time in enumerate(times)])
    ledger.insert([make_row(90, started_at=None)])
    new_york = Filter(timezone="America/New_York")
    assert [(total.keys[0], total.streams) for total in ledger.totals(["day"], new_york)] == [
        ("2026-02-28", 1),
        ("2026-03-01", 1),
        ("2026-03-07", 1),
        ("2026-03-08", 4),
        ("2026-03-09", 1),
        (None, 1),
    ]
    assert [(total.keys[0], total.streams) for total in ledger.totals(["month"], new_york)] == [
        ("2026-02", 1),
        ("2026-03", 7),
        (None, 1),
    ]
    on_eighth = Filter(where=(("day", "2026-03-08"),), timezone="America/New_York")
    assert ids(ledger, chosen=on_eighth) == names(3, 4, 5, 6)
    assert [total.keys[0] for total in ledger.totals(["month"])] == ["2026-03", None]


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Europe/Berlin", "UTC"])
def test_days_are_those_of_pythons_zone_data(ledger: Ledger, zone: str) -> None:
    """Around the turns of a year, also where a zone changed by half an hour, or left a day out (Samoa in 2011)."""
    start = datetime(2011, 12, 1, tzinfo=UTC)
    times = [start + timedelta(hours=7 * step, minutes=step % 60) for step in range(200)]
    ledger.insert([make_row(n, started_at=time.isoformat().replace("+00:00", "Z")) for n, time in enumerate(times)])
    expected = Counter(f"{time.astimezone(ZoneInfo(zone)):%Y-%m-%d}" for time in times)
    found = {total.keys[0]: total.streams for total in ledger.totals(["day"], Filter(timezone=zone))}
    assert found == expected


def test_tenants_are_mapped_afterwards_by_the_credential(ledger: Ledger) -> None:
    keys = {1: ("a", None), 2: ("b", None), 3: ("a", "own"), 4: (None, None)}
    ledger.insert([make_row(n, credential_id=key, tenant=tenant) for n, (key, tenant) in keys.items()])
    mapped = (("a", "red"), ("z", "blue"))
    found = {total.keys[0]: total.streams for total in ledger.totals(["tenant"], Filter(tenants=mapped))}
    assert found == {"own": 1, "red": 1, None: 2}
    assert ids(ledger, chosen=Filter(where=(("tenant", "red"),), tenants=mapped)) == names(1)
    assert ids(ledger, chosen=Filter(where=(("tenant", None),), tenants=mapped)) == names(2, 4)
    assert ids(ledger, chosen=Filter(where=(("tenant", "red"),))) == []


def test_the_credentials_of_one_tenant_are_one_line(ledger: Ledger) -> None:
    keys = {
        1: ("a", None),
        2: ("b", None),
        3: ("c", "red"),
        4: (None, None),
        5: ("None", None),
        6: ("a", "own"),
        7: ("d", None),
    }
    ledger.insert([make_row(n, credential_id=key, tenant=tenant) for n, (key, tenant) in keys.items()])
    mapped = (("a", "red"), ("b", "red"), ("None", "none"), *((f"key {number}", "blue") for number in range(5_000)))
    chosen = Filter(tenants=mapped)
    lines = [(total.keys, total.streams, total.input_tokens) for total in ledger.totals(["tenant", "tap"], chosen)]
    tap, each = make_row(1).tap, make_row(1).input_tokens
    assert each is not None
    assert lines == [
        (("none", tap), 1, each),
        (("own", tap), 1, each),
        (("red", tap), 3, 3 * each),
        ((None, tap), 2, 2 * each),
    ]
    newest = [total.keys for total in ledger.totals(["credential_id", "tenant"], chosen, newest_first=True)]
    assert newest == [
        ("d", None),
        ("a", "own"),
        ("None", "none"),
        (None, None),
        ("c", "red"),
        ("b", "red"),
        ("a", "red"),
    ]
    for value, numbers in (("red", (1, 2, 3)), (None, (4, 7)), ("own", (6,)), ("blue", ())):
        where = Filter(where=(("tenant", value),), tenants=mapped)
        assert ids(ledger, chosen=where) == names(*numbers)
        assert sum(total.streams for total in ledger.totals(["tap"], where)) == len(numbers)
    both = Filter(where=(("tenant", "own"), ("tenant", None)), tenants=mapped)
    assert ids(ledger, chosen=both) == names(4, 6, 7)


def test_totals_have_the_longest_wait_and_the_last_start(ledger: Ledger) -> None:
    waits: dict[int, dict[str, Any]] = {
        1: {"first_token_s": 2.5},
        2: {"first_token_s": None, "end_s": 30.0},
        3: {"first_token_s": 0.1},
    }
    rows = [
        make_row(n, timing=make_timing(**times), attributes={"session": "s" if n < 3 else "t"})
        for n, times in waits.items()
    ]
    ledger.insert(rows)
    found = [(one.keys[0], one.longest_wait_us, one.last_us) for one in ledger.totals(["session"])]
    assert [one.first_us for one in ledger.totals(["upstream"])] == [
        min(one.first_us or 0 for one in ledger.totals(["session"]))
    ]
    assert found == [("s", 30_000_000, at(2)), ("t", 100_000, at(3))]


def test_an_attribute_of_another_ledger_is_a_key_if_the_filter_says_so(ledger: Ledger) -> None:
    ledger.insert([make_row(1)])
    (total,) = ledger.totals(["agent"], Filter(attributes=frozenset({"agent"})))
    assert (total.keys, total.streams) == ((None,), 1)
    assert ids(ledger, chosen=Filter(where=(("agent", "x"),), attributes=frozenset({"agent"}))) == []


# --- retention ---------------------------------------------------------------------------------------------------------


def test_old_records_are_deleted_oldest_first_and_those_without_a_start_stay(ledger: Ledger) -> None:
    ledger.insert([make_row(number) for number in range(10)])
    ledger.insert([make_row(90, started_at=None)])
    assert ledger.expire(at(5), 3) == Expired(3, more=True)
    assert ids(ledger) == names(3, 4, 5, 6, 7, 8, 9, 90)
    assert (ledger.expire(at(5), 3), ledger.expire(at(5), 3)) == (Expired(2), Expired(0))
    assert ids(ledger) == names(5, 6, 7, 8, 9, 90)
    assert ledger.insert([make_row(1)]) == Inserted(new=1), "a record that comes again after its end is stored again"


def test_a_name_is_found_whatever_the_order_of_the_database(ledger: Ledger) -> None:
    """English order ignores case and hyphens; ours is that of the code points, in every database."""
    tenants = ["a-b", "B", "a", "ab", "A", "\u00e4", "_"]
    ledger.insert([make_row(number, tenant=tenant) for number, tenant in enumerate(tenants)])
    assert [total.keys[0] for total in ledger.totals(["tenant"])] == sorted(tenants)


def test_audits_are_kept_with_numbers_from_1_on(url: str) -> None:
    with open_ledger(url) as ledger:
        assert ledger.audits() == []
        assert [ledger.keep_audit(b'{"a":1}'), ledger.keep_audit(b"\x00")] == [1, 2]
    with open_ledger(url, create=False) as ledger:
        assert ledger.audits() == [(1, b'{"a":1}'), (2, b"\x00")]
        assert ledger.audits(last=True) == [(2, b"\x00")]
        assert [ledger.audits(number=number) for number in (1, 3, -1, 2**63, 10**30)] == [
            [(1, b'{"a":1}')],
            [],
            [],
            [],
            [],
        ]
        assert ids(ledger) == []


# --- responses that are polled -----------------------------------------------------------------------------------------


def asked(number: int, **changes: Any) -> LedgerRow:
    """A request in the background: it answers at once, without usage."""
    background = {"endpoint": "/responses", "response_id": "resp_1", "request_digest": "d" * 32, "usage": ABSENT}
    return make_row(number, **{**background, "credential_id": "key", **changes})


def polled(number: int, **changes: Any) -> LedgerRow:
    """A read of the stored response, with the usage that is billed once."""
    stored = {"endpoint": "/responses/{id}", "response_id": "resp_1", "usage": make_usage(700, 90)}
    return make_row(number, **{**stored, "credential_id": "key", **changes})


def test_a_response_that_is_polled_counts_once(url: str) -> None:
    """Its request, a read before it is done, and two after; in any order, from several workers, and after a restart."""
    rows = [asked(1), polled(2, usage=ABSENT), polled(3), polled(4)]
    for first, second in ((rows[2:], rows[:2]), (rows[:1], rows[1:])):
        with open_ledger(url, prices=FixedPrices()) as ledger:
            ledger.insert(first)
            with open_ledger(url, prices=FixedPrices()) as other:
                other.insert(second)
    with open_ledger(url) as ledger:
        (total,) = ledger.totals(["upstream"])
        assert total == Total(("nimbus",), 4, 1, 700, 90, 790, None, None)
        assert (total.cost, total.with_cost, total.without_cost, total.without_usage) == (2_300, 1, 0, 0)
        by_day = ledger.totals(["endpoint"])
        assert [(one.keys[0], one.streams, one.total_tokens) for one in by_day] == [
            ("/responses", 1, 790), ("/responses/{id}", 3, None)
        ]  # fmt: skip


def test_polls_of_a_response_whose_request_no_tap_saw_count_once(ledger: Ledger) -> None:
    ledger.insert([polled(2), polled(3), polled(4, response_id="resp_2")])
    (total,) = ledger.totals(["upstream"])
    assert (total.streams, total.with_usage, total.total_tokens) == (3, 2, 2 * 790)


def test_a_poll_of_another_key_or_upstream_or_response_is_another_response(ledger: Ledger) -> None:
    ledger.insert([asked(1, usage=make_usage(1, 1)), polled(2, credential_id="b"), polled(3, upstream="b")])
    ledger.insert([polled(4, response_id="resp_2"), polled(5, response_id=None), polled(6, response_id="masked")])
    totals = ledger.totals(["month"])
    assert [total.total_tokens for total in totals] == [2 + 5 * 790]


def test_a_stored_response_that_is_read_again_as_a_stream_counts_once(ledger: Ledger) -> None:
    ledger.insert([asked(1), polled(2), polled(3, resumed_from="start"), polled(4)])
    (total,) = ledger.totals(["upstream"])
    assert (total.with_usage, total.total_tokens) == (1, 790)


# --- why there is no cost, and what the provider reported --------------------------------------------------------------


class Reasons:
    """Knows no price, and says why; the reason is the name of the model."""

    def cost_of(self, row: LedgerRow) -> Cost | Unpriced:
        return Unpriced(row.model or "")


def test_the_reason_why_there_is_no_cost_is_a_key(url: str) -> None:
    with open_ledger(url, prices=Reasons()) as ledger:
        ledger.insert([make_row(number, response_model=one.value) for number, one in enumerate(Unpriced)])
        assert {total.keys[0] for total in ledger.totals(["cost_unknown"])} == {one.value for one in Unpriced}
        assert ids(ledger, chosen=Filter(where=(("cost_unknown", "no_seller"),))) == names(1)
        assert [json.loads(record)["cost"] for record in ledger.query()] == [None] * len(Unpriced)


def test_the_upstreams_host_is_a_key(ledger: Ledger) -> None:
    ledger.insert([make_row(1, host="api.openai.com"), make_row(2, host=None)])
    assert [total.keys[0] for total in ledger.totals(["upstream_host"])] == ["api.openai.com", None]


class Reported:
    """Gives the costs that providers reported."""

    def cost_of(self, row: LedgerRow) -> Cost | None:
        return None if row.reported_usd is None else Cost(row.reported_usd, None, PROVIDER, None, 7)


def of_usd(dollars: str, usage: Usage) -> Usage:
    return msgspec.structs.replace(usage, reported_cost=ReportedCost(usd=dollars, byok=None, source="openrouter"))


def test_a_reported_cost_is_stored_read_and_imported_again(url: str, request: pytest.FixtureRequest) -> None:
    with open_ledger(url, prices=Reported()) as ledger:
        ledger.insert([make_row(1, usage=of_usd("0.00000000002", make_usage())), make_row(2)])
        first, _ = list(ledger.query())
        assert json.loads(first)["cost"] == {
            "usd": "0.00000000002", "price_source": "provider", "price_date": None, "list_usd": "0.000000000007"
        }  # fmt: skip
        (total,) = ledger.totals(["upstream"])
        assert (total.cost, total.with_cost, total.without_cost) == (20, 1, 1)
    again = LedgerRow.of_line(first)
    assert again.cost == Cost(20, None, PROVIDER, None, 7)


@pytest.mark.parametrize("reports", [make_usage(700, 90), ABSENT])
def test_a_reported_cost_of_a_polled_response_counts_once(url: str, reports: Usage) -> None:
    with open_ledger(url, prices=Reported()) as ledger:
        ledger.insert([asked(1), *(polled(number, usage=of_usd("0.5", reports)) for number in (2, 3))])
        (total,) = ledger.totals(["upstream"])
        assert (total.cost_usd, total.with_cost, total.without_cost) == ("0.5", 1, 0)


def test_a_reported_cost_of_the_last_part_stands_for_the_whole_stream(url: str) -> None:
    """The origin's input cost the list's price; what the provider reports at the end is for all."""

    class Both:
        def cost_of(self, row: LedgerRow) -> Cost | None:
            return Reported().cost_of(row) or Cost(3, None, "list", None)

    origin: dict[str, Any] = {"request_digest": "d", "response_id": "r", "outcome": "truncated"}
    with open_ledger(url, prices=Both()) as ledger:
        ledger.insert([make_row(1, **origin, usage=make_usage(10, None, source="partial"))])
        last = of_usd("0.000000000009", make_usage(10, 5))
        ledger.insert([make_row(2, **{**origin, "resumed_from": "3", "outcome": "completed"}, usage=last)])
        (total,) = ledger.totals(["upstream"])
        assert total.cost == 9


# --- another cost for a stored record --------------------------------------------------------------------------------


def another(ledger: Ledger, cost: Cost, *numbers: int) -> list[NewCost]:
    """The same cost for these records."""
    stored = {LedgerRow.of_stored(record).stream_id: record for record in ledger.query()}
    return [NewCost(stored[name], LedgerRow.of_stored(stored[name]), cost) for name in names(*numbers)]


FIRST, SECOND = Cost(3, 4, "prices.toml: m", "2026-01-01"), Cost(5, 6, "prices.toml: n", "2026-02-01", lacks=("tool",))


def test_a_record_gets_another_cost_and_the_earlier_ones_are_kept(ledger: Ledger) -> None:
    ledger.insert([make_row(1), make_row(2)])
    before = ids(ledger), [json.loads(record) | {"cost": None} for record in ledger.query()]
    assert ledger.reprice(another(ledger, FIRST, 1), 10, None) == 1
    assert ledger.reprice(another(ledger, SECOND, 1, 2), 20, "list was wrong") == 2
    changed = list(ledger.query())
    assert [json.loads(record)["cost"]["usd"] for record in changed] == ["0.000000000011"] * 2
    assert (ids(ledger), [json.loads(record) | {"cost": None} for record in changed]) == before
    assert [total.cost for total in ledger.totals(["model"])] == [22]
    now = replace(SECOND, input=11, output=None)  # the JSON does not tell the sides apart
    assert ledger.costs_of(stream_id(1)) == [
        CostOfRecord(None, None, 10, None),
        CostOfRecord(replace(FIRST, input=7, output=None), None, 20, "list was wrong"),
        CostOfRecord(now, None),
    ]
    assert [cost.replaced_us for cost in ledger.costs_of(stream_id(2))] == [20, None]
    assert ledger.costs_of(stream_id(3)) == []
    assert ledger.insert([make_row(1)]) == Inserted(same=1)
    assert [(one.replaced_us, one.reason, one.records) for one in ledger.repricings()] == [
        (10, None, 1), (20, "list was wrong", 2)
    ]  # fmt: skip


def test_why_there_was_no_cost_is_kept_and_is_no_key_any_more(url: str) -> None:
    with open_ledger(url, prices=Reasons()) as ledger:
        ledger.insert([make_row(1, response_model="no_model")])
        (name,) = ids(ledger)
        (record,) = ledger.query()
        assert ledger.reprice([NewCost(record, LedgerRow.of_stored(record), FIRST)], 10, None) == 1
        assert [cost.unknown for cost in ledger.costs_of(name)] == ["no_model", None]
        assert [total.keys for total in ledger.totals(["cost_unknown"])] == [(None,)]


def test_a_record_that_was_changed_or_removed_meanwhile_stays_as_it_is(ledger: Ledger) -> None:
    ledger.insert([make_row(1), make_row(2), make_row(3)])
    read = another(ledger, FIRST, 1, 2, 3)
    ledger.reprice(another(ledger, SECOND, 2), 10, None)
    ledger.expire(at(2), 1)
    assert ledger.reprice(read, 20, "late") == 1
    assert [len(ledger.costs_of(stream_id(number))) for number in (1, 2, 3)] == [0, 2, 2]


def test_earlier_costs_go_with_their_record(ledger: Ledger) -> None:
    ledger.insert([make_row(1), make_row(2)])
    ledger.reprice(another(ledger, FIRST, 1, 2), 10, None)
    assert ledger.expire(at(2), 10) == Expired(1)
    assert [one.records for one in ledger.repricings()] == [1]
    assert ledger.insert([make_row(1)]) == Inserted(new=1)
    assert [cost.replaced_us for cost in ledger.costs_of(stream_id(1))] == [None]
