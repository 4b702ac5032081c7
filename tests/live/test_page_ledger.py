"""The page of a process with a ledger, in Chromium: search, filters, order, links, a restart, and two workers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamgauge.cli import stored_streams
from streamgauge.cli.stored_streams import LedgerStreams
from streamgauge.core.record import Error
from streamgauge.ledger import LedgerRow, open_ledger
from streamgauge.ledger.row import row_of
from streamgauge.live.view import Scope
from streamgauge.prices import Prices
from streamgauge.prices.price_file import NO_PRICES
from tests.live.serving import Served, serving
from tests.live.streams import SECOND, Process, segment, token
from tests.live.test_page import UNKNOWN, opened, picture, texts, tile, until
from tests.metrics.records import ABSENT, make_record, make_timing
from tests.running import wait_for

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

# When the pages are opened: after the prices of the models began.
NOW_S = 1_780_000_000.0
DAY_S = 86_400
FINE = 60  # streams of the last hour that completed
SLOW, ABORTED, FAILED, LIMITED, OLD = 100, 101, 102, 103, 104


def name_of(number: int) -> str:
    return f"00000000-0000-7000-8000-{number:012}"


def rows() -> Iterator[tuple[int, float, dict[str, Any]]]:
    """Each stream, how long ago it began (seconds), and what is not as in the others."""
    for number in range(FINE):
        model = "gpt-4o-mini" if number % 3 else "gpt-4.1"
        yield number, 60.0 * number + 5, {"response_model": model, "tenant": "lake" if number % 2 else "river"}
        yield 200 + number, DAY_S + 60.0 * number, {}
    yield SLOW, 300, {"timing": make_timing(first_token_s=9.0, first_content_s=12.0), "response_model": "own-model"}
    yield ABORTED, 200, {"outcome": "client_abort", "usage": ABSENT}
    yield FAILED, 100, {"outcome": "stream_error", "error": Error("in_stream", "overloaded_error"), "usage": ABSENT}
    yield (
        LIMITED,
        50,
        {"outcome": "http_error", "status_code": 429, "error": Error("before_stream", "rate_limit_error")},
    )
    yield OLD, 40 * DAY_S, {"outcome": "truncated", "usage": ABSENT}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a ledger with these streams."""
    where = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.sqlite'}"
    with open_ledger(where, prices=Prices(NO_PRICES, print)) as ledger:
        records = []
        for number, ago, changes in rows():
            began = datetime.fromtimestamp(NOW_S - ago, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            records.append(row_of(make_record(stream_id=name_of(number), started_at=began, **changes)))
        ledger.insert(records)
    return where


@contextmanager
def process_of(url: str, process: Process | None = None) -> Iterator[Served]:
    """A process that has just started with this ledger."""
    process = process or Process()
    with open_ledger(url) as ledger:
        stored = LedgerStreams(ledger, "the ledger", {}, lambda: NOW_S + process.clock.now, process.clock)
        with serving(process, stored=stored) as served:
            yield served


@pytest.fixture(scope="module")
def served(url: str) -> Iterator[Served]:
    process = Process()
    process.take([segment(9, 0, [token(0)])], SECOND)
    with process_of(url, process) as one:
        yield one


def listed(page: "Page") -> list[str]:
    """The short ids in the list."""
    return texts(page.locator("#streams tbody th"))


def short(number: int) -> str:
    return f"{number:08}"


def until_listed(page: "Page", *numbers: int) -> None:
    page.locator("#streams-note").filter(has_text=re.compile(rf"^{len(numbers)} shown")).wait_for()
    assert listed(page) == [short(number) for number in numbers]


def test_the_first_screen_is_the_hour_beside_yesterday(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, seen):
        page.set_viewport_size({"width": 1400, "height": 900})
        assert tile(page, "First token p50 / p95") == [
            "200 ms / 200 ms",
            "reasoning included",
            "yesterday 200 ms / 200 ms",
        ]
        assert tile(page, "Completed") == ["95.3 %", "yesterday 100.0 %", "2 broken", "1 left by the client"]
        assert tile(page, "Streams a minute")[2] == "64 streams in the last hour"
        assert tile(page, "Cost")[2] == "1.6 % of the streams with usage have no price"
        # An update of the list replaces its rows.
        wait_for(lambda: page.locator("#streams tbody tr").first.bounding_box() is not None, "a row of the list")
        last = page.locator("#tiles > div").last.bounding_box()
        first = page.locator("#streams tbody tr").first.bounding_box()
        assert last is not None
        assert first is not None
        assert last["y"] + last["height"] < first["y"] + first["height"] < 600
        assert page.locator("#streams-caption").bounding_box()["width"] <= 1400  # type: ignore[index]
        assert page.evaluate(
            "(box => box.scrollWidth <= box.clientWidth)(document.querySelector('#streams').parentNode)"
        )
        assert seen.errors == []
        picture(page, "hour")


def test_the_tiles_name_the_slowest_model_and_where_streams_break(browser: "Browser", tmp_path: Path) -> None:
    def of(number: int, **changes: Any) -> LedgerRow:
        began = datetime.fromtimestamp(NOW_S - 60, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return row_of(make_record(stream_id=name_of(number), started_at=began, **changes))

    where = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    slow = {"response_model": "slow-model", "timing": make_timing(first_token_s=2.0), "upstream": "sansa"}
    with open_ledger(where) as ledger:
        ledger.insert([of(number, **(slow if number % 2 else {})) for number in range(20)])
        ledger.insert([of(number, **slow, outcome="truncated") for number in range(20, 23)])
        ledger.insert([of(23, outcome="truncated")])
    with process_of(where) as served, opened(browser, served.url) as (page, _):
        assert "slowest: slow-model, p95 2.00 s" in tile(page, "First token p50 / p95")
        assert tile(page, "Completed")[1] == "4 broken, 3 of them at sansa"
        assert page.locator("#tiles .bad", has_text="4 broken").is_visible()


def test_the_time_of_the_first_text_is_chosen_by_a_switch(browser: "Browser", served: Served) -> None:
    with opened(browser, f"{served.url}/?model=own-model") as (page, _):
        assert tile(page, "First token p50 / p95")[0] == "9.00 s / 9.00 s"
        page.locator("#first").select_option("text")
        assert tile(page, "First text p50 / p95")[:2] == ["12.0 s / 12.0 s", "without reasoning"]


def test_the_worst_come_first_and_a_client_that_left_is_no_error(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        assert listed(page)[:4] == [short(LIMITED), short(FAILED), short(9), short(SLOW)]
        page.locator("#sort").select_option("newest")
        page.locator("#streams tbody tr").first.filter(has_text="completed").wait_for()
        assert listed(page)[:3] == [short(0), short(LIMITED), short(1)]
        page.locator("#outcome").select_option("client_abort")
        until_listed(page, ABORTED)
        assert page.locator("#streams td.warn", has_text="client_abort").count() == 1
        assert page.locator("#streams td.bad").count() == 0


def test_filters_are_in_the_address_and_can_be_cleared(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        page.locator("#outcome").select_option("broken")
        until_listed(page, LIMITED, FAILED)
        assert page.url == f"{served.url}/?outcome=broken"
        page.locator("#time").select_option("")
        until_listed(page, LIMITED, FAILED, OLD)
        page.reload()
        until_listed(page, LIMITED, FAILED, OLD)
        page.locator("#outcome").select_option("open")
        until_listed(page, 9)
        page.locator("#outcome").select_option("timeout")
        until(page, "#streams-empty", "No stream matches the filters.")
        page.get_by_role("button", name="Clear filters").click()
        page.locator("#streams-note").filter(has_text="51 shown").wait_for()
        assert page.url == f"{served.url}/"


def test_a_stream_is_found_by_a_part_of_its_id(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        page.get_by_role("searchbox", name="Stream id").fill(short(OLD))
        until_listed(page, OLD)
        page.keyboard.press("Enter")
        page.wait_for_timeout(2_500)
        assert page.evaluate("document.activeElement.id") == "id"
        assert page.url == f"{served.url}/?id={short(OLD)}"
        page.get_by_role("searchbox", name="Stream id").fill("xyz")
        until(page, "#status", "id is a stream id, its beginning or its end")


def test_numbers_do_not_wait_for_a_long_search(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, seen):
        held: list[Route] = []

        def hold(route: "Route") -> None:  # Playwright takes no bound method of a list
            held.append(route)

        page.route("**/finished?*", hold)
        page.goto(f"{served.url}/?outcome=broken&time=")
        until(page, "#streams-note", "Searching the ledger")
        assert tile(page, "Streams a minute")[2] == "64 streams in the last hour"
        assert page.locator("#streams-empty").is_hidden()
        held[0].continue_()
        until_listed(page, LIMITED, FAILED, OLD)
        page.unroute("**/finished?*")
        assert seen.errors == []


def test_streams_between_two_times(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        page.locator("#time").select_option("between")
        local = "s => { const at = new Date(s * 1000); at.setMinutes(at.getMinutes() - at.getTimezoneOffset());"
        for field, seconds in (("From", NOW_S - 41 * DAY_S), ("to", NOW_S - 39 * DAY_S)):
            page.get_by_label(field, exact=True).fill(
                page.evaluate(f"{local} return at.toISOString().slice(0, 16); }}", seconds)
            )
        until_listed(page, OLD)


def test_more_streams_are_shown_on_demand(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        assert page.locator("#streams tbody tr").count() == 51
        page.get_by_role("button", name="Show more").click()
        page.locator("#streams-note").filter(has_text="65 shown").wait_for()
        assert page.get_by_role("button", name="Show more").is_hidden()


def test_models_and_tenants_lead_to_their_streams(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        names = texts(page.locator("#models tbody th"))
        assert names == ["gpt-4o-mini", "gpt-4.1", "gpt-4o-2024-08-06", "own-model"]
        assert texts(page.locator("#tenants tbody th")) == ["lake", "river", UNKNOWN]
        mini = page.locator("#models tbody tr").first
        assert texts(mini.locator("td"))[:4] == ["40", "100.0 %", "0", "200 ms / 200 ms"]
        page.get_by_role("button", name="own-model").focus()
        page.keyboard.press("Enter")
        until_listed(page, SLOW)
        assert tile(page, "Streams a minute")[2] == "1 stream in the last hour"
        assert page.url == f"{served.url}/?model=own-model"
        page.locator("#tenant").select_option("=")  # those without a tenant
        page.wait_for_url("**/?model=own-model&tenant=")
        until_listed(page, SLOW)


def test_a_link_works_long_after_and_names_the_error(browser: "Browser", url: str) -> None:
    with process_of(url) as later, opened(browser, f"{later.url}/#{name_of(OLD)}") as (page, seen):
        assert page.locator("#verdict").inner_text().startswith("truncated after")
        assert page.locator("#course svg").get_attribute("aria-label")
        assert "The reads of this stream are no longer kept" in page.inner_text("#steps-empty")
        page.goto(f"{later.url}/#{name_of(FAILED)}")
        until(page, "#verdict", "stream_error: overloaded_error, after")
        facts = dict(zip(texts(page.locator("#facts dt")), texts(page.locator("#facts dd")), strict=True))
        assert facts["Cost"] == "unknown: no usage"
        page.goto(f"{later.url}/#{name_of(SLOW)}")
        until(page, "#stream-title", name_of(SLOW))
        page.goto(f"{later.url}/#{name_of(0)}")
        until(page, "#facts", "USD (")
        assert seen.errors == []
        picture(page, "stored-stream")


def test_the_hour_is_there_after_a_restart(browser: "Browser", url: str) -> None:
    for _ in range(2):
        with process_of(url) as again, opened(browser, again.url) as (page, _):
            assert tile(page, "Streams a minute")[2] == "64 streams in the last hour"
            assert len(listed(page)) == 50


def test_the_pages_of_two_workers_show_their_sum(browser: "Browser", url: str) -> None:
    for partition in (0, 1):
        process = Process()
        process.view.scope = lambda one=process, at=partition: Scope({at: one.assembler}, partitioned=True)  # type: ignore[misc]
        with process_of(url, process) as worker, opened(browser, worker.url) as (page, _):
            assert tile(page, "Streams a minute")[2] == "64 streams in the last hour"
            assert "in this worker's partitions" in tile(page, "Silent (over 30 s)")
            assert "are of all workers that share this ledger" in page.inner_text("#scope-note")


def test_numbers_that_are_older_than_the_list_say_their_time(
    browser: "Browser", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_streams, "LEAST_S", 1_000.0)
    monkeypatch.setattr(stored_streams, "MOST_S", 1_000.0)
    process = Process()  # it began at 22:13:20
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}") as ledger:
        stored = LedgerStreams(ledger, "the ledger", {}, process.clock.wall, process.clock)
        with serving(process, stored=stored) as served, opened(browser, served.url) as (page, _):
            assert "as of" not in page.inner_text("#numbers-title")
            served.do(lambda one: setattr(one.clock, "now", 9.0))
            until(page, "#numbers-title", ", as of 22:13:20 UTC, 9 s ago")


def test_a_ledger_that_is_gone_is_said_and_the_numbers_stay(browser: "Browser", tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    process = Process()
    stored = LedgerStreams(ledger, "the ledger", {}, process.clock.wall, process.clock)
    with serving(process, stored=stored) as served, opened(browser, served.url) as (page, _):
        ledger.close()
        (tmp_path / "ledger.sqlite").write_bytes(b"damaged" * 1_000)
        served.do(lambda one: setattr(one.clock, "now", 100.0))
        until(page, "#status", "The numbers below are old.")
        assert tile(page, "Streams a minute")[0] == "0"
