"""Converts the kernel's wall-clock stamps of packets to monotonic times, for durations. Pure: the caller reads the clocks.

The offset between the two clocks changes only when the wall clock is set (or the host slept). A packet may be stamped
before such a step and read after it. The old offset is used if only it gives a possible time: not before the previous
packet, and not after now.
"""

# The two clocks are not read at the same instant: a smaller difference between offsets is not a step (ns).
STEP_NS = 5_000_000


class StampClock:
    """Converts wall stamps to monotonic times. `offset_ns`: wall clock minus monotonic clock, at the last `update`."""

    def __init__(self, wall_ns: int, monotonic_ns: int) -> None:
        self.offset_ns = wall_ns - monotonic_ns
        self._before_ns = self.offset_ns  # the offset before the last step
        self._now_ns = monotonic_ns
        self._last_ns = 0

    def update(self, wall_ns: int, monotonic_ns: int) -> None:
        """Sets the present readings of both clocks. Call it before each block of packets."""
        offset_ns = wall_ns - monotonic_ns
        self._now_ns = monotonic_ns
        if abs(offset_ns - self.offset_ns) > STEP_NS:
            self._before_ns, self.offset_ns = self.offset_ns, offset_ns

    def monotonic(self, stamp_ns: int) -> int:
        """The monotonic time of a packet: not before the previous packet, and not after the last `update`."""
        at_ns = stamp_ns - self.offset_ns
        if self._before_ns != self.offset_ns and not self._last_ns <= at_ns <= self._now_ns:
            earlier_ns = stamp_ns - self._before_ns
            if self._last_ns <= earlier_ns <= self._now_ns:
                at_ns = earlier_ns
        self._last_ns = min(max(at_ns, self._last_ns), max(self._now_ns, self._last_ns))
        return self._last_ns
