"""What every ledger must do. A new ledger joins by its line in PLACES."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.ledger import KEYS, LEDGERS, Inserted, Ledger, Total, UnknownKeyError, open_ledger
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import ABSENT, make_usage

# How the URL of a fresh ledger is made for each scheme.
PLACES: dict[str, Callable[[Path], str]] = {"sqlite": lambda folder: f"sqlite:///{folder}/ledger.sqlite"}


@pytest.fixture(params=sorted(LEDGERS))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return PLACES[request.param](tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened


def ids(ledger: Ledger, limit: int | None = None) -> list[str]:
    return [json.loads(record)["stream_id"] for record in ledger.query(limit)]


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


@pytest.mark.parametrize("limit", [0, 1, 999, 1_000, 1_001, 2_500, 9_999])
def test_a_limit_cuts_and_pages_do_not_show(ledger: Ledger, limit: int) -> None:
    ledger.insert([make_row(number) for number in range(2_500)])
    assert ids(ledger, limit) == [stream_id(number) for number in range(min(limit, 2_500))]


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
        Total(("2026-03-01", "gpt-4o", "client_abort"), 2, 0, 0, 0),
        Total(("2026-03-01", "gpt-4o-2024-08-06", "completed"), 3, 30, 12, 42),
    ]


def test_totals_of_streams_without_usage_are_null_and_not_zero(ledger: Ledger) -> None:
    ledger.insert([make_row(1, usage=ABSENT)])
    assert ledger.totals(["upstream"]) == [Total(("nimbus",), 1, None, None, None)]


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


# A stream that broke after its input was told, and the leg that went on: the same request once more (Last-Event-ID).
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


def test_a_stream_and_its_legs_are_records_of_their_own_and_count_once(ledger: Ledger) -> None:
    again = {**WENT_ON, "last_event_id": "20"}
    ledger.insert(
        [make_row(1, **BROKEN), make_row(2, **again), make_row(3, **{**again, "resumed_from": "20"}), make_row(4)]
    )
    assert ledger.totals(["day"]) == [Total(("2026-03-01",), 4, 51, 25, 76)]
    assert len(ids(ledger)) == 4


def test_tokens_stand_where_the_stream_stands(ledger: Ledger) -> None:
    ledger.insert([make_row(1, **BROKEN), make_row(100_000, **WENT_ON, started_at="2026-03-02T00:00:05Z")])
    assert ledger.totals(["day", "outcome", "usage_source"]) == [
        Total(("2026-03-01", "truncated", "final"), 1, 41, 20, 61),
        Total(("2026-03-02", "completed", "final"), 1, None, None, None),
    ]


def test_the_order_of_arrival_does_not_matter(ledger: Ledger) -> None:
    ledger.insert([make_row(3, **WENT_ON)])
    assert ledger.totals(["day"]) == [Total(("2026-03-01",), 1, None, 20, None)], "until its stream is known"
    ledger.insert([make_row(1, **BROKEN)])
    assert ledger.totals(["day"]) == [Total(("2026-03-01",), 2, 41, 20, 61)]


def test_one_moment_for_both_is_enough(ledger: Ledger) -> None:
    ledger.insert([make_row(1, **WENT_ON, started_at=None), make_row(2, **BROKEN, started_at=None)])
    assert ledger.totals(["upstream"]) == [Total(("nimbus",), 2, 41, 20, 61)]


def test_a_stored_response_is_continued_by_its_id(ledger: Ledger) -> None:
    ledger.insert([make_row(1, response_id="resp_1", outcome="truncated", usage=ABSENT)])
    leg = {"response_id": "resp_1", "resumed_from": "4", "usage": make_usage(30, 12)}
    ledger.insert([make_row(number, **leg) for number in (2, 3)])
    assert ledger.totals(["upstream"]) == [Total(("nimbus",), 3, 30, 12, 42)]


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
    assert ledger.totals(["outcome"])[0] == Total(("completed",), 1, None, None, None)


def test_requests_that_share_a_response_id_are_never_one(ledger: Ledger) -> None:
    ledger.insert([make_row(number, response_id="chat-1", request_digest="d" * 32) for number in (1, 2)])
    assert ledger.totals(["response_id"]) == [Total(("chat-1",), 2, 20, 10, 30)]
    ledger.insert([make_row(3, response_id="chat-1", resumed_from="17")])
    assert ledger.totals(["response_id"]) == [Total(("chat-1",), 3, 20, 10, 30)]


def test_a_refused_leg_changes_nothing(ledger: Ledger) -> None:
    ledger.insert([make_row(1, **BROKEN), make_row(2, **{**WENT_ON, "outcome": "http_error", "usage": ABSENT})])
    assert ledger.totals(["upstream"]) == [Total(("nimbus",), 2, 41, None, None)]


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


@pytest.mark.parametrize("key", KEYS)
def test_totals_by_every_key(ledger: Ledger, key: str) -> None:
    ledger.insert([make_row(1), make_row(2)])
    (total,) = ledger.totals([key])
    assert total.streams == 2


@pytest.mark.parametrize("by", [[], ["colour"], ["day", "record"], ["day; DROP TABLE records"]])
def test_totals_by_what_is_no_key_are_refused(ledger: Ledger, by: list[str]) -> None:
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
