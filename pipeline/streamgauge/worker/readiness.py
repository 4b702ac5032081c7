"""The log lines about a worker that is ready, that is not for long, and that is ready again."""

import logging

_LOG = logging.getLogger("streamgauge.worker")

# How long a worker may be without its partitions until a line says so (seconds): a rebalance and a recovery take less.
SAID_AFTER_S = 10.0


class Readiness:
    """Give each look to `look`: it logs a line when the worker is ready, one when it stays unready, and one after that."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = self._was_ready = False

    def look(self, why: str | None, now: float, partitions: int | None = None) -> None:
        """`why`: why the worker is not ready at `now` (seconds, monotonic); None if it is, or nothing can be said.

        `partitions`: how many it has; None if that cannot be said.
        """
        if why is None:
            if self._said and self._since is not None:
                _LOG.warning("the worker is ready again, after %.0f s", now - self._since)
            elif not self._was_ready and partitions is not None:
                _LOG.info("the worker is ready, with %d partitions", partitions)
            self._was_ready = self._was_ready or partitions is not None
            self._since, self._said = None, False
            return
        self._since = now if self._since is None else self._since
        if not self._said and now - self._since >= SAID_AFTER_S:
            self._said = True
            _LOG.error("the worker has not been ready for %.0f s: %s", now - self._since, why)
