"""Makes the reads of one response from its raw bytes. A read's content is the masked events that it completed.

The input is the bytes of the wire, or the head as a tap reports it and then the bytes of the body. Framing and content
coding are decoded. The content is then read as an event stream, or buffered whole. After reads that the tap dropped, a plain
event stream continues after the next blank line; any other response is lost from there on.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, repeat

import msgspec

from streamgauge.core.capture.segments import Ending, Head, Loss, Read
from streamgauge.core.http1.body import BodyDecoder, DecodeFault
from streamgauge.core.http1.head import ResponseHead
from streamgauge.core.http1.response import ResponseReader
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import BodyBuffer, Budget
from streamgauge.recorder.cpu_yield import yield_cpu
from streamgauge.recorder.decoder_memory import DecoderMemory
from streamgauge.recorder.events import MaskedEvents
from streamgauge.recorder.protocol import ResponseRead, StampedRead
from streamgauge.recorder.response_head import Expected, expected_of, head_facts, is_event_stream, reported_head

# A response that is no event stream is read up to this size (bytes, decoded): the largest responses, images in base64
# included, are smaller. A request body has the same limit.
MAX_RESPONSE_BODY = 16 * 1024 * 1024
# The most reads that are processed together, and the most bytes of these.
AT_ONCE, BYTES_AT_ONCE = 64, 16 * 1024
# Coded bytes of one read that are decoded in one step: a read has up to 256 KiB, which decode to up to 80 MiB.
CODED_STEP_BYTES = 4 * 1024
# Decoded bytes of one read that are processed in one step. After a step with little work for its bytes (at most 1 for each
# BYTES_OF_WORK) the next step is larger, else smaller: 4 KiB hold 500 to 1,400 of the shortest events, 3 to 5 ms.
STEP_BYTES, LEAST_STEP_BYTES, MOST_STEP_BYTES = 16 * 1024, 4 * 1024, 64 * 1024
BYTES_OF_WORK = 64
# This many coded bytes of a coded body, or this many decoded ones, count as at least 1 work (see `MaskedEvents.work`),
# however few events they hold: each takes about as long, 5 to 10 us. A plain body needs no such rule: decoding does not
# enlarge it.
CODED_OF_WORK, DECODED_OF_WORK = 64, 1024


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
    ) -> None:
        """`began_wall_ns`: UTC when the request began."""
        self.head: Head | None = None
        self.loss = Loss()
        self.body_bytes = 0
        self.oversized_events = 0
        self.on_wire = on_wire  # False: the reads hold the body alone
        self.fault: DecodeFault | None = None
        self._masker, self._budget, self._memory = masker, budget, memory
        self._began_wall_ns = began_wall_ns
        self._reader = ResponseReader(method)
        self._raw_head: ResponseHead | None = None
        self._head_stamp: int | None = None
        self._reported_events: bool | None = None  # whether `head` was set as the head of an event stream
        self._expected = Expected.EVENTS
        self._decoder: BodyDecoder | None = None
        self._first: bytes | None = b""  # the content's first bytes, until they show its kind
        self._events: MaskedEvents | None = None
        self._whole: BodyBuffer | None = None
        self._lost = False
        # A read that is processed in part: its Read with the content of the first step, the contents of later steps,
        # and the bytes that remain: decoded ones (`_part_left`), then coded ones.
        self._part: Read | None = None
        self._part_contents: list[bytes] = []
        self._part_coded = self._part_left = b""
        self._part_at = self._part_made = 0
        self._step = STEP_BYTES
        self._step_bytes = 0  # bytes of content that the last step processed
        self._decoding = 0  # the work of the last step's decoding

    @property
    def part_bytes(self) -> int:
        """The memory of a read that is processed in part (bytes): its decoded bytes, and the masked content so far."""
        return len(self._part_left) + self._part_made

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
        self, wire_reads: Sequence[ResponseRead | StampedRead], zero_ns: int | None, reads: list[Read]
    ) -> Iterator[int]:
        """Process socket reads and append the result of each to `reads`, with its stamp in nanoseconds since `zero_ns`.

        Yields the work of each step (unit: `MaskedEvents.work`; at least 1 a read). A caller may stop between two steps,
        and must then pass the reads whose results are not in `reads` to the next call.
        """
        at = 0
        while at < len(wire_reads):
            decoder, events = self._decoder, self._events
            worked = 0 if events is None else events.work
            self._step_bytes = self._decoding = 0
            wire_read = wire_reads[at]
            together = _together(wire_reads, at)
            if self._part is not None:
                read = self._continue_part(self._part)
            elif events is None or decoder is None or self._lost:
                read = self.read(_since(wire_read, zero_ns), wire_read.data)
                yield_cpu()
            elif decoder.is_coded or decoder.fault is not None or together < 2:
                read = self.read(_since(wire_read, zero_ns), wire_read.data)
            else:
                self._read_together(wire_reads[at : at + together], zero_ns, reads, decoder, events)
                at += together
                yield max(events.work - worked, together)
                continue
            work = 1 if self._events is None else max(self._events.work - worked, 1)
            if self._is_in_part:
                self._part = read
                is_little = work * BYTES_OF_WORK <= self._step_bytes
                self._step = min(4 * self._step, MOST_STEP_BYTES) if is_little else LEAST_STEP_BYTES
            else:
                reads.append(read)
                at += 1
            yield max(work, self._decoding)

    @property
    def _is_in_part(self) -> bool:
        """Whether the last read still has bytes to process."""
        return bool(self._part_left or self._part_coded)

    def _continue_part(self, part: Read) -> Read:
        """Do the next step of a read that is processed in part. The last step gives the whole read."""
        if self._part_left:
            begin, self._part_at = self._part_at, _step_end(self._part_left, self._part_at, self._step)
            content = self._content(self._part_left[begin : self._part_at])
            if self._part_at >= len(self._part_left):
                self._part_left, self._part_at = b"", 0
        else:
            body_bytes, content = self._begin(self._part_coded)
            part = msgspec.structs.replace(part, body_bytes=part.body_bytes + body_bytes)
        self._part_contents.append(content)
        self._part_made += len(content)
        if self._is_in_part:
            return part
        whole = b"".join((part.content, *self._part_contents))
        self.drop_part()
        return msgspec.structs.replace(part, content=whole)

    def _begin(self, data: bytes) -> tuple[int, bytes]:
        """Process the first step of `data` and keep the rest. Returns the count of body bytes in it, and the content."""
        decoder = self._decoder
        assert decoder is not None
        if decoder.is_coded:
            data, self._part_coded = data[:CODED_STEP_BYTES], data[CODED_STEP_BYTES:]
            self._decoding = len(data) // CODED_OF_WORK
        piece = decoder.feed(data)
        self.body_bytes += piece.body_bytes
        content = self._content(self._first_step(piece.decoded)) if piece.decoded else b""
        self._set_fault(decoder.fault)
        return piece.body_bytes, content

    def _first_step(self, decoded: bytes) -> bytes:
        """The decoded bytes of a read that this step processes; the rest is kept for the next step."""
        if len(decoded) <= self._step or self._whole is not None:
            return decoded
        self._part_left, self._part_at = decoded, _step_end(decoded, 0, self._step)
        return decoded[: self._part_at]

    def drop_part(self) -> None:
        """Discard a read that is processed in part: the caller drops it with others."""
        self._part, self._part_contents = None, []
        self._part_coded = self._part_left = b""
        self._part_at = self._part_made = 0

    def _read_together(
        self,
        wire_reads: Sequence[ResponseRead | StampedRead],
        zero_ns: int | None,
        reads: list[Read],
        decoder: BodyDecoder,
        events: MaskedEvents,
    ) -> None:
        """Process several reads of an event stream without a coding, all together."""
        wire = [wire_read.data for wire_read in wire_reads]
        bodies = decoder.feed_each(wire)
        contents = events.feed_each(bodies)
        sizes = map(len, wire) if self.on_wire else repeat(0)
        reads += map(Read, _since_each(wire_reads, zero_ns), sizes, map(len, bodies), contents)
        self.body_bytes += sum(map(len, bodies))
        self._set_fault(decoder.fault)
        self._count_oversized(events)

    def read(self, stamp_ns: int | None, data: bytes) -> Read:
        """Process one socket read, or its first step."""
        size = len(data) if self.on_wire else 0
        if self._decoder is None and not self._lost:
            data = self._read_head(stamp_ns, data)
        if self._decoder is None or self._lost:
            return Read(stamp_ns, size, 0)
        return Read(stamp_ns, size, *self._begin(data))

    def reads_dropped(self, reads: int) -> None:
        """Count reads that are missing here, and resume after them if that is possible."""
        self.count_dropped(reads)
        self.drop_part()
        if self._events is not None and self._is_plain():
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
        if self._first is not None and (self._raw_head is not None or self._first):
            self._decide(over=True)
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
        yield_cpu()
        return rest

    def _take_head(self, head: ResponseHead, stamp_ns: int | None) -> None:
        self._raw_head, self._head_stamp = head, stamp_ns
        self._expected = expected_of(head)
        self._report_head(bool(is_event_stream(self._expected, b"", over=True)))  # as for an empty body

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
        if self._first is not None:
            self._first += decoded
            decoded = self._decide(over=False)
        self._step_bytes = len(decoded)
        if self.is_coded:
            self._decoding = max(self._decoding, len(decoded) // DECODED_OF_WORK)
        if self._whole is not None:
            self._whole.add(decoded)
        if self._events is None or not decoded:
            return b""
        content = self._events.feed(decoded)
        self._count_oversized(self._events)
        return content

    def _decide(self, *, over: bool) -> bytes:
        """Decide whether the content is an event stream. Returns its first bytes once that is known, empty before."""
        first = self._first or b""
        events = is_event_stream(self._expected, first, over=over)
        if events is None:
            return b""
        self._first = None
        if events:
            self._events = MaskedEvents(self._masker, self._budget)
        else:
            self._whole = BodyBuffer(self._budget, MAX_RESPONSE_BODY)
        if events is not self._reported_events:
            self._report_head(events)
        if over:  # there is no more content: no later call feeds the first bytes
            self._feed_late(first)
            return b""
        return first

    def _feed_late(self, first: bytes) -> None:
        if self._events is not None:
            self._events.feed(first)  # too short to hold a whole event: it becomes the tail
        if self._whole is not None:
            self._whole.add(first)

    def _tail(self, events: MaskedEvents) -> bytes:
        tail = events.finish()
        self._count_oversized(events)
        return tail

    def _count_oversized(self, events: MaskedEvents) -> None:
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


def _together(wire_reads: Sequence[ResponseRead | StampedRead], at: int) -> int:
    """The number of reads from index `at` on that are processed together."""
    size = 0
    for count, wire_read in enumerate(islice(wire_reads, at, at + AT_ONCE)):
        size += len(wire_read.data)
        if size > BYTES_AT_ONCE:
            return count
    return min(len(wire_reads) - at, AT_ONCE)


def _step_end(decoded: bytes, begin: int, size: int) -> int:
    """The end of a step of about `size` bytes: after a whole event if possible, since a part of an event takes longer."""
    for blank in (b"\n\n", b"\n\r\n") if begin + size < len(decoded) else ():
        end = decoded.rfind(blank, begin, begin + size)
        if end >= 0:
            return end + len(blank)
    return begin + size


def _since(wire_reads: ResponseRead | StampedRead, zero_ns: int | None) -> int | None:
    """A read's stamp in nanoseconds since `zero_ns`; None if one of the two is unknown."""
    return None if wire_reads.at_ns is None or zero_ns is None else max(wire_reads.at_ns - zero_ns, 0)


def _since_each(wire_reads: Sequence[ResponseRead | StampedRead], zero_ns: int | None) -> Sequence[int | None]:
    """The stamps of many reads, as `_since` gives them."""
    stamps = [wire_read.at_ns for wire_read in wire_reads if wire_read.at_ns is not None]
    if zero_ns is None or len(stamps) < len(wire_reads) or min(stamps) < zero_ns:
        return [_since(wire_read, zero_ns) for wire_read in wire_reads]
    return [at_ns - zero_ns for at_ns in stamps]
