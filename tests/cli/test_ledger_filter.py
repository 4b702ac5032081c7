"""The values that --since, --until and --where of `streamgauge ledger query` accept and refuse."""

from itertools import product
from typing import get_args

import pytest

from streamgauge.cli.ledger import MAX_CONDITIONS, MAX_TENANTS, VALUES, filter_of
from streamgauge.errors import UsageFault
from streamgauge.ledger import KEYS, Comparison, Filter
from streamgauge.records import FinishReason, Outcome, Usage
from tests.each import each
from tests.ledger.rows import make_row

DAY_US = 86_400_000_000


def test_the_closed_values_are_those_of_records() -> None:
    assert set(VALUES["outcome"]) == set(get_args(Outcome))
    assert set(VALUES["finish_reason"]) == set(get_args(FinishReason))
    assert set(VALUES["usage_source"]) == set(get_args(Usage.__annotations__["source"]))


@pytest.mark.parametrize(
    ("given", "us"),
    [
        ("1970-01-01", 0),
        ("1970-01-02", DAY_US),
        ("1969-12-31", -DAY_US),
        (" 1970-01-02 ", DAY_US),
        ("1970-01-02T00:00:00Z", DAY_US),
        ("1970-01-02 00:00:00z", DAY_US),
        ("1970-01-02t00:00:00+00:00", DAY_US),
        ("1970-01-02T01:30:00+01:30", DAY_US),
        ("1970-01-01T23:00:00-01:00", DAY_US),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.123456789Z", 123_456),
        ("0001-01-01T00:00:00+01:00", -62_135_600_400_000_000),
        ("9999-12-31T23:59:59-01:00", 253_402_304_399_000_000),
    ],
)
def test_times(given: str, us: int) -> None:
    assert filter_of(given, None, None) == Filter(since_us=us)
    assert filter_of(None, given, None) == Filter(until_us=us)


def test_a_time_of_a_record_is_the_start_of_the_range_that_begins_with_it() -> None:
    assert filter_of("2026-03-01T00:00:07.000000Z", None, None).since_us == make_row(7).started_us


INVALID_TIMES = (
    "", "yesterday", "2026", "2026-11", "20261101", "2026-W45-1", "2026-13-01", "2026-02-30", "0000-01-01",
    "2026-11-01T09:30Z", "2026-11-01T09:30:00", "2026-11-01T25:00:00Z", "2026-11-01T09:30:60Z",
    "2026-11-01T09:30:00+25:00", "2026-11-01T09:30:00,5Z", "1761955200", "2026-11-01\n2026",
    "\u0662\u0660\u0662\u0666-11-01",
)  # fmt: skip


@each(product(INVALID_TIMES, ["--since", "--until"]))
def test_an_invalid_time_is_refused_with_the_valid_forms(case: tuple[str, str]) -> None:
    given, option = case
    since, until = (given, None) if option == "--since" else (None, given)
    with pytest.raises(
        UsageFault, match=f"(?s){option} .*a date of --timezone such as 2026-11-01, or an RFC 3339 time such as 2026"
    ):
        filter_of(since, until, None)


@pytest.mark.parametrize("until", ["2026-11-01", "2026-10-31", "2026-11-01T00:30:00+01:00"])
def test_an_empty_range_is_refused(until: str) -> None:
    with pytest.raises(UsageFault, match="must be later than --since 2026-11-01"):
        filter_of("2026-11-01", until, None)


def test_conditions_in_order_with_null_for_an_empty_value() -> None:
    where = ["tenant=a=b", "tenant=", " outcome =truncated", "attempt=0", "attempt=", "model= "]
    assert filter_of(None, None, where).where == (
        ("tenant", "a=b"),
        ("tenant", None),
        ("outcome", "truncated"),
        ("attempt", 0),
        ("attempt", None),
        ("model", " "),
    )
    assert filter_of(None, None, None) == Filter()


@pytest.mark.parametrize("given", ["tenant", "", "colour=red", "=red", "Tenant=a", "record=x", "day;=1"])
def test_a_condition_with_an_unknown_key_is_refused_with_the_keys(given: str) -> None:
    with pytest.raises(UsageFault) as refused:
        filter_of(None, None, [given])
    assert ", ".join(KEYS) in str(refused.value)


@pytest.mark.parametrize("value", ["two", "-1", "+1", "1.0", " 1", "1_0", "2147483648", "9" * 10_000, "\u0661"])
def test_an_attempt_is_a_whole_number(value: str) -> None:
    with pytest.raises(
        UsageFault, match=r"--where attempt=\.\.\.: the value must be a whole number from 0 to 2147483647"
    ):
        filter_of(None, None, [f"attempt={value}"])


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        ("ttft>2", ("ttft", ">", 2.0)),
        ("duration >=30.5", ("duration", ">=", 30.5)),
        ("cost>0.000000000001", ("cost", ">", 1)),
        ("cost<=1", ("cost", "<=", 10**12)),
        ("status=429", ("status", "=", 429.0)),
        ("status!=200", ("status", "!=", 200.0)),
        ("ttft=", ("ttft", "=", None)),
        ("outcome!=completed", ("outcome", "!=", "completed")),
        ("tenant!=", ("tenant", "!=", None)),
        ("attempt!=1", ("attempt", "!=", 1)),
    ],
)
def test_comparisons(given: str, condition: tuple[str, str, object]) -> None:
    assert filter_of(None, None, [given]) == Filter(compared=(Comparison(*condition),))  # type: ignore[arg-type]


def test_the_first_sign_divides_key_and_value() -> None:
    assert filter_of(None, None, ["tenant=a>b", "model=!=x"]).where == (("tenant", "a>b"), ("model", "!=x"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("ttft>", "the value must be seconds, as in 'ttft>2'"),
        ("ttft>2s", "the value must be seconds"),
        ("ttft>-1", "the value must be seconds"),
        ("ttft>nan", "the value must be seconds"),
        ("duration>1e9", "the value must be seconds"),
        ("cost>1 USD", "the value must be US dollars, as in 'cost>0.5'"),
        ("status>=5xx", "the value must be an HTTP status"),
        ("model>gpt", "only ttft, duration, cost, status are compared by >: write model=VALUE"),
        ("outcome!=eror", "the value must be one of completed, http_error"),
        ("colour!=red", "colour is not a key"),
        ("stream_id=01a1eb37", "`ledger show` finds a stream by a part of its id"),
    ],
)
def test_a_comparison_that_no_record_can_have_is_refused(given: str, why: str) -> None:
    with pytest.raises(UsageFault) as refused:
        filter_of(None, None, [given])
    assert why in str(refused.value)


def test_a_value_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(UsageFault, match="must be UTF-8"):
        filter_of(None, None, ["tenant=caf\udce9"])


def test_the_limit_of_conditions() -> None:
    where = [f"tenant={number}" for number in range(MAX_CONDITIONS)]
    assert len(filter_of(None, None, where).where) == MAX_CONDITIONS
    with pytest.raises(UsageFault, match=f"given {MAX_CONDITIONS + 1} times: at most {MAX_CONDITIONS} "):
        filter_of(None, None, [*where, "tenant=x"])


@pytest.mark.parametrize(
    ("month", "zone", "first", "end"),
    [
        ("1970-01", "UTC", 0, 31 * DAY_US),
        ("1969-12", "UTC", -31 * DAY_US, 0),
        (" 1970-01 ", "Europe/Berlin", -3_600_000_000, 31 * DAY_US - 3_600_000_000),
        ("2026-03", "America/New_York", 1_772_341_200_000_000, 1_775_016_000_000_000),
    ],
)
def test_a_month_is_that_of_the_time_zone(month: str, zone: str, first: int, end: int) -> None:
    chosen = filter_of(None, None, None, month=month, timezone=zone)
    assert (chosen.since_us, chosen.until_us, chosen.timezone) == (first, end, zone)


def test_a_date_is_that_of_the_time_zone_and_a_time_has_its_own() -> None:
    assert filter_of("1970-01-02", None, None, timezone="Europe/Berlin").since_us == DAY_US - 3_600_000_000
    assert filter_of("1970-01-02T00:00:00Z", None, None, timezone="Europe/Berlin").since_us == DAY_US


@pytest.mark.parametrize(
    "month", ["", "2026", "2026-1", "2026-13", "2026-00", "0000-01", "9999-12", "2026-11-01", "november"]
)
def test_another_month_is_refused(month: str) -> None:
    with pytest.raises(UsageFault, match="is not a month: write a year and a month, as in 2026-11"):
        filter_of(None, None, None, month=month)


def test_the_limit_of_tenants() -> None:
    tenants = {str(number): "a" for number in range(MAX_TENANTS)}
    assert len(filter_of(None, None, None, tenants=tenants).tenants) == MAX_TENANTS
    with pytest.raises(UsageFault, match=f"at most {MAX_TENANTS} are allowed"):
        filter_of(None, None, None, tenants={**tenants, "b": "b"})


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("outcome=eror", "http_error"),
        ("outcome=Completed", "did you mean completed?"),
        ("outcome=upstream-reset", "did you mean upstream_reset?"),
        ("finish_reason=max_tokens", "length, tool_calls"),
        ("usage_source=last", "final, partial"),
        ("dialect=openai", "openai-chat"),
        ("tap=sidecar", "proxy, httpx"),
        ("day=2026-11", "a day such as 2026-11-01"),
        ("month=november", "a month such as 2026-11"),
    ],
)
def test_a_value_that_no_record_can_have_is_an_error_that_names_the_allowed_ones(given: str, allowed: str) -> None:
    with pytest.raises(UsageFault) as refused:
        filter_of(None, None, [given])
    assert allowed in str(refused.value)
    assert "or empty for null" in str(refused.value)


def test_every_value_that_records_have_is_allowed() -> None:
    for key, values in VALUES.items():
        assert filter_of(None, None, [f"{key}={value}" for value in values]).where == tuple(
            (key, one) for one in values
        )
    assert filter_of(None, None, ["outcome=", "day=2026-11-01", "month=2026-11", "tenant=eror"]).where[0] == (
        "outcome",
        None,
    )
