"""Exponential backoff: how long to wait before a failed operation is tried again. Sans-IO."""

# The first and the longest pause (seconds): short enough to use a returning broker soon, long enough not to flood a broker
# that refuses.
FIRST_S = 1.0
LONGEST_S = 30.0


class Backoff:
    """Pauses that double from FIRST_S to LONGEST_S until an operation succeeds."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def failed(self) -> float:
        """Report a failure; returns how long to wait now (seconds)."""
        now, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_S)
        return now

    def worked(self) -> None:
        """Report a success: the next pause is the shortest one."""
        self._next_s = FIRST_S
