"""Makes the reads of one response from its raw bytes. A read's content is the masked events that it completed.

The input is the bytes of the wire, or the head as a tap reports it and then the bytes of the body. Framing and content
coding are decoded. The content is then read as a stream of events, in the framing that its first bytes show
(`content_kind.py`), or buffered whole. After reads that the tap dropped, a plain stream of server-sent events continues after
the next blank line, and one of JSON lines after the next line; any other response is lost from there on.
"""

from collections.abc import Sequence
from itertools import islice, repeat
from typing import assert_never

import msgspec

from streamgauge.core.capture.segments import Ending, Head, Loss, Read
from streamgauge.core.formats.aws_event_stream import AwsEventReader
from streamgauge.core.formats.json_array import JsonArrayReader
from streamgauge.core.formats.json_lines import JsonLinesReader
from streamgauge.core.http1.body import BodyDecoder, DecodeFault
from streamgauge.core.http1.head import ResponseHead
from streamgauge.core.http1.response import ResponseReader
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import BodyBuffer, Budget
from streamgauge.recorder.content_kind import ContentKind, KindDetector
from streamgauge.recorder.decoder_memory import DecoderMemory
from streamgauge.recorder.events import MaskedEvents
from streamgauge.recorder.framed_events import EventContent, FramedEvents
from streamgauge.recorder.protocol import ResponseRead, StampedRead
from streamgauge.recorder.response_head import head_facts, reported_head

# A response that is no event stream is read up to this size (bytes, decoded): the largest responses, images in base64
# included, are smaller. A request body has the same limit.
MAX_RESPONSE_BODY = 16 * 1024 * 1024
# The most reads that are processed together.
AT_ONCE = 1_024
# What an event counts in a budget besides its bytes (bytes): the shortest events take as long as usual ones.
EVENT_BYTES = 256
# How many bytes are processed at a time: at the beginning and after a step whose events had on average less than a third of
# EVENT_BYTES, the first size, which holds up to 1,400 of the shortest events; else the second.
LEAST_STEP_BYTES, MOST_STEP_BYTES = 4 * 1024, 64 * 1024
# Coded bytes that are decoded at a time: they may give some MiB.
CODED_STEP_BYTES = 4 * 1024


class FinalContent(msgspec.Struct, frozen=True):
    """Content of a response that only its end yields: see `tail`, `body` and `body_capped` of `segments.StreamEnding`."""

    tail: bytes = b""
    body: bytes | None = None
    body_capped: bool = False


class Response:
    """Reads one response. `head` and `loss` hold what is new since the caller last reset them."""

    def __init__(
        self,
        method: str,
        masker: Masker,
        budget: Budget,
        memory: DecoderMemory,
        *,
        on_wire: bool = True,
        began_wall_ns: int | None = None,
        path: str | None = None,
    ) -> None:
        """`began_wall_ns`: UTC when the request began. `path`: the endpoint's template."""
        self.head: Head | None = None
        self.loss = Loss()
        self.body_bytes = 0
        self.oversized_events = 0
        self.on_wire = on_wire  # False: the reads hold the body alone
        self.fault: DecodeFault | None = None
        self._masker, self._budget, self._memory = masker, budget, memory
        self._began_wall_ns, self._path = began_wall_ns, path
        self._reader = ResponseReader(method)
        self._raw_head: ResponseHead | None = None
        self._head_stamp: int | None = None
        self._reported_events: bool | None = None  # whether `head` was set as the head of an event stream
        self._decoder: BodyDecoder | None = None
        self._detector: KindDetector | None = KindDetector(None, path)  # until the content's first bytes show its kind
        self._events: EventContent | None = None
        self._whole: BodyBuffer | None = None
        self._lost = False
        self._part: _Part | None = None  # a read that is processed in part
        self._step_bytes = LEAST_STEP_BYTES  # how many bytes the next step processes

    @property
    def part_bytes(self) -> int:
        """The memory of a read that is processed in part (bytes): its decoded bytes, and the masked content so far."""
        part = self._part
        return 0 if part is None else len(part.decoded) + part.made

    @property
    def is_coded(self) -> bool:
        """Whether the body has a content coding; True until the head is known."""
        return self._decoder is None or self._decoder.is_coded

    def begin_body(self) -> None:
        """Begin the body at once: the response has no head, as in a recording."""
        self.on_wire = False
        self._decoder = BodyDecoder()

    def set_head(self, stamp_ns: int | None, status: int | None, headers: list[tuple[str, str]]) -> None:
        """Process the head that a tap reports if it does not read the wire; only the first one counts."""
        if self._decoder is not None or self._raw_head is not None:
            return
        head = reported_head(status, headers)
        self.on_wire = False
        self._decoder = BodyDecoder(coding=", ".join(head.all("content-encoding")), memory=self._memory)
        self._take_head(head, stamp_ns)

    def read_all(
        self, wire_reads: Sequence[ResponseRead | StampedRead], zero_ns: int | None, reads: list[Read], most: int
    ) -> int:
        """Process socket reads until they cost about `most`: their bytes, and EVENT_BYTES for each event. Append the result
        of each to `reads`, with its stamp in nanoseconds since `zero_ns`. Returns the cost, at least 1.

        The caller must pass the reads whose results are not in `reads` to the next call.
        """
        at = cost = 0
        while at < len(wire_reads) and cost < most:
            decoder, events = self._decoder, self._events
            are_plain = events is not None and decoder is not None and not (decoder.is_coded or decoder.fault)
            if are_plain and self._part is None and not self._lost:
                assert events is not None and decoder is not None
                count, size = _fitting(wire_reads, at, self._step_bytes)
                if count:
                    before = events.events
                    self._read_together(wire_reads[at : at + count], zero_ns, reads, decoder, events)
                    at += count
                    cost += self._step_cost(size, events.events - before)
                    continue
            if self._part is None:
                self._part = self._begin(wire_reads[at], zero_ns)
            cost += self._continue(self._part, most - cost)
            if self._part.is_whole:
                reads.append(self._part.read())
                self._part = None
                at += 1
        return cost

    def _step_cost(self, size: int, events: int) -> int:
        """What a step cost that has processed so many bytes and events. Sets the size of the next step."""
        self._step_bytes = LEAST_STEP_BYTES if 3 * size < EVENT_BYTES * events else MOST_STEP_BYTES
        return max(size + EVENT_BYTES * events, 1)

    def _begin(self, wire_read: ResponseRead | StampedRead, zero_ns: int | None) -> "_Part":
        """Begin a read: the head is removed."""
        data = wire_read.data
        part = _Part(_since(wire_read, zero_ns), len(data) if self.on_wire else 0)
        if self._decoder is None and not self._lost:
            data = self._read_head(part.stamp_ns, data)
        part.wire = data if self._decoder is not None and not self._lost else b""
        return part

    def _continue(self, part: "_Part", most: int) -> int:
        """Process a read until it costs about `most`, or the rest of it: at least one step. Returns the cost, at least 1."""
        cost = 0
        while not part.is_whole:
            if part.at < len(part.decoded):
                piece = _next_piece(part.decoded, part.at, self._step_bytes)
                before = 0 if self._events is None else self._events.events
                part.at += len(piece)
                part.add(self._content(piece))
                cost += self._step_cost(len(piece), 0 if self._events is None else self._events.events - before)
            else:
                cost += self._decode_step(part)
            if cost >= most:
                break
        return max(cost, 1)

    def _decode_step(self, part: "_Part") -> int:
        """Remove framing and coding from the next bytes of a read. Returns the number of coded bytes."""
        decoder = self._decoder
        assert decoder is not None
        step = part.wire[:CODED_STEP_BYTES] if decoder.is_coded else part.wire
        part.wire = part.wire[len(step) :]
        piece = decoder.feed(step)
        self.body_bytes += piece.body_bytes
        part.body_bytes += piece.body_bytes
        part.decoded, part.at = piece.decoded, 0
        self._set_fault(decoder.fault)
        return len(step) if decoder.is_coded else 0

    def break_events(self) -> None:
        """Record that the framing of the events was broken where the tap read it."""
        self._set_fault(DecodeFault.BAD_EVENT_FRAMING)

    def drop_part(self) -> None:
        """Discard a read that is processed in part: the caller drops it with others."""
        self._part = None

    def _read_together(
        self,
        wire_reads: Sequence[ResponseRead | StampedRead],
        zero_ns: int | None,
        reads: list[Read],
        decoder: BodyDecoder,
        events: EventContent,
    ) -> None:
        """Process several reads of an event stream without a coding, all together."""
        wire = [wire_read.data for wire_read in wire_reads]
        bodies = decoder.feed_each(wire)
        contents = events.feed_each(bodies)
        sizes = map(len, wire) if self.on_wire else repeat(0)
        reads += map(Read, _since_each(wire_reads, zero_ns), sizes, map(len, bodies), contents)
        self.body_bytes += sum(map(len, bodies))
        self._set_fault(decoder.fault)
        self._note_events(events)

    def reads_dropped(self, reads: int) -> None:
        """Count reads that are missing here, and resume after them if that is possible."""
        self.count_dropped(reads)
        self.drop_part()
        if self._events is not None and self._events.resumes and self._is_plain():
            self._events.resume()
        else:
            self._lost = True
            self.release()

    def count_dropped(self, reads: int) -> None:
        """Count reads as dropped in the response's loss."""
        self.loss = msgspec.structs.replace(self.loss, dropped_reads=self.loss.dropped_reads + reads)

    def finish(self, ending: Ending) -> FinalContent:
        """Process the end of the exchange. Returns the content that was held back until then."""
        if self._decoder is None or self._lost:
            return FinalContent()
        if ending is Ending.COMPLETE:
            self._decoder.finish()
        self._set_fault(self._decoder.fault)
        self._decoder.release()
        if self._detector is not None and (self._raw_head is not None or self._detector.first):
            self._decide(self._detector, self._detector.finish(), over=True)
        if self._events is not None:
            return FinalContent(tail=self._tail(self._events))
        return self._body()

    def release(self) -> None:
        """Return all bytes to the budget and to the decoders' memory."""
        if self._decoder is not None:
            self._decoder.release()
        if self._events is not None:
            self._events.release()
        if self._whole is not None:
            self._whole.drop()

    # --- head -------------------------------------------------------------------------------------------------------

    def _read_head(self, stamp_ns: int | None, data: bytes) -> bytes:
        """The bytes after the head; none until the head is whole."""
        reader = self._reader
        head, rest = reader.feed_head(data)
        if reader.fault is not None:
            self._set_fault(DecodeFault.BAD_FRAMING)
            self._lost = True
        if head is None:
            return b""
        self._decoder = BodyDecoder(reader.framing, reader.coding, memory=self._memory)
        self._take_head(head.parsed(), stamp_ns)
        return rest

    def _take_head(self, head: ResponseHead, stamp_ns: int | None) -> None:
        self._raw_head, self._head_stamp = head, stamp_ns
        self._detector = KindDetector(head, self._path)
        self._report_head(self._detector.announced is not ContentKind.WHOLE)

    def _report_head(self, event_stream: bool) -> None:
        """Set `head` for the caller; set it again if the content is not of the kind that the head announced."""
        raw, self._reported_events = self._raw_head, event_stream
        if raw is None:
            self.head = Head(None, None, event_stream)
        else:
            self.head = head_facts(raw, self._head_stamp, event_stream=event_stream, began_wall_ns=self._began_wall_ns)

    def _is_plain(self) -> bool:
        head = self._raw_head
        return head is not None and not head.all("transfer-encoding") and not head.all("content-encoding")

    # --- content ----------------------------------------------------------------------------------------------------

    def _content(self, decoded: bytes) -> bytes:
        if self._detector is not None:
            kind = self._detector.feed(decoded)
            if kind is None:
                return b""
            decoded = self._decide(self._detector, kind, over=False)
        if self._whole is not None:
            self._whole.add(decoded)
        if self._events is None or not decoded:
            return b""
        content = self._events.feed(decoded)
        self._note_events(self._events)
        return content

    def _decide(self, detector: KindDetector, kind: ContentKind, *, over: bool) -> bytes:
        """Begin a content of this kind. Returns its first bytes; none if the content is `over`, and they were processed."""
        first, self._detector = detector.first, None
        self._events = self._events_of(kind)
        if self._events is None:
            self._whole = BodyBuffer(self._budget, MAX_RESPONSE_BODY)
        if (self._events is not None) is not self._reported_events:
            self._report_head(self._events is not None)
        if over:  # there is no more content: no later call feeds the first bytes
            self._feed_late(first)
            return b""
        return first

    def _events_of(self, kind: ContentKind) -> EventContent | None:
        match kind:
            case ContentKind.SSE:
                return MaskedEvents(self._masker, self._budget)
            case ContentKind.LINES:
                return FramedEvents(self._masker, self._budget, JsonLinesReader())
            case ContentKind.ARRAY:
                return FramedEvents(self._masker, self._budget, JsonArrayReader())
            case ContentKind.AWS_EVENTS:
                return FramedEvents(self._masker, self._budget, AwsEventReader())
            case ContentKind.WHOLE:
                return None
        assert_never(kind)

    def _feed_late(self, first: bytes) -> None:
        if self._events is not None:
            self._events.feed(first)  # too short to hold a whole event: it becomes the tail
        if self._whole is not None:
            self._whole.add(first)

    def _tail(self, events: EventContent) -> bytes:
        tail = events.finish()
        self._note_events(events)
        return tail

    def _note_events(self, events: EventContent) -> None:
        """Note oversized events, and a broken framing of the events."""
        if events.fault:
            self._set_fault(DecodeFault.BAD_EVENT_FRAMING)
        if events.oversized:
            total = self.loss.oversized_events + events.oversized
            self.loss = msgspec.structs.replace(self.loss, oversized_events=total)
            self.oversized_events += events.oversized
            events.oversized = 0

    def _body(self) -> FinalContent:
        if self._whole is None:
            return FinalContent()
        raw = self._whole.take()
        if raw is None:
            return FinalContent(body_capped=True)
        return FinalContent(body=self._masker.body(raw) if raw and self.fault is None else None)

    def _set_fault(self, fault: DecodeFault | None) -> None:
        if fault is not None and self.fault is None:
            self.fault = fault
            self.loss = msgspec.structs.replace(self.loss, decode_error=fault.value)


class _Part(msgspec.Struct, gc=False):
    """A read that is processed in part. `wire`: bytes that are still framed or coded; `decoded`: bytes that the framing and
    the coding gave, processed up to `at`; `contents`: the masked content so far, of `made` bytes.
    """

    stamp_ns: int | None
    wire_bytes: int
    body_bytes: int = 0
    wire: bytes = b""
    decoded: bytes = b""
    at: int = 0
    contents: list[bytes] = []
    made: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether no byte is left to process."""
        return self.at == len(self.decoded) and not self.wire

    def add(self, content: bytes) -> None:
        """Append masked content."""
        self.contents.append(content)
        self.made += len(content)

    def read(self) -> Read:
        """The read, once it is whole."""
        return Read(self.stamp_ns, self.wire_bytes, self.body_bytes, b"".join(self.contents))


def _fitting(wire_reads: Sequence[ResponseRead | StampedRead], at: int, most: int) -> tuple[int, int]:
    """How many reads from index `at` on have at most `most` bytes together, and how many bytes these have."""
    total = 0
    for count, wire_read in enumerate(islice(wire_reads, at, at + AT_ONCE)):
        size = len(wire_read.data)
        if total + size > most:
            return count, total
        total += size
    return min(len(wire_reads) - at, AT_ONCE), total


def _next_piece(decoded: bytes, at: int, most: int) -> bytes:
    """At most `most` bytes from index `at` on, up to the end of an event if possible: a part of an event takes longer."""
    piece = decoded[at : at + most]
    if at + len(piece) == len(decoded):
        return piece
    ends = [piece.rfind(blank) + len(blank) for blank in (b"\n\n", b"\n\r\n") if blank in piece]
    return piece[: max(ends, default=len(piece))]


def _since(wire_reads: ResponseRead | StampedRead, zero_ns: int | None) -> int | None:
    """A read's stamp in nanoseconds since `zero_ns`; None if one of the two is unknown."""
    return None if wire_reads.at_ns is None or zero_ns is None else max(wire_reads.at_ns - zero_ns, 0)


def _since_each(wire_reads: Sequence[ResponseRead | StampedRead], zero_ns: int | None) -> Sequence[int | None]:
    """The stamps of many reads, as `_since` gives them."""
    stamps = [wire_read.at_ns for wire_read in wire_reads if wire_read.at_ns is not None]
    if zero_ns is None or len(stamps) < len(wire_reads) or min(stamps) < zero_ns:
        return [_since(wire_read, zero_ns) for wire_read in wire_reads]
    return [at_ns - zero_ns for at_ns in stamps]
