"""Makes messages of streams' notes, in the sender's thread. Here a read is counted as seen, or dropped without room.

Notes are taken from the front of a stream's list, while the application appends at its end.
"""

from collections.abc import Iterator
from typing import assert_never

import msgspec

from streamgauge.recorder.protocol import (
    ExchangeEnded,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import Counters, DropReason, Incident
from streamgauge.taps.inprocess.capture import NOTE_BYTES, Fault, Lost, Note, NotedStream, Told, size_of_note
from streamgauge.taps.inprocess.outbox import BATCH_BYTES, MessageBatches

# Notes processed in one turn: about 0.2 ms, in which an application's thread may wait for the GIL.
TURN_NOTES = 128
# A longer piece is split (bytes): encoding this much holds the GIL for about 0.1 ms.
PIECE_BYTES = 1024 * 1024


class _Stream:
    """One stream as reported to the recorder."""

    __slots__ = ("broken", "capture", "lost", "told", "whole")

    def __init__(self, capture: NotedStream) -> None:
        self.capture = capture
        self.told = False  # its start was reported; without room for it, nothing of the stream is reported
        self.broken = False  # after an internal error only the end is reported
        self.lost = 0  # dropped reads that are not yet reported
        self.whole = True  # the whole body of the request was reported


class NoteCollector:
    """Collects the notes of all open streams of one process. Only the sender's thread uses it."""

    def __init__(self, outbox: MessageBatches, counters: Counters) -> None:
        self.counters = counters
        self._outbox = outbox
        self._open: dict[int, _Stream] = {}

    @property
    def open_streams(self) -> int:
        """Streams that have not ended."""
        return len(self._open)

    @property
    def untaken_bytes(self) -> int:
        """Bytes noted and not yet collected."""
        return sum(one.capture.noted_bytes - one.capture.taken_bytes for one in self._open.values())

    def begin(self, capture: NotedStream) -> None:
        """Starts to collect this stream's notes."""
        self._open[capture.stream] = _Stream(capture)

    def collect(self) -> Iterator[int]:
        """Collects all present notes in turns. Yields the number of notes after each turn."""
        taken = 0
        for stream in list(self._open.values()):
            while turn := self._turn(stream):
                taken += turn
                if taken >= TURN_NOTES:
                    yield taken
                    taken = 0
        if taken:
            yield taken

    def _turn(self, stream: _Stream) -> int:
        notes = stream.capture.notes
        if not notes:
            return 0
        turn = notes[:TURN_NOTES]
        del notes[: len(turn)]
        size = self._usual_size(stream, turn)
        if size is None:
            self._take_each(stream, turn)
        else:
            self.counters.seen(len(turn))
            stream.capture.taken_bytes += size + len(turn) * NOTE_BYTES
            number = stream.capture.stream
            self._outbox.put_reads([ResponseRead(number, at_ns, data) for at_ns, data in turn], size)  # type: ignore[misc]
        return len(turn)

    def _usual_size(self, stream: _Stream, turn: list[Note]) -> int | None:
        """The bytes of a turn in the usual case: only small reads, of a stream without drops or errors. Else None."""
        reads = [note for note in turn if type(note) is tuple]
        if len(reads) < len(turn) or stream.lost or stream.broken or not stream.told or self._outbox.full:
            return None
        size = sum([len(data) for _, data in reads])
        return size if size <= BATCH_BYTES else None

    def _take_each(self, stream: _Stream, turn: list[Note]) -> None:
        self.counters.seen(sum(_reads_of(note) for note in turn))
        for at, note in enumerate(turn):
            try:
                if isinstance(note, tuple):
                    self._read(stream, *note)
                else:
                    self._take(stream, note)
            except Exception as error:  # noqa: BLE001 - capture fails open: an internal error makes this stream's record incomplete
                self._fault(stream, turn[at:], error)
                break
        stream.capture.taken_bytes += sum(size_of_note(note) for note in turn)

    def _take(self, stream: _Stream, note: Told) -> None:
        match note:
            case RequestBody():
                self._asked(stream, note)
            case RequestStarted():
                stream.told = not self._outbox.overfull
                self._put(stream, note)
            case RequestSent():
                self._put(stream, msgspec.structs.replace(note, whole=note.whole and stream.whole))
            case ResponseHead():
                self._put(stream, note)
            case Lost():
                self._drop(stream, note.reads, note.reason)
            case Fault():
                self.counters.happened(Incident.CAPTURE_FAULT)
                stream.broken = True
            case ExchangeEnded():
                self._end(stream, note)
            case _:
                assert_never(note)

    def _read(self, stream: _Stream, at_ns: int, data: bytes) -> None:
        outbox, pieces = self._outbox, _pieces(data)
        if stream.broken:
            self._drop(stream, len(pieces), DropReason.CAPTURE_FAULT)
        elif outbox.full or not stream.told:
            self._drop(stream, len(pieces), DropReason.RECORDER_BEHIND)
        else:
            self._tell_lost(stream)
            number = stream.capture.stream
            for piece in pieces:
                outbox.put(ResponseRead(number, at_ns, piece), len(piece))

    def _asked(self, stream: _Stream, asked: RequestBody) -> None:
        stream.whole = stream.whole and not self._outbox.full
        if stream.whole and stream.told and not stream.broken:
            for piece in _pieces(asked.data):
                self._outbox.put(RequestBody(asked.stream, piece), len(piece))

    def _put(self, stream: _Stream, message: RequestStarted | RequestSent | ResponseHead) -> None:
        """Puts a message without checking for room: a reported stream has only a few of them."""
        if stream.told and not stream.broken:
            self._outbox.put(message, size_of_note(message))

    def _end(self, stream: _Stream, ended: ExchangeEnded) -> None:
        self._open.pop(ended.stream, None)
        if stream.told:
            self._tell_lost(stream)
            self._outbox.put(ended, 0)

    def _drop(self, stream: _Stream, reads: int, reason: DropReason) -> None:
        stream.lost += reads
        self.counters.dropped(reason, reads)

    def _tell_lost(self, stream: _Stream) -> None:
        if stream.lost:
            self._outbox.put(ReadsDropped(stream.capture.stream, stream.lost), 0)
            stream.lost = 0

    def _fault(self, stream: _Stream, left: list[Note], error: Exception) -> None:
        """An internal error: the rest of this turn is dropped, and only the stream's end is still reported."""
        report_fault("the sender of a tap in an application", error)
        self.counters.happened(Incident.CAPTURE_FAULT)
        stream.broken = True
        for note in left:
            if reads := _reads_of(note):
                self._drop(stream, reads, DropReason.CAPTURE_FAULT)
            elif type(note) is ExchangeEnded:
                self._end(stream, note)


def _reads_of(note: Note) -> int:
    if isinstance(note, tuple):
        return len(_pieces(note[1]))
    return note.reads if type(note) is Lost else 0


def _pieces(data: bytes) -> list[bytes]:
    if len(data) <= PIECE_BYTES:
        return [data]
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
