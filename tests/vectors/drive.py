"""Sends vectors like a tap and a worker: messages -> recorder -> segments -> assembler -> record."""

import gzip
import itertools
import json
import random
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal
from uuid import UUID

import brotli
import msgspec
import zstandard

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Ending, Segment
from streamgauge.core.record import Record, encode_record
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge.taps.replay import replay
from tests.vectors.load import Vector, blocks

Framing = Literal["length", "chunked", "close"]
Capture = Literal["masked", "full"]
INSTANCE = bytes(range(16))
# Far from zero: stamps are relative to the request's first byte, not to the clock's zero (ns).
T0 = 7_000_000_000
# Reads between two flushes of segments: few and an odd number, so that segments are cut anywhere.
READS_A_SEGMENT = 7


class Live(msgspec.Struct, frozen=True):
    """How a vector is sent. `behind`: bytes on the connection after the body's end."""

    capture: Capture = "full"
    framing: Framing = "length"
    coding: str | None = None
    behind: bytes = b""


def encoded(body: bytes, coding: str | None) -> bytes:
    """The body in a content coding; gzip and deflate with a flush after each event, like streaming servers."""
    match coding:
        case None:
            return body
        case "gzip" | "deflate":
            squeeze = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
            flushed = [squeeze.compress(block) + squeeze.flush(zlib.Z_SYNC_FLUSH) for block in blocks(body)]
            return b"".join(flushed) + squeeze.flush()
        case "gzip-members":
            return b"".join(gzip.compress(block, mtime=0) for block in blocks(body))
        case "br":
            return bytes(brotli.compress(body, quality=5))  # like servers that compress while they send
        case "zstd":
            return zstandard.ZstdCompressor().compress(body)
    raise ValueError(coding)


def response_head(vector: Vector, how: Live, body: bytes) -> bytes:
    """The response's raw head; a response that does not end well announces a longer body than it has."""
    lines = [f"HTTP/1.1 {vector.status} Some Reason", f"Content-Type: {vector.content_type}"]
    lines += [f"{name}: {value}" for name, value in vector.response_headers]
    if how.coding:
        lines.append(f"Content-Encoding: {how.coding.removesuffix('-members')}")
    if how.framing == "length":
        lines.append(f"Content-Length: {len(body) + (0 if vector.ending == 'complete' else 1000)}")
    if how.framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    return "\r\n".join([*lines, "", ""]).encode()


def framed(vector: Vector, how: Live, body: bytes) -> bytes:
    """The body in its transfer framing, in chunks that do not follow events."""
    if how.framing != "chunked":
        return body + how.behind
    sizes = random.Random(vector.name)
    out, at = [], 0
    while at < len(body):
        size = sizes.randint(1, 300)
        part = body[at : at + size]
        out.append(b"%x\r\n%s\r\n" % (len(part), part))
        at += size
    return b"".join(out) + (b"0\r\n\r\n" + how.behind if vector.ending == "complete" else b"")


def wire(vector: Vector, how: Live, body: bytes | None = None) -> bytes:
    """All bytes of the response on its connection."""
    content = encoded(vector.body if body is None else body, how.coding)
    return response_head(vector, how, content) + framed(vector, how, content)


def in_pieces(data: bytes, seed: str) -> list[bytes]:
    """The same bytes in pieces of 1 to 40, the same ones each time."""
    sizes, out, at = random.Random(seed), [], 0
    while at < len(data):
        size = sizes.choice((1, 2, 3, 7, 40))
        out.append(data[at : at + size])
        at += size
    return out


def byte_by_byte(data: bytes) -> list[bytes]:
    """The same bytes, one a piece."""
    return [data[at : at + 1] for at in range(len(data))]


def messages(
    vector: Vector, reads: Iterable[tuple[int | None, bytes]], end_ns: int | None = None, *, stream: int = 1
) -> Iterator[Message]:
    """What a tap would report. `reads`: stamps since the request began (ns), and bytes; `stream`: its number."""
    base = None if end_ns is None else T0
    begun = RequestStarted(stream, base, None, "test", vector.method, vector.target, vector.headers)
    if vector.replay_only:
        begun = msgspec.structs.replace(begun, tap="replay", dialect=vector.dialect if vector.name_dialect else None)
    yield begun
    request_body = b"" if vector.request is None else json.dumps(vector.request).encode()
    if request_body:
        yield RequestBody(stream, request_body)
    yield RequestSent(stream, base, None, len(request_body), True)
    for stamp, data in reads:
        yield ResponseRead(stream, None if stamp is None else T0 + stamp, data)
    ended = None if end_ns is None else T0 + end_ns
    ending = Ending(vector.ending)
    yield ExchangeEnding(stream, ended, ending, client_gone_ns=ended if ending is Ending.CLIENT else None)


def settings(capture: Capture) -> CaptureSettings:
    """How the recorder captures; the installation key is a fixed one."""
    return CaptureSettings(capture=capture, tap_version="1", key=bytes(32))


def segments_of(capture: Capture, reported: Iterable[Message]) -> Iterator[Segment]:
    """What the recorder makes of the messages, cut into segments at intervals."""
    recording = Recorder(settings(capture))
    for count, message in enumerate(reported):
        recording.handle(message)
        if count % READS_A_SEGMENT == 0:
            yield from recording.segments()
    yield from recording.segments()
    # The recorder ignores its own faults, so they show only here.
    assert recording.dropped.total() == 0
    assert recording.incidents.total() == 0


def records_of(segments: Iterable[Segment]) -> list[Record]:
    """The records of these streams, through an assembler: one each, or none for a stream that is not an LLM's."""
    assembler = Assembler()
    found: list[Record] = []
    for number, segment in enumerate(segments):
        bundle = Bundle(instance=INSTANCE, slot=0, number=number, tap_ns=number, segments=[segment])
        found += assembler.apply(number, number, bundle)
    return found


def record_of(segments: Iterable[Segment]) -> Record:
    """The one record of the one stream."""
    (record,) = records_of(segments)
    return record


def live(vector: Vector, how: Live, pieces: Iterable[bytes]) -> dict[str, Any]:
    """The record of a stream that arrived in these pieces, without stamps, as decoded from its JSON."""
    return as_json(record_of(segments_of(how.capture, messages(vector, ((None, piece) for piece in pieces)))))


def one_by_one(capture: Capture, streams: Iterable[Iterable[Message]]) -> list[dict[str, Any]]:
    """The records of streams that arrive one after another, through one recorder and one assembler."""
    return in_order(segments_of(capture, itertools.chain.from_iterable(streams)))


def by_turns(capture: Capture, streams: Iterable[Iterable[Message]]) -> list[dict[str, Any]]:
    """The same for streams that arrive at the same time: one message of each in turn."""
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*streams))
    return in_order(segments_of(capture, (message for message in rounds if message is not None)))


def in_order(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """The records of several streams, in the order in which these began."""
    made = list(segments)
    found = {UUID(record.stream_id).bytes: as_json(record) for record in records_of(made)}
    return [found[stream] for stream in dict.fromkeys(segment.stream for segment in made)]


def cut_short(vector: Vector, body: bytes, ending: str) -> list[dict[str, Any]]:
    """The records of a stream that ended this way after these bytes of the vector: none if nothing of an LLM arrived."""
    cut = msgspec.structs.replace(vector, body=body, ending=ending)
    reported = messages(cut, [(None, wire(cut, Live()))])
    return [as_json(record) for record in records_of(segments_of("full", reported))]


def stamped(vector: Vector, how: Live, reads: list[tuple[int, bytes]], end_ns: int) -> dict[str, Any]:
    """The record of a stream whose reads arrived at these times (ns since the request began)."""
    return as_json(record_of(segments_of(how.capture, messages(vector, reads, end_ns))))


def replayed(vector: Vector, chunks: Iterable[bytes]) -> dict[str, Any]:
    """The record of the plain file, read in these pieces."""
    named = vector.dialect if vector.name_dialect else None
    return as_json(record_of(replay(chunks, settings("full"), dialect=named)))


def as_json(record: Record) -> dict[str, Any]:
    """A record as decoded from its JSON."""
    value: dict[str, Any] = json.loads(encode_record(record))
    return value
