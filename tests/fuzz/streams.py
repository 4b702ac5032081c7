"""One stream, sent in every way that must not change the result: recorder -> segments -> assembler -> record."""

import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from streamgauge.core.assembly.assembler import PRODUCERS, Assembler, bucket_of
from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Bundle, Segment
from streamgauge.core.dialects import BY_NAME, OTHER, dialect_of_endpoint, endpoint_of
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record
from streamgauge.recorder.protocol import Message
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import Incident
from streamgauge.taps.replay import replay
from tests.fuzz.hostile import WORD
from tests.fuzz.properties import Json, check, check_values, same, without_times, without_validity
from tests.vectors.drive import INSTANCE, READS_A_SEGMENT, Capture, Framing, Live, as_json, messages, settings, wire
from tests.vectors.load import TARGETS, Vector, blocks

T = TypeVar("T")

DIALECTS = tuple(sorted(BY_NAME))
FRAMINGS: tuple[Framing, ...] = ("length", "chunked", "close")
CODINGS = (None, "gzip", "deflate", "br", "zstd", "gzip-members")
ENDINGS = ("complete", "reset", "client", "timeout")
STATUSES = (200, 429)
CONTENT_TYPES = ("text/event-stream", "application/json", "text/html")

# Approximate pieces of a body that is sent in pieces: each read takes some 30 us.
PIECES = 40
# Frames that an event loop, Faust and a debugger may have below the core: the result must not depend on it.
STACK_FRAMES = 150
# The limit of an open stream's state (bytes as MessagePack) for bodies with no more choices, calls and numbers than a
# fuzzed one of a few KiB can have: 16 times the target for a usual stream. `test_growth.py` tests what grows with the
# stream.
MAX_STATE_BYTES = 64 * 1024
# What a plain file does not contain, or contains differently.
TRANSPORT = (
    *("tap", "tap_instance", "tap_version", "upstream", "request", "request_digest", "request_model", "endpoint"),
    *("started_at", "status_code", "content_encoding", "counts.client_bytes", "last_event_id"),
)


class Sent(msgspec.Struct, frozen=True):
    """A stream, and how it is sent."""

    vector: Vector
    framing: Framing = "length"
    coding: str | None = None
    seed: int = 0

    def how(self, capture: Capture) -> Live:
        return Live(capture=capture, framing=self.framing, coding=self.coding)

    def whole(self) -> bytes:
        return wire(self.vector, self.how("full"))


def stream(dialect: str, body: bytes, **facts: Any) -> Vector:
    """A body as a vector without expectations."""
    given = {"target": TARGETS[dialect], **facts}
    return Vector(about="", record={}, token_events_at=[], dialect=dialect, name="fuzz", body=body, **given)


def in_pieces(data: bytes, seed: int) -> list[bytes]:
    """The same bytes in pieces: small ones, unless the body is large."""
    sizes, out, at = random.Random(seed), [], 0
    most = max(40, len(data) // PIECES)
    while at < len(data):
        size = sizes.choice((1, 3, most, most))
        out.append(data[at : at + size])
        at += size
    return out


def segments(sent: Sent, capture: Capture, pieces: Iterable[bytes]) -> list[Segment]:
    return recorded(capture, messages(sent.vector, ((None, piece) for piece in pieces)))


def recorded(capture: Capture, messages: Iterable[Message]) -> list[Segment]:
    """What the recorder makes of the messages, cut into segments at intervals. Nothing may fail in it."""
    recorder, out = Recorder(settings(capture)), list[Segment]()
    for count, message in enumerate(messages):
        recorder.handle(message)
        if count % READS_A_SEGMENT == 0:
            out += recorder.segments()
    out += recorder.segments()
    # The recorder only counts its own faults. Reads over a cap and undecodable ones are possible, and counted too.
    assert recorder.dropped.total() == 0
    assert recorder.incidents[Incident.CAPTURE_FAULT] == 0
    return out


def assembled(found: list[Segment], *, restarts: bool = False) -> Json | None:
    """The one record; None for a stream that is not an LLM's, on a path that is not one either.

    `restarts`: after each message the assembler is replaced by one made from its persisted state.
    """
    assembler, kept = Assembler(), dict[int, bytes]()
    records: list[Record] = []
    for number, segment in enumerate(found):
        bundle = Bundle(instance=INSTANCE, slot=0, number=number, tap_ns=number, segments=[segment])
        records += assembler.apply(number, number, decode_bundle(encode_bundle(bundle)))
        kept |= {key: assembler.dump(key) for key in assembler.changed()}
        size = len(kept[bucket_of(segment.stream)])
        assert size <= MAX_STATE_BYTES, f"a state of {size} bytes"
        if restarts:
            assembler = restarted(kept)
    assert assembler.open_streams == 0
    assert len(records) <= 1
    return as_json(records[0]) if records else None


def restarted(kept: dict[int, bytes], limits: Limits | None = None) -> Assembler:
    """A new assembler with the persisted state of another."""
    assembler = Assembler(limits)
    for key in sorted(kept, key=lambda key: key == PRODUCERS):
        assembler.load(key, kept[key])
    return assembler


def deeper(frames: int, call: Callable[[], T]) -> T:
    """The same call with this many more frames below it."""
    return call() if frames == 0 else deeper(frames - 1, call)


def check_stream(sent: Sent) -> Json | None:
    """Sends the stream in every way, and asserts that only allowed differences occur. Gives its record, complete and
    full.
    """
    data = sent.whole()
    expected = assembled(segments(sent, "full", [data]))
    again = deeper(STACK_FRAMES, lambda: assembled(segments(sent, "full", in_pieces(data, sent.seed)), restarts=True))
    masked = assembled(_masked(sent, data))
    stamped = assembled(_stamped(sent, data))
    if expected is None:
        assert (again, masked, stamped) == (None, None, None)
        return None
    assert again and masked and stamped, "sending it this way gave no record"
    check(expected)
    check_values(masked)
    check_values(stamped)
    same(again, expected)
    same(without_validity(masked), without_validity(expected), "capture")
    same(without_times(stamped), without_times(expected))
    if _is_a_file(sent):
        # Of a path that several dialects have, only the tap knows that it is a model's. In a file an error hints at one.
        unknown = ("dialect",) if expected["dialect"] == OTHER and expected["endpoint"] is not None else ()
        same(replayed(sent), expected, *TRANSPORT, *unknown)
    return expected


def _masked(sent: Sent, data: bytes) -> list[Segment]:
    found = segments(sent, "masked", in_pieces(data, sent.seed + 1))
    for segment in found:
        content = b"".join(read.content for read in segment.reads)
        ending = (segment.end.tail, segment.end.body or b"") if segment.end else ()
        assert WORD.encode() not in b"".join((content, *ending)), "secret text is in a masked segment"
    return found


def _stamped(sent: Sent, data: bytes) -> list[Segment]:
    stamps = random.Random(sent.seed)
    now, reads = 0, []
    for piece in _event_by_event(sent, data):
        reads.append((now, piece))
        now += stamps.choice((0, 1, 999, 1_000_000, 20_000_000, 6_000_000_000))
    return recorded("full", messages(sent.vector, reads, now))


def _event_by_event(sent: Sent, data: bytes) -> list[bytes]:
    """The head, then one read for each event, as an unbuffered server sends it; occasionally two or three in one."""
    head, blank, body = data.partition(b"\r\n\r\n")
    if sent.coding is not None or sent.framing == "chunked":
        return in_pieces(data, sent.seed + 2)
    cut, joins, at = blocks(body), random.Random(sent.seed), 0
    out = [head + blank]
    while at < len(cut):
        size = joins.choice((1, 1, 1, 2, 3))
        out.append(b"".join(cut[at : at + size]))
        at += size
    return out


def _is_a_file(sent: Sent) -> bool:
    """Whether the body alone has all facts: a plain one that ended well. An empty file is not recognised as a stream."""
    vector = sent.vector
    plain = sent.coding is None and vector.content_type == "text/event-stream"
    return plain and vector.ending == "complete" and vector.status == 200 and not vector.live_only and bool(vector.body)


def replayed(sent: Sent) -> Json:
    """The record of the plain file; its dialect is given if the endpoint indicates it."""
    hinted = dialect_of_endpoint(endpoint_of(sent.vector.method, sent.vector.target))
    chunks = in_pieces(sent.vector.body, sent.seed + 3)
    record = assembled(list(replay(chunks, settings("full"), dialect=hinted.name if hinted else None)))
    assert record is not None, "replay must give a record for each file"
    check_values(record)
    return record
