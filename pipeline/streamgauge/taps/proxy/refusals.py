"""Counts the requests to which a relay sends its own response, and logs at most one line per code in LINE_S."""

import time
from collections.abc import Callable

from streamgauge.spool.read_counters import Counters, Refusal
from streamgauge.taps.proxy.request import RefusedError

# At most one line per code within this time (seconds): a client that repeats a wrong request must not fill the log.
LINE_S = 60.0


class Refusals:
    """The refusals of one relay. `say` takes a sentence for the operator; `now` returns seconds."""

    def __init__(
        self, counters: Counters, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._counters, self._say, self._now = counters, say, now
        self._said_at: dict[Refusal, float] = {}
        self._unsaid: dict[Refusal, int] = {}

    def add(self, refused: RefusedError) -> None:
        """Counts a refusal, and logs it unless its code was logged within LINE_S. The line has no byte of the request."""
        code = refused.code
        self._counters.refused(code)
        now, said_at = self._now(), self._said_at.get(code)
        if said_at is not None and now - said_at < LINE_S:
            self._unsaid[code] = self._unsaid.get(code, 0) + 1
            return
        self._said_at[code] = now
        unsaid = self._unsaid.pop(code, 0)
        more = f" ({unsaid} more with this code since the last such line)" if unsaid else ""
        self._say(f"answered a request with {code.status} {code.value}: {refused.message}{more}")
