"""Rate limits of a head: durations, times and counts as providers write them, and nothing else."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import RateLimit
from streamgauge.core.safe_values import MAX_SAFE_INTEGER
from streamgauge.recorder.rate_limit import RATE_LIMIT_HEADERS, rate_limit_of, reset_ns
from tests.each import each

NOW = datetime(2026, 11, 27, 10, 0, 0, tzinfo=UTC)
MS = 1_000_000
UNITS_NS = {
    "d": 86_400_000 * MS,
    "h": 3_600_000 * MS,
    "m": 60_000 * MS,
    "s": 1_000 * MS,
    "ms": MS,
    "us": 1_000,
    "ns": 1,
}


def reset(value: str) -> int | None:
    return reset_ns(value, lambda: NOW)


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("6m0s", 360_000),
        ("12ms", 12),
        ("1s", 1_000),
        ("0s", 0),
        ("2m59.56s", 179_560),
        ("1h2m3.5s", 3_723_500),
        ("24h0m0s", 86_400_000),
        ("1d2h", 93_600_000),
        ("1.5ms", 1.5),
        ("500us", 0.5),
        ("500µs", 0.5),
        ("500\xc2\xb5s", 0.5),  # the micro sign as UTF-8, read as Latin-1
        ("60", 60_000),
        ("33011.382867", 33_011_382.867),
        ("2026-11-27T10:01:30Z", 90_000),
        ("2026-11-27t10:01:30z", 90_000),
        ("2026-11-27 11:01:30.25+01:00", 90_250),
        ("2026-11-27T09:59:00Z", 0),  # it has passed
    ],
)
def test_resets(value: str, milliseconds: float) -> None:
    assert reset(value) == round(milliseconds * MS)


@each(
    [
        "", " ", "soon", "6m 0s", "-5", "-5s", "+5s", "1e3", "1e3s", ".5s", "5.", "5.s", "s", "ms", "5x", "0x10", "inf",
        "nan", "\u0661s", "12s\n", "1_000", "2026-11-27", "2026-11-27T10:01:30", "2026-13-27T10:01:30Z",
        "2026-11-27T24:00:00Z", "2026-11-27T10:01:60Z", "2026-W48-5T10:00:00Z", "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "1795687290", "1795687290000", "9" * 16, "9" * 17, "9" * 400,
        "105d", "9999999999999999h", "1s" * 33,
    ],
    repr,
)  # fmt: skip
def test_what_is_no_reset_is_ignored(value: str) -> None:
    assert reset(value) is None


def test_a_time_without_that_of_the_response_is_ignored() -> None:
    assert reset_ns("2026-11-27T10:01:30Z", lambda: None) is None
    assert reset_ns("1s", lambda: None) == 1_000 * MS


def test_openai() -> None:
    headers = {
        "x-ratelimit-limit-requests": "5000", "x-ratelimit-remaining-requests": "4999", "x-ratelimit-reset-requests": "12ms",
        "x-ratelimit-limit-tokens": "160000", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s",
    }  # fmt: skip
    assert rate_limit_of(headers, lambda: None) == RateLimit(5000, 4999, 12 * MS, 160_000, 0, 360_000 * MS)


def test_anthropic() -> None:
    headers = {
        "anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-11-27T10:00:01Z", "anthropic-ratelimit-tokens-limit": "40000",
        "anthropic-ratelimit-tokens-remaining": "39000", "anthropic-ratelimit-tokens-reset": "2026-11-27T10:00:02Z",
    }  # fmt: skip
    assert rate_limit_of(headers, lambda: NOW) == RateLimit(50, 49, 1_000 * MS, 40_000, 39_000, 2_000 * MS)
    assert rate_limit_of(headers, lambda: None) == RateLimit(50, 49, None, 40_000, 39_000, None)


def test_azure_without_a_limit() -> None:
    headers = {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}
    assert rate_limit_of(headers, lambda: NOW) == RateLimit(tokens_reset_ns=0)


@pytest.mark.parametrize("value", ["", "-1", "1.0", "1e3", "many", "0x1", " 1", "9" * 16, "9" * 400, "\u0661"])
def test_what_is_no_count_is_ignored(value: str) -> None:
    assert rate_limit_of({"x-ratelimit-limit-requests": value}, lambda: NOW) is None
    both = {"x-ratelimit-limit-requests": value, "anthropic-ratelimit-requests-limit": "7"}
    assert rate_limit_of(both, lambda: NOW) == RateLimit(requests_limit=7)


def test_a_head_without_them() -> None:
    assert rate_limit_of({"retry-after": "5", "x-ratelimit-limit": "60", "x-ratelimit-reset": "9"}, lambda: NOW) is None


ANY_VALUE = st.one_of(st.text(max_size=70), st.text("0123456789.hmsdunTZ:-+ µ", max_size=70))


@given(st.dictionaries(st.sampled_from(sorted(RATE_LIMIT_HEADERS)), ANY_VALUE), st.none() | st.datetimes())
def test_whatever_the_values_are_nothing_raises(headers: dict[str, str], now: datetime | None) -> None:
    found = rate_limit_of(headers, lambda: now and now.replace(tzinfo=UTC))
    fields = [] if found is None else [getattr(found, name) for name in found.__struct_fields__]
    assert all(field is None or (type(field) is int and 0 <= field <= MAX_SAFE_INTEGER) for field in fields)
    assert found is None or any(field is not None for field in fields)


@given(
    st.lists(
        st.tuples(st.integers(0, 999), st.integers(0, 999), st.sampled_from(list(UNITS_NS))), min_size=1, max_size=5
    )
)
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, int, str]]) -> None:
    value = "".join(f"{whole}.{fraction:03}{unit}" for whole, fraction, unit in parts)
    exact = sum((whole * 1000 + fraction) * UNITS_NS[unit] // 1000 for whole, fraction, unit in parts)
    assert reset(value) == (exact if exact <= MAX_SAFE_INTEGER and len(value) <= 64 else None)


@given(st.timedeltas(timedelta(0), timedelta(days=90)), st.integers(-1439, 1439))
def test_a_time_counts_from_the_response_in_any_zone(later: timedelta, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    assert reset((NOW + later).astimezone(zone).isoformat()) == later // timedelta(microseconds=1) * 1000
