"""A response through the reader, in pieces."""

from collections.abc import Iterable

from streamgauge.core.http1.head import RawHead
from streamgauge.core.http1.response import ResponseReader


def read_response(pieces: Iterable[bytes], method: str) -> tuple[ResponseReader, RawHead | None, bytes, bytes]:
    """The reader, and what it has returned: the head, the body, and the bytes after it."""
    reader, head, body, rest = ResponseReader(method), None, b"", b""
    for piece in pieces:
        found, left = reader.feed_head(piece) if reader.framing is None else (None, piece)
        head = head or found
        if reader.framing is not None:
            more, after = reader.feed(left)
            body, rest = body + more, rest + after
    return reader, head, body, rest
