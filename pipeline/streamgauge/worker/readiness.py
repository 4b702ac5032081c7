"""The log line about a worker that is not ready, and the one that ends it."""

import logging

_LOG = logging.getLogger("streamgauge.worker")

# How long a worker may be without its partitions until a line says so (seconds): a rebalance and a recovery take less.
SAID_AFTER_S = 10.0


class Readiness:
    """Give each look to `look`: it logs one line when the worker stays unready, and one when that is over."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = False

    def look(self, why: str | None, now: float) -> None:
        """`why`: why the worker is not ready at `now` (seconds, monotonic); None if it is, or nothing can be said."""
        if why is None:
            if self._said and self._since is not None:
                _LOG.warning("the worker is ready again, after %.0f s", now - self._since)
            self._since, self._said = None, False
            return
        self._since = now if self._since is None else self._since
        if not self._said and now - self._since >= SAID_AFTER_S:
            self._said = True
            _LOG.error("the worker is not ready for %.0f s: %s", now - self._since, why)
