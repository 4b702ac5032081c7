"""The kernel stamps packets by the wall clock; durations need one that is never set. Pure: readings of both come in.

What lies between the two clocks only changes when the wall clock is set (or the host slept). Packets that were stamped before
that and read after it are told apart by what is possible: not before the packet before, not after now.
"""

# Two readings of the clocks are not taken at once: a smaller difference between offsets is no step (ns).
STEP_NS = 5_000_000


class StampClock:
    """Turns wall stamps into monotonic ones. `offset_ns`: wall clock minus monotonic clock, by the last look."""

    def __init__(self, wall_ns: int, monotonic_ns: int) -> None:
        self.offset_ns = wall_ns - monotonic_ns
        self._before_ns = self.offset_ns  # the offset before the last step
        self._now_ns = monotonic_ns
        self._last_ns = 0

    def look(self, wall_ns: int, monotonic_ns: int) -> None:
        """Both clocks, read now; to be called before each run of packets is stamped."""
        offset_ns = wall_ns - monotonic_ns
        self._now_ns = monotonic_ns
        if abs(offset_ns - self.offset_ns) > STEP_NS:
            self._before_ns, self.offset_ns = self.offset_ns, offset_ns

    def monotonic(self, stamp_ns: int) -> int:
        """The moment of a packet, in order with those before it, and not after the last look."""
        at_ns = stamp_ns - self.offset_ns
        if self._before_ns != self.offset_ns and not self._last_ns <= at_ns <= self._now_ns:
            earlier_ns = stamp_ns - self._before_ns
            if self._last_ns <= earlier_ns <= self._now_ns:
                at_ns = earlier_ns
        self._last_ns = min(max(at_ns, self._last_ns), max(self._now_ns, self._last_ns))
        return self._last_ns
