"""How much time streams that are behind may have for their turns. Pure: the caller has the clock.

Such a stream has more waiting than a turn takes. Its events may be many and costly, and it has no right to be recorded as
fast as it came. Streams behind share half of the recorder's time, and about half of the time of the process that makes
records: segments go there in one queue, so whatever takes longer there delays the records of all.
"""

from collections.abc import Iterable

from streamgauge.core.capture.segments import BUNDLE_NS, Segment

# What each look grants (ns): half of the time between two looks.
LOOK_NS = BUNDLE_NS // 2
# What was not used is left to later turns, up to so much (ns): a stream of 10,000 events that comes at one time is taken in
# at once.
MOST_NS = 4 * LOOK_NS
# A turn is charged as long as it took here, or as its lines take where records are made, if that is longer (ns a line). A
# hostile event of two lines takes up to 15 us there, an ordinary one 1.
LINE_NS = 4_000


class Credit:
    """Time for turns: `grant` at each look, `charge` after each turn, which is due as long as something is `left`."""

    def __init__(self) -> None:
        self._left_ns = MOST_NS

    @property
    def left(self) -> bool:
        """Whether a turn is due."""
        return self._left_ns > 0

    def grant(self) -> None:
        """One more look."""
        self._left_ns = min(self._left_ns + LOOK_NS, MOST_NS)

    def charge(self, took_ns: int, segments: Iterable[Segment]) -> None:
        """A turn took so long, and these are what it gave."""
        lines = sum([read.content.count(b"\n") for segment in segments for read in segment.reads])
        self._left_ns -= max(took_ns, LINE_NS * lines)
