"""A response as timed socket writes. Pure: the same response always gives the same bytes."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from streamgauge_demo.provider import LAST_CHUNK, chunk, head
from streamgauge_demo.scenario import Answer, Finale, Framing, Piece

# zlib's parameter for HTTP's gzip: a gzip header around a window of 32 KiB.
GZIP_WINDOW = 31

# Delay between the slices of one piece (seconds).
SLICE_GAP_S = 0.002

# What keeps a response alive whose client is expected to leave (seconds, bytes): a silent one would end by the tap's timeout
# if the client is slow.
COMMENT = Piece(2.0, b": still here\n\n")


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes for the socket, `delay_s` seconds after the ones before. `tokens`: token events that these bytes complete.

    `trailing`: bytes at the end that belong to the framing, after those of the body.
    """

    delay_s: float
    data: bytes
    tokens: int = 0
    trailing: int = 0


def plan(answer: Answer, headers: Mapping[str, str], *, gzip: bool) -> list[Write]:
    """All writes of a response, its head first. `headers`: additional headers; `gzip`: the client accepts compressed
    content.
    """
    pieces = list(_compressed(answer.pieces)) if gzip else list(answer.pieces)
    if answer.no_head:
        return []
    all_headers = dict(answer.headers) | dict(headers)
    if gzip:
        all_headers["content-encoding"] = "gzip"
    if answer.framing is Framing.CLOSE:
        all_headers["connection"] = "close"
    length = sum(len(piece.data) for piece in pieces)
    framing = length if answer.framing is Framing.LENGTH else answer.framing
    body = list(_framed(pieces, answer))
    opening = Write(answer.head_delay_s, head(answer.status, answer.content_type, framing, all_headers))
    return [opening, *(_sliced(body, answer.cut) if answer.cut else body)]


def comment(answer: Answer) -> Write:
    """A comment after all writes of a response with `Finale.COMMENTS`."""
    return next(_framed([COMMENT], answer))


def _compressed(pieces: tuple[Piece, ...]) -> Iterator[Piece]:
    """Compresses each piece with a flush, so that it can be read at once."""
    gzip = zlib.compressobj(wbits=GZIP_WINDOW)
    for piece in pieces:
        yield replace(piece, data=gzip.compress(piece.data) + gzip.flush(zlib.Z_SYNC_FLUSH))
    yield Piece(0.0, gzip.flush(zlib.Z_FINISH))


def _framed(pieces: list[Piece], answer: Answer) -> Iterator[Write]:
    for piece in pieces:
        if answer.framing is Framing.CHUNKED:
            yield Write(piece.delay_s, chunk(piece.data), piece.tokens, trailing=len(b"\r\n"))
        else:
            yield Write(piece.delay_s, piece.data, piece.tokens)
    if answer.framing is Framing.CHUNKED and answer.finale is Finale.WHOLE:
        yield Write(0.0, LAST_CHUNK)


def _sliced(writes: list[Write], size: int) -> Iterator[Write]:
    """The same bytes in slices of `size`; a slice is sent when its last byte is due."""
    wire = b"".join(write.data for write in writes)
    due: list[tuple[int, float]] = []  # (offset after a write's last byte, seconds since the head)
    tokens: list[tuple[int, int]] = []  # (offset after the last byte of token events, how many)
    offset, at = 0, 0.0
    for write in writes:
        offset, at = offset + len(write.data), at + write.delay_s
        due.append((offset, at))
        tokens.append((offset - write.trailing, write.tokens))
    sent_s = 0.0
    for start in range(0, len(wire), size):
        stop = min(start + size, len(wire))
        ready = next(moment for end, moment in due if end >= stop)
        delay = max(ready - sent_s, SLICE_GAP_S)
        sent_s += delay
        yield Write(delay, wire[start:stop], sum(count for end, count in tokens if start < end <= stop))
