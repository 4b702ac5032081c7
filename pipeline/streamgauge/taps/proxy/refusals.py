"""Counts the requests to which a relay sends its own response, and the responses that it ends by a reset.

Logs at most one line per code in LINE_S.
"""

import time
from collections.abc import Callable

from streamgauge.spool.read_counters import Counters, Refusal
from streamgauge.taps.proxy.request import RefusedError

# At most one line per code within this time (seconds): a client that repeats a wrong request must not fill the log.
LINE_S = 60.0


class Refusals:
    """The refusals of one relay. `log` writes a line for the operator; `now` returns seconds."""

    def __init__(
        self, counters: Counters, log: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._counters, self._log, self._now = counters, log, now
        self._logged_at: dict[Refusal, float] = {}
        self._suppressed: dict[Refusal, int] = {}

    def add(self, refused: RefusedError, *, reset: bool = False) -> None:
        """Counts a refusal, and logs it unless its code was logged within LINE_S. The line has no byte of the request.

        `reset`: the client had a part of the response, so the relay could only reset its connection.
        """
        code = refused.code
        self._counters.refused(code)
        now, logged_at = self._now(), self._logged_at.get(code)
        if logged_at is not None and now - logged_at < LINE_S:
            self._suppressed[code] = self._suppressed.get(code, 0) + 1
            return
        self._logged_at[code] = now
        suppressed = self._suppressed.pop(code, 0)
        more = f" ({suppressed} more with this code since the last such line)" if suppressed else ""
        did = f"reset a response ({code.value})" if reset else f"answered a request with {code.status} {code.value}"
        self._log(f"{did}: {refused.message}{more}")
