"""The page in Debian's Chromium: what a person sees, with keyboard and screen reader, in both themes.

Set STREAMGAUGE_SCREENSHOTS to a folder to get pictures of what is tested here.
"""

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec
import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.core.limits import Limits
from streamgauge.live.answers import Client, Responses, Uncaptured
from streamgauge.live.http_pages import STATIC
from streamgauge.live.view import LiveView, Scope
from streamgauge.metrics.observe import StreamCost
from streamgauge.metrics.table import OUTCOMES
from tests.each import check_each
from tests.live import axe
from tests.live.serving import Served, serving
from tests.live.shown import (
    BUSY,
    FAILED,
    SILENT,
    STALLED,
    busy_process,
    ended,
    id_of,
    partly_priced_process,
    unpriced_process,
)
from tests.live.streams import SECOND, Process, segment, token
from tests.streams import MS

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, ViewportSize

PATIENCE_MS = 20_000
SCREENSHOTS = os.environ.get("STREAMGAUGE_SCREENSHOTS")
UPLOT = Path(__file__).parents[2] / "pipeline" / "streamgauge" / "live" / "static" / "uplot"
needs_charts = pytest.mark.skipif(not UPLOT.exists(), reason="uPlot was not downloaded at the installation")

# What the page shows for a number that is not known: an en dash.
UNKNOWN = "\u2013"

# The least contrast of text (WCAG 2.2, AA).
CONTRAST = 4.5

VIEWPORT: "ViewportSize" = {"width": 1280, "height": 900}


class Seen:
    """What a page did besides what it shows."""

    def __init__(self, page: "Page") -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._page = page
        page.on("pageerror", self._page_error)
        page.on("console", self._console)
        page.on("request", self._request)

    def stop(self) -> None:
        self._page.remove_listener("pageerror", self._page_error)
        self._page.remove_listener("console", self._console)
        self._page.remove_listener("request", self._request)

    def _page_error(self, error: object) -> None:
        self.errors.append(str(error))

    def _console(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _request(self, request: "Request") -> None:
        self.requests.append(request.url)


@contextmanager
def opened(
    browser: "Browser",
    url: str,
    *,
    color_scheme: Literal["light", "dark"] | None = None,
    reduced_motion: Literal["reduce"] | None = None,
) -> "Iterator[tuple[Page, Seen]]":
    """As `shown`, in one window for all tests of a module: Chromium takes a second of CPU to open one. The page keeps
    nothing in a browser.
    """
    if browser.contexts:
        [page] = browser.contexts[0].pages
        page.set_viewport_size(VIEWPORT)
    else:
        page = browser.new_context(viewport=VIEWPORT).new_page()
    page.emulate_media(color_scheme=color_scheme or "null", reduced_motion=reduced_motion or "null")
    try:
        with shown(page, url) as seen:
            yield page, seen
    finally:
        page.goto("about:blank")


@contextmanager
def shown(page: "Page", url: str) -> "Iterator[Seen]":
    """A page at `url`, when it has shown its first answer."""
    page.set_default_timeout(PATIENCE_MS)
    seen = Seen(page)
    page.goto(url)
    page.wait_for_selector("#main[data-read] #tiles dd, #facts dd")
    try:
        yield seen
    finally:
        seen.stop()


def picture(page: "Page", name: str) -> None:
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(busy_process()) as one:
        yield one


@pytest.fixture
def page(browser: "Browser", served: Served) -> "Iterator[Page]":
    with opened(browser, served.url) as (page, _):
        yield page


def texts(found: "Locator") -> list[str]:
    return [text.strip() for text in found.all_inner_texts()]


def until(page: "Page", selector: str, text: str) -> None:
    """Waits for a text. (The page's policy forbids what `wait_for_function` does.)"""
    page.locator(selector).filter(has_text=text).wait_for()


def row_of(page: "Page", number: int, table: str = "streams") -> "Locator":
    return page.locator(f"#{table} tr[data-key='{id_of(number)}']")


# --- what it shows ----------------------------------------------------------------------------------------------------


def test_open_streams_with_ticks_and_silence(page: "Page") -> None:
    assert tile(page, "Silent (over 30 s)") == ["1", "of 3 open now"]
    assert page.title() == "1 silent - Streamgauge"
    silent = row_of(page, SILENT)
    assert "silent for 39.8 s" in silent.inner_text()
    assert silent.locator("td.bad").count() == 1
    assert page.locator("#streams tbody tr").first.get_attribute("data-key") == id_of(SILENT)
    assert "overloaded_error" in row_of(page, FAILED).inner_text()
    ticks = row_of(page, BUSY).locator("svg.ticks")
    assert ticks.locator("rect").count() > 30
    assert re.fullmatch(
        r"\d+ token events in the last 60 s, \d+ in the last 10 s", ticks.get_attribute("aria-label") or ""
    )


@needs_charts
def test_charts_have_axes_with_units_and_the_numbers_as_tables(page: "Page") -> None:
    figures = page.locator("figure")
    assert figures.count() == 7
    for figure in figures.all():
        assert figure.locator("canvas").count() == 1
        assert figure.locator("figcaption").inner_text()
        figure.locator("summary").click()
        assert figure.locator("tbody tr").count() >= 1
        heads = texts(figure.locator("thead th"))
        assert any("(" in head for head in heads), heads
    assert not page.locator("#no-charts").is_visible()
    for name in ("first-histogram", "gap-heatmap"):
        painted = page.locator(f"figure[data-name='{name}'] canvas").evaluate(
            "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
        )
        assert painted


def test_a_histogram_counts_the_streams_of_the_hour(page: "Page") -> None:
    figure = page.locator("figure[data-name='first-histogram']")
    figure.locator("details").evaluate("details => details.open = true")
    counts = [int(text) for text in texts(figure.locator("tbody td"))]
    assert sum(counts) == 41


def test_outcomes_tokens_and_limits(page: "Page") -> None:
    assert texts(page.locator("#upstreams tbody tr").first.locator("td")) == ["37", "4"]
    assert texts(page.locator("#upstreams thead th")) == ["Upstream", "completed", "upstream_reset"]
    assert texts(page.locator("#token-kinds tbody tr").first.locator("th, td")) == ["input uncached", "185"]
    limits = page.locator("#limits tbody tr").first
    assert "4 of 100 (4 %)" in limits.inner_text()
    assert limits.locator("span.bad meter").count() == 1


def test_cost_budgets_and_the_bill(page: "Page") -> None:
    assert texts(page.locator("#costs tbody tr").first.locator("th, td")) == ["sim", "1.23"]
    river, lake = page.locator("#budgets tbody tr").all()
    assert texts(river.locator("th, td")) == ["tenant river", "450.50 USD (90 %)", "500.00", "620.00", "3"]
    assert texts(lake.locator("th, td")) == ["feature lake", "2.50 USD (125 %)", "2.00", UNKNOWN, "0"]
    assert (river.locator(".bad").count(), lake.locator(".bad").count()) == (0, 1)
    facts = dict(zip(texts(page.locator("#audit dt")), texts(page.locator("#audit dd")), strict=True))
    assert facts["Audit of"] == "2026-10-01 to 2026-11-01 (preliminary), kept 2026-11-02T08:00:00Z"
    assert facts["The bill"] == "does not agree"
    assert facts["Unexplained"] == "-0.25 USD, 1,200 tokens"
    assert facts["Billed tokens with a record"] == f"nimbus 97.1 %, sansa {UNKNOWN}"


def test_the_list_leads_to_timelines(page: "Page") -> None:
    row_of(page, STALLED).locator("a").click()
    page.wait_for_selector("#facts dd")
    facts = dict(zip(texts(page.locator("#facts dt")), texts(page.locator("#facts dd")), strict=True))
    assert facts["Outcome"] == "completed"
    assert facts["Stalls"] == "1"
    assert facts["First token, reasoning included"] == "200 ms"
    steps = page.locator("#steps tbody tr")
    assert steps.count() == 5
    stalled = steps.nth(2)
    assert texts(stalled.locator("th, td"))[:5] == ["3", "7.000", "6.74 s", "stall", "text"]
    assert texts(steps.last.locator("td"))[3] == "usage, finish, terminal"
    assert page.url.endswith(f"#{id_of(STALLED)}")


def test_the_moment_of_an_error_is_on_the_timeline(browser: "Browser", served: Served) -> None:
    with opened(browser, f"{served.url}/#{id_of(FAILED)}") as (page, seen):
        page.wait_for_selector("#facts dd")
        facts = dict(zip(texts(page.locator("#facts dt")), texts(page.locator("#facts dd")), strict=True))
        assert facts["Error"] == "in_stream overloaded_error"
        assert facts["Error came after"] == "3.00 s"
        assert facts["Outcome"] == "open"
        assert "error" in page.locator("#steps tbody tr").last.inner_text()
        assert seen.errors == []


def test_a_stream_that_broke_says_what_that_means(browser: "Browser") -> None:
    process = Process()
    process.take([segment(1, 0, [token(100 * MS)])], SECOND)
    process.take([ended(1, 2 * SECOND, Ending.RESET)], 2 * SECOND)
    with serving(process) as served, opened(browser, f"{served.url}/#{id_of(1)}") as (page, _):
        until(page, "#verdict", "upstream_reset")
        assert "the answer is incomplete" in page.inner_text("#meaning")
        page.set_viewport_size({"width": 400, "height": 800})
        columns = page.locator("#facts").evaluate(
            "list => getComputedStyle(list).gridTemplateColumns.split(' ').length"
        )
        assert columns == 2


def test_each_state_but_completed_and_open_has_its_meaning() -> None:
    script = (UPLOT.parent / "timeline.js").read_text()
    table = script[script.index("const MEANINGS") : script.index("};")]
    assert set(re.findall(r"^  (\w+): ", table, re.MULTILINE)) == {*OUTCOMES, "silent"} - {"completed"}


def test_an_unknown_stream_says_so(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        page.goto(f"{served.url}/#{UUID(int=1)}")
        until(page, "#stream-problem", "no such stream")
        assert not page.locator("#stream-body").is_visible()


def test_an_empty_process_says_what_to_do(browser: "Browser") -> None:
    client = Client(
        "openai", "http://127.0.0.1:8080/openai/v1", "curl -sN 'http://127.0.0.1:8080/openai/v1/chat/completions'"
    )
    process = Process()
    with serving(process, clients=[client]) as served, opened(browser, served.url) as (page, seen):
        until(page, "#start", client.base_url)
        assert page.locator("#start pre").inner_text() == client.curl
        assert page.locator("table:visible").count() == page.locator("figure:visible").count() == 0
        assert page.locator(".empty:visible").count() == 1  # the sentence about the ledger, and no "none yet"
        assert seen.errors == []
        assert "good" not in (page.locator("#tiles div[data-name='Completed'] .value").get_attribute("class") or "")
        picture(page, "empty")
        page.set_viewport_size({"width": 400, "height": 800})
        shown_until = page.locator("#start pre").bounding_box()
        assert shown_until is not None
        assert shown_until["y"] + shown_until["height"] < 800, "a phone shows what to do without scrolling"
        page.set_viewport_size(VIEWPORT)
        served.do(lambda one: one.take([segment(1, 0, [token(0)])], SECOND))
        page.wait_for_selector("#streams tbody tr")
        assert page.locator("#start").is_hidden()
        assert page.get_by_text("No response has reported a rate limit yet.").is_visible()


def test_an_hour_without_streams_leaves_the_filters_for_older_ones(browser: "Browser") -> None:
    process = Process()
    process.view.load([], process.clock.wall() - 3_600)
    with serving(process) as served, opened(browser, served.url) as (page, _):
        until(page, "#start-title", "No stream in the last hour")
        assert page.locator("#filters").is_visible()


def test_an_empty_worker_names_its_tap(browser: "Browser") -> None:
    process = Process()
    process.view.scope = lambda: Scope({2: process.assembler}, partitioned=True)
    with serving(process) as served, opened(browser, served.url) as (page, _):
        until(page, "#start", "streamgauge doctor --kafka")


def test_a_worker_says_which_partitions_it_has(browser: "Browser") -> None:
    process = Process()
    process.view.scope = lambda: Scope({2: process.assembler, 5: process.assembler}, partitioned=True)
    with serving(process) as served, opened(browser, served.url) as (page, _):
        assert (
            "its partitions 2, 5; the streams of other partitions are on the pages of other workers"
            in page.inner_text("#process")
        )
        served.do(lambda one: setattr(one.view, "scope", lambda: Scope({}, True, "its consumer group is rebalancing")))
        until(page, "#process", "no partitions now")
        assert "its consumer group is rebalancing" in page.inner_text("#process")


def tile(page: "Page", name: str) -> list[str]:
    """The value of a tile, and the notes below it."""
    return texts(page.locator(f"#tiles div[data-name='{name}'] dd:not(.picture)"))


def test_finished_streams_are_of_the_last_hour_or_it_says_since_when(browser: "Browser") -> None:
    process = Process()  # it began at 22:13:20
    process.clock.now = 3.0
    with serving(process) as served, opened(browser, served.url) as (page, _):
        since = "since 22:13 UTC (3.00 s)"
        assert tile(page, "First token p50 / p95") == [UNKNOWN, "reasoning included", "no stream has ended", since]
        assert tile(page, "Streams a minute") == ["0", f"0 streams {since}"]
        assert page.get_by_role("heading", name="Since 22:13 UTC (3.00 s)", exact=True).is_visible()
        assert page.locator("#scope-note").is_hidden()
        served.do(lambda one: one.view.load([], one.clock.wall() - 3_600))
        until(page, "#tiles", "0 streams in the last hour")
        assert tile(page, "First token p50 / p95") == [UNKNOWN, "reasoning included", "no stream has ended"]
        assert page.get_by_role("heading", name="The last hour", exact=True).is_visible()


def test_a_tap_and_a_worker_say_whose_streams_they_show(browser: "Browser") -> None:
    process = Process()
    process.view = LiveView("tap", Limits(), process.clock, process.clock.wall)
    with serving(process) as served, opened(browser, served.url) as (page, _):
        assert "The pages of the workers have all of them." in page.inner_text("#scope-note")
        picture(page, "tap")
    process = Process()
    process.view.scope = lambda: Scope({2: process.assembler}, partitioned=True)
    with serving(process) as served, opened(browser, served.url) as (page, _):
        assert "are of this worker's partitions" in page.inner_text("#scope-note")


def test_the_share_of_responses_with_a_record(browser: "Browser") -> None:
    process = busy_process()
    rows = [Uncaptured("nimbus", "not_llm", 2), Uncaptured("nimbus", "format", 1), Uncaptured("unknown", "refused", 1)]
    process.view.responses = lambda: Responses(1_234, 1_230, rows)
    with serving(process) as served, opened(browser, served.url) as (page, seen):
        assert tile(page, "Responses with a record")[0] == "99.7 %"
        assert "1,230 of the 1,234 responses that this tap has counted have a record" in page.inner_text(
            "#coverage-note"
        )
        shown = texts(page.locator("#coverage tbody tr > *"))
        assert shown == ["nimbus", "not_llm", "2", "nimbus", "format", "1", "unknown", "refused", "1"]
        assert seen.errors == []
        picture(page, "coverage")
        served.do(lambda one: setattr(one.view, "responses", lambda: None))
        until(page, "#coverage-note", "A worker sees no responses")
        assert page.locator("#coverage").is_hidden()


# --- how it behaves ---------------------------------------------------------------------------------------------------


def test_it_follows_the_streams_and_can_be_paused(browser: "Browser") -> None:
    process = Process()
    with serving(process) as served, opened(browser, served.url) as (page, _):
        served.do(lambda one: one.take([segment(1, 0, [token(0)])], SECOND))
        page.wait_for_selector("#streams tbody tr")
        page.get_by_role("button", name="Pause updates").click()
        assert page.get_by_role("button", name="Pause updates").get_attribute("aria-pressed") == "true"
        served.do(lambda one: one.take([segment(2, 0, [token(0)])], SECOND))
        page.wait_for_timeout(5_000)
        assert page.locator("#streams tbody tr").count() == 1
        page.get_by_role("button", name="Pause updates").click()
        page.locator("#streams tbody tr").nth(1).wait_for()


def test_the_focus_stays_while_the_table_changes(browser: "Browser") -> None:
    process = Process()
    process.take([segment(number, 0, [token(number * SECOND)]) for number in range(1, 6)], 6 * SECOND)
    with serving(process) as served, opened(browser, served.url) as (page, _):
        link = row_of(page, 3).locator("a")
        link.focus()
        served.do(lambda one: one.take([segment(3, 1, [token(8 * SECOND)]), segment(9, 0, [token(0)])], 9 * SECOND))
        page.locator("#streams tbody tr").nth(5).wait_for()
        assert page.evaluate("document.activeElement.getAttribute('href')") == f"#{id_of(3)}"


def test_a_cost_that_is_not_known_is_not_0(browser: "Browser") -> None:
    with serving(unpriced_process()) as served, opened(browser, served.url) as (page, _):
        assert tile(page, "Cost")[:2] == [UNKNOWN, "100.0 % of the streams with usage have no price"]


def test_a_partial_sum_says_of_how_many_streams_it_is(browser: "Browser") -> None:
    with serving(partly_priced_process()) as served, opened(browser, served.url) as (page, _):
        assert tile(page, "Cost")[:2] == ["0.03 USD", "50.0 % of the streams with usage have no price"]
        assert page.locator("#money-note").inner_text() == "The costs are those of 1 of 2 streams."


def test_a_small_cost_is_not_0(browser: "Browser") -> None:
    with (
        serving(partly_priced_process(StreamCost(0.00001, 0.00002))) as served,
        opened(browser, served.url) as (page, _),
    ):
        assert tile(page, "Cost")[0] == "<0.0001 USD"


def test_it_says_when_its_process_is_gone_and_keeps_what_it_showed(browser: "Browser") -> None:
    with serving(busy_process()) as served:
        context = browser.new_context()
        page = context.new_page()
        page.goto(served.url)
        page.wait_for_selector("#tiles dd")
    until(page, "#status", "cannot reach its process")
    assert row_of(page, SILENT).is_visible()
    context.close()


def test_nothing_comes_from_another_origin_and_nothing_goes_wrong(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, seen):
        page.locator("#streams tbody tr a").first.click()
        page.wait_for_selector("#facts dd")
        page.go_back()
        page.wait_for_timeout(3_000)
        assert {url for url in seen.requests if not url.startswith(f"{served.url}/")} == set()
        assert any("/streams" in url for url in seen.requests)
        missing = [] if UPLOT.exists() else ["uplot"]
        assert [error for error in seen.errors if not any(name in error for name in missing)] == []


def test_names_from_providers_are_text(browser: "Browser") -> None:
    process = Process()
    hostile = "<img src=x onerror=alert(1)>\n\u202e"
    first = segment(1, 0, [token(0)])
    assert first.opening is not None and first.request is not None
    named = msgspec.structs.replace(
        first,
        opening=msgspec.structs.replace(first.opening, upstream=hostile),
        request=msgspec.structs.replace(first.request, model=hostile),
    )
    process.take([named], SECOND)
    with serving(process) as served, opened(browser, served.url) as (page, seen):
        page.once("dialog", lambda dialog: pytest.fail(dialog.message))
        assert "<img src=x" in row_of(page, 1).inner_text()
        assert page.locator("#streams img").count() == 0
        page.locator("#streams a").first.click()
        page.wait_for_selector("#facts dd")
        assert page.locator("#facts img").count() == 0
        assert seen.errors == []


def test_without_uplot_the_tables_are_open_and_a_sentence_says_so(browser: "Browser", served: Served) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.route("**/uplot/**", lambda route: route.fulfill(status=404))
        page.goto(served.url)
        page.wait_for_selector("figure table tbody tr")
        assert page.locator("#no-charts").is_visible()
        assert page.locator("canvas").count() == 0
        assert page.locator("figure details[open]").count() == page.locator("figure").count() == 7
        assert not page.locator("#licence").is_visible()
        page.goto(f"{served.url}/#{id_of(STALLED)}")
        page.wait_for_selector("#steps tbody tr")


def test_no_text_of_a_stream_is_on_the_page(browser: "Browser", served: Served) -> None:
    for where in ("", f"/#{id_of(BUSY)}", f"/#{id_of(FAILED)}"):
        with opened(browser, served.url + where) as (page, _):
            assert "SECRET" not in page.content()


# --- accessibility ----------------------------------------------------------------------------------------------------


def test_headings_captions_labels_and_landmarks(page: "Page") -> None:
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(one => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.locator("table:not(.u-legend):not(:has(caption))").count() == 0
    assert (
        page.locator("thead th:not([scope=col])").count()
        == page.locator(".scroll tbody th:not([scope=row])").count()
        == 0
    )
    assert page.locator("section:not([aria-labelledby])").count() == 0
    landmarks: tuple[Literal["banner", "main", "contentinfo"], ...] = ("banner", "main", "contentinfo")
    for landmark in landmarks:
        assert page.get_by_role(landmark).count() == 1
    for name in ("Upstream", "Model", "Tenant", "First token", "Order", "Outcome", "Started"):
        assert page.get_by_role("combobox", name=name, exact=True).count() == 1
    assert page.get_by_role("searchbox", name="Stream id").count() == 1
    assert page.locator("table[aria-live=off]").count() == page.locator("table:not(.u-legend)").count()
    assert page.locator("html[lang=en]").count() == 1


def test_everything_is_reached_by_keyboard_in_the_order_of_the_page(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        assert page.url == f"{served.url}/"
        page.locator(".skip").focus()
        reached = []
        for _ in range(11):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        fields = ["upstream", "model", "tenant", "first", "sort", "outcome", "time", "id", "clear"]
        assert reached == ["pause", *fields, "A"]
        page.locator("#streams a").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#facts dd")
        assert page.evaluate("document.activeElement.id") == "stream-title"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "back"
        page.keyboard.press("Enter")
        page.locator(f"#streams a[href='#{id_of(SILENT)}']:focus").wait_for()  # once the page has its answer


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_contrast_suffices_in_both_themes(browser: "Browser", served: Served, scheme: Any) -> None:
    with opened(browser, served.url, color_scheme=scheme) as (page, _):
        picture(page, scheme)
        colours = page.evaluate(
            "['page', 'panel', 'text', 'faint', 'accent', 'good', 'bad', 'warn', 'other'].map(name =>"
            " [name, getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()])"
        )
        named = dict(colours)
        texts_on = [
            (name, back)
            for name in ("text", "faint", "accent", "good", "bad", "warn", "other")
            for back in ("page", "panel")
        ]
        check_each(texts_on, lambda pair: _check_contrast(named[pair[0]], named[pair[1]]), str)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 22, 29)"}[scheme]
        page.goto(f"{served.url}/#{id_of(STALLED)}")
        page.wait_for_selector("#facts dd")
        page.wait_for_timeout(300)
        picture(page, f"stream-{scheme}")


def _check_contrast(one: str, other: str) -> None:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= CONTRAST, (one, other)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_axe_finds_nothing(browser: "Browser", served: Served, scheme: Any, width: int) -> None:
    if why := axe.missing():
        pytest.skip(why)
    with opened(browser, served.url, color_scheme=scheme) as (page, _):
        page.set_viewport_size({"width": width, "height": 900})
        page.get_by_role("button", name="Pause updates").click()
        assert axe.findings(page) == []
        page.goto(f"{served.url}/#{id_of(STALLED)}")
        page.wait_for_selector("#facts dd")
        assert axe.findings(page) == []
    with serving(Process()) as empty, opened(browser, empty.url, color_scheme=scheme) as (page, _):
        assert axe.findings(page) == []


def test_nothing_moves_for_those_who_asked_for_it(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url, reduced_motion="reduce") as (page, _):
        assert page.evaluate("document.getAnimations().length") == 0
        assert page.evaluate("[...document.styleSheets].some(sheet => sheet.href.includes('page.css'))")


def test_it_fits_a_narrow_window(browser: "Browser", served: Served) -> None:
    with opened(browser, served.url) as (page, _):
        page.set_viewport_size({"width": 360, "height": 700})
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        picture(page, "narrow")


def test_each_static_file_is_in_the_package() -> None:
    folder = UPLOT.parent
    ours = {path.name for path in folder.iterdir() if path.is_file()}
    assert ours == {name for name in STATIC if "/" not in name} | {"index.html"}
