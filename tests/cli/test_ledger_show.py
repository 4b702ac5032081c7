"""`streamgauge ledger show`: one record, found by its id or a part of it."""

import json
from pathlib import Path

import pytest

from streamgauge.core.record import Error
from streamgauge.ledger import SqliteLedger
from streamgauge.prices import Prices
from tests.ledger.rows import make_row
from tests.metrics.records import make_timing, make_usage
from tests.running import here

pytestmark = pytest.mark.slow

ID = "01a1eb37-0406-7072-8eb1-d94bcdf84404"
RETRY = "01a1eb37-0407-7072-8eb1-d94bcdf80405"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    broken = {
        "stream_id": ID,
        "status_code": 503,
        "outcome": "http_error",
        "error": Error("before_stream", "server_error", "overloaded", 503),
        "usage": make_usage(None, None),
        "timing": make_timing(first_token_s=None, end_s=0.4, headers_s=0.3),
        "request_digest": "d" * 32,
        "attempt": 1,
        "tenant": None,
        "credential_id": "c" * 32,
    }
    retry = {
        "stream_id": RETRY,
        "status_code": 200,
        "request_digest": "d" * 32,
        "attempt": 2,
        "tenant": "search",
        "request_model": "gpt-4o-mini",
        "response_model": "gpt-4o-mini",
        "host": "api.openai.com",
        "provider_request_id": "req_7",
        "usage": make_usage(1_200, 50, input_cached_tokens=1_000, reasoning_tokens=20),
        "timing": make_timing(first_token_s=0.5, first_reasoning_s=0.5, first_content_s=1.25, end_s=2.0),
    }
    hour_later = {"request_digest": "d" * 32, "started_at": "2026-03-01T01:00:30Z"}
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=Prices()) as ledger:
        ledger.insert([make_row(1, **broken), make_row(2, **retry), make_row(3, **hour_later)])
    return tmp_path


def facts(text: str) -> dict[str, str]:
    """The lines before the first empty one."""
    lines = [line.split("  ", 1) for line in text.partition("\n\n")[0].splitlines()]
    return {name: rest.strip() for name, rest in lines}


def test_a_record_is_shown_by_its_facts(data_dir: Path) -> None:
    done = here("ledger", "show", RETRY[-8:], "--data-dir", str(data_dir))
    assert (done.returncode, done.stderr) == (0, "")
    shown = facts(done.stdout)
    assert shown["stream"] == RETRY
    assert shown["started"] == "2026-03-01T00:00:02.000000Z"
    assert shown["tenant"] == "search"
    assert shown["upstream"] == "nimbus at api.openai.com, openai-chat /chat/completions"
    assert shown["model"] == "gpt-4o-mini"
    assert (shown["status"], shown["outcome"]) == ("200", "completed, finish reason stop")
    assert "error" not in shown
    assert shown["first token"] == "500 ms (first text 1.2 s)"
    assert shown["pace"] == "40.0 tokens a second"
    assert shown["tokens"] == "input 1,200 (1,000 read from a cache), output 50 (20 reasoning); usage final"
    assert shown["cost"].startswith("0.000135 USD (genai-prices")
    assert (shown["request id of the provider"], shown["attempt"]) == ("req_7", "2")


def test_attempts_of_the_same_request_are_listed_with_it(data_dir: Path) -> None:
    done = here("ledger", "show", "01a1eb37-0406", "--data-dir", str(data_dir))
    shown = facts(done.stdout)
    assert shown["error"] == "overloaded (phase before_stream, type server_error, code overloaded, status 503)"
    assert shown["first token"] == "none came"
    assert shown["tokens"] == "not reported (final)"
    assert shown["cost"] == "unknown: the response reported neither tokens nor a cost (no_usage)"
    assert shown["tenant"] == f"none (credential {'c' * 32})"
    head, names, *rows = done.stdout.partition("\n\n")[2].splitlines()
    assert head == "Attempts of the same request, within 15 minutes"
    assert names.split()[0] == "stream"
    assert [row.split()[0] for row in rows] == [ID, RETRY], "the same request an hour later is no attempt of it"


def test_tenants_of_credentials_are_named(data_dir: Path) -> None:
    (data_dir / "tenants.toml").write_text(f'{"c" * 32} = "river"\n')
    done = here("ledger", "show", ID, "--data-dir", str(data_dir), "--tenants", str(data_dir / "tenants.toml"))
    assert facts(done.stdout)["tenant"] == f"river (credential {'c' * 32})"


@pytest.mark.parametrize("part", [ID, ID.upper(), ID.replace("-", ""), "01a1eb370406", "cdf84404", "8eb1d94bcdf84404"])
def test_json_is_the_record_as_the_ledger_has_it(data_dir: Path, part: str) -> None:
    done = here("ledger", "show", part, "--output", "json", "--data-dir", str(data_dir))
    assert (done.returncode, done.stderr) == (0, "")
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        assert done.stdout.encode() == ledger.with_id(ID, 1)[0] + b"\n"
    assert json.loads(done.stdout)["stream_id"] == ID


def test_an_id_of_several_streams_lists_them(data_dir: Path) -> None:
    done = here("ledger", "show", "01a1eb37", "--data-dir", str(data_dir))
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["stream", ID, RETRY]
    assert "01a1eb37 is a part of the ids of 2 streams: write more of it" in done.stderr


def test_an_id_that_no_stream_has(data_dir: Path) -> None:
    done = here("ledger", "show", "ffff0000", "--data-dir", str(data_dir))
    assert (done.returncode, done.stdout) == (1, "")
    assert "the ledger has no stream whose id begins or ends with ffff0000" in done.stderr
    wrong = here("ledger", "show", "%", "--data-dir", str(data_dir))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'%' is no stream id" in wrong.stderr
