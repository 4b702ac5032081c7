"""What every ledger must do. A new ledger joins by its line in PLACES."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

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
