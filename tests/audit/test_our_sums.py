"""The sums of our side by SQL are those of the records, one by one; what two taps saw counts once; parts are added."""

import random
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, plus
from streamgauge.audit.cells import OurCell
from streamgauge.audit.findings import Finding, Findings
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.our_sums import OurSums, sums_of
from streamgauge.audit.ours import GroupKey, Ours
from streamgauge.audit.period import QUARTER_US, Period
from streamgauge.audit.tables import Tables
from streamgauge.ledger import Cost, Ledger, LedgerRow, SeveralLedgers, SqliteLedger, open_ledger, usage
from tests.ledger.places import SCHEMES, fresh_url
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import ABSENT, make_timing, make_usage

PERIOD = Period.of("2026-03-01", "2026-03-03", "Europe/Berlin")
DAYS = ("2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04")


def sums(ledger: Ledger | SeveralLedgers, period: Period = PERIOD) -> tuple[OurSums, list[Finding], Ours]:
    ours, findings = Ours(ledger, period, Mapping({"relay": "openai"})), Findings(period)
    found = sums_of(ours, ["openai"], findings, Tables())
    return found, findings.all(found.unmapped), ours


def by_record(ours: Ours) -> tuple[dict[GroupKey, OurCell], dict[int, Tokens]]:
    """The same from the records, one by one."""
    cells: dict[GroupKey, OurCell] = {}
    quarters: dict[int, Tokens] = {}
    for stream in ours.streams(lambda group: group.provider == "openai"):
        cell = cells.setdefault(stream.group, OurCell())
        cell.add(stream.tokens, stream.usd, stream.has_usage, stream.reasoning)
        quarter = stream.start_us // QUARTER_US
        quarters[quarter] = plus(quarters.get(quarter, ZERO), stream.tokens)
    return cells, {quarter: tokens for quarter, tokens in quarters.items() if tokens != ZERO}


counts = st.none() | st.integers(0, 50) | st.just(2**59)
usages = st.builds(
    lambda given, output, cached, written, reasoning, source: make_usage(
        given, output, input_cached_tokens=cached, input_cache_write_tokens=written, reasoning_tokens=reasoning, source=source
    ),
    counts, counts, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9),
    st.sampled_from(["final", "partial", "estimated"]),
)  # fmt: skip
records = st.fixed_dictionaries(
    {
        "started_at": st.builds(
            lambda day, hour, minute, second: f"{day}T{hour:02}:{minute:02}:{second:02}.000000Z",
            st.sampled_from(DAYS), st.sampled_from([0, 12, 22, 23]), st.sampled_from([0, 14, 15, 59]), st.integers(0, 59),
        ),
        "upstream": st.sampled_from(["openai", "relay", "other", None]),
        "response_model": st.sampled_from(["m", "n", None]),
        "tenant": st.sampled_from(["t", None]),
        "credential_id": st.sampled_from(["c", None]),
        "service_tier": st.sampled_from(["priority", None]),
        "usage": usages | st.just(ABSENT),
        "outcome": st.sampled_from(["completed", "client_abort"]),
        "response_id": st.none() | st.sampled_from(["r1", "r2", "masked"]),
        "tap_instance": st.sampled_from(["a", "b", "c"]),
        "provider_request_id": st.none() | st.sampled_from(["q1", "q2"]),
        "resumed_from": st.sampled_from([None, None, None, "17"]),
    }
)  # fmt: skip
prices = st.none() | st.builds(
    Cost, st.none() | st.integers(0, 10**13), st.none() | st.integers(0, 2**61), st.just("list"), st.none()
)


@pytest.fixture(params=SCHEMES, scope="module")
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, scheme: str) -> Iterator[Ledger]:
    with open_ledger(fresh_url(request, scheme)) as opened:
        yield opened


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(drawn=st.lists(st.tuples(records, prices), max_size=12), step_rows=st.sampled_from([1, 3, 100]))
def test_sums_by_sql_are_those_of_the_records(
    drawn: list[tuple[dict[str, Any], Cost | None]], step_rows: int, ledger: Ledger
) -> None:
    ledger.expire(2**62, 10**6)
    while ledger.expire(2**62, 10**6).more:
        pass
    rows = [priced(make_row(number, **known), cost) for number, (known, cost) in enumerate(drawn)]
    ledger.insert(rows)
    before, usage.STEP_ROWS = usage.STEP_ROWS, step_rows
    try:
        found, _, ours = sums(ledger)
    finally:
        usage.STEP_ROWS = before
    cells, quarters = by_record(ours)
    empty = OurCell()
    assert {group: cell for group, cell in found.cells.items() if cell != empty} == cells
    ours_by_quarter = found.by_quarter(ours, "openai")
    assert {quarter: tokens for quarter, tokens in ours_by_quarter.items() if tokens != ZERO} == quarters


def priced(row: LedgerRow, cost: Cost | None) -> LedgerRow:
    from dataclasses import replace

    return replace(row, cost=cost)


def seen_twice(number: int, tap: str, **changes: Any) -> LedgerRow:
    known: dict[str, Any] = {"upstream": "openai", "response_id": "r1", "tap_instance": tap, "usage": make_usage(10, 5)}
    return make_row(number, **{**known, "timing": make_timing(end_s=30.0), **changes})


def found_in(ledger: Ledger, rows: Iterable[LedgerRow]) -> tuple[int, int, list[tuple[str, tuple[str, ...]]]]:
    """Our tokens, our streams, and the findings."""
    ledger.insert(list(rows))
    found, findings, ours = sums(ledger)
    assert by_record(ours)[0] == {group: cell for group, cell in found.cells.items() if cell != OurCell()}
    named = [(one.name, one.streams) for one in findings if one.name != "upstream_without_invoice"]
    return (
        sum(cell.tokens.total for cell in found.cells.values()),
        sum(cell.streams for cell in found.cells.values()),
        named,
    )


def test_a_call_that_two_taps_saw_counts_once(ledger: Ledger) -> None:
    rows = [seen_twice(100, "outer", upstream="relay"), seen_twice(101, "inner")]
    assert found_in(ledger, rows) == (15, 1, [("seen_by_two_taps", (stream_id(101),))])


def test_a_call_that_two_taps_saw_by_the_id_of_the_request(ledger: Ledger) -> None:
    rows = [seen_twice(100, "a", response_id=None, provider_request_id="q"),
            seen_twice(101, "b", response_id="masked", provider_request_id="q"),
            seen_twice(102, "c", response_id=None, provider_request_id="p")]  # fmt: skip
    assert found_in(ledger, rows) == (30, 2, [("seen_by_two_taps", (stream_id(101),))])


def test_three_taps_and_a_step_between_them(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "STEP_ROWS", 1)
    rows = [seen_twice(number, str(number)) for number in (100, 101, 102)]
    assert found_in(ledger, rows) == (15, 1, [("seen_by_two_taps", (stream_id(101), stream_id(102)))])


@pytest.mark.parametrize(
    "changes",
    [
        {"tap_instance": "outer"},  # the same tap
        {"usage": make_usage(10, 6)},
        {"started_at": "2026-03-01T00:05:00.000000Z"},  # after the first one ended
    ],
)
def test_calls_that_only_share_an_id_stay_apart(changes: dict[str, Any], ledger: Ledger) -> None:
    rows = [seen_twice(100, "outer"), seen_twice(101, "inner", **changes)]
    tokens, streams, findings = found_in(ledger, rows)
    assert (tokens in (30, 31), streams) == (True, 2)
    assert findings == [("duplicate_response_id", (stream_id(100), stream_id(101)))]


@pytest.mark.parametrize("count", [3, 50])
def test_an_upstream_that_repeats_one_id_loses_no_stream(count: int, ledger: Ledger) -> None:
    rows = [seen_twice(number, "ab"[number % 2]) for number in range(100, 100 + count)]
    tokens, streams, findings = found_in(ledger, rows)
    assert (tokens, streams) == (15 * count, count)
    assert findings == [("duplicate_response_id", tuple(stream_id(number) for number in range(100, 100 + count)))]


def test_parts_are_part_of_ours(ledger: Ledger) -> None:
    parts: list[dict[str, object]] = [
        {"type": "compaction", "input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": 3},
        {"type": "server_tool", "name": "web_search", "requests": 2},
        {"type": "server_tool", "name": "image_gen", "input_tokens": 9_000, "output_tokens": 9_000},
        {"type": "advisor_message", "model": "another", "input_tokens": 50, "output_tokens": 5},
    ]
    row = make_row(100, upstream="openai", response_model="m", usage=make_usage(10, 5, parts=parts))
    ledger.insert([priced(row, Cost(1, 1, "list", None))])
    found, _, ours = sums(ledger)
    cells = {group.model: cell for group, cell in found.cells.items()}
    assert cells["m"].tokens == Tokens(110, 3, 0, 12)
    assert cells["another"].tokens == Tokens(50, 0, 0, 5)
    assert (cells["m"].unpriced, cells["another"].unpriced) == (1, 1)  # its cost is not divided between the models
    streams = list(ours.streams(lambda _: True))
    assert [(one.group.model, one.tokens) for one in streams] == [(m, cell.tokens) for m, cell in cells.items()]


def test_billed_units_stand_in_place_of_the_reported_tokens(ledger: Ledger) -> None:
    parts: list[dict[str, object]] = [
        {"type": "billed_units", "input_tokens": 4, "output_tokens": 3, "search_units": 1}
    ]
    ledger.insert([make_row(100, upstream="openai", usage=make_usage(10, 5, parts=parts))])
    (cell,) = sums(ledger)[0].cells.values()
    assert cell.tokens == Tokens(4, 0, 0, 3)


def test_what_two_ledgers_have_counts_once(tmp_path: Path) -> None:
    parts: list[dict[str, object]] = [{"type": "compaction", "input_tokens": 100, "output_tokens": 7}]
    rows = [make_row(n, upstream="openai", usage=make_usage(10, 5, parts=parts if n % 2 else [])) for n in range(6)]
    with SqliteLedger(tmp_path / "a") as one, SqliteLedger(tmp_path / "b") as other:
        one.insert(rows[:4])
        other.insert(rows[2:])
        found, _, ours = sums(SeveralLedgers([one, other]))
        (cell,) = found.cells.values()
        assert (cell.streams, cell.tokens.total, found.streams) == (6, 6 * 15 + 3 * 107, 6)
        assert by_record(ours)[0] == found.cells


def test_the_digest_is_that_of_the_records(tmp_path: Path) -> None:
    rows = [make_row(n, upstream="openai", response_model="mn"[n % 2]) for n in range(20)]
    digests = []
    for number, chosen in enumerate(
        [rows, rows, rows[:-1], [*rows[:-1], make_row(19, upstream="openai", service_tier="x")]]
    ):
        shuffled = list(chosen)
        random.Random(number).shuffle(shuffled)
        with SqliteLedger(tmp_path / str(number)) as stored:
            for row in shuffled:
                stored.insert([row])
            digests.append(sums(stored)[0].sha256)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_the_digest_does_not_depend_on_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteLedger(tmp_path / "ledger") as stored:
        stored.insert([make_row(n, upstream="openai") for n in range(20)])
        before = sums(stored)[0]
        monkeypatch.setattr(usage, "STEP_ROWS", 3)
        assert sums(stored)[0].sha256 == before.sha256


def test_money_is_exact_beyond_what_the_engine_adds_up(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger") as stored:
        stored.insert([priced(make_row(n, upstream="openai"), Cost(2**62, 1, "list", None)) for n in range(5)])
        (cell,) = sums(stored)[0].cells.values()
    assert cell.usd == Decimal(5 * (2**62 + 1)).scaleb(-12) != ZERO_USD
