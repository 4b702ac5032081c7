"""The page of two real workers with a real Kafka and one PostgreSQL, in Chromium: their sum, links, and a restart."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.provider import BEGIN, REST, provider
from tests.live.browsing import NoBrowserError, started_browser
from tests.live.test_page import shown, tile
from tests.running import Running, start_tap, start_worker, wait_for, wait_until_ready

if TYPE_CHECKING:
    from playwright.sync_api import Page

# It starts a broker, a database, four processes and a browser, on a machine that may be shared.
pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

BODY = json.dumps({"model": "small-1", "stream": True, "messages": []})
STREAMS = 24


def asked(worker: Running, path: str) -> Any:
    return json.loads(worker.get(path)[1])


@contextmanager
def ready_worker(kafka: str, prefix: str, data_dir: Path, *options: str) -> Iterator[Running]:
    with start_worker(kafka, prefix, data_dir, *options) as worker:
        wait_until_ready(worker)
        yield worker


def test_two_workers_show_their_sum_and_keep_it(kafka: str, prefix: str, postgres_url: str, tmp_path: Path) -> None:
    broker, ledger = ["--kafka", kafka, "--topic-prefix", prefix], ["--ledger", postgres_url]
    with (
        provider() as small,
        start_tap("tap", {"small": small.url}, tmp_path / "tap", *broker) as tap,
        ready_worker(kafka, prefix, tmp_path / "one", *ledger) as one,
        ready_worker(kafka, prefix, tmp_path / "two", *ledger) as two,
    ):
        wait_for(lambda: all(asked(each, "/streams")["partitions"] for each in (one, two)), "partitions of both")
        for _ in range(STREAMS):
            with tap.post(BODY, {"content-type": "application/json"}) as answer:
                assert answer.read() == BEGIN + REST
        for worker in (one, two):
            wait_for(lambda each=worker: asked(each, "/summary")["hour"]["streams"] == STREAMS, "all streams")
        own = [{row["id"] for row in asked(each, "/streams")["worst"]["recent"]} for each in (one, two)]
        assert not own[0] & own[1]
        of_others = min(own[1] or own[0])
        try:
            with started_browser() as browser:
                page = browser.new_page()
                for worker in (one, two):
                    check(page, worker, of_others)
                assert one.stop() == 0
                with ready_worker(kafka, prefix, tmp_path / "one", *ledger) as again:
                    check(page, again, of_others)
                    assert again.stop() == 0
        except NoBrowserError as why:
            pytest.skip(str(why))
        assert two.stop() == 0


def check(page: "Page", worker: Running, stream: str) -> None:
    """The page of one worker shows the streams of both, and leads to one of them."""
    with shown(page, worker.admin) as seen:
        assert tile(page, "Streams a minute")[1].startswith(f"{STREAMS} streams ")
        assert page.locator("#streams tbody tr").count() == STREAMS
        assert "are of all workers that share this ledger" in page.inner_text("#scope-note")
        page.locator(f"#streams a[href='#{stream}']").click()
        page.wait_for_selector("#facts dd")
        assert page.inner_text("#verdict").startswith("completed after")
        assert page.inner_text("#stream-title") == f"Stream {stream}"
        assert seen.errors == []
    page.goto("about:blank")
