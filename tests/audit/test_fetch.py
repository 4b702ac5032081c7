"""Usage and costs of a month, got from a server that answers as the documents of the admin APIs say."""

import json
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from streamgauge.audit.fetch import APIS, MAX_PAGE, MAX_TRIES, Fetching, Month
from streamgauge.audit.invoices import open_invoices
from streamgauge.errors import Unavailable, UsageFault
from tests.audit.invoices.samples import BY_NAME
from tests.running import here

KEY = "sk-admin-secret-0123456789"
NOVEMBER = Month.of("2026-11")
DAY = 86_400


class Answer:
    """What the server says. `body`: JSON, or bytes."""

    def __init__(self, body: Any = b"", status: int = 200, **headers: str) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status
        self.headers = headers


class Request:
    """What the server was asked."""

    def __init__(self, path: str, headers: dict[str, str]) -> None:
        parts = urlsplit(path)
        self.path, self.params, self.headers = parts.path, parse_qs(parts.query), headers


Script = Callable[[Request], Answer]


@contextmanager
def server(script: Script) -> Iterator[tuple[str, list[Request]]]:
    """An API at an address of this machine, and the requests that it got."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            request = Request(self.path, {name.lower(): value for name, value in self.headers.items()})
            requests.append(request)
            answer = script(request)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}", requests
        finally:
            http.shutdown()
            thread.join()


def openai(request: Request) -> Answer:
    """OpenAI's API: two pages of usage, one of anything else."""
    start = int(request.params["start_time"][0])
    second = "page" in request.params
    name = {"completions": "OpenAI usage (API)", "costs": "OpenAI costs (API)"}.get(request.path.rpartition("/")[2])
    rows = [] if name is None else [BY_NAME[name].rows[0]]
    bucket = {
        "object": "bucket",
        "start_time": start + DAY * second,
        "end_time": start + DAY * (second + 1),
        "results": rows,
    }
    more = request.path.endswith("completions") and not second
    return Answer({"object": "page", "data": [bucket], "has_more": more, "next_page": "page_2" if more else None})


def anthropic(request: Request) -> Answer:
    """Anthropic's API: one page."""
    name = "Anthropic cost report (API)" if request.path.endswith("cost_report") else "Anthropic usage report (API)"
    start = request.params["starting_at"][0]
    bucket = {"starting_at": start, "ending_at": start.replace("-01T", "-02T"), "results": [BY_NAME[name].rows[0]]}
    return Answer({"data": [bucket], "has_more": False, "next_page": None})


def pages_of(provider: str, url: str, sleep: Callable[[float], None] = lambda _: None) -> tuple[list[bytes], list[str]]:
    """All pages of a month, and what was said."""
    said: list[str] = []
    fetching = Fetching(provider, KEY, url, said.append, sleep)
    return [page for report in fetching.reports(NOVEMBER) for page, _ in fetching.pages(report)], said


# --- requests --------------------------------------------------------------------------------------------------------


def test_openai_is_asked_as_its_documents_say() -> None:
    with server(openai) as (url, requests):
        pages, said = pages_of("openai", url)
    assert (len(pages), said) == (4, [])
    assert [request.path for request in requests] == [
        "/v1/organization/usage/completions",
        "/v1/organization/usage/completions",
        "/v1/organization/usage/embeddings",
        "/v1/organization/costs",
    ]
    first, second, _, costs = requests
    assert first.params == {
        "start_time": ["1793491200"], "end_time": ["1796083200"], "bucket_width": ["1d"], "limit": ["31"],
        "group_by": ["model", "project_id", "api_key_id", "batch", "service_tier"],
    }  # fmt: skip
    assert second.params == {**first.params, "page": ["page_2"]}
    assert costs.params["group_by"] == ["line_item", "project_id"]
    assert {request.headers["authorization"] for request in requests} == {f"Bearer {KEY}"}


def test_anthropic_is_asked_as_its_documents_say() -> None:
    with server(anthropic) as (url, requests):
        pages, _ = pages_of("anthropic", url)
    assert len(pages) == 2
    usage, costs = requests
    assert (usage.path, costs.path) == ("/v1/organizations/usage_report/messages", "/v1/organizations/cost_report")
    assert usage.params == {
        "starting_at": ["2026-11-01T00:00:00Z"], "ending_at": ["2026-12-01T00:00:00Z"], "bucket_width": ["1d"],
        "limit": ["31"], "group_by[]": ["model", "workspace_id", "api_key_id", "service_tier"],
    }  # fmt: skip
    assert costs.params["group_by[]"] == ["workspace_id", "description"]
    assert (usage.headers["x-api-key"], usage.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in usage.headers


@pytest.mark.parametrize(
    ("text", "start", "end"), [("2026-11", "2026-11-01", "2026-12-01"), ("2026-12", "2026-12-01", "2027-01-01")]
)
def test_a_month_ends_where_the_next_one_begins(text: str, start: str, end: str) -> None:
    month = Month.of(text)
    assert [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" for at in (month.start, month.end)] == [start, end]


@pytest.mark.parametrize("text", ["2026", "2026-13", "2026-11-01", "x", ""])
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(UsageFault, match="is not a month such as 2026-11"):
        Month.of(text)


# --- what fails ------------------------------------------------------------------------------------------------------


def failing(answers: Sequence[Answer]) -> Script:
    """The answers one after another, then those of OpenAI."""
    rest = iter(answers)

    def script(request: Request) -> Answer:
        return next(rest, None) or openai(request)

    return script


def test_a_page_is_tried_again_after_the_time_that_the_answer_asks_for() -> None:
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    answers = [
        Answer(status=429, retry_after="7"),
        Answer(status=503),
        Answer(status=500, retry_after="soon"),
        Answer(status=429, retry_after=in_a_minute),
        Answer(status=429, retry_after="100000"),
    ]
    waits: list[float] = []
    with server(failing(answers)) as (url, requests):
        pages, said = pages_of("openai", url, waits.append)
    assert (len(pages), len(requests)) == (4, 9)
    assert waits[:3] == [7, 2, 4]
    assert 50 < waits[3] <= 60
    assert waits[4] == 300
    assert said[0] == "/v1/organization/usage/completions: HTTP 429, next try in 7 s"


def test_a_provider_that_stays_away_is_unavailable() -> None:
    with server(lambda _: Answer(status=529)) as (url, requests):
        with pytest.raises(Unavailable, match="failed 6 times, at last with HTTP 529: run the command again later"):
            pages_of("openai", url)
        assert len(requests) == MAX_TRIES


def test_an_address_that_nobody_serves_is_unavailable() -> None:
    with server(openai) as (url, _):
        pass
    with pytest.raises(Unavailable, match="failed 6 times, at last with ConnectError"):
        pages_of("openai", url)


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_is_not_tried_again_and_not_said(status: int) -> None:
    body = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    with server(lambda _: Answer(body, status)) as (url, requests):
        with pytest.raises(UsageFault, match=f"HTTP {status}: --key-file has to hold an admin key") as refused:
            pages_of("openai", url)
        assert len(requests) == 1
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answer(status=404), "HTTP 404: this version does not know such an answer"),
        (Answer(status=302, location="https://elsewhere.example/"), "HTTP 302: this version does not know"),
        (Answer(b"<html>"), "the answer is no page: it has no list `data`"),
        (Answer([]), "the answer is no page"),
        (Answer({"data": {}}), "the answer is no page"),
        (Answer({"data": [], "has_more": True}), "a page has more, and names no next page"),
        (Answer({"data": [], "has_more": True, "next_page": "again"}), "the API names the same page again"),
    ],
)
def test_an_answer_that_is_no_page_is_an_error(answer: Answer, fault: str) -> None:
    with server(lambda _: answer) as (url, requests), pytest.raises(Unavailable, match=fault):
        pages_of("openai", url)
    assert len(requests) <= 2


def test_a_page_without_an_end_is_refused() -> None:
    with (
        server(lambda _: Answer(b" " * (MAX_PAGE + 1))) as (url, _),
        pytest.raises(Unavailable, match="is longer than"),
    ):
        pages_of("openai", url)


@pytest.mark.parametrize("url", ["http://api.example", "ftp://127.0.0.1", "api.openai.com"])
def test_a_key_is_not_sent_without_tls(url: str) -> None:
    with pytest.raises(UsageFault, match="--base-url needs https"):
        Fetching("openai", KEY, url, print)


def test_the_apis_have_tls() -> None:
    assert all(urlsplit(api.url).scheme == "https" for api in APIS.values())


# --- the command -----------------------------------------------------------------------------------------------------


def fetch(folder: Path, url: str, provider: str = "openai", *, key: str = KEY, mode: int = 0o600) -> Any:
    (folder / "admin.key").write_text(f"{key}\n")
    (folder / "admin.key").chmod(mode)
    return here(
        "audit", "fetch", provider, "--month", "2026-11", "--key-file", str(folder / "admin.key"),
        "--directory", str(folder), "--base-url", url,
    )  # fmt: skip


def test_the_files_are_those_that_the_audit_reads(tmp_path: Path) -> None:
    with server(openai) as (url, _):
        done = fetch(tmp_path, url)
    assert done.returncode == 0, done.stderr
    names = ["openai-usage-2026-11.jsonl", "openai-costs-2026-11.jsonl"]
    assert done.stdout.split() == [str(tmp_path / name) for name in names]
    assert "/v1/organization/usage/embeddings has nothing of 2026-11" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["admin.key", *sorted(names)]
    assert stat.S_IMODE((tmp_path / names[0]).stat().st_mode) == 0o600
    usage, costs = open_invoices([tmp_path / name for name in names], {})
    assert [line.model for line in usage.lines()] == ["gpt-4o-2024-08-06"] * 2
    assert [line.usd for line in costs.lines()] == [BY_NAME["OpenAI costs (API)"].gives[0][2]]
    assert [(span.end_us - span.start_us) // 10**6 for span in usage.covered] == [2 * DAY]


def test_a_report_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def script(request: Request) -> Answer:
        return openai(request) if "page" not in request.params else Answer(status=404)

    with server(script) as (url, _):
        done = fetch(tmp_path, url)
    assert done.returncode == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["admin.key"]


def test_a_key_that_others_may_read_is_said(tmp_path: Path) -> None:
    with server(anthropic) as (url, _):
        assert "may be read by others: run chmod 600" in fetch(tmp_path, url, "anthropic", mode=0o640).stderr
        done = fetch(tmp_path, url, "anthropic")
    assert "may be read by others" not in done.stderr
    assert KEY not in done.stderr + done.stdout


@pytest.mark.parametrize("key", ["", "two words", "two\nlines", "\u00e4", "k" * 1_001])
def test_a_file_that_holds_no_key_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    done = fetch(tmp_path, "https://127.0.0.1:1", key=key)
    assert done.returncode == 2
    assert "does not hold one key and nothing else" in done.stderr
    assert not key or key not in done.stderr


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["openai"], "--month YYYY-MM is missing"),
        (["openai", "--month", "2026-11"], "--key-file FILE is missing"),
        (["openai", "--month", "2026-11", "--key-file", "none"], "--key-file none cannot be read"),
        (
            ["openai", "--month", "2026-11", "--key-file", "k", "--directory", "none"],
            "--directory none is no directory",
        ),
    ],
)
def test_what_is_missing_is_said(words: list[str], fault: str) -> None:
    done = here("audit", "fetch", *words)
    assert (done.returncode, fault in done.stderr) == (2, True), done.stderr
