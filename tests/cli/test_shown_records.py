"""Records as a person reads them: short texts, and a table that fits the terminal."""

import json
from typing import Any

import pytest

from streamgauge.cli.shown_records import count, dollars, duration, ending, table_of, tokens
from streamgauge.cli.tables import print_fitted
from streamgauge.core.record import Error
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import make_timing, make_usage


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.0, "0 ms"),
        (0.5154, "515 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (125.0, "2 min 5 s"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (999, "999"), (1_000, "1.0k"), (9_949, "9.9k"), (128_000, "128k"), (1_500_000, "1.5M")],
)
def test_counts(number: int, shown: str) -> None:
    assert count(number) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(None, "-"), ("0", "0"), ("0.00009", "<0.0001"), ("0.302703", "0.3027"), ("1", "1.00"), ("12.345", "12.34")],
)
def test_costs(usd: str | None, shown: str) -> None:
    assert dollars(usd) == shown


def test_a_count_that_is_not_known_is_no_zero() -> None:
    assert tokens({"input_tokens": None, "output_tokens": None}) == "-"
    assert tokens({"input_tokens": 0, "output_tokens": None}) == "0+?"
    assert tokens({"input_tokens": 12_345, "output_tokens": 50}) == "12k+50"
    assert tokens({"input_tokens": 12_345, "output_tokens": 50}, whole=True) == "12345+50"


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({"outcome": "completed", "status_code": 200}, "completed"),
        ({"outcome": "http_error", "status_code": 500}, "500 http_error"),
        ({"outcome": "http_error", "status_code": 401, "error": {"code": "invalid_api_key"}}, "401 invalid_api_key"),
        ({"outcome": "stream_error", "status_code": 200, "error": {"type": "overloaded_error"}}, "overloaded_error"),
        ({"outcome": "upstream_reset", "status_code": None, "error": {"phase": "transport", "code": "dns"}}, "dns"),
    ],
)
def test_an_ending_is_the_error_or_the_outcome_with_a_status_of_failure(record: dict[str, Any], shown: str) -> None:
    assert ending(record) == shown


def records() -> list[bytes]:
    changes: list[dict[str, Any]] = [
        {"response_model": "a-model-with-a-name-of-some-length", "tenant": "search", "status_code": 200},
        {
            "status_code": 401,
            "outcome": "http_error",
            "error": Error("before_stream", "invalid_request_error", "invalid_api_key", 401),
            "timing": make_timing(first_token_s=None),
            "usage": make_usage(None, None),
        },
    ]
    return [make_row(number, **more).record for number, more in enumerate(changes, 1)]


def lines(capsys: pytest.CaptureFixture[str], width: int | None, tenants: dict[str, str] | None = None) -> list[str]:
    columns, rows = table_of(records(), tenants or {}, whole=width is None)
    left_out = print_fitted(columns, rows, width)
    printed = capsys.readouterr().out.splitlines()
    assert width is None or max(map(len, printed)) <= width
    return [",".join(left_out), *printed]


def test_a_wide_terminal_shows_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    left_out, head, first, second = lines(capsys, 200)
    assert left_out == ""
    assert head.split() == [
        "stream", "2026-03-01", "upstream", "model", "tenant", "outcome", "ttft", "in+out", "cost", "duration"
    ]  # fmt: skip
    assert first.split()[:2] == [stream_id(1)[-8:], "00:00:01"]
    assert "a-model-with-a-name-of-some-length" in first
    assert second.split()[5:] == ["401", "invalid_api_key", "-", "-", "-", "350", "ms"]


def test_a_narrow_terminal_cuts_text_then_leaves_out_what_is_less_important(capsys: pytest.CaptureFixture[str]) -> None:
    left_out, head, first, _ = lines(capsys, 80)
    assert left_out == "tenant,duration"
    assert head.split() == ["stream", "2026-03-01", "upstream", "model", "outcome", "ttft", "in+out", "cost"]
    assert "a-model-w" in first
    assert "\u2026" in first
    left_out, head, *_ = lines(capsys, 60)
    assert head.split() == ["stream", "2026-03-01", "model", "outcome", "ttft"]


def test_the_first_text_is_shown_beside_a_first_token_of_reasoning(capsys: pytest.CaptureFixture[str]) -> None:
    timing = make_timing(first_token_s=0.506, first_reasoning_s=0.506, first_content_s=1.074)
    columns, rows = table_of([make_row(1).record, make_row(2, timing=timing).record], {}, whole=False)
    print_fitted(columns, rows, 120)
    head, plain, reasoned = capsys.readouterr().out.splitlines()
    assert head.split()[5:8] == ["ttft", "first", "text"]
    assert plain.split()[5:8] == ["200", "ms", "-"]
    assert reasoned.split()[5:9] == ["506", "ms", "1.1", "s"]


def test_an_output_that_is_no_terminal_has_whole_ids_times_and_names(capsys: pytest.CaptureFixture[str]) -> None:
    left_out, _, first, _ = lines(capsys, None)
    assert left_out == ""
    assert first.split()[:4] == [
        stream_id(1), "2026-03-01T00:00:01.000000Z", "nimbus", "a-model-with-a-name-of-some-length"
    ]  # fmt: skip


def test_the_tenants_of_credentials_are_shown() -> None:
    record = make_row(1, credential_id="key").record
    _, [row] = table_of([record], {"key": "river"}, whole=False)
    assert "river" in row
    assert "river" not in json.loads(record).values()


def test_records_of_several_days_have_the_day_beside_the_time() -> None:
    days = [make_row(n, started_at=at).record for n, at in ((1, "2026-03-01T23:59:59Z"), (2, "2026-03-02T00:00:00Z"))]
    columns, rows = table_of([*days, make_row(3, started_at=None).record], {}, whole=False)
    assert columns[1].name == "started (UTC)"
    assert [row[1] for row in rows] == ["03-01 23:59:59", "03-02 00:00:00", "-"]


def test_no_records_give_the_names_alone(capsys: pytest.CaptureFixture[str]) -> None:
    columns, rows = table_of([], {}, whole=False)
    assert print_fitted(columns, rows, 80) == []
    assert capsys.readouterr().out.split()[0] == "stream"
