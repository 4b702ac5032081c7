"""The messages by which a tap reports one stream, for tests of what receives them."""

import gzip
import zlib
from collections.abc import Sequence

from streamgauge.core.capture.segments import Ending, Head, Loss, Read, RequestFacts, Segment, StreamEnding
from streamgauge.core.formats.sse import SseDecoder
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    RequestSent,
    RequestStarted,
    ResponseRead,
    ResponseReads,
    StampedRead,
)
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings

KEY = bytes(range(32))
# Time zero by the host's clock; all other times are relative to it (ns).
ZERO = 5_000_000_000_000
SSE = ("content-type", "text/event-stream")

EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"gr\xc3\xbcn"},"finish_reason":null}]}\n\n',
    b": keep-alive\n\n",
    b'data: {"choices":[{"index":0,"delta":{"content":" \xf0\x9f\x8c\xb2"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
BODY = b"".join(EVENTS)


def settings(capture: str = "full", **more: object) -> CaptureSettings:
    assert capture in ("full", "masked")
    return CaptureSettings(capture=capture, tap_version="1.2", key=KEY, **more)  # type: ignore[arg-type]


def opened(
    target: str = "/v1/chat/completions",
    *headers: tuple[str, str],
    method: str = "POST",
    stream: int = 1,
    tap: str = "proxy",
) -> RequestStarted:
    return RequestStarted(stream, ZERO, 1_700_000_000_123_456_789, "up", method, target, list(headers), tap=tap)


def sent(body_bytes: int = 0, *, whole: bool = True, stream: int = 1) -> RequestSent:
    return RequestSent(stream, ZERO + 20, ZERO + 10, body_bytes, whole)


def head(*fields: tuple[str, str], status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} Reason", *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def gzip_flushed(*pieces: bytes) -> bytes:
    """As a streaming server does: each piece can be decoded when it arrives."""
    squeeze = zlib.compressobj(wbits=31)
    return b"".join(squeeze.compress(piece) + squeeze.flush(zlib.Z_SYNC_FLUSH) for piece in pieces) + squeeze.flush()


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def arrivals(*reads: bytes, stream: int = 1) -> list[Message]:
    return [ResponseRead(stream, ZERO + 100 * number, data) for number, data in enumerate(reads, 1)]


def together(*reads: bytes, stream: int = 1) -> ResponseReads:
    """The same in one message."""
    return ResponseReads(stream, [StampedRead(ZERO + 100 * number, data) for number, data in enumerate(reads, 1)])


def ended(ending: Ending = Ending.COMPLETE, *, unsent: int = 0, stream: int = 1) -> ExchangeEnding:
    gone = ZERO + 9_500 if ending is Ending.CLIENT else None
    return ExchangeEnding(stream, ZERO + 10_000, ending, client_gone_ns=gone, client_blocked_ns=7, unsent_bytes=unsent)


def answer(*reads: bytes, ending: Ending = Ending.COMPLETE) -> list[Message]:
    """A whole exchange whose response arrived in these reads."""
    return [opened(), sent(), *arrivals(*reads), ended(ending)]


class Recorded:
    """All of one stream's segments, put together."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        assert [segment.number for segment in segments] == list(range(len(segments)))
        assert len({segment.stream for segment in segments}) == 1
        assert [segment.opening is not None for segment in segments] == [True] + [False] * (len(segments) - 1)
        assert [segment.end is not None for segment in segments] == [False] * (len(segments) - 1) + [True]
        self.segments = segments
        self.reads: list[Read] = [read for segment in segments for read in segment.reads]
        self.content = b"".join(read.content for read in self.reads)
        self.body_bytes = sum(read.body_bytes for read in self.reads)
        heads = [segment.head for segment in segments if segment.head]
        self.head: Head | None = heads[-1] if heads else None
        requests = [segment.request for segment in segments if segment.request]
        assert len(requests) <= 1
        self.request: RequestFacts | None = requests[0] if requests else None
        losses = [segment.loss for segment in segments if segment.loss]
        self.loss = Loss(
            sum(loss.dropped_reads for loss in losses),
            sum(loss.oversized_events for loss in losses),
            next((loss.decode_error for loss in losses if loss.decode_error), None),
        )
        end = segments[-1].end
        assert end is not None
        self.end: StreamEnding = end


def recorded(messages: Sequence[Message], recorder: Recorder | None = None, *, every: int = 3) -> Recorded:
    """What a recorder makes of one stream, with segments taken after this many messages each."""
    recorder = recorder or Recorder(settings())
    segments: list[Segment] = []
    for number, message in enumerate(messages):
        recorder.handle(message)
        if number % every == every - 1:
            segments += recorder.segments()
    segments += recorder.segments()
    assert recorder.open_streams == 0
    return Recorded(segments)


def events_in(content: bytes) -> list[bytes | None]:
    return [event.data for event in SseDecoder().feed(content)]


def streams_of(segments: list[Segment]) -> list[bytes]:
    return list(dict.fromkeys(segment.stream for segment in segments))
