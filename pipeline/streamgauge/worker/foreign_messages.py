"""Foreign messages of a partition: bundles in the format of another version.

If taps were upgraded before the workers, every message of a partition is foreign, and the partition is to stop
(decision 39). A client that may write the topic can forge foreign messages; it must not be able to stop a partition that
taps use. So a partition stops only if no bundle could be read for some time, in which each tap sends several heartbeats.
Damaged messages, those of other programs, and bundles on which the assembler fails do not count: taps of a later version are
not their cause.
"""

# Twelve heartbeats of a tap (`recorder/bundler.py`), in the log's time (seconds).
ALONE_S = 60.0


class ForeignRun:
    """The foreign messages of a partition since the last bundle that could be read.

    `limit`: how many there may be, 0 for no limit; `alone_s`: for how long at least no bundle could be read (seconds, by the
    timestamps that the broker gives to messages).
    """

    def __init__(self, limit: int, alone_s: float = ALONE_S) -> None:
        self._limit, self._alone_s = limit, alone_s
        self._count, self._since_s = 0, 0.0

    def readable(self) -> None:
        """Count from 0 again, since a bundle of a tap could be read."""
        self._count = 0

    def foreign(self, at_s: float) -> bool:
        """Count one foreign message with this timestamp. Returns whether the partition is to stop at it."""
        if self._count == 0:
            self._since_s = at_s
        stops = 0 < self._limit <= self._count and at_s - self._since_s >= self._alone_s
        self._count += 1
        return stops
