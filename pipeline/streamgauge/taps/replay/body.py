"""A recording of a stream's body, as a file has it, becomes segments. No stamps, no status: nothing is invented."""

from collections.abc import Callable, Iterable, Iterator

from streamgauge.core.capture.segments import Ending, Segment
from streamgauge.recorder.protocol import ExchangeEnded, RequestStarted, ResponseRead
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings

# A recording is read in pieces of this size (bytes), however it comes: what a record says of reads depends on the
# recording alone.
CHUNK_BYTES = 64 * 1024

_STREAM = 0


def replay(
    chunks: Iterable[bytes],
    settings: CaptureSettings,
    *,
    dialect: str | None = None,
    new_id: Callable[[int | None], bytes] | None = None,
) -> Iterator[Segment]:
    """The segments of one recording, given as its bytes in any pieces.

    What begins as JSON or HTML do is no event stream, and is read whole; all else is one. An empty recording is a stream
    of which nothing is known. `dialect`: what the operator says it is. `new_id`: makes the stream's id.
    """
    recorder = Recorder(settings, new_id)
    recorder.handle(RequestStarted(_STREAM, None, None, None, "", "", tap="replay", dialect=dialect))
    recorder.begin_body(_STREAM)
    for chunk in rechunked(chunks):
        recorder.handle(ResponseRead(_STREAM, None, chunk))
        yield from recorder.segments()
    recorder.handle(ExchangeEnded(_STREAM, None, Ending.COMPLETE))
    yield from recorder.segments()


def rechunked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of CHUNK_BYTES, the last one shorter."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= CHUNK_BYTES:
            yield bytes(held[:CHUNK_BYTES])
            del held[:CHUNK_BYTES]
    if held:
        yield bytes(held)
