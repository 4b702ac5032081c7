"""The capture format: what a tap writes and an assembler reads. `bundles.py` puts it on the wire.

A *bundle* is one message: segments of many streams of one tap instance and slot, numbered per instance and slot. A
*segment* is an ordered run of reads of one stream, numbered from 0. A *read* is what one socket read returned.

Stamps are nanoseconds of the tap's monotonic clock since the request's first byte; None where a recording has none.
Structs are arrays on the wire: a field may be added at the end with a default, none may be moved or removed. None can be
part of a cycle, so the collector need not follow them (`gc=False`): there are many.
"""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec

FORMAT_VERSION = 1

# A bundle is closed at about this size or age (192 KiB or 250 ms): big enough that what the spool, Kafka and Faust cost a
# message is shared by some hundred events, small enough that a worker sees a stream's end soon. Against 48 KiB and 100 ms
# recorder and shipper take a third less CPU for 200 streams with 40 events a second each.
BUNDLE_BYTES = 192 * 1024
BUNDLE_NS = 250_000_000

SLOTS = 64

# The position of a request that asks for a stored response from its beginning: `Opening.resumed_from`.
FROM_START = "start"

# What a bundle may hold, far beyond what any of ours does: its reads and segments (100 to 200 bytes each in memory, six on
# the wire), and earlier instances on a data directory (a tap names those since its last delivery). A decoder checks a list's
# length before it makes anything of it.
MAX_READS = 200_000
MAX_SEGMENTS = 50_000
MAX_DEAD = 100_000

# Integers of the wire: sums of them must fit the state's 64 bits. Nanoseconds of 100 days; sizes far beyond any.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Wall = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# Words that lie in the state of a stream until it ends (characters): a recorder keeps 256 of the longest. Whoever forges more
# has some 300 KB in one stream; what all of them take is bounded by `room.MAX_BUCKET_BYTES`.
Word = Annotated[str, msgspec.Meta(max_length=4096)]


class Opening(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is known when a request begins. On segment 0, always.

    `path` is the endpoint's template (`dialects.endpoint_of`), None for a path that is not an LLM's; never the raw path.
    `started_at_ns` is UTC wall clock, for printing only: nothing is computed from it. `resumed_from` is the position that the
    request of a resumed stream names, as it names it (Last-Event-ID, starting_after), FROM_START where it asks for a stored
    response without one; None for a request that continues nothing.
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
    # The same position, where it is a sequence number (Responses' starting_after).
    resumed_after: Count | None = None
    # A dialect that the operator named (`replay --dialect`); None: the content and the path tell.
    dialect: Word | None = None
    # Of a leg, the id of the stored response that its request names in its path.
    continues: Word | None = None


class RequestFacts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the request said and when it went out. Every field None where it was not seen."""

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
    # The body was not read whole: it was too long, there was no room for it, or a part of it was lost on the way.
    capped: bool = False


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The response's head, headers by allowlist. `event_stream`: the content is read as server-sent events."""

    status: Count | None
    stamp_ns: Count | None = None
    event_stream: bool = False
    content_encoding: Word | None = None
    retry_after_s: float | None = None
    provider_request_id: Word | None = None
    organization: Word | None = None
    project: Word | None = None


class Read(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One socket read.

    `wire_bytes` as the socket gave them; `body_bytes` after transfer framing, before content decoding (None where the
    recording does not tell); `content` the events that this read completed, as canonical SSE: UTF-8, LF, no BOM.
    """

    stamp_ns: Count | None
    wire_bytes: Count
    body_bytes: Count
    content: bytes = b""


class Loss(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What this part of the capture does not hold. Adds up over a stream's segments."""

    dropped_reads: Count = 0
    oversized_events: Count = 0
    decode_error: Word | None = None  # one of `body.DecodeFault`; the first one stays


class Ending(StrEnum):
    """How the HTTP exchange ended, as the tap saw it."""

    COMPLETE = "complete"  # the response's framing says that it is whole (close-delimited bodies: a clean EOF)
    RESET = "reset"  # the upstream broke the framing, by reset or early EOF, or no head ever came
    TIMEOUT = "timeout"  # nothing from the upstream for --upstream-idle-timeout
    CLIENT = "client"  # the client left, the upstream was cancelled
    CUT = "cut"  # the tap itself stopped: a drain deadline


class TransportFault(StrEnum):
    """What failed between the tap and the upstream: `error.code` of a record whose outcome is upstream_reset or timeout."""

    DNS = "dns"  # the upstream's name was not found
    REFUSED = "refused"  # its address refused the connection
    UNREACHABLE = "unreachable"  # no route, or another fault of the network
    CONNECT_TIMEOUT = "connect_timeout"  # no connection in time
    TLS = "tls"  # the TLS handshake failed
    TLS_CERTIFICATE = "tls_certificate"  # its certificate is not trusted, or not for its name
    RESET = "reset"  # the connection was reset
    CLOSED = "closed"  # the connection ended in order before the response was whole, or before it began
    NOT_HTTP = "not_http"  # what came is no HTTP
    IDLE_TIMEOUT = "idle_timeout"  # connected, and nothing came for too long

    @property
    def ending(self) -> Ending:
        """How an exchange ends that fails so."""
        too_late = self in (TransportFault.CONNECT_TIMEOUT, TransportFault.IDLE_TIMEOUT)
        return Ending.TIMEOUT if too_late else Ending.RESET


class End(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The stream's end. On the last segment.

    `tail`: the event that was pending when the bytes ended, canonical SSE without its blank line; a half event is a
    placeholder (`sse.HALF_EVENT`). `body`: the whole (masked) body of a response that is no event stream, None where it
    had none, was over the cap (then `body_capped`) or could not be decoded.
    """

    ending: Ending
    stamp_ns: Count | None = None
    client_gone_ns: Count | None = None
    client_blocked_ns: Count | None = None
    client_bytes: Count | None = None
    tail: bytes = b""
    body: bytes | None = None
    body_capped: bool = False
    # A TransportFault, None where it is not known. A word, so that one that a later tap adds is no bad bundle.
    fault: Word | None = None


class Segment(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A run of reads of one stream; `stream` is the 16 bytes of its UUIDv7."""

    stream: bytes
    number: Count
    opening: Opening | None = None
    request: RequestFacts | None = None
    head: Head | None = None
    reads: Annotated[list[Read], msgspec.Meta(max_length=MAX_READS)] = []
    loss: Loss | None = None
    end: End | None = None


class Bundle(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message of a tap.

    `instance` is the 16 bytes of the tap instance's UUID; `number` counts from 0 for each (instance, slot). `tap_ns` is the
    tap's monotonic clock when the bundle was closed: it only ever ages what the same instance sent. A bundle without
    segments is a heartbeat. `farewell`: the instance's last bundle in this slot. `dead`: earlier instances on the same
    data directory, whose spool has been shipped before this bundle.
    """

    instance: bytes
    slot: Count
    number: Count
    tap_ns: Wall
    segments: Annotated[list[Segment], msgspec.Meta(max_length=MAX_SEGMENTS)] = []
    farewell: bool = False
    dead: Annotated[list[bytes], msgspec.Meta(max_length=MAX_DEAD)] = []
    version: Count = FORMAT_VERSION
