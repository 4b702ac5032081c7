"""Requests that a relay answers by itself: each is counted, and the operator gets a line now and then."""

import time
from collections.abc import Callable

from streamgauge.spool.read_counters import Counters, Refusal
from streamgauge.taps.proxy.request import RefusedError

# At most one line a code within this time (seconds): a client that repeats a wrong request must not fill the log.
LINE_S = 60.0


class Refusals:
    """One relay's. `say` takes a sentence for the operator; `now` gives seconds."""

    def __init__(
        self, counters: Counters, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._counters, self._say, self._now = counters, say, now
        self._said_at: dict[Refusal, float] = {}
        self._unsaid: dict[Refusal, int] = {}

    def add(self, refused: RefusedError) -> None:
        """Count a refusal, and say it unless one with this code was said a moment ago. No byte of the request is said."""
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
