"""Findings that need no invoice."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamgauge.audit.findings import Finding, Findings
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.our_sums import sums_of
from streamgauge.audit.ours import Ours
from streamgauge.audit.period import Period
from streamgauge.audit.tables import Tables
from streamgauge.core.record import Request
from streamgauge.ledger import Cost, LedgerRow, SqliteLedger
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import ABSENT, make_counts, make_usage

PERIOD = Period.of("2026-03-01", "2026-03-03", "UTC")


def found(folder: Path, rows: list[LedgerRow], miscounted: frozenset[str] = frozenset()) -> list[Finding]:
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.insert(rows)
        findings = Findings(PERIOD, miscounted)
        sums_of(Ours(ledger, PERIOD, Mapping()), ["nimbus"], findings, Tables())
        return findings.all(Counter())


def named(findings: list[Finding]) -> dict[str, tuple[str, ...]]:
    return {one.name: one.streams for one in findings}


def with_cost(row: LedgerRow, usd: str) -> LedgerRow:
    return replace(row, cost=Cost(int(Decimal(usd).scaleb(12)), None, "test", None))


def test_a_usual_stream_has_none(tmp_path: Path) -> None:
    assert found(tmp_path, [make_row(1), make_row(2)]) == []


def test_usage_that_is_missing_inconsistent_or_does_not_add_up(tmp_path: Path) -> None:
    rows = [
        make_row(1, usage=ABSENT),
        make_row(2, usage=ABSENT, outcome="client_abort"),  # it could not report any
        make_row(3, usage=make_usage(10, 5, input_cached_tokens=11)),
        make_row(4, usage=make_usage(10, None)),
        make_row(5, usage=make_usage(10, 5, bad_values=1)),
        make_row(6, usage=make_usage(10, 5, identity_failed="input+output=total")),
    ]
    assert named(found(tmp_path, rows)) == {
        "usage_missing": (stream_id(1),),
        "usage_inconsistent": (stream_id(3), stream_id(4), stream_id(5)),
        "totals_do_not_add_up": (stream_id(6),),
    }


def test_streams_that_a_recount_contradicts(tmp_path: Path) -> None:
    rows = [make_row(1), make_row(2), make_row(3, usage=ABSENT)]
    miscounted = frozenset({stream_id(2), stream_id(3), stream_id(9)})
    assert named(found(tmp_path, rows, miscounted))["reported_against_recount"] == (stream_id(2),)


def test_finish_reason_against_the_limit(tmp_path: Path) -> None:
    def row(number: int, limit: int | None, output: int, finish: str, n: int | None = None) -> LedgerRow:
        request = Request(max_tokens=limit, n=n)
        return make_row(number, request=request, usage=make_usage(10, output), finish_reason=finish)

    rows = [
        row(1, 100, 100, "length"), row(2, 100, 150, "stop"), row(3, 100, 40, "length"), row(4, None, 40, "length"),
        row(5, 100, 150, "stop", 2),
    ]  # fmt: skip
    assert named(found(tmp_path, rows)) == {"finish_reason_against_limit": (stream_id(2), stream_id(3))}


def test_ids_and_requests_that_occur_twice(tmp_path: Path) -> None:
    def row(number: int, **changes: Any) -> LedgerRow:
        return make_row(number, response_id=f"r{number}", **changes)

    rows = [
        row(1), row(2), make_row(3, response_id="r1"), make_row(4, response_id="r2", resumed_from="17"),
        row(5, request_digest="d", attempt=1), row(6, request_digest="d", attempt=2),
        row(7, request_digest="e", attempt=1, usage=ABSENT, outcome="upstream_reset"), row(8, request_digest="e", attempt=2),
    ]  # fmt: skip
    assert named(found(tmp_path, rows)) == {
        "duplicate_response_id": (stream_id(1), stream_id(3)),
        "request_billed_twice": (stream_id(5), stream_id(6)),
    }


def test_ids_that_were_masked_are_not_one_id(tmp_path: Path) -> None:
    assert found(tmp_path, [make_row(1, response_id="masked"), make_row(2, response_id="masked")]) == []


def test_independent_requests_with_one_body_are_not_billed_twice(tmp_path: Path) -> None:
    def at(number: int, minute: int, attempt: int, **changes: Any) -> LedgerRow:
        started = f"2026-03-01T10:{minute:02}:00Z"
        return make_row(
            number, response_id=f"r{number}", request_digest="d", attempt=attempt, started_at=started, **changes
        )

    rows = [
        at(1, 0, 1), at(2, 1, 1), at(3, 2, 1),
        at(4, 3, 2),  # repeats the third
        at(5, 4, 2), at(6, 5, 2),  # later attempts of requests whose first one is not known
        at(7, 6, 1), at(8, 30, 2),  # too long after the first one
        at(9, 31, 1), at(10, 32, 1, usage=ABSENT, outcome="upstream_reset"), at(11, 33, 2),
        at(12, 34, 3),
    ]  # fmt: skip
    (one,) = found(tmp_path, rows)
    assert (one.name, one.concerned) == ("request_billed_twice", 4)
    assert one.streams == (stream_id(3), stream_id(4), stream_id(11), stream_id(12))


@pytest.mark.slow
def test_all_streams_that_cost_many_times_the_mean_are_counted(tmp_path: Path) -> None:
    rows = [with_cost(make_row(number, usage=make_usage(1, 1)), "0.0001") for number in range(12_000)]
    rows[:130] = [with_cost(make_row(number), "1") for number in range(130)]
    (one,) = (one for one in found(tmp_path, rows) if one.name == "cost_outlier")
    assert (one.concerned, len(one.streams)) == (130, 100)


def test_a_stream_that_costs_many_times_the_mean(tmp_path: Path) -> None:
    rows = [with_cost(make_row(number), "0.01") for number in range(200)]
    rows[7] = with_cost(make_row(7), "5")
    assert named(found(tmp_path, rows)) == {"cost_outlier": (stream_id(7),)}


def test_a_cache_share_that_fell_and_an_output_that_drifts(tmp_path: Path) -> None:
    rows = []
    for number in range(400):
        is_late = number >= 200
        usage = make_usage(1_000, 120 if is_late else 100, input_cached_tokens=100 if is_late else 800)
        day = "2026-03-02" if is_late else "2026-03-01"
        started = f"{day}T01:{number // 60:02}:{number % 60:02}.000000Z"
        rows.append(make_row(number, started_at=started, usage=usage, counts=make_counts(text_chars=400)))
    findings = found(tmp_path, rows)
    assert [one.name for one in findings] == ["cache_share_fell", "output_per_character_drifted"]
    assert "80 %, in the second: 10 %" in findings[0].detail
    assert "0.250, in the second: 0.300" in findings[1].detail


def test_streams_outside_of_the_period_have_none(tmp_path: Path) -> None:
    assert found(tmp_path, [make_row(1, usage=ABSENT, started_at="2026-03-03T00:00:00.000000Z")]) == []
