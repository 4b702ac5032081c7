"""Gets what a provider bills for a month from its admin API, page by page, in the form that the audit reads.

Sources: OpenAI's openapi.yaml (usage/completions, usage/embeddings, costs: at most 31 buckets of a day a page), and
platform.claude.com/docs/en/api/admin (usage_report/messages, cost_report: at most 31). The admin key is sent to the API's own
address alone; no sentence has it, nor what a provider answers to it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from streamgauge import __version__
from streamgauge.errors import MissingExtra, Unavailable, UsageFault

if TYPE_CHECKING:
    import httpx

# Tries of a page. The wait before the next one (seconds) is what the answer asks for, up to MAX_WAIT, else it doubles.
MAX_TRIES = 6
MAX_WAIT = 300.0
_FIRST_WAIT = 1.0
_AGAIN = frozenset({408, 429, 500, 502, 503, 504, 529})
# Seconds of silence after which a try has failed.
_TIMEOUT = 60.0
# A month of a large organization has some MB a page.
MAX_PAGE = 64 * 1024 * 1024
# Pages of a report: a month by day has one, or some of groups.
MAX_PAGES = 10_000

Params = Sequence[tuple[str, str]]


class Report(NamedTuple):
    """A report of an API. `name`: of its file; `path`: below the API's address; `params`: those of its first page."""

    name: str
    path: str
    params: Params


class Month(NamedTuple):
    """A month of UTC. `start`, `end`: Unix seconds, the end excluded."""

    name: str
    start: int
    end: int

    @classmethod
    def of(cls, text: str) -> "Month":
        """The month that is written as YYYY-MM. Raises UsageFault."""
        try:
            first = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
        except ValueError:
            raise UsageFault(f"--month {text} is not a month such as 2026-11") from None
        after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        return cls(text, int(first.timestamp()), int(after.timestamp()))


def _openai(month: Month) -> list[Report]:
    days: Params = (
        ("start_time", str(month.start)), ("end_time", str(month.end)), ("bucket_width", "1d"), ("limit", "31")
    )  # fmt: skip
    groups = [("group_by", name) for name in ("model", "project_id", "api_key_id")]
    return [
        Report(
            "usage",
            "/v1/organization/usage/completions",
            (*days, *groups, ("group_by", "batch"), ("group_by", "service_tier")),
        ),
        Report("embeddings", "/v1/organization/usage/embeddings", (*days, *groups)),
        Report("costs", "/v1/organization/costs", (*days, ("group_by", "line_item"), ("group_by", "project_id"))),
    ]


def _anthropic(month: Month) -> list[Report]:
    start, end = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (month.start, month.end))
    days: Params = (("starting_at", start), ("ending_at", end), ("bucket_width", "1d"), ("limit", "31"))
    groups = [("group_by[]", name) for name in ("model", "workspace_id", "api_key_id", "service_tier")]
    return [
        Report("usage", "/v1/organizations/usage_report/messages", (*days, *groups)),
        Report(
            "costs",
            "/v1/organizations/cost_report",
            (*days, ("group_by[]", "workspace_id"), ("group_by[]", "description")),
        ),
    ]


class Api(NamedTuple):
    """The admin API of a provider. `headers`: those of a request with this key."""

    url: str
    reports: Callable[[Month], list[Report]]
    headers: Callable[[str], Mapping[str, str]]


APIS: Mapping[str, Api] = {
    "openai": Api("https://api.openai.com", _openai, lambda key: {"authorization": f"Bearer {key}"}),
    "anthropic": Api(
        "https://api.anthropic.com", _anthropic, lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"}
    ),
}


class Fetching:
    """Reads reports of an API with an admin key. `url`: another address of the API, such as that of a proxy; https, or of
    this machine. `say`: takes sentences on waits. `sleep`: waits some seconds.

    Raises UsageFault for a key that the API refuses, Unavailable if it does not answer, and MissingExtra.
    """

    def __init__(
        self,
        provider: str,
        key: str,
        url: str | None,
        say: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = APIS[provider]
        self._url = (url or self._api.url).rstrip("/")
        parts = urlsplit(self._url)
        if parts.scheme != "https" and not (
            parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
        ):
            raise UsageFault("--base-url needs https: an admin key is sent to it")
        self._key = key
        self._say, self._sleep = say, sleep

    def reports(self, month: Month) -> list[Report]:
        """The reports that together are the provider's invoice of a month."""
        return self._api.reports(month)

    def pages(self, report: Report) -> Iterator[tuple[bytes, bool]]:
        """The pages of a report as the API gives them: JSON documents, in their order, the last one without a successor.
        Each with whether it has a row.
        """
        try:
            import httpx
        except ModuleNotFoundError:
            raise MissingExtra("`audit fetch`", "audit") from None
        headers = {**self._api.headers(self._key), "user-agent": f"streamgauge/{__version__}"}
        with httpx.Client(headers=headers, timeout=_TIMEOUT) as client:
            cursors: set[str] = set()
            params = [*report.params]
            while True:
                content = self._page(client, report, params)
                cursor, has_rows = _cursor_of(content, report)
                yield content, has_rows
                if cursor is None:
                    return
                if cursor in cursors or len(cursors) >= MAX_PAGES:
                    raise Unavailable(
                        f"{report.path}: the API names the same page again, or more than {MAX_PAGES} pages"
                    )
                cursors.add(cursor)
                params = [*report.params, ("page", cursor)]

    def _page(self, client: "httpx.Client", report: Report, params: list[tuple[str, str]]) -> bytes:
        import httpx

        wait = _FIRST_WAIT
        for tries in range(1, MAX_TRIES + 1):
            asked: float | None = None
            try:
                with client.stream("GET", self._url + report.path, params=tuple(params)) as response:
                    if response.status_code == 200:
                        return _content(response, report)
                    _refuse(response.status_code, report)
                    fault, asked = f"HTTP {response.status_code}", _retry_after(response.headers.get("retry-after"))
            except httpx.HTTPError as error:
                fault = type(error).__name__
            if tries < MAX_TRIES:
                seconds = min(MAX_WAIT, wait if asked is None else asked)
                self._say(f"{report.path}: {fault}, next try in {seconds:g} s")
                self._sleep(seconds)
                wait *= 2
        raise Unavailable(f"{report.path} failed {MAX_TRIES} times, at last with {fault}: run the command again later")


def _refuse(status: int, report: Report) -> None:
    """Raise for an answer that is the same at every try."""
    if status in (401, 403):
        raise UsageFault(
            f"{report.path}: HTTP {status}: --key-file has to hold an admin key that may read usage and costs"
        )
    if status not in _AGAIN:
        raise Unavailable(f"{report.path}: HTTP {status}: this version does not know such an answer")


def _retry_after(value: str | None) -> float | None:
    """The seconds of a Retry-After: a number, or a time (RFC 9110, 10.2.3). None without one, or with another text."""
    if value is None:
        return None
    try:
        return max(0.0, float(int(value)))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _content(response: "httpx.Response", report: Report) -> bytes:
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > MAX_PAGE:
            raise Unavailable(f"{report.path}: a page is longer than {MAX_PAGE} bytes")
    return bytes(content)


def _cursor_of(content: bytes, report: Report) -> tuple[str | None, bool]:
    """The cursor of the page after this one, None if it is the last; and whether the page has a row."""
    try:
        page: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        page = None
    if not isinstance(page, dict) or not isinstance(page.get("data"), list):
        raise Unavailable(f"{report.path}: the answer is no page: it has no list `data`")
    cursor = page.get("next_page")
    has_rows = any(isinstance(bucket, dict) and bucket.get("results") for bucket in page["data"])
    if page.get("has_more") in (None, False):
        return None, has_rows
    if not isinstance(cursor, str) or not cursor:
        raise Unavailable(f"{report.path}: a page has more, and names no next page")
    return cursor, has_rows
