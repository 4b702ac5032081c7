"""How long to wait before something that fails is tried again: longer each time, up to a bound. Sans-IO."""

# The first pause, and the longest (seconds): a broker that comes back is used soon, one that refuses is not stormed.
FIRST_S = 1.0
LONGEST_S = 30.0


class Pace:
    """Pauses that double while nothing works."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def failed(self) -> float:
        """It failed (again): how long to wait now (seconds)."""
        now, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_S)
        return now

    def worked(self) -> None:
        """Something went through."""
        self._next_s = FIRST_S
