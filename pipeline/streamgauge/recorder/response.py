"""One response: raw bytes in (or a told head, then the body's), reads out: their content is the masked events they completed.

Framing and coding are undone, then the content is either an event stream or gathered whole. Reads that the tap dropped
leave a hole: a plain event stream is taken up again behind the next blank line, anything else is lost from there on.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat

import msgspec

from streamgauge.core.capture.segments import Ending, Head, Loss, Read
from streamgauge.core.http1.body import BodyDecoder, DecodeFault
from streamgauge.core.http1.head import HeadReader, ResponseHead, body_decoder_for
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget, Gathered
from streamgauge.recorder.cpu_yield import yield_cpu
from streamgauge.recorder.decoder_memory import DecoderMemory
from streamgauge.recorder.events import MaskedEvents
from streamgauge.recorder.protocol import ResponseRead, StampedRead
from streamgauge.recorder.response_head import Expected, expected_of, head_facts, is_event_stream, told_head

# A response that is no event stream is looked into up to this size (bytes, decoded): the largest answers, images in
# base64 included, are below it; one request may ask for no more.
MAX_RESPONSE_BODY = 16 * 1024 * 1024
# So many reads are looked at together, and of large ones fewer: as many as have so many bytes, if all are like the first.
AT_ONCE, BYTES_AT_ONCE = 64, 16 * 1024
# Coded bytes of one read that are decoded in one step: a read has up to 256 KiB, and they become up to 80 MiB.
CODED_STEP_BYTES = 4 * 1024
# Decoded bytes of one read that are looked at in one step. After a step that was little work for its bytes (at most one for
# BYTES_OF_WORK) the next ones are larger, else smaller: 4 KiB hold 500 to 1,400 of the shortest events, 3 to 5 ms of work.
STEP_BYTES, LEAST_STEP_BYTES, MOST_STEP_BYTES = 16 * 1024, 4 * 1024, 64 * 1024
BYTES_OF_WORK = 64
# Of a coded body so many coded bytes are one work at least (see `MaskedEvents.work`), and so many decoded ones, however few
# events they hold: they take about as long, 5 to 10 us. Plain bodies are not larger than what came.
CODED_OF_WORK, DECODED_OF_WORK = 64, 1024


class Finished(msgspec.Struct, frozen=True):
    """What is left when the response is over: see `segments.End`."""

    tail: bytes = b""
    body: bytes | None = None
    body_capped: bool = False


class Response:
    """Reads one response. `head` and `loss` hold what was learnt since they were last taken."""

    def __init__(
        self, method: str, masker: Masker, budget: Budget, memory: DecoderMemory, *, on_wire: bool = True
    ) -> None:
        self.head: Head | None = None
        self.loss = Loss()
        self.body_bytes = 0
        self.oversized_events = 0
        self.on_wire = on_wire  # False: what comes is the body alone
        self.fault: DecodeFault | None = None
        self._method, self._masker, self._budget, self._memory = method, masker, budget, memory
        self._head_reader = HeadReader()
        self._raw_head: ResponseHead | None = None
        self._head_stamp: int | None = None
        self._told: bool | None = None
        self._expected = Expected.EVENTS
        self._decoder: BodyDecoder | None = None
        self._first: bytes | None = b""  # the content's first bytes, until they tell what it is
        self._events: MaskedEvents | None = None
        self._whole: Gathered | None = None
        self._lost = False
        # A read that was taken in in part: what it is so far, its content, and what is still to come of it: coded bytes, and
        # decoded ones before them.
        self._part: Read | None = None
        self._part_contents: list[bytes] = []
        self._part_coded = self._part_left = b""
        self._part_at = self._part_made = 0
        self._step = STEP_BYTES
        self._looked = 0  # bytes of content that the last step looked at
        self._decoding = 0  # the work of the last step's decoding

    @property
    def part_bytes(self) -> int:
        """What is held of a read that was taken in in part (bytes): decoded bytes, and what became of some of them."""
        return len(self._part_left) + self._part_made

    @property
    def is_coded(self) -> bool:
        """Whether its bytes have a content coding; until the head has told, they may."""
        return self._decoder is None or self._decoder.is_coded

    def begin_body(self) -> None:
        """There is no head: what comes is the body itself, as a recording has it."""
        self.on_wire = False
        self._decoder = BodyDecoder()

    def answered(self, stamp_ns: int | None, status: int | None, headers: list[tuple[str, str]]) -> None:
        """The head, from a tap that does not read it off the wire; the first one counts."""
        if self._decoder is not None or self._raw_head is not None:
            return
        head = told_head(status, headers)
        self.on_wire = False
        self._decoder = BodyDecoder(coding=", ".join(head.all("content-encoding")), memory=self._memory)
        self._take_head(head, stamp_ns)

    def read_all(
        self, arrived: Sequence[ResponseRead | StampedRead], zero_ns: int | None, reads: list[Read]
    ) -> Iterator[int]:
        """Socket reads, stamped since `zero_ns`; what they become is put into `reads`, one by one.

        Gives after each step how much work it was (see `MaskedEvents.work`; a read is one at least). Whoever stops between
        two steps goes on later, with the reads that did not get into `reads`.
        """
        at, alone, step = 0, 0, 1
        while at < len(arrived):
            decoder, events = self._decoder, self._events
            worked = 0 if events is None else events.work
            self._looked = self._decoding = 0
            one = arrived[at]
            together = min(AT_ONCE, BYTES_AT_ONCE // (len(one.data) or 1), len(arrived) - at)
            if self._part is not None:
                read = self._go_on(self._part)
            elif events is None or decoder is None or self._lost:
                read = self.read(_since(one, zero_ns), one.data)
                yield_cpu()
            elif alone or together < 2:
                read = self._read_events(_since(one, zero_ns), one.data, decoder, events)
                alone = max(alone - 1, 0)
            else:
                some = arrived[at : at + together]
                count = self._read_usual(some, zero_ns, reads, decoder, events)
                at += count
                # Where few are usual, more are read one by one each time, so that looking in vain costs little.
                step = 1 if 2 * count >= len(some) else min(2 * step, AT_ONCE)
                alone = step if count < len(some) else 0
                yield max(events.work - worked, count)
                continue
            work = 1 if self._events is None else max(self._events.work - worked, 1)
            if self._is_in_part:
                self._part = read
                is_little = work * BYTES_OF_WORK <= self._looked
                self._step = min(4 * self._step, MOST_STEP_BYTES) if is_little else LEAST_STEP_BYTES
            else:
                reads.append(read)
                at += 1
            yield max(work, self._decoding)

    @property
    def _is_in_part(self) -> bool:
        """Whether something is still to come of the read that was taken in last."""
        return bool(self._part_left or self._part_coded)

    def _go_on(self, part: Read) -> Read:
        """The next step of a read that was taken in in part; with the last one the whole read."""
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
        """The first step of what came; the rest is put aside. Gives how many bytes of it are the body's, and the content."""
        decoder = self._decoder
        assert decoder is not None
        if decoder.is_coded:
            data, self._part_coded = data[:CODED_STEP_BYTES], data[CODED_STEP_BYTES:]
            self._decoding = len(data) // CODED_OF_WORK
        piece = decoder.feed(data)
        self.body_bytes += piece.body_bytes
        content = self._content(self._first_step(piece.decoded)) if piece.decoded else b""
        self._note(decoder.fault)
        return piece.body_bytes, content

    def _first_step(self, decoded: bytes) -> bytes:
        """What of a read's decoded bytes is looked at now; the rest is put aside."""
        if len(decoded) <= self._step or self._whole is not None:
            return decoded
        self._part_left, self._part_at = decoded, _step_end(decoded, 0, self._step)
        return decoded[: self._part_at]

    def drop_part(self) -> None:
        """Forget a read that was taken in in part: it is dropped with others."""
        self._part, self._part_contents = None, []
        self._part_coded = self._part_left = b""
        self._part_at = self._part_made = 0

    def _read_usual(
        self,
        arrived: Sequence[ResponseRead | StampedRead],
        zero_ns: int | None,
        reads: list[Read],
        decoder: BodyDecoder,
        events: MaskedEvents,
    ) -> int:
        """Takes the reads up to the first that is not usual, all at one time; gives how many."""
        wire = [one.data for one in arrived]
        bodies = decoder.usual_each(wire)
        contents = events.usual_each(bodies) if bodies else bodies
        sizes = map(len, wire) if self.on_wire else repeat(0)
        reads += map(Read, _since_each(arrived, zero_ns), sizes, map(len, bodies), contents)
        self.body_bytes += sum(map(len, bodies[: len(contents)]))
        return len(contents)

    def read(self, stamp_ns: int | None, data: bytes) -> Read:
        """One socket read."""
        size = len(data) if self.on_wire else 0
        if self._decoder is None and not self._lost:
            data = self._read_head(stamp_ns, data)
        if self._decoder is None or self._lost:
            return Read(stamp_ns, size, 0)
        return Read(stamp_ns, size, *self._begin(data))

    def _read_events(self, stamp_ns: int | None, data: bytes, decoder: BodyDecoder, events: MaskedEvents) -> Read:
        """The same once it is known that events come: nearly every read."""
        size = len(data) if self.on_wire else 0
        body = decoder.usual(data)
        usual = events.usual(body) if body is not None else None
        if body is not None and usual is not None:
            self.body_bytes += len(body)
            return Read(stamp_ns, size, len(body), usual)
        return Read(stamp_ns, size, *self._begin(data))

    def dropped(self, reads: int) -> None:
        """So many reads are missing here."""
        self.lose(reads)
        self.drop_part()
        if self._events is not None and self._is_plain():
            self._events.resume()
        else:
            self._lost = True
            self.let_go()

    def lose(self, reads: int) -> None:
        """So many reads could not be read."""
        self.loss = msgspec.structs.replace(self.loss, dropped_reads=self.loss.dropped_reads + reads)

    def finish(self, ending: Ending) -> Finished:
        """The exchange is over."""
        if self._decoder is None or self._lost:
            return Finished()
        if ending is Ending.COMPLETE:
            self._decoder.finish()
        self._note(self._decoder.fault)
        self._decoder.let_go()
        if self._first is not None and (self._raw_head is not None or self._first):
            self._decide(over=True)
        if self._events is not None:
            return Finished(tail=self._tail(self._events))
        return self._body()

    def let_go(self) -> None:
        """Give back what is held of the budget and of the decoders' memory."""
        if self._decoder is not None:
            self._decoder.let_go()
        if self._events is not None:
            self._events.let_go()
        if self._whole is not None:
            self._whole.drop()

    # --- head -------------------------------------------------------------------------------------------------------

    def _read_head(self, stamp_ns: int | None, data: bytes) -> bytes:
        """Gives what lies behind the head; nothing as long as there is none."""
        head = self._head_reader.feed(data)
        if self._head_reader.fault is not None:
            self._note(DecodeFault.BAD_FRAMING)
            self._lost = True
        if head is None:
            return b""
        self._decoder = body_decoder_for(head, self._method, self._memory)
        self._take_head(head, stamp_ns)
        yield_cpu()
        return self._head_reader.rest

    def _take_head(self, head: ResponseHead, stamp_ns: int | None) -> None:
        self._raw_head, self._head_stamp = head, stamp_ns
        self._expected = expected_of(head)
        self._tell_head(bool(is_event_stream(self._expected, b"", over=True)))  # as if nothing came

    def _tell_head(self, event_stream: bool) -> None:
        """Hand out the head; once more if the content turns out not to be what it was expected to be."""
        raw, self._told = self._raw_head, event_stream
        stamp = self._head_stamp
        self.head = Head(None, None, event_stream) if raw is None else head_facts(raw, stamp, event_stream=event_stream)

    def _is_plain(self) -> bool:
        head = self._raw_head
        return head is not None and not head.all("transfer-encoding") and not head.all("content-encoding")

    # --- content ----------------------------------------------------------------------------------------------------

    def _content(self, decoded: bytes) -> bytes:
        if self._first is not None:
            self._first += decoded
            decoded = self._decide(over=False)
        self._looked = len(decoded)
        if self.is_coded:
            self._decoding = max(self._decoding, len(decoded) // DECODED_OF_WORK)
        if self._whole is not None:
            self._whole.add(decoded)
        if self._events is None or not decoded:
            return b""
        content = self._events.feed(decoded)
        self._note_oversized(self._events)
        return content

    def _decide(self, *, over: bool) -> bytes:
        """Gives the content's first bytes as soon as they tell what it is."""
        first = self._first or b""
        events = is_event_stream(self._expected, first, over=over)
        if events is None:
            return b""
        self._first = None
        if events:
            self._events = MaskedEvents(self._masker, self._budget)
        else:
            self._whole = Gathered(self._budget, MAX_RESPONSE_BODY)
        if events is not self._told:
            self._tell_head(events)
        if over:  # the content is no longer than its first bytes: nothing else will feed them
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
        self._note_oversized(events)
        return tail

    def _note_oversized(self, events: MaskedEvents) -> None:
        if events.oversized:
            total = self.loss.oversized_events + events.oversized
            self.loss = msgspec.structs.replace(self.loss, oversized_events=total)
            self.oversized_events += events.oversized
            events.oversized = 0

    def _body(self) -> Finished:
        if self._whole is None:
            return Finished()
        raw = self._whole.take()
        if raw is None:
            return Finished(body_capped=True)
        return Finished(body=self._masker.body(raw) if raw and self.fault is None else None)

    def _note(self, fault: DecodeFault | None) -> None:
        if fault is not None and self.fault is None:
            self.fault = fault
            self.loss = msgspec.structs.replace(self.loss, decode_error=fault.value)


def _step_end(decoded: bytes, begin: int, size: int) -> int:
    """Where a step of about so many bytes ends: with an event, if one ends there, since half of one takes longer."""
    for blank in (b"\n\n", b"\n\r\n") if begin + size < len(decoded) else ():
        end = decoded.rfind(blank, begin, begin + size)
        if end >= 0:
            return end + len(blank)
    return begin + size


def _since(arrived: ResponseRead | StampedRead, zero_ns: int | None) -> int | None:
    """When a read came, since `zero_ns`."""
    return None if arrived.at_ns is None or zero_ns is None else max(arrived.at_ns - zero_ns, 0)


def _since_each(arrived: Sequence[ResponseRead | StampedRead], zero_ns: int | None) -> Sequence[int | None]:
    """The same of many."""
    stamps = [one.at_ns for one in arrived if one.at_ns is not None]
    if zero_ns is None or len(stamps) < len(arrived) or min(stamps) < zero_ns:
        return [_since(one, zero_ns) for one in arrived]
    return [at_ns - zero_ns for at_ns in stamps]
