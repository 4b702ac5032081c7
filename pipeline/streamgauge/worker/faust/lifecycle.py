"""Run the Faust app: access to its consumers and its table, start, stop, and why it crashed."""

import asyncio
import logging
from typing import cast

import faust

from streamgauge.kafka.cancelling import end_task, error_of
from streamgauge.kafka.log_throttle import described_of_client
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.faust.store import StateTable

_LOG = logging.getLogger("streamgauge.worker")


class FaustLifecycle:
    """Runs an app of `create_app`, once. `state`: the app's table."""

    def __init__(self, app: faust.App) -> None:
        self._app = app
        self._starting: asyncio.Future[None] | None = None
        self.state = cast(StateTable, app.tables["state"])

    def consumer(self, topic: str) -> FaustConsumer:
        """The app's consumer, for one topic."""
        return FaustConsumer(self._app, topic)

    def start(self) -> None:
        """Begin to start the app. Faust's start does not end until the broker answers."""
        self._starting = asyncio.ensure_future(self._app.start())

    @property
    def crash_reason(self) -> BaseException | None:
        """The error that crashed the app; None if it did not crash."""
        return self._app.crash_reason if self._app.crashed else None

    @property
    def start_error(self) -> BaseException | None:
        """The error that ended the app's start; None if there is none."""
        starting = self._starting
        ended = starting is not None and starting.done() and not starting.cancelled()
        return starting.exception() if starting is not None and ended else None

    async def stop(self, timeout_s: float) -> bool:
        """Stop the app. False if it did not stop in time: its threads may still run."""
        done, _ = await asyncio.wait({asyncio.ensure_future(self._app.stop())}, timeout=timeout_s)
        if self._starting is not None:
            await end_task(self._starting)
        for task in done:
            if (error := error_of(task)) is not None:
                _LOG.warning("Faust did not stop cleanly: %s", described_of_client(error), exc_info=error)
        return bool(done)
