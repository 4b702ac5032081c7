"""Makes segments of a file that holds a stream's body. It has no stamps and no status, so the record has none."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from streamgauge.core.capture.segments import Ending, Segment
from streamgauge.core.formats.aws_event_stream import PRELUDE_BYTES, is_prelude
from streamgauge.recorder.protocol import ExchangeEnding, RequestStarted, ResponseRead
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings

# A recording is read in pieces of this size (bytes), whatever the source's pieces are: the reads in a record then
# depend on the recording alone.
CHUNK_BYTES = 64 * 1024

_STREAM = 0
# The digits of a prelude in base64.
_PRELUDE_DIGITS = PRELUDE_BYTES // 3 * 4


def replay(
    chunks: Iterable[bytes],
    settings: CaptureSettings,
    *,
    dialect: str | None = None,
    new_id: Callable[[int | None], bytes] | None = None,
) -> Iterator[Segment]:
    """The segments of one recording, whose bytes may come in any pieces.

    A body that begins as JSON or HTML does is read as a whole; any other one is an event stream. An empty recording gives a
    stream without content. `dialect`: the dialect that the operator names. `new_id`: makes the stream's id.
    """
    recorder = Recorder(settings, new_id)
    recorder.handle(RequestStarted(_STREAM, None, None, None, "", "", tap="replay", dialect=dialect))
    recorder.begin_body(_STREAM)
    for chunk in rechunked(chunks):
        recorder.handle(ResponseRead(_STREAM, None, chunk))
        yield from recorder.segments()
    recorder.handle(ExchangeEnding(_STREAM, None, Ending.COMPLETE))
    yield from recorder.segments()


def without_base64(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes; those of AWS's event stream out of base64, in which tools record a binary body as text.

    The checksum of the first message shows it: any other text in base64 stays as it is. The body ends where it is no base64.
    """
    rest = iter(chunks)
    first = next(rest, b"")
    if not is_prelude(_decoded(first[:_PRELUDE_DIGITS])):
        yield first
        yield from rest
        return
    held = b""
    for chunk in chain((first,), rest):
        held += b"".join(chunk.split())
        whole = len(held) - len(held) % 4
        yield _decoded(held[:whole])
        held = held[whole:]


def _decoded(digits: bytes) -> bytes:
    try:
        return base64.b64decode(digits, validate=True)
    except binascii.Error:
        return b""


def rechunked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of CHUNK_BYTES; the last one may be shorter."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= CHUNK_BYTES:
            yield bytes(held[:CHUNK_BYTES])
            del held[:CHUNK_BYTES]
    if held:
        yield bytes(held)
