"""A client of the recorder that keeps what captures report."""

from collections import Counter
from itertools import count

from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import Message, ResponseRead
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import NotCaptured


class BugError(Exception):
    """An unexpected exception."""


class FakeClient:
    """A client whose free room a test sets. `breaks`: the kinds of message for which it raises."""

    def __init__(self, *breaks: type[Message], first: int = 1) -> None:
        self.full = self.overfull = False
        self.connections = 1
        self.messages: list[Message] = []
        self.seen = self.faults = 0
        self.dropped: Counter[DropReason] = Counter()
        self.responses: Counter[tuple[str | None, NotCaptured | None]] = Counter()
        self.breaks = breaks
        self.refused_parties: set[Party] = set()
        self._numbers = count(first)

    def admits(self, party: Party | None) -> bool:
        return party not in self.refused_parties

    def new_stream(self) -> int:
        return next(self._numbers)

    def has_room(self, stream: int, size: int) -> bool:
        return not self.full

    def take_room(self, stream: int, size: int) -> bool:
        return not self.full

    def put(self, message: Message, size: int) -> None:
        assert size >= 0
        if isinstance(message, self.breaks):
            raise BugError
        self.messages.append(message)

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        if self.full:
            return False
        self.put(ResponseRead(stream, at_ns, bytes(data)), len(data))
        self.seen += 1
        return True

    def count_dropped(self, reason: DropReason) -> None:
        self.seen += 1
        self.dropped[reason] += 1

    def count_fault(self) -> None:
        self.faults += 1

    def count_response(self, upstream: str | None, without: NotCaptured | None = None) -> None:
        self.responses[upstream, without] += 1
