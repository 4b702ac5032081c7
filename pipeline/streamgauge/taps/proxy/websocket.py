"""The handshake of a WebSocket (RFC 6455, 4): what the relay forwards as one, and which answer completes it.

The relay forwards only a whole handshake. An offer that a server could read as one and another server as a usual request
would leave the two sides of a connection in different protocols.
"""

import base64
import binascii
import hashlib

from streamgauge.core.http1.head import ResponseHead
from streamgauge.taps.proxy.request import Request

PROTOCOL = b"websocket"
KEY = b"sec-websocket-key"
_VERSION, _ONLY_VERSION = b"sec-websocket-version", b"13"
_KEY_BYTES = 16
# What a server appends to the key before it hashes both (1.3).
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BLANKS = b" \t"
_HAVE_BODIES = (b"content-length", b"transfer-encoding")


def is_handshake(request: Request) -> bool:
    """Whether a request that offers an upgrade is a whole handshake of a WebSocket, and nothing else."""
    return (
        request.method == b"GET"
        and request.minor == 1
        and [value.strip(_BLANKS).lower() for value in request.values(b"upgrade")] == [PROTOCOL]
        and [value.strip(_BLANKS) for value in request.values(_VERSION)] == [_ONLY_VERSION]
        and not any(name in request.names for name in _HAVE_BODIES)
        and _is_key(request.values(KEY))
    )


def _is_key(values: list[bytes]) -> bool:
    try:
        return len(values) == 1 and len(base64.b64decode(values[0].strip(_BLANKS), validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False


def key_of(request: Request) -> bytes:
    """The key of a handshake."""
    return request.values(KEY)[0].strip(_BLANKS)


def accepts(head: ResponseHead, key: bytes) -> bool:
    """Whether a head of status 101 accepts the handshake with this key."""
    options = (option.strip().lower() for value in head.all("connection") for option in value.split(","))
    expected = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    protocols = [value.lower() for value in head.all("upgrade")]
    return "upgrade" in options and protocols == [PROTOCOL.decode()] and head.all("sec-websocket-accept") == [expected]
