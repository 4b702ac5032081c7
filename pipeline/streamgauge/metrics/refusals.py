"""Requests that the admin port refuses: counted in a metric, logged at most once a minute, and written to the admin log."""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from streamgauge.metrics.admin_log import AdminLog
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.table import ADMIN_REFUSED

_log = logging.getLogger("streamgauge.metrics.http_server")

# The shortest time between two log lines of one reason (seconds): a scraper repeats its request every few seconds.
REPEAT_S = 60.0


class Reason(NamedTuple):
    """Why a request was refused. `name`: the value of the metric's label; `sentence`: for the log."""

    name: str
    status: int
    sentence: str


WITHOUT_TOKEN = Reason("token", 401, "without its token (401)")
LIMITED = Reason("limited", 429, "because of many wrong tokens from its address (429)")
OTHER_HOST = Reason("host", 403, "because of its Host header (403): allow it with --admin-host NAME")
MALFORMED = Reason("malformed", 400, "that is malformed (400)")


class Refusals:
    """The refusals of one admin port."""

    def __init__(self, metrics: Metrics, log: AdminLog | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics, self._log, self._clock = metrics, log, clock
        self._since: dict[Reason, int] = {}
        self._logged_at: dict[Reason, float] = {}

    def add(self, reason: Reason, address: str, path: str, *, quiet: bool = False) -> None:
        """Count a refusal. `quiet`: it is not logged."""
        self._metrics.add(ADMIN_REFUSED.name, reason=reason.name)
        if self._log is not None:
            self._log.refused(address, path, reason.status, reason.name)
        if quiet:
            return
        now = self._clock()
        self._since[reason] = self._since.get(reason, 0) + 1
        if reason not in self._logged_at:
            _log.warning("the admin port rejected a request %s", reason.sentence)
        elif now - self._logged_at[reason] >= REPEAT_S:
            _log.warning(
                "the admin port rejected %d more requests %s, the last one from %s",
                self._since[reason], reason.sentence, address or "a closed connection",
            )  # fmt: skip
        else:
            return
        self._logged_at[reason], self._since[reason] = now, 0
