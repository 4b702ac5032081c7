"""The streams of a claim: those that the result names, or all of a line's; with what the ledger knows of each."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from streamgauge.audit.claims import CLAIM_COLUMNS, UNDECIDED, Wanted, billed_requests, claim_of, claim_rows
from streamgauge.audit.invoices import InvoiceLine
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.period import Period
from streamgauge.audit.result import Line
from streamgauge.ledger import ALL_RECORDS, Filter, LedgerRow
from tests.audit.sample_lines import amount, explained, line, result_of, undecided
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import ABSENT, make_usage

PERIOD = Period.of("2026-03-01", "2026-04-01", "UTC")
OURS, NONE = amount(100, "1"), amount(0, "0")


class Stored:
    """Records as a ledger gives them: those of a span of time, by their start."""

    def __init__(self, rows: Sequence[LedgerRow]) -> None:
        self._rows = rows

    def query(
        self, limit: int | None = None, chosen: Filter = ALL_RECORDS, *, newest_first: bool = False
    ) -> Iterator[bytes]:
        for row in self._rows:
            started_us = row.started_us
            assert started_us is not None
            if (chosen.since_us or 0) <= started_us < (chosen.until_us or started_us + 1):
                yield row.record


def priced(row: LedgerRow, usd: str) -> LedgerRow:
    record = json.loads(row.record) | {"cost": {"usd": usd, "price_source": "list", "price_date": None}}
    return replace(row, record=json.dumps(record).encode())


def rows_of(lines: list[Line], wanted: Wanted, rows: Sequence[LedgerRow], **billed: str) -> list[dict[str, object]]:
    claim = claim_of(result_of(lines), wanted)
    amounts = {name: Decimal(usd) for name, usd in billed.items()}
    found = claim_rows(claim, PERIOD, Stored(rows), Mapping(tenants={"key_1": "river"}), amounts)
    return [dict(zip(CLAIM_COLUMNS, row, strict=True)) for row in found]


def test_a_row_has_what_the_ledger_knows_of_a_stream_and_what_is_billed_for_it() -> None:
    record = priced(
        make_row(
            1, upstream="openai", response_id="resp_1", provider_request_id="req_1", response_model="gpt-5",
            credential_id="key_1", service_tier="default", usage=make_usage(10, 5, input_cached_tokens=4),
        ),
        "0.000125",
    )  # fmt: skip
    part = explained("retries_billed_twice", 15, "0.00013", stream_id(1))
    (row,) = rows_of([line(part, ours=OURS, rest=NONE, day="2026-03-01")], Wanted(part.cause), [record], req_1="0.0003")
    assert {name: str(value) for name, value in row.items()} == {
        "stream_id": stream_id(1), "started_at": "2026-03-01T00:00:01.000000Z", "provider": "openai",
        "response_id": "resp_1", "request_id": "req_1", "model": "gpt-5", "key": "river", "tier": "default",
        "input_uncached": "6", "input_cached": "4", "input_cache_write": "0", "output": "5", "our_usd": "0.000125",
        "billed_usd": "0.0003", "explained_tokens": "15", "explained_usd": "0.00013",
    }  # fmt: skip


def test_only_the_streams_of_the_cause_the_provider_and_the_model_are_claimed_and_each_once() -> None:
    lines = [
        line(explained("tier", -1, "-1", stream_id(1)), ours=OURS, rest=NONE, day="2026-03-01"),
        line(explained("tier", 1, "2", stream_id(1)), ours=OURS, rest=NONE, day="2026-03-01", tier="priority"),
        line(explained("coverage", 1, "2", stream_id(2)), ours=OURS, rest=NONE, day="2026-03-01"),
        line(explained("tier", 1, "2", stream_id(3)), ours=OURS, rest=NONE, day="2026-03-02", model="o3"),
        line(explained("tier", 1, "2", stream_id(4)), ours=OURS, rest=NONE, day="2026-03-02", provider="anthropic"),
        line(
            undecided(("coverage", "tier"), 1, "2", stream_id(5), stream_id(6)), ours=OURS, rest=NONE, day="2026-03-02"
        ),
    ]
    rows = [make_row(number) for number in range(1, 8)]

    def claimed(*wanted: str | None) -> list[object]:
        return [row["stream_id"] for row in rows_of(lines, Wanted(*wanted), rows)]  # type: ignore[arg-type]

    assert claimed("tier") == [stream_id(1), stream_id(3), stream_id(4)]
    assert claimed("tier", "openai") == [stream_id(1), stream_id(3)]
    assert claimed("tier", "openai", "o3") == [stream_id(3)]
    assert claimed("tier", None, "o4") == []
    assert claimed(UNDECIDED) == [stream_id(5), stream_id(6)]


def test_a_stream_of_the_day_before_the_line_is_found_and_an_amount_of_several_streams_is_of_none_of_them() -> None:
    part = explained("late_across_midnight", 30, "3", stream_id(1), stream_id(2))
    rows = [
        make_row(1, started_at="2026-03-08T23:59:59.000000Z", usage=ABSENT),
        make_row(2, started_at="2026-03-09T12:00:00.000000Z"),
        make_row(3, started_at="2026-03-09T12:00:00.000000Z"),
    ]
    found = rows_of([line(part, ours=OURS, rest=NONE, day="2026-03-09")], Wanted("late_across_midnight"), rows)
    assert [row["stream_id"] for row in found] == [stream_id(1), stream_id(2)]
    assert [row["explained_usd"] for row in found] == [None, None]
    assert [row["output"] for row in found] == [None, 5]
    assert [row["our_usd"] for row in found] == [None, None]


def test_rows_that_are_billed_twice_are_claimed_with_all_streams_of_their_lines() -> None:
    twice = explained("duplicate_lines", 100, "1")
    lines = [
        line(twice, ours=OURS, rest=NONE, day="2026-03-01", model="gpt-5", key="river", tier="standard"),
        line(ours=OURS, rest=NONE, day="2026-03-01", model="gpt-5", key="delta", tier="standard"),
    ]
    own = {"upstream": "openai", "response_model": "gpt-5-2025-08-07", "credential_id": "key_1"}
    rows = [
        make_row(1, **own),
        make_row(2, **own | {"response_model": "gpt-5", "service_tier": "default"}),
        make_row(3, **own | {"credential_id": "key_2"}),
        make_row(4, **own | {"upstream": "anthropic"}),
        make_row(5, **own | {"response_model": "gpt-5-mini"}),
        make_row(6, **own | {"service_tier": "priority"}),
        make_row(7, **own | {"started_at": "2026-03-02T00:00:00.000000Z"}),
        make_row(8, **own | {"usage": ABSENT}),
    ]
    found = rows_of(lines, Wanted("duplicate_lines"), rows)
    assert [row["stream_id"] for row in found] == [stream_id(1), stream_id(2)]
    assert not claim_of(result_of(lines), Wanted("coverage")).whole_lines


def test_what_no_tap_saw_has_no_streams() -> None:
    claim = claim_of(result_of([line(explained("coverage", 5, "1"), ours=OURS, rest=NONE)]), Wanted("coverage"))
    assert (claim.lines, claim.whole_lines) == ({}, [])


def test_lines_without_a_day_are_looked_for_in_the_whole_period() -> None:
    part = explained("tier", 1, "1", stream_id(1))
    rows = [make_row(1, started_at="2026-03-31T23:59:59.000000Z")]
    assert len(rows_of([line(part, ours=OURS, rest=NONE, day=None)], Wanted("tier"), rows)) == 1


def test_a_record_that_is_none_is_left_out() -> None:
    row = make_row(1)
    forged = replace(row, record=row.record.replace(b'"timing":{', b'"timing":5,"other":{'))
    part = explained("tier", 1, "1", stream_id(1))
    assert rows_of([line(part, ours=OURS, rest=NONE, day="2026-03-01")], Wanted("tier"), [forged]) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"req_1": Decimal("0.5")}),
        ({"usd": None}, {}),
        ({"request_id": None}, {}),
        ({"currency": "EUR"}, {}),
    ],
)
def test_what_is_billed_for_a_request_adds_up(changes: dict[str, Any], expected: dict[str, Decimal]) -> None:
    rows = [
        InvoiceLine("openrouter", "2026-03-01", "m", usd=Decimal(usd), request_id="req_1")._replace(**changes)
        for usd in ("0.2", "0.3")
    ]
    assert billed_requests(rows) == expected
