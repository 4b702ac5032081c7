"""The CPU quota of backlogged streams (streams that are behind). Pure: the caller has the clock.

A stream that is behind has more waiting than one turn processes. Its events may be many and costly, and need not be recorded
as fast as they arrived. Streams that are behind share half of the recorder's time, and about half of the time of the process
that makes records: segments reach that process in one queue, so a segment that takes longer there delays the records of all
streams.
"""

from collections.abc import Iterable

from streamgauge.core.capture.segments import BUNDLE_NS, Segment

# The credit that each flush grants (ns): half of the time between two flushes.
FLUSH_CREDIT_NS = BUNDLE_NS // 2
# Unused credit is kept for later turns, up to this much (ns): a stream of 10,000 events that arrives at one time is
# processed at once.
MAX_CREDIT_NS = 4 * FLUSH_CREDIT_NS
# A turn is charged its own time, or the time that its lines take where records are made, if that is longer (ns a line).
# A hostile event of two lines takes up to 15 us there, an ordinary one 1 us.
LINE_NS = 4_000


class Credit:
    """The quota: `grant` at each flush, `charge` after each turn. A turn may run as long as credit is `left`."""

    def __init__(self) -> None:
        self._left_ns = MAX_CREDIT_NS

    @property
    def left(self) -> bool:
        """Whether a turn may run."""
        return self._left_ns > 0

    def grant(self) -> None:
        """Add the credit of one flush."""
        self._left_ns = min(self._left_ns + FLUSH_CREDIT_NS, MAX_CREDIT_NS)

    def charge(self, took_ns: int, segments: Iterable[Segment]) -> None:
        """Subtract a turn that took `took_ns` and made these segments."""
        lines = sum([read.content.count(b"\n") for segment in segments for read in segment.reads])
        self._left_ns -= max(took_ns, LINE_NS * lines)
