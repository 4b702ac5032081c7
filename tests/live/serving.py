"""A view behind a real admin port, in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from streamgauge.live.answers import Client
from streamgauge.live.http_pages import LivePages
from streamgauge.live.mailbox import DirectAsk
from streamgauge.live.stored import StoredStreams
from streamgauge.metrics.admin_access import OPEN, Access
from streamgauge.metrics.http_server import AdminServer
from streamgauge.metrics.prometheus import Metrics
from tests.live.streams import Process

START_S = 60.0


class Served:
    """`do`: runs a function there, as bundles come between requests."""

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
def serving(
    process: Process, access: Access = OPEN, stored: StoredStreams | None = None, clients: Sequence[Client] = ()
) -> Iterator[Served]:
    """The page of `process` on a free port; `stored`: of its ledger; `clients`: of its upstreams."""
    ready, found = threading.Event(), list[Served]()
    stops: list[Callable[[], object]] = []

    async def main() -> None:
        pages = LivePages(DirectAsk(process.view), stored, clients)
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with AdminServer(Metrics(), lambda: True, pages=pages, access=access) as server:
            await server.start("127.0.0.1:0")
            found.append(Served(server.url, process, loop))
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
