"""What an audit reads of a ledger, on both engines: steps of bounded size, and selections of records."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streamgauge.ledger import Cost, Ledger, LedgerRow, SqliteLedger, open_ledger, usage
from streamgauge.ledger.contract import Costly, QuarterUsage, Selection, Step, Usage
from tests.ledger.places import SCHEMES, fresh_url
from tests.ledger.rows import make_row, stream_id
from tests.ledger.statements import each_statement
from tests.metrics.records import ABSENT, make_usage

BEGIN = 1_772_323_200 * 10**6  # 2026-03-01
END = BEGIN + 86_400 * 10**6
SECOND = 10**6


@pytest.fixture(params=SCHEMES)
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    with open_ledger(fresh_url(request, request.param)) as opened:
        yield opened


def steps(ledger: Ledger, until_us: int = END) -> Iterator[Step]:
    (part,) = ledger.parts
    at = BEGIN
    while at < until_us:
        with part.usage_step(at, until_us) as step:
            if step is None:
                return
            yield step
            at = step.until_us


def ids(records: Iterator[bytes]) -> list[str]:
    return [json.loads(record)["stream_id"] for record in records]


def named(*numbers: int) -> list[str]:
    return [stream_id(number) for number in numbers]


def test_steps_cover_the_time_once_and_have_some_records_each(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "STEP_ROWS", 3)
    same = "2026-03-01T00:00:07.000000Z"
    ledger.insert([*map(make_row, range(7)), *(make_row(number, started_at=same) for number in range(7, 15))])
    spans, counts = [], []
    for step in steps(ledger):
        spans.append((step.since_us, step.until_us))
        counts.append(len(step.ids()))
        assert sum(one.streams for one in step.sums()) == counts[-1]
    assert (spans[0][0], spans[-1][1]) == (BEGIN, BEGIN + 7 * SECOND + 1)  # no record is after it
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert sum(counts) == 15
    assert counts == [3, 3, 1, 8]  # records of one moment stay together


def test_a_record_outside_of_the_time_or_without_a_start_is_in_no_step(ledger: Ledger) -> None:
    ledger.insert([make_row(1, started_at=None), make_row(2, started_at="2026-03-02T00:00:00.000000Z")])
    assert list(steps(ledger)) == []


def test_sums_have_what_the_columns_have(ledger: Ledger) -> None:
    counts = {"input_cached_tokens": 4, "input_cache_write_tokens": 2, "reasoning_tokens": 3}
    rows = [
        replace(make_row(1, upstream="a", usage=make_usage(10, 5, **counts)), cost=Cost(7, 1, "list", None)),
        make_row(2, upstream="a", usage=make_usage(None, 5, input_cached_tokens=1), outcome="client_abort", attempt=3),
        make_row(3, upstream="a", usage=make_usage(1, 5, input_cached_tokens=2), attempt=2),
        make_row(4, upstream=None, usage=ABSENT, outcome="completed"),
    ]
    ledger.insert(rows)
    for step in steps(ledger):
        reported, absent = sorted(step.sums(), key=lambda one: str(one.usage_source), reverse=True)
        assert reported == Usage(
            "a", "gpt-4o-2024-08-06", None, None, None, "final", streams=3, priced=1, unpriced=2, completed=2,
            inconsistent=2, nameless=3, highest=8, first_attempt=2, last_attempt=3, input=10 + 1 + 1,
            cached=7, written=2, output=15, reasoning=3, cost=8, starts=6 * SECOND,
        )  # fmt: skip
        assert (absent.upstream, absent.streams, absent.completed, absent.is_reported) == (None, 1, 1, False)
        assert step.chosen(Selection.INCONSISTENT, reported, 9) == named(2, 3)
        assert step.chosen(Selection.INCONSISTENT, reported, 1) == named(2)
        assert step.chosen(Selection.MISSING, absent, 9) == named(4)
        assert list(step.costing_more(7, "a", "gpt-4o-2024-08-06")) == [Costly(stream_id(1), 8)]
        assert list(step.costing_more(8, "a", "gpt-4o-2024-08-06")) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": [{"type": "compaction", "input_tokens": 1, "output_tokens": 1}]},
        {"identity_failed": "input+output=total"},
        {"bad_values": 2},
    ],
)
def test_records_with_parts_or_faults_are_unusual(changes: dict[str, Any], ledger: Ledger) -> None:
    for source in ("final", "partial"):
        number = 10 if source == "final" else 20
        usages = make_usage(source=source), make_usage(source=source, **changes)
        ledger.insert([make_row(number + place, usage=one) for place, one in enumerate(usages)])
    ledger.insert([make_row(30, usage=ABSENT)])
    for step in steps(ledger):
        assert ids(step.unusual()) == named(11, 21)


def test_records_with_one_id_are_found_across_steps(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "STEP_ROWS", 2)
    names = ["a", "b", "c", "a", "masked", "masked", None, None, "b", "d"]
    resumed = {8: {"resumed_from": "17"}}
    ledger.insert([make_row(n, response_id=name, **resumed.get(n, {})) for n, name in enumerate(names)])
    found = [
        (name, json.loads(text)["stream_id"])
        for step in steps(ledger)
        for name, text in step.with_ids(list(step.counts_of_equal_ids()))
    ]
    assert found == [("a", stream_id(0)), ("a", stream_id(3))]


def test_the_records_of_an_id_without_their_json(ledger: Ledger) -> None:
    ledger.insert([make_row(n, response_id="a" if n < 5 else "b", upstream="u") for n in range(7)])
    for step in steps(ledger):
        assert step.counts_of_equal_ids() == {"a": 5, "b": 2}
        assert [one.stream_id for one in step.named_with_ids(["b"])] == named(5, 6)
        assert {(one.upstream, one.model) for one in step.named_with_ids(["a"])} == {("u", "gpt-4o-2024-08-06")}


def test_a_record_that_began_long_before_has_no_equal_id(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "STEP_ROWS", 1)
    late = f"2026-03-01T00:{usage.WINDOW_US // SECOND // 60 + 1:02}:00.000000Z"
    ledger.insert([make_row(0, response_id="a"), make_row(1, response_id="a", started_at=late)])
    assert [step.counts_of_equal_ids() for step in steps(ledger)] == [{}, {}]


def test_records_without_an_id_that_have_equal_counts(ledger: Ledger) -> None:
    rows = [
        make_row(1),
        make_row(2),
        make_row(3, usage=make_usage(1, 1)),
        make_row(4, usage=ABSENT),
        make_row(5, usage=ABSENT),
    ]
    ledger.insert([*rows, make_row(6, response_id="masked"), make_row(7, response_id="a")])
    for step in steps(ledger):
        assert ids(step.without_ids()) == named(1, 2, 6)


def test_attempts_of_which_several_reported_usage(ledger: Ledger) -> None:
    def attempt(number: int, digest: str, count: int | None, **changes: Any) -> LedgerRow:
        return make_row(number, request_digest=digest, attempt=count, **changes)

    ledger.insert(
        [
            attempt(1, "d", 1), attempt(2, "d", 2), attempt(3, "e", 1), attempt(4, "e", 1), attempt(5, "f", 1, usage=ABSENT),
            attempt(6, "f", 2), attempt(7, "d", 3, usage=ABSENT), attempt(8, "g", None), attempt(9, "g", None),
        ]
    )  # fmt: skip
    for step in steps(ledger):
        assert [(one.stream_id, one.attempt, one.is_reported) for one in step.attempts()] == [
            (stream_id(1), 1, True), (stream_id(2), 2, True), (stream_id(7), 3, False)
        ]  # fmt: skip


@pytest.mark.parametrize("numbers", [(0, 1), (1, 2), (2, 3)])
def test_attempts_have_any_numbers(numbers: tuple[int, int], ledger: Ledger) -> None:
    ledger.insert([make_row(place, request_digest="d", attempt=number) for place, number in enumerate(numbers)])
    for step in steps(ledger):
        assert [one.attempt for one in step.attempts()] == list(numbers)


def test_what_is_added_up_is_read_from_the_index_alone(tmp_path: Path) -> None:
    """SQLite reads no row, whose JSON takes a page of the file, until it has chosen the record."""
    rows = [make_row(n, response_id=f"a{n // 2}", request_digest=f"d{n // 2}", attempt=1 + n % 2) for n in range(9)]
    rows.append(make_row(9, usage=make_usage(bad_values=1)))
    with SqliteLedger(tmp_path / "ledger") as stored:
        stored.insert(rows)
        with stored.usage_step(BEGIN, END) as step:
            assert step is not None
            (final,) = step.sums()
            plans = {name: _indexes_of(ask) for name, ask in _asked(stored, step, final).items()}
    assert plans.pop("unusual") == {"INDEX records_unusual"}
    assert plans.pop("resumed") == {"INDEX records_legs", "INDEX records_reread"}
    assert plans == {name: {"COVERING INDEX records_by_start"} for name in plans}


def _asked(stored: SqliteLedger, step: Step, final: Usage) -> dict[str, Callable[[], object]]:
    return {
        "sums": step.sums,
        "equal ids": step.counts_of_equal_ids,
        "records of an id": lambda: list(step.named_with_ids(["a1"])),
        "attempts": step.attempts,
        "chosen": lambda: step.chosen(Selection.INCONSISTENT, final, 9),
        "costs": lambda: list(step.costing_more(1, None, None)),
        "quarters": lambda: stored.usage_by_quarter(BEGIN, END),
        "unusual": lambda: list(step.unusual()),
        "resumed": lambda: list(stored.linked_records(BEGIN, END)),
    }


def _indexes_of(ask: Callable[[], object]) -> set[str]:
    found: set[str] = set()
    with each_statement(lambda *statement: found.update(_indexes(*statement))):
        ask()
    return found


def _indexes(connection: Any, cursor: Any, sql: str, parameters: Any) -> Iterator[str]:
    """How SQLite would read the records for a statement."""
    if "FROM records" in sql:
        for line in connection.connection.dbapi_connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters):
            if "records" in line[3]:
                yield line[3].partition(" USING ")[2].partition(" (")[0]


def test_stretches_do_not_change_the_quarters(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.insert([make_row(400 * number, upstream="ab"[number % 2]) for number in range(20)])
    (part,) = ledger.parts
    whole = part.usage_by_quarter(BEGIN, END)
    assert sum(one.input for one in whole) == 20 * 10
    monkeypatch.setattr(usage, "STEP_ROWS", 3)
    assert sorted(part.usage_by_quarter(BEGIN, END), key=str) == sorted(whole, key=str)


def test_tokens_by_quarter_of_an_hour(ledger: Ledger) -> None:
    rows = [make_row(second, upstream="a", usage=make_usage(10, 5, input_cached_tokens=1)) for second in (0, 899, 900)]
    ledger.insert([*rows, make_row(901, upstream=None), make_row(902, upstream="a", usage=ABSENT)])
    first = BEGIN // (900 * SECOND)
    (part,) = ledger.parts
    assert set(part.usage_by_quarter(BEGIN, END)) == {
        QuarterUsage(first, "a", 20, 2, 0, 10),
        QuarterUsage(first + 1, "a", 10, 1, 0, 5),
        QuarterUsage(first + 1, None, 10, 0, 0, 5),
    }


def test_linked_records_are_resumed_ones_and_what_they_may_continue(ledger: Ledger) -> None:
    (part,) = ledger.parts
    ledger.insert([make_row(1, response_id="a"), make_row(2, response_id="b")])
    assert list(part.linked_records(BEGIN, END)) == []
    ledger.insert([make_row(3, response_id="a", resumed_from="9")])
    assert sorted(ids(part.linked_records(BEGIN, END))) == named(1, 3)
    assert list(part.linked_records(END, END + 1)) == []


def test_a_sample_is_of_ids_that_end_with_zeros(ledger: Ledger) -> None:
    ledger.insert([make_row(number) for number in range(40)])
    ledger.insert([make_row(48, usage=ABSENT)])
    (part,) = ledger.parts
    assert ids(part.sample(BEGIN, END, 1)) == named(0, 16, 32)
    assert ids(part.sample(BEGIN, END, 2)) == named(0)
    assert len(ids(part.sample(BEGIN, END, 0))) == 40


def test_records_are_found_by_their_ids(ledger: Ledger) -> None:
    ledger.insert([make_row(1), make_row(2)])
    (part,) = ledger.parts
    assert set(part.stored_among(named(2, 3))) == set(named(2))
