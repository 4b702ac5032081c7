"""Debian's Chromium, driven by Playwright, and a page to look at. Without one of them its tests are skipped."""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamgauge.live.http_pages import LivePages
from streamgauge.live.mailbox import DirectAsk
from streamgauge.metrics.http_server import AdminServer
from streamgauge.metrics.prometheus import Metrics
from tests.live.streams import Process

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
START_S = 60.0


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium, installed by the project's own script if it is missing and can be installed."""
    api = pytest.importorskip("playwright.sync_api")
    if shutil.which("chromium") is None:
        script = subprocess.run(
            [ROOT / "scripts" / "install_packages", "chromium fonts-dejavu-core", "chromium"],
            capture_output=True,
            text=True,
            check=False,
        )
        if script.returncode != 0:
            pytest.skip(script.stderr.strip().splitlines()[-1])
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        yield browser
        browser.close()


class Served:
    """A view behind an admin port in a thread of its own. `do`: runs a function there, as bundles come between requests."""

    def __init__(self, url: str, process: Process, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.process = process
        self._loop = loop

    def do(self, what: Callable[[Process], None]) -> None:
        done = threading.Event()

        def run() -> None:
            what(self.process)
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(START_S)


@contextmanager
def serving(process: Process) -> Iterator[Served]:
    """The page of `process` on a free port."""
    ready, found = threading.Event(), list[Served]()
    stops: list[Callable[[], object]] = []

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with AdminServer(Metrics(), lambda: True, pages=LivePages(DirectAsk(process.view))) as server:
            await server.start("127.0.0.1:0")
            found.append(Served(f"http://{server.address}", process, loop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(START_S)
        yield found[0]
    finally:
        for stop in stops:
            stop()
        thread.join(START_S)
        assert not thread.is_alive()
