"""The messages in which a tap reports a stream to its recorder, in order. They are the same over a socket and in a call.

`stream` is a number that the sender chose; `at_ns` is the host's monotonic clock (CLOCK_MONOTONIC, one for all processes
of the host). On a socket a *batch* is a 4-byte big-endian length and the MessagePack of a list of messages.

A stream is RequestStarted, then in any order RequestBody*, RequestSent and the response, then ExchangeEnding. Nothing
follows ExchangeEnding. The response is ResponseRead* or ResponseReads*: head, framing and body as the wire had them. A tap
that does not read the wire sends ResponseHead once, and then ResponseRead* with the bytes of the body alone. ReadsDropped
takes the place of missing reads; ResponseHead is never dropped.

A WebSocket is WebSocketOpened, then WebSocketData*, then ExchangeEnding. Its responses are streams that the recorder makes
(websocket_session.py); their reads are counted there. A call of JSON-RPC is CallOpened, then CallData* of its answer, then
CallEnded. It is measured and not stored (call_session.py), so its reads are counted nowhere.
"""

import struct
from collections.abc import Sequence
from typing import Annotated

import msgspec

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.formats.json_rpc import Call
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.rate_limit import RATE_LIMIT_HEADERS

# The recorder reads request bodies up to this size, for model, n and the like; a longer one has null facts (bytes).
MAX_REQUEST_BODY = 16 * 1024 * 1024
# Of the answer to a call, so many bytes are reported and read (as they came, and decoded). Clients limit what a tool gives a
# model to some 100 KB; pictures in base64 are larger.
MAX_CALL_BYTES = 1024 * 1024


class RequestStarted(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    """A request began. `at_ns` is time zero: the read with its first byte. `wall_ns`: UTC, at the same moment.

    `target` is the request target as the client sent it, without the upstream's prefix. `headers`: lower-case names, only of
    REQUEST_HEADERS and the tenant header. `stream_id`: the id derived from a file that holds the exchange; None:
    the recorder makes a random one. `tenant_header`: the lower-case header from which a tap in an application reads the
    tenant, so that its agent can warn if its own setting differs. `attributes`: names and values of the request's
    attributes, as the tap read them from the request's headers. `client_name`: the name by which the proxy authenticated the
    client, by its token or certificate; None if it does not authenticate clients. `party`: the sender of the request, for
    the shares of a recorder that is behind (fair_shares.py); it is not recorded. `host`: of the upstream, without its port.
    `form_model`: the model that a request names whose body is a form: its bytes are not reported.
    """

    stream: int
    at_ns: int | None
    wall_ns: int | None
    upstream: str | None
    method: str
    target: str
    headers: list[tuple[str, str]] = []
    tap: str = "proxy"
    dialect: str | None = None  # the dialect that the operator names (`replay --dialect`)
    stream_id: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)] | None = None
    tenant_header: str | None = None
    attributes: list[tuple[str, str]] = []
    client_name: str | None = None
    party: Party | None = None
    host: str | None = None
    form_model: str | None = None


class RequestBody(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """Bytes of the request's body, after transfer framing. Sent only for LLM endpoints, up to MAX_REQUEST_BODY."""

    stream: int
    data: bytes


class RequestSent(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    """The request's last byte was written to the upstream's socket.

    `body_bytes`: size of the whole body after transfer framing. `whole`: the RequestBody messages held all of it.
    `connected_ns`: when the upstream's connection was made for it; None if a connection was reused.
    """

    stream: int
    at_ns: int | None
    connected_ns: int | None
    body_bytes: int
    whole: bool


class ResponseRead(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    """One read from the upstream: raw bytes of the response, head and framing included.

    After a ResponseHead: one piece of the response's body, content-coded as it came, without transfer framing.
    """

    stream: int
    at_ns: int | None
    data: bytes


class ReadsDropped(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    """Reads of this stream that the tap could not send, at this place in the order. Already counted as dropped."""

    stream: int
    reads: int


class ExchangeEnding(msgspec.Struct, array_like=True, tag=5, frozen=True, gc=False):
    """The ending of an exchange. `unsent_bytes`: wire bytes that arrived but were not written to the client's socket.

    `fault`: what failed in transport; None if nothing failed, or if it is not known.
    """

    stream: int
    at_ns: int | None
    ending: Ending
    client_gone_ns: int | None = None
    client_blocked_ns: int | None = None
    unsent_bytes: int = 0
    fault: TransportFault | None = None


class StampedRead(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One read of ResponseReads."""

    at_ns: int | None
    data: bytes


class ResponseReads(msgspec.Struct, array_like=True, tag=7, frozen=True, gc=False):
    """Several reads of one stream in one message, which costs less than a message for each."""

    stream: int
    reads: list[StampedRead]


class ResponseHead(msgspec.Struct, array_like=True, tag=6, frozen=True, gc=False):
    """The response's head, from a tap that does not read the wire. Each ResponseRead after it holds bytes of the body.

    `at_ns`: when the head was received. `status`: None if a recording has none. `headers`: lower-case names, only of
    RESPONSE_HEADERS. `content-encoding` names the coding that the body still has; absent if the body was decoded.
    """

    stream: int
    at_ns: int | None
    status: int | None
    headers: list[tuple[str, str]] = []


class WebSocketOpened(msgspec.Struct, array_like=True, tag=8, frozen=True, gc=False):
    """An upstream accepted the handshake of a WebSocket (status 101).

    `request`: the handshake, of the method WEBSOCKET. `headers`: of the answer, as those of ResponseHead.
    """

    stream: int
    request: RequestStarted
    headers: list[tuple[str, str]] = []


class WebSocketData(msgspec.Struct, array_like=True, tag=9, frozen=True, gc=False):
    """One read of a WebSocket: raw bytes of frames. `gap`: bytes of this direction before it could not be sent."""

    stream: int
    at_ns: int
    data: bytes
    from_client: bool
    gap: bool = False


class CallOpened(msgspec.Struct, array_like=True, tag=10, frozen=True, gc=False):
    """The answer to a call of JSON-RPC began. `at_ns`: the read with the request's first byte."""

    stream: int
    at_ns: int
    upstream: str | None
    call: Call


class CallData(msgspec.Struct, array_like=True, tag=11, frozen=True, gc=False):
    """One read of the answer to a call: raw bytes, head and framing included. `is_lost`: a read that could not be sent."""

    stream: int
    at_ns: int
    data: bytes
    is_lost: bool = False


class CallEnded(msgspec.Struct, array_like=True, tag=12, frozen=True, gc=False):
    """A call ended, as in ExchangeEnding. `opened`: its opening, for a recorder that has taken the place of another."""

    stream: int
    at_ns: int | None
    ending: Ending
    fault: TransportFault | None
    opened: CallOpened


# Taps that do not see the wire: in an application, or beside Envoy. The bytes that reached the client are not known.
OFF_THE_WIRE = frozenset(("httpx", "boto3", "asgi", "envoy"))

Message = (
    RequestStarted
    | RequestBody
    | RequestSent
    | ResponseRead
    | ResponseReads
    | ReadsDropped
    | ExchangeEnding
    | ResponseHead
    | WebSocketOpened
    | WebSocketData
    | CallOpened
    | CallData
    | CallEnded
)

# Request headers that a recorder needs; a tap sends no others to it, except the tenant header.
REQUEST_HEADERS = frozenset(
    {
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "traceparent",
        "x-stainless-retry-count",
        "amz-sdk-request",
        "last-event-id",
        "content-encoding",
        "content-type",
        "sec-websocket-protocol",  # with a key: KEY_IN_PROTOCOLS
    }
)

# What precedes the key of OpenAI's APIs in the subprotocols that a browser offers, which can set no other header.
KEY_IN_PROTOCOLS = "openai-insecure-api-key."

# Response headers that a recorder needs from a tap that sends ResponseHead. A date in retry-after counts from `date`.
RESPONSE_HEADERS = frozenset(
    {
        "content-type",
        "content-encoding",
        "date",
        "retry-after",
        "x-request-id",
        "request-id",
        "apim-request-id",
        "x-generation-id",
        "x-amzn-requestid",
        "openai-organization",
        "anthropic-organization-id",
        "openai-project",
        "x-litellm-version",
        "x-litellm-call-id",
        "x-litellm-response-cost",
    }
    | RATE_LIMIT_HEADERS
)

_LENGTH = struct.Struct(">I")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Message])


class Encoded:
    """Messages of any streams, encoded already: ResponseReads and ReadsDropped. `reads`: how many reads they hold."""

    __slots__ = ("encoded", "messages", "reads")

    def __init__(self, encoded: bytes, messages: int, reads: int) -> None:
        self.encoded, self.messages, self.reads = encoded, messages, reads

    def decoded(self) -> list[Message]:
        """The decoded messages."""
        return decode_batch(_list_of(self.messages) + self.encoded)


def encode_batch(messages: Sequence[Message | Encoded]) -> bytes | bytearray:
    """A batch for a socket: length prefix and body."""
    if Encoded in set(map(type, messages)):
        count = sum(message.messages if isinstance(message, Encoded) else 1 for message in messages)
        parts = [message.encoded if isinstance(message, Encoded) else _ENCODER.encode(message) for message in messages]
        begin = _list_of(count)
        return b"".join((_LENGTH.pack(len(begin) + sum(map(len, parts))), begin, *parts))
    batch = bytearray(_LENGTH.size)
    _ENCODER.encode_into(messages, batch, _LENGTH.size)
    _LENGTH.pack_into(batch, 0, len(batch) - _LENGTH.size)
    return batch


def _list_of(count: int) -> bytes:
    """The header of a list of `count` items, in MessagePack's longest form."""
    return b"\xdd" + _LENGTH.pack(count)


def decode_batch(body: bytes) -> list[Message]:
    """The messages of a batch's body (without its length). Raises msgspec.DecodeError."""
    return _DECODER.decode(body)
