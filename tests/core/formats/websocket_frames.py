"""Frames of WebSockets (RFC 6455, 5.2), as a peer writes them, also those that it must not write."""

MASK = b"\x37\xfa\x21\x3d"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(
    payload: bytes = b"",
    opcode: int = TEXT,
    *,
    final: bool = True,
    mask: bytes | None = None,
    reserved: int = 0,
    length: int | None = None,
) -> bytes:
    """One frame. `length`: what it announces, if that is not the payload's."""
    size = len(payload) if length is None else length
    short, longer = (
        (size, b"") if size < 126 else (126, size.to_bytes(2)) if size < 1 << 16 else (127, size.to_bytes(8))
    )
    head = bytes((final << 7 | reserved << 4 | opcode, (mask is not None) << 7 | short)) + longer
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def close(code: int | None = 1000, reason: bytes = b"", mask: bytes | None = None) -> bytes:
    """A close frame; `code` None: without one."""
    return frame(b"" if code is None else code.to_bytes(2) + reason, CLOSE, mask=mask)


def from_client(*texts: bytes) -> bytes:
    """Text messages of a client."""
    return b"".join(frame(text, mask=MASK) for text in texts)


def from_server(*texts: bytes) -> bytes:
    """Text messages of a server."""
    return b"".join(map(frame, texts))
