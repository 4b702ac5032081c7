"""Faust's table recovery, changed so that an outage of the broker does not end it.

Written for faust-streaming 0.12 to 0.15 and mode-streaming 0.4 to 0.7. No public report of these causes.

Faust waits at most 30 s for each step of a recovery (`broker_request_timeout`). After a timeout, mode's `wait_first`
returns the same result as for a stopped service, so Faust's recovery task ends without an error or a log line, and no later
rebalance starts it again. A step that fails because the broker is unreachable crashes the app. This module restarts the
recovery in both cases, as often as needed.

Faust waits without limit for the end of the changelog. But it drops messages that its thread fetched while a rebalance
began, and they are not fetched again, so the recovery may never end. This module restarts a recovery that makes no
progress; the restarted one continues at the same offset.

Faust may also drop messages in the middle of the changelog and read on, so that the state lacks their entries: `delivery.py`
finds that, and the recovery starts again before them.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka.errors import (  # type: ignore[import-untyped]
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain, ServiceStopped
from faust.tables.recovery import Recovery as FaustRecovery
from faust.types import TP

from streamgauge.worker.faust.store import FAUST_LOG

# How soon a step that failed is tried again (seconds).
_RETRY_S = 1.0
# How long reading the changelog may make no progress (seconds): its messages arrive at most some hundred ms apart.
_QUIET_S = 5.0
# Errors that stay until an operator acts: they crash the app, and the worker ends with a sentence about them.
_DENIED = (TopicAuthorizationFailedError, GroupAuthorizationFailedError, ClusterAuthorizationFailedError)


class Recovery(FaustRecovery):
    """Faust's recovery, which starts again if a step took too long or failed."""

    logger = FAUST_LOG

    async def _wait(self, coro: Any, timeout: Any = None) -> None:  # noqa: ASYNC109 - Faust's own signature
        """Wait for a step. Raises ServiceStopped if the service stops, RebalanceAgain if the recovery has to start again."""
        signal: Any = self.signal_recovery_start
        try:
            if timeout is None:
                result = await self._wait_while_reading(asyncio.ensure_future(coro), signal)
            else:
                result = await self.wait_first(coro, signal, timeout=timeout)
        except _DENIED:
            raise
        except (KafkaError, TimeoutError) as error:
            reason = repr(error)
            await asyncio.sleep(_RETRY_S)
        else:
            # `stopped` is True after a timeout as well.
            if not result.stopped:
                if signal in result.done:
                    raise RebalanceAgain
                return
            reason = f"no answer within {timeout or _QUIET_S} s"
        if self.should_stop:
            raise ServiceStopped
        await self._start_again(reason)
        raise RebalanceAgain

    async def _wait_while_reading(self, waiting: "asyncio.Future[Any]", signal: Any) -> Any:
        """Wait without limit; but return if the changelog is being read, and none of it arrived for _QUIET_S."""
        try:
            while True:
                read = sum(self.active_remaining().values())
                result = await self.wait_first(asyncio.shield(waiting), signal, timeout=_QUIET_S)
                stands_still = (
                    self.in_recovery and self.need_recovery() and sum(self.active_remaining().values()) == read
                )
                if not result.stopped or self.should_stop or stands_still:
                    return result
        finally:
            waiting.cancel()

    async def _seek_offsets(self, consumer: Any, tps: set[TP], offsets: Mapping[TP, int], title: str) -> None:
        """As Faust's, and reports to the consumer which messages the recovery has."""
        await consumer.seek_after({tp: offsets[tp] for tp in tps})

    async def check_delivery(self, tp: TP, offset: int) -> None:
        """Called with each new message of the changelog. Starts the recovery again if messages before it are lost."""
        consumer: Any = self.app.consumer
        rewind = consumer.delivery_check.delivered(tp, offset)
        if rewind is not None:
            self.active_offsets[tp] = rewind.offset
            if rewind.is_lost and not self.signal_recovery_start.is_set():
                await self._start_again(f"{tp.topic}-{tp.partition} was not read from {rewind.offset + 1} to {offset}")

    async def _start_again(self, reason: str) -> None:
        """Start the recovery again. First discards the recovered partitions: they may have written state since, which the
        next attempt has to read."""
        self.log.warning("a step of the recovery failed (%s): the recovery starts again", reason)
        tables: Any = self.tables
        for table in tables.values():
            await table.discard_recovered()
        self.signal_recovery_start.set()


class Tables(TableManager):
    """Faust's table manager, with the Recovery of this module."""

    logger = FAUST_LOG

    @property
    def recovery(self) -> FaustRecovery:
        """The recovery service, created at the first access."""
        if self._recovery is None:
            self._recovery = Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
