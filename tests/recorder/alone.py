"""A collector that delivers nothing, so that its rows stay in the spool: `python -m tests.recorder.alone [HEARTBEAT_S]`."""

import asyncio
import contextlib
import sys

from streamgauge.cli import collector
from streamgauge.metrics.http_server import no_pages
from streamgauge.metrics.prometheus import Metrics
from streamgauge.recorder import process


class Nothing:
    """No delivery."""

    metrics, pages = Metrics(), staticmethod(no_pages)

    def is_ready(self) -> bool:
        return True

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        await asyncio.sleep(0)

    async def finish(self, finish_s: float) -> None:
        await asyncio.sleep(0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        vars(process)["HEARTBEAT_NS"] = round(float(sys.argv[1]) * 1e9)
    collector.delivery_of = lambda *_: Nothing()
    sys.exit(collector.main())
