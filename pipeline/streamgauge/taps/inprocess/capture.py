"""What an in-process tap notes of one stream. Nothing here raises, waits, locks, or touches a byte: whatever goes wrong,
the stream goes on and its record says that it is incomplete.

Notes gather in a list; the sender's thread takes them from its front (note_collector.py). A chunk costs one append.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.dialects import endpoint_of
from streamgauge.core.http1.content_type import says_event_stream
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    ExchangeEnded,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
)
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import DropReason

# What a note costs besides its bytes (bytes): a tuple, a stamp, and their places.
NOTE_BYTES = 200
# From so much on that one stream has noted and nobody took (bytes), the sender is woken.
WAKE_BYTES = 1024 * 1024
# So much of one stream may wait to be taken (bytes): a whole answer of the largest size that a recorder looks into (16 MiB),
# as an application hands it on in one piece, and the sender's next turn.
MAX_UNTAKEN_BYTES = 20 * 1024 * 1024

_NO_ROOM = -1  # less than any stream has noted: each read is looked at

Headers = Iterable[tuple[str | bytes, str | bytes]]


class Asking(NamedTuple):
    """A request as a tap sees it. `target`: path and query; `began_ns`: time zero, by the monotonic clock."""

    tap: str
    upstream: str | None
    method: str
    target: str
    headers: Headers
    began_ns: int


class Lost(msgspec.Struct, frozen=True):
    """A note in place of reads that found no room, or came after a fault."""

    reads: int
    reason: DropReason


class Fault(msgspec.Struct, frozen=True):
    """A note that capturing this stream failed: a bug of ours."""


Told = RequestStarted | RequestBody | RequestSent | ResponseHead | ExchangeEnded | Lost | Fault
Note = tuple[int, bytes] | Told


class EndedError(RuntimeError):
    """The process ends, or this sender is that of the process from which this one was forked."""


class Taker(Protocol):
    """Who takes the notes. `full`: there is no room for more reads."""

    full: bool

    def begin(self, capture: "NotedStream") -> int:
        """Take what this one notes from now on; gives the stream's number. Raises what it raises."""

    def wake(self) -> None:
        """Come soon."""


class NotedStream:
    """One stream. `notes` and `noted_bytes` are written by the application, `taken_bytes` by the sender."""

    __slots__ = (
        "_asked", "_broken", "_ended", "_limit", "_lost", "_taker", "_whole", "noted_bytes", "notes", "stream",
        "taken_bytes",
    )  # fmt: skip

    def __init__(self, taker: Taker, asking: Asking, tenant_header: str | None = None) -> None:
        self.notes: list[Note] = []
        self.noted_bytes = self.taken_bytes = 0
        self.stream = 0
        self._taker = taker
        self._limit = WAKE_BYTES
        self._lost = self._asked = 0
        self._whole = True
        self._ended = self._broken = False
        try:
            self.stream = taker.begin(self)
            self._note(_opened(self.stream, asking, tenant_header))
        except EndedError:
            self._fault(None)
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def asked(self, data: bytes) -> None:
        """A piece of the request's body. Beyond the limit, or without room, it is left out, and `sent` says so."""
        try:
            self._asked += len(data)
            if self._asked > MAX_REQUEST_BODY or self._broken or self._taker.full:
                self._whole = False
            elif self._whole and data:
                self._note(RequestBody(self.stream, bytes(data)))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def sent(self, at_ns: int | None, body_bytes: int) -> None:
        """The request is whole, and was handed on. `at_ns`: when its last byte was; None where that is not seen."""
        try:
            whole = self._whole and self._asked == body_bytes
            self._note(RequestSent(self.stream, at_ns, None, body_bytes, whole))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def answered(self, at_ns: int, status: int, headers: Headers) -> None:
        """The response's head."""
        try:
            self._note(ResponseHead(self.stream, at_ns, status, _kept(headers, RESPONSE_HEADERS)))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def arrived(self, at_ns: int, data: bytes) -> None:
        """A piece of the response's body. `at_ns`: when it came, before it was handed on."""
        try:
            if type(data) is not bytes:
                data = bytes(data)
            if self.noted_bytes - self.taken_bytes > self._limit or self._taker.full:
                self._arrived_amiss(at_ns, data)
            elif data:
                self.noted_bytes += len(data) + NOTE_BYTES
                self.notes.append((at_ns, data))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error, lost=1)

    def ended(
        self, at_ns: int, ending: Ending, gone_ns: int | None = None, fault: TransportFault | None = None
    ) -> None:
        """The stream is over: told once. `gone_ns`: when its reader left, if it did; `fault`: what failed, if known."""
        try:
            if not self._ended:
                self._ended = True
                self._tell_lost()
                self._note(ExchangeEnded(self.stream, at_ns, ending, gone_ns, fault=fault))
                self._limit = _NO_ROOM
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def fault(self) -> None:
        """The tap caught and reported a bug: nothing more is noted but the end, and the record says it is incomplete."""
        self._fault(None)

    def _note(self, note: Note) -> None:
        self.noted_bytes += size_of_note(note)
        self.notes.append(note)

    def _arrived_amiss(self, at_ns: int, data: bytes) -> None:
        """A read when much waits, or after one that was lost, or after the end."""
        if not data or self._ended:
            return
        if self._broken or self._taker.full or self.noted_bytes - self.taken_bytes > MAX_UNTAKEN_BYTES:
            self._lost += 1
            self._limit = _NO_ROOM
            return
        self._tell_lost()
        self._limit = WAKE_BYTES
        self._note((at_ns, data))
        if self.noted_bytes - self.taken_bytes > WAKE_BYTES:
            self._taker.wake()

    def _tell_lost(self) -> None:
        if self._lost:
            reason = DropReason.CAPTURE_FAULT if self._broken else DropReason.RECORDER_BEHIND
            self._note(Lost(self._lost, reason))
            self._lost = 0

    def _fault(self, error: Exception | None, lost: int = 0) -> None:
        """From here on the stream is not captured. `error`: a bug of ours, to be reported."""
        if error is not None:
            report_fault("the capture of a tap in an application", error)
        try:
            if not self._broken:
                self._tell_lost()
                self._broken, self._limit = True, _NO_ROOM
                self._note(Fault())
            self._lost += lost
        except Exception as failed:  # noqa: BLE001 - not even this works: the stream still goes on
            report_fault("the notes of a tap in an application", failed)


def size_of_note(note: Note) -> int:
    """What a note is counted with (bytes)."""
    if type(note) is tuple:
        return len(note[1]) + NOTE_BYTES
    if type(note) is RequestBody:
        return len(note.data) + NOTE_BYTES
    if type(note) is RequestStarted or type(note) is ResponseHead:
        return sum(len(name) + len(value) for name, value in note.headers) + NOTE_BYTES
    return NOTE_BYTES


def is_llm(method: str, target: str) -> bool:
    """Whether a request is captured whatever answers it; else only an event stream is."""
    return endpoint_of(method, target) is not None


def is_event_stream(headers: Headers) -> bool:
    """Whether a response's head says that its body is one."""
    return says_event_stream(value for _, value in _kept(headers, frozenset(("content-type",))))


def _opened(stream: int, asking: Asking, tenant_header: str | None) -> RequestStarted:
    tenant = tenant_header.lower() if tenant_header else None
    wanted = REQUEST_HEADERS if tenant is None else REQUEST_HEADERS | {tenant}
    wall_ns = time.time_ns() - (time.monotonic_ns() - asking.began_ns)
    headers = _kept(asking.headers, wanted)
    method, target = asking.method, asking.target
    return RequestStarted(
        stream, asking.began_ns, wall_ns, asking.upstream, method, target, headers, asking.tap, tenant_header=tenant
    )


def _kept(headers: Headers, wanted: frozenset[str]) -> list[tuple[str, str]]:
    """Those that are wanted; no other leaves the process."""
    pairs = ((_text(name).lower(), value) for name, value in headers)
    return [(name, _text(value)) for name, value in pairs if name in wanted]


def _text(raw: str | bytes) -> str:
    return raw.decode("latin-1") if isinstance(raw, bytes) else raw
