"""Makes the segments of one open stream from its messages."""

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import cast

import msgspec

from streamgauge.core.capture.segments import (
    BUNDLE_BYTES,
    BUNDLE_NS,
    Head,
    Loss,
    Opening,
    Read,
    RequestFacts,
    Segment,
    StreamEnding,
)
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.decoder_memory import DecoderMemory
from streamgauge.recorder.protocol import (
    OFF_THE_WIRE,
    ExchangeEnding,
    ReadsDropped,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
    StampedRead,
)
from streamgauge.recorder.request import CaptureSettings, RequestReader, opening_of
from streamgauge.recorder.response import FinalContent, Response

# The size of a read without its content (bytes, about), for cutting segments.
READ_BYTES = 16
# The memory of a waiting read without its content (bytes, about: three objects).
WAITING_BYTES = 140
# A waiting byte with a content coding counts as this many bytes: it grows when it is decoded.
CODED = 8

# How many waiting reads are searched for dropped reads at a time.
MANY_READS = 1_024

# An open stream's reads are sent at every fourth flush, once a second: one segment, which has a fixed cost in recorder,
# spool, broker and worker, then holds four times as many events. Its beginning up to the first reads, its end, and reads
# that the tap sent in one message (ResponseReads) are sent at the next flush.
FLUSHES_PER_SEGMENT = 4
SEGMENT_NS = FLUSHES_PER_SEGMENT * BUNDLE_NS


class RecordedStream:
    """One stream. All stamps in its segments are nanoseconds since the request began.

    Reads, dropped reads and the ending wait in their order until `process_waiting` processes all of them or a part. A method
    may raise because of a bug: the caller then calls `fail`. After that nothing raises.

    `ready_bytes`: the approximate size of what `take` would return. `ordinal`: its number, counted by the recorder. `party`:
    the sender of the request, if the tap knows it. `behind`: set by the recorder for a stream that has more waiting than its
    budget of a flush.
    """

    def __init__(self, stream: bytes, opened: RequestStarted, settings: CaptureSettings, ordinal: int = 0) -> None:
        """`ordinal`: the number of the stream, which spreads streams over the flushes."""
        self.stream = stream
        self.ordinal, self.party = ordinal, opened.party
        self._flush_phase = ordinal % FLUSHES_PER_SEGMENT
        self.ready_bytes = 0
        self.behind = False
        self.body_capped = False
        self._zero = opened.at_ns
        self._capture = settings.capture_of(stream)
        # Replaced in `begin`. It stays if `begin` fails, so that the stream still has an opening.
        self._opening: Opening | None = Opening(opened.tap, settings.tap_version, self._capture)
        self._request: RequestReader | None = None
        self._response: Response | None = None
        self._facts: RequestFacts | None = None
        self._waiting: list[ResponseRead | StampedRead | ReadsDropped] = []
        self._waiting_data = 0  # bytes of the waiting reads
        self._holes = 0  # how many of `_waiting` are ReadsDropped
        self._reported_ending: ExchangeEnding | None = None  # until `end` processes it
        self._weight = CODED  # what a waiting byte counts as; as coded until the head is known
        self._reads: list[Read] = []
        self._lost = 0
        self._ending: StreamEnding | None = None
        self._number = 0
        self._is_urgent = True  # its data is sent at the next flush, not at its own in FLUSHES_PER_SEGMENT

    def begin(self, opened: RequestStarted, settings: CaptureSettings, budget: Budget, memory: DecoderMemory) -> None:
        """Process what is known when the request begins."""
        opening = opening_of(opened, settings, self._capture)
        masker = Masker(opening.path, self._capture == "full", opened.dialect)
        self._opening = opening
        self._request = RequestReader(opened, settings.key, budget)
        on_wire, began = opened.tap not in OFF_THE_WIRE, opened.wall_ns
        self._response = Response(
            opened.method, masker, budget, memory, on_wire=on_wire, began_wall_ns=began, path=opening.path
        )

    def begin_body(self) -> None:
        """Begin the body at once: the response has no head, as in a recording."""
        if self._response is not None:
            self._response.begin_body()

    def request_body(self, data: bytes) -> None:
        """Process bytes of the request's body."""
        if self._request is not None:
            self._request.add(data)

    def request_sent(self, sent: RequestSent) -> None:
        """Process the end of the request: the tap has sent all of it."""
        if self._request is not None:
            self.body_capped |= self._request.capped or not sent.whole
            self._facts = self._request.sent_facts(sent, self._since(sent.connected_ns), self._since(sent.at_ns))
            self._request = None

    def response_head(self, answered: ResponseHead) -> None:
        """Process a response's head that the tap reported (not read from the wire): later reads hold the body alone."""
        if self._response is not None:
            self._response.set_head(self._since(answered.at_ns), answered.status, answered.headers)

    def break_events(self) -> None:
        """Record that the framing of the response's events could not be read, in the transport before it."""
        if self._response is not None:
            self._response.break_events()

    def add_read(self, read: ResponseRead | StampedRead) -> int:
        """Keep a read of the response until `process_waiting`. Returns by how much `waiting_bytes` grew. Never raises."""
        self._waiting.append(read)
        size = len(read.data)
        self._waiting_data += size
        return size * self._weight + WAITING_BYTES

    def add_reads(self, reads: Sequence[StampedRead]) -> int:
        """As `add_read`, for reads that the tap sent in one message: they are sent at the next flush."""
        self._waiting += reads
        self._is_urgent = True
        size = sum([len(read.data) for read in reads])
        self._waiting_data += size
        return size * self._weight + WAITING_BYTES * len(reads)

    def add_dropped(self, dropped: ReadsDropped) -> int:
        """Record that reads are missing after those that wait. Returns by how much `waiting_bytes` grew."""
        self._waiting.append(dropped)
        self._holes += 1
        return WAITING_BYTES

    def exchange_ended(self, ending: ExchangeEnding) -> None:
        """Keep the ending of the exchange: it follows the reads that still wait."""
        self._reported_ending = ending

    @property
    def waiting_bytes(self) -> int:
        """The approximate memory that waiting reads need, decoded, with a read that is processed in part (bytes)."""
        part = 0 if self._response is None else self._response.part_bytes
        return self._waiting_data * self._weight + WAITING_BYTES * len(self._waiting) + part

    @property
    def waits(self) -> bool:
        """Whether there is something for `process_waiting` to process."""
        return bool(self._waiting)

    @property
    def has_ending(self) -> bool:
        """Whether the ending of the exchange was reported; the waiting reads precede it."""
        return self._reported_ending is not None

    def process_waiting(self, most: int) -> int:
        """Process waiting reads until they cost about `most` (`Response.read_all`). Returns the cost.

        An exception from it is an internal error; the reads after its cause then still wait.
        """
        response, cost = self._response, 0
        while response is not None and self._waiting and cost < most:
            first = self._waiting[0]
            if isinstance(first, ReadsDropped):
                self._remove_waiting(1)
                self._holes -= 1
                response.reads_dropped(first.reads)
                cost += 1
            else:
                cost += self._read(response, most - cost)
        return cost

    def _read(self, response: Response, most: int) -> int:
        """Process reads up to the next dropped reads."""
        reads, before = self._leading_reads(), len(self._reads)
        try:
            return response.read_all(reads, self._zero, self._reads, most)
        finally:
            read = self._reads[before:]
            self.ready_bytes += sum([len(item.content) for item in read]) + READ_BYTES * len(read)
            self._weight = CODED if response.is_coded else 1
            self._remove_waiting(len(read))

    def _leading_reads(self) -> list[ResponseRead | StampedRead]:
        if not self._holes:
            return cast(list[ResponseRead | StampedRead], self._waiting)
        return cast(list[ResponseRead | StampedRead], [*takewhile(_is_read, islice(self._waiting, MANY_READS))])

    def _remove_waiting(self, count: int) -> None:
        """Remove the first `count` items from those that wait."""
        if count == len(self._waiting):
            self._waiting, self._waiting_data = [], 0
        else:
            self._waiting_data -= sum(map(_size_of, self._waiting[:count]))
            self._waiting = self._waiting[count:]

    def drop_waiting(self) -> int:
        """Drop the waiting reads and mark them as missing. Returns how many reads were dropped."""
        holes = [item.reads for item in self._waiting if isinstance(item, ReadsDropped)]
        reads = len(self._waiting) - len(holes)
        self._waiting, self._waiting_data, self._holes = [], 0, 0
        if self._response is None:
            self._lost += reads + sum(holes)
        elif reads or holes:
            self._response.drop_part()
            self.add_dropped(ReadsDropped(0, reads + sum(holes)))
        return reads

    def end(self) -> None:
        """Process the ending of the exchange, after all reads before it."""
        reported, self._reported_ending = self._reported_ending, None
        assert reported is not None
        self._ending = StreamEnding(reported.ending, self._since(reported.at_ns), fault=reported.fault)
        if self._request is not None:
            self.body_capped |= self._request.capped
            self._facts, self._request = self._request.unsent_facts(), None
        if self._response is not None:
            self._ending = self._stream_ending(reported, self._response, self._response.finish(reported.ending))
            self.ready_bytes += len(self._ending.tail) + len(self._ending.body or b"")

    def fail(self) -> None:
        """Stop reading this stream after an internal error. At least one read counts as lost, so that the record is
        incomplete.
        """
        self._lost += 0 if any(map(_is_read, self._waiting)) else 1
        if self._response is not None:
            self._lost += self._response.loss.dropped_reads
            self._response.release()
        if self._request is not None:
            self._request.release()
        self._response = self._request = None

    @property
    def failed(self) -> bool:
        """True after a capture error: waiting and later reads can then only be dropped (`drop_waiting`)."""
        return self._response is None

    @property
    def decode_fault(self) -> bool:
        """Whether the response's framing or coding could not be decoded."""
        return self._response is not None and self._response.fault is not None

    @property
    def oversized_events(self) -> int:
        """The number of events discarded so far: over their size limit, or for lack of space in the budget."""
        return 0 if self._response is None else self._response.oversized_events

    def _stream_ending(self, reported: ExchangeEnding, response: Response, final: FinalContent) -> StreamEnding:
        self.body_capped |= final.body_capped
        # `unsent_bytes` counts wire bytes, with chunk framing: for a chunked body the result is a few bytes too small.
        client_bytes = max(response.body_bytes - reported.unsent_bytes, 0) if response.on_wire else None
        return StreamEnding(
            ending=reported.ending,
            stamp_ns=self._since(reported.at_ns),
            client_gone_ns=self._since(reported.client_gone_ns),
            client_blocked_ns=reported.client_blocked_ns,
            client_bytes=client_bytes,
            tail=final.tail,
            body=final.body,
            body_capped=final.body_capped,
            fault=reported.fault,
        )

    def _since(self, at_ns: int | None) -> int | None:
        return None if at_ns is None or self._zero is None else max(at_ns - self._zero, 0)

    # --- segments ---------------------------------------------------------------------------------------------------

    def is_due(self, flush: int) -> bool:
        """Whether this stream's data is to be sent at the flush of this number."""
        return (
            self.has_ending
            or self._ending is not None
            or self._is_urgent
            or flush % FLUSHES_PER_SEGMENT == self._flush_phase
        )

    def take(self, most: int = BUNDLE_BYTES) -> Iterator[Segment]:
        """Everything since the last call, as segments of at most about `most` bytes; none if there is nothing."""
        runs = list(_runs(self._reads, most)) if self.ready_bytes > most else [self._reads] if self._reads else []
        self._is_urgent = self._is_urgent and not runs
        self._reads, self.ready_bytes = [], 0
        head, loss = None, self._take_loss()
        if self._response is not None:
            head, self._response.head = self._response.head, None
        if not (runs or head or loss or self._opening or self._facts or self._ending):
            return
        for run in runs[:-1]:
            yield self._segment(head, loss, run)
            head = loss = None
        last = self._segment(head, loss, runs[-1] if runs else [])
        yield msgspec.structs.replace(last, end=self._ending)

    def _segment(self, head: Head | None, loss: Loss | None, reads: list[Read]) -> Segment:
        segment = Segment(self.stream, self._number, self._opening, self._facts, head, reads, loss)
        self._number += 1
        self._opening = self._facts = None
        return segment

    def _take_loss(self) -> Loss | None:
        lost, self._lost = self._lost, 0
        if self._response is None:
            return Loss(dropped_reads=lost) if lost else None
        loss, self._response.loss = self._response.loss, Loss()
        return None if loss == Loss() else loss


def _is_read(waiting: ResponseRead | StampedRead | ReadsDropped) -> bool:
    return not isinstance(waiting, ReadsDropped)


def _size_of(waiting: ResponseRead | StampedRead | ReadsDropped) -> int:
    return 0 if isinstance(waiting, ReadsDropped) else len(waiting.data)


def _runs(reads: list[Read], most: int) -> Iterator[list[Read]]:
    """Split the reads into runs of about `most` bytes."""
    run: list[Read] = []
    size = 0
    for read in reads:
        cost = READ_BYTES + len(read.content)
        if run and size + cost > most:
            yield run
            run, size = [], 0
        run.append(read)
        size += cost
    if run:
        yield run
