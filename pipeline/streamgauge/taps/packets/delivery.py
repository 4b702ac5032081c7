"""Puts the messages of streams into the outbox and counts reads: seen = delivered + waiting + dropped. It never waits.

While the outbox is full, reads are dropped, and the number of dropped reads is reported when there is room again. A stream
whose start found no room is not reported at all. A loss in the capture counts as one read that was seen and dropped.
"""

from typing import Protocol

import msgspec

from streamgauge.recorder.protocol import (
    ExchangeEnded,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.spool.read_counters import Counters, DropReason


class Way(Protocol):
    """A bounded queue to the recorder: see `taps/proxy/outbox.py`."""

    counters: Counters
    full: bool
    overfull: bool

    def put(self, message: Message, size: int) -> None: ...


class _Amiss(msgspec.Struct):
    """What was left out of a stream's messages so far."""

    unknown: bool = False  # its start was not reported
    dropped: int = 0  # dropped reads, not reported yet
    asked_in_part: bool = False


class Delivery:
    """Puts messages into `way`. Only one event loop uses it."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._amiss: dict[int, _Amiss] = {}

    def put(self, message: Message) -> None:
        """One message of a stream."""
        if type(message) is ResponseRead:
            self._way.counters.seen(1)
            if not self._way.full and not self._amiss:
                self._way.put(message, len(message.data))
                return
        elif isinstance(message, ReadsDropped):
            self._way.counters.seen(message.reads)
            self._way.counters.dropped(DropReason.PACKETS_LOST, message.reads)
        self._put(message, self._amiss.get(message.stream))

    def _put(self, message: Message, amiss: _Amiss | None) -> None:
        way = self._way
        if isinstance(message, RequestStarted):
            if way.overfull:
                self._amiss[message.stream] = _Amiss(unknown=True)
            else:
                way.put(message, len(message.target) + sum(len(name) + len(value) for name, value in message.headers))
        elif isinstance(message, ResponseRead) and (way.full or (amiss is not None and amiss.unknown)):
            self._drop(message.stream)
        elif isinstance(message, RequestBody) and way.full:
            self._amiss.setdefault(message.stream, _Amiss()).asked_in_part = True
        elif amiss is None:
            way.put(message, len(message.data) if isinstance(message, ResponseRead | RequestBody) else 0)
        else:
            self._put_amiss(message, amiss)

    def _put_amiss(self, message: Message, amiss: _Amiss) -> None:
        """Puts a message of a stream of which something was left out."""
        if not amiss.unknown:
            if amiss.dropped:
                self._way.put(ReadsDropped(message.stream, amiss.dropped), 0)
                amiss.dropped = 0
            if isinstance(message, RequestSent) and amiss.asked_in_part:
                message = msgspec.structs.replace(message, whole=False)
            if not (isinstance(message, RequestBody) and amiss.asked_in_part):
                self._way.put(message, len(message.data) if isinstance(message, ResponseRead | RequestBody) else 0)
        if isinstance(message, ExchangeEnded):
            del self._amiss[message.stream]

    def _drop(self, stream: int) -> None:
        self._amiss.setdefault(stream, _Amiss()).dropped += 1
        self._way.counters.dropped(DropReason.RECORDER_BEHIND)
