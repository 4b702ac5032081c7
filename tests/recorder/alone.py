"""A collector that delivers nothing, so that its rows stay in the spool: `python -m tests.recorder.alone [HEARTBEAT_S]`."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from streamgauge.cli import collector
from streamgauge.metrics.http_server import no_pages
from streamgauge.metrics.prometheus import Metrics
from streamgauge.recorder import process


class Nothing:
    """No delivery."""

    metrics, pages = Metrics(), staticmethod(no_pages)

    def is_ready(self) -> bool:
        return True

    async def finish(self, finish_s: float) -> None:
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def nothing(*_: object) -> AsyncIterator[Nothing]:
    yield Nothing()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        vars(process)["HEARTBEAT_NS"] = round(float(sys.argv[1]) * 1e9)
    collector.delivery_of = nothing  # type: ignore[assignment]
    sys.exit(collector.main())
