"""The capture format: what a tap writes and an assembler reads. `bundles.py` encodes it.

A *bundle* is one message: segments of many streams of one tap instance and slot; it is numbered per instance and slot. A
*segment* is an ordered run of reads of one stream, numbered from 0. A *read* is what one socket read returned.

Stamps are nanoseconds of the tap's monotonic clock since the request's first byte; None where a recording has none.
Structs are arrays on the wire: a field may be added at the end with a default; no field may be moved or removed. There are
many structs, and none can be part of a reference cycle, so the garbage collector does not track them (`gc=False`).
"""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from streamgauge.core.limits import MAX_ATTRIBUTES

FORMAT_VERSION = 1

# A recorder closes a bundle at about this size or age (192 KiB or 250 ms). That is large enough that some hundred
# events share the cost of a message in the spool, Kafka and Faust, and small enough that a worker sees a stream's end
# soon. Compared with 48 KiB and 100 ms, recorder and shipper take a third less CPU for 200 streams with 40 events a
# second each.
BUNDLE_BYTES = 192 * 1024
BUNDLE_NS = 250_000_000

SLOTS = 64

# The value of `Opening.resumed_from` if the request asks for a stored response from its beginning.
FROM_START = "start"

# Limits of one bundle, far above what a tap sends: reads and segments (each takes 100 to 200 bytes in memory, and 6 on
# the wire), and earlier instances on the same data directory (a tap names those since its last delivery). The decoder
# checks the length of a list before it decodes the elements.
MAX_READS = 200_000
MAX_SEGMENTS = 50_000
MAX_DEAD = 100_000

# Integers on the wire. Their sums must fit the 64 bits of the state. 2**53 is the nanoseconds of 104 days, and more
# bytes than any stream has.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Wall = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# Words that stay in the state of a stream until it ends (characters). A recorder sends at most 256 characters of a
# word. A forger can put some 300 KB into one stream; `state_size.MAX_BUCKET_BYTES` bounds the sum over the streams of a
# bucket.
Word = Annotated[str, msgspec.Meta(max_length=4096)]
# Name and value of an attribute, of which a stream may have several: exactly what a recorder sends at most.
Attribute = tuple[Annotated[str, msgspec.Meta(max_length=32)], Annotated[str, msgspec.Meta(max_length=256)]]


class Opening(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The facts that are known when a request begins. Segment 0 always has them.

    `path` is the endpoint's template (`dialects.endpoint_of`), None for a path that is no LLM endpoint; never the raw path.
    `started_at_ns` is UTC wall-clock time, for printing only: nothing is computed from it. `resumed_from` is the position
    that the request of a resumed stream names, unchanged (Last-Event-ID, starting_after). It is FROM_START if the request
    asks for a stored response without a position, and None if the request does not continue a stream.
    """

    tap: Word
    tap_version: Word
    capture: Literal["masked", "full"]
    upstream: Word | None = None
    path: Word | None = None
    started_at_ns: Wall | None = None
    trace_id: Word | None = None
    tenant: Word | None = None
    credential_id: Word | None = None
    attempt: Count | None = None
    resumed_from: Word | None = None
    # The position in `resumed_from`, if it is a sequence number (starting_after of OpenAI's Responses).
    resumed_after: Count | None = None
    # The dialect that the operator named (`replay --dialect`); None: the content and the path decide.
    dialect: Word | None = None
    # The id of the stored response that the path of a resumed stream's request names.
    continues: Word | None = None
    # Names and values of what the operator attributes requests to (`--attribute`).
    attributes: Annotated[tuple[Attribute, ...], msgspec.Meta(max_length=MAX_ATTRIBUTES)] = ()
    # The caller's span, which `traceparent` names beside `trace_id`: both are known, or neither.
    parent_span_id: Word | None = None
    # The host of the upstream, without its port.
    host: Word | None = None


class RequestFacts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The parameters of the request, and when it was sent. A field is None if it was not seen."""

    body_bytes: Count | None = None
    model: Word | None = None
    stream: bool | None = None
    n: Count | None = None
    max_tokens: Count | None = None
    include_usage: bool | None = None
    service_tier: Word | None = None
    digest: Word | None = None
    connect_ns: Count | None = None  # the upstream's connection was made; None if it was reused
    sent_ns: Count | None = None  # the request's last byte was handed to the upstream's socket
    # The body was not read whole: it was too long, there was no room, or a part did not reach the recorder.
    capped: bool = False


class RateLimit(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The provider's rate limits, as the response's head reports them. `reset_ns`: from the response on."""

    requests_limit: Count | None = None
    requests_remaining: Count | None = None
    requests_reset_ns: Count | None = None
    tokens_limit: Count | None = None
    tokens_remaining: Count | None = None
    tokens_reset_ns: Count | None = None


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The response's head, with allowed headers only. `event_stream`: the content is read as a stream of events,
    in any framing."""

    status: Count | None
    stamp_ns: Count | None = None
    event_stream: bool = False
    content_encoding: Word | None = None
    retry_after_s: float | None = None
    provider_request_id: Word | None = None
    organization: Word | None = None
    project: Word | None = None
    rate_limit: RateLimit | None = None
    # The gateway that made the response, if its own headers name it, and the cost that they state (US dollars).
    gateway: Word | None = None
    cost: Word | None = None


class Read(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One socket read.

    `wire_bytes`: as the socket returned them. `body_bytes`: after transfer framing, before content decoding. `content`: the
    events that this read completed, as canonical SSE: UTF-8, LF, no BOM.
    """

    stamp_ns: Count | None
    wire_bytes: Count
    body_bytes: Count
    content: bytes = b""


class Loss(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The losses of a segment. The assembler adds up the counts of a stream's segments."""

    dropped_reads: Count = 0
    oversized_events: Count = 0
    decode_error: Word | None = None  # a `DecodeFault` of http1/body.py; the first of a stream stays


class Ending(StrEnum):
    """The ending of a captured exchange: how it ended, as its tap reports it."""

    COMPLETE = "complete"  # the response is whole by its framing (close-delimited bodies: a clean EOF)
    RESET = "reset"  # the upstream broke the framing, by reset or early EOF, or sent no head
    TIMEOUT = "timeout"  # no data from the upstream for --upstream-idle-timeout, or no connection in time
    CLIENT = "client"  # the client left, so the request to the upstream was cancelled
    CUT = "cut"  # the tap itself stopped before the stream ended (drain deadline)


class TransportFault(StrEnum):
    """The fault of an exchange: what failed in transport between tap and upstream, as captured.

    It is `error.code` of a record whose outcome is upstream_reset or timeout.
    """

    DNS = "dns"  # the upstream's name was not found
    REFUSED = "refused"  # its address refused the connection
    UNREACHABLE = "unreachable"  # no route, or another network fault
    CONNECT_TIMEOUT = "connect_timeout"  # no connection in time
    TLS = "tls"  # the TLS handshake failed
    TLS_CERTIFICATE = "tls_certificate"  # its certificate is not trusted, or is for another name
    RESET = "reset"  # the connection was reset
    CLOSED = "closed"  # the connection was closed cleanly before the response was whole, or before it began
    NOT_HTTP = "not_http"  # the answer was not HTTP
    IDLE_TIMEOUT = "idle_timeout"  # connected, but no data came for too long

    @property
    def ending(self) -> Ending:
        """The ending of an exchange that has this fault."""
        too_late = self in (TransportFault.CONNECT_TIMEOUT, TransportFault.IDLE_TIMEOUT)
        return Ending.TIMEOUT if too_late else Ending.RESET


class StreamEnding(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The ending of a stream: how and when its exchange ended, and the rest of the response. The last segment has it.

    `tail`: the event that was pending when the bytes ended, as canonical SSE without its blank line; half an event is
    replaced by a placeholder (`sse.HALF_EVENT`). `body`: the whole body of a response that is no event stream (masked
    unless capture is full); None if there was none, or it was over the cap (then `body_capped`) or not decodable.
    """

    ending: Ending
    stamp_ns: Count | None = None
    client_gone_ns: Count | None = None
    client_blocked_ns: Count | None = None
    client_bytes: Count | None = None
    tail: bytes = b""
    body: bytes | None = None
    body_capped: bool = False
    # A TransportFault, or None if unknown. It is a Word, so that bundles with a new fault of a later tap stay readable.
    fault: Word | None = None


class Segment(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An ordered run of reads of one stream. `stream` is the stream's id: the 16 bytes of a UUIDv7."""

    stream: bytes
    number: Count
    opening: Opening | None = None
    request: RequestFacts | None = None
    head: Head | None = None
    reads: Annotated[list[Read], msgspec.Meta(max_length=MAX_READS)] = []
    loss: Loss | None = None
    end: StreamEnding | None = None


class Bundle(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message of a tap.

    `instance` is the 16 bytes of the tap instance's UUID; `number` counts from 0 for each (instance, slot). `tap_ns` is the
    tap's monotonic clock in nanoseconds when the bundle was closed: it is compared only with times of the same instance. A
    bundle without segments is a heartbeat. `farewell`: this is the instance's last bundle in this slot. `dead`: earlier
    instances on the same data directory, whose spool was shipped before this bundle.
    """

    instance: bytes
    slot: Count
    number: Count
    tap_ns: Wall
    segments: Annotated[list[Segment], msgspec.Meta(max_length=MAX_SEGMENTS)] = []
    farewell: bool = False
    dead: Annotated[list[bytes], msgspec.Meta(max_length=MAX_DEAD)] = []
    version: Count = FORMAT_VERSION
