"""The difference between this host's wall clock and the broker's, from the times that the broker gives to our messages."""

# How long the smallest difference is kept before a new search begins (seconds).
_PERIOD_S = 60.0


class ClockSkew:
    """Each confirmed message gives a difference that is too large by the broker's answering time: the smallest one counts.

    `seconds`: our clock minus the broker's, the smallest difference of the last one to two minutes; None before the first.
    """

    def __init__(self) -> None:
        self._began_s = float("-inf")
        self._before: float | None = None  # the smallest of the period before
        self._now: float | None = None  # the smallest of this period

    @property
    def seconds(self) -> float | None:
        """Our clock minus the broker's (seconds); positive if ours is ahead. None before the first message."""
        return min((one for one in (self._before, self._now) if one is not None), default=None)

    def confirmed(self, now_s: float, wall_s: float, appended_ms: int) -> None:
        """A message was confirmed. `now_s`: monotonic; `wall_s`: our wall clock; `appended_ms`: the broker's wall clock."""
        if now_s - self._began_s >= _PERIOD_S:
            self._began_s, self._before, self._now = now_s, self._now, None
        difference = wall_s - appended_ms / 1000
        self._now = difference if self._now is None else min(self._now, difference)
