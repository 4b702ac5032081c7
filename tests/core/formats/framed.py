"""Events written in each framing, and readers fed in pieces."""

from collections.abc import Callable, Iterable

from streamgauge.core.formats.reader import EventReader
from streamgauge.core.formats.sse import Event
from tests.core.cuts import every_way


def read(reader: EventReader, pieces: Iterable[bytes]) -> tuple[list[Event], Event | None, bool]:
    """All events, the pending one at the end, and whether the framing is broken."""
    events = [event for piece in pieces for event in reader.feed(piece)]
    last = reader.finish()
    return events, last, reader.fault


def datas(events: Iterable[Event]) -> list[bytes | None]:
    return [event.data for event in events]


def splits_change_nothing(make: Callable[[], EventReader], data: bytes) -> None:
    """Single bytes, and two pieces cut at any place, give what the whole gives."""
    whole = read(make(), [data])
    for pieces in every_way(data):
        assert read(make(), pieces) == whole, pieces
