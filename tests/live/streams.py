"""Streams for tests of the page: bundles of one tap, with the tap's clock."""

from collections.abc import Sequence

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Head, Read, RequestFacts, Segment
from streamgauge.core.limits import Limits
from streamgauge.live.view import LiveView, Scope
from streamgauge.metrics.observe import StreamCost
from tests.streams import INSTANCE, MS, chat_event, opening, stream_id

SECOND = 1_000 * MS
# The tap's clock when requests begin in these tests (ns): not 0, as on a host that has run for a while.
BEGAN = 1_000 * SECOND
WALL_S = 1_700_000_000.0


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return WALL_S + self.now


class Process:
    """An assembler with its view, as a process has them."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.clock = Clock()
        self.assembler = Assembler(self.limits)
        self.view = LiveView("up", self.limits, self.clock, self.clock.wall, prices=True)
        self.cost: StreamCost | None = None  # of each stream that ends
        self.view.scope = lambda: Scope({0: self.assembler})
        self._numbers = 0

    def take(self, segments: Sequence[Segment], at_ns: int) -> None:
        """Applies a bundle with these segments, which its tap closed `at_ns` after the requests of these tests began."""
        bundle = Bundle(INSTANCE, 0, self._numbers, BEGAN + at_ns, list(segments))
        records = self.assembler.apply(self._numbers, bundle.tap_ns // MS, bundle)
        self._numbers += 1
        self.view.applied(bundle, self.assembler, records)
        for record in records:
            self.view.finished(record, self.cost)


def token(at_ns: int, text: str = "a SECRET word") -> Read:
    content = chat_event(content=text)
    return Read(at_ns, len(content), len(content), content)


def read_of(content: bytes, at_ns: int) -> Read:
    return Read(at_ns, len(content), len(content), content)


def segment(number: int, place: int, reads: Sequence[Read]) -> Segment:
    """A segment of an open chat stream; the first one (`place` 0) has what begins it."""
    first = place == 0
    return Segment(
        stream_id(number),
        place,
        opening=opening() if first else None,
        request=RequestFacts(body_bytes=10, model="m", stream=True, sent_ns=MS) if first else None,
        head=Head(200, 5 * MS, True) if first else None,
        reads=list(reads),
    )
