"""Log when a worker becomes ready, when it has not been ready for some time, and when it is ready again."""

import logging

_LOG = logging.getLogger("streamgauge.worker")

# How long a worker may be unready before a line is logged (seconds): a rebalance and a recovery take less.
LOGGED_AFTER_S = 10.0


class Readiness:
    """Call `update` at each check. It logs a line when the worker is first ready, when it stays unready, and when it is ready
    again.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._logged = self._was_ready = False

    def update(self, why: str | None, now: float, partitions: int | None = None) -> None:
        """Record one check. `why`: why the worker is not ready at `now` (seconds, monotonic); None if ready or unknown.

        `partitions`: its number of partitions; None if unknown. Both None: unknown whether it is ready.
        """
        if why is None and partitions is None:  # unknown
            if not self._logged:
                self._since = None
            return
        if why is None:
            if not self._was_ready:
                _LOG.info("the worker is ready, with %d partitions", partitions)
            elif self._logged and self._since is not None:
                _LOG.warning("the worker is ready again, after %.0f s", now - self._since)
            self._was_ready, self._since, self._logged = True, None, False
            return
        self._since = now if self._since is None else self._since
        if not self._logged and now - self._since >= LOGGED_AFTER_S:
            self._logged = True
            _LOG.error("the worker has not been ready for %.0f s: %s", now - self._since, why)
