"""Finds where an upstream's response ends, without changing its bytes, and whether its connection may be used again.

`core.http1.response` reads the bytes; this module decides what follows for the relay and the packet tap. The client has a
parser of its own. A response whose end it may see elsewhere has a `fault` for the relay, from the first doubtful line on: the
client would take the bytes after the end that it sees for the response to its next request (decision 48). The packet tap only
watches. For it a fault lasts until the connection ends, and a head that clients read differently is none.
"""

from enum import StrEnum

from streamgauge.core.http1.framing import BodyPosition, Unframed
from streamgauge.core.http1.head import MAX_HEAD_BYTES, RawHead
from streamgauge.core.http1.response import ResponseReader
from streamgauge.taps.proxy.websocket import accepts

# Largest head of a response with its line ends (bytes).
MAX_RESPONSE_HEAD = MAX_HEAD_BYTES


class ResponseFault(StrEnum):
    """Why a response's end cannot be found."""

    NOT_HTTP = "not_http"
    TOO_LARGE = "too_large"
    UPGRADED = "upgraded"  # status 101, although the relay did not ask for this protocol
    BAD_HEAD = "bad_head"
    AMBIGUOUS_HEAD = "ambiguous_head"  # clients read it differently
    BAD_CHUNKS = "bad_chunks"  # or chunks that clients read differently


class ResponseFraming:
    """Follows one response. `method`: of the request. `watches`: the caller does not pass the bytes on. Never raises.
    `websocket_key`: of the request, if it is the handshake of a WebSocket.

    `status` is None until the final head is complete. `before_head`: when the head is complete, how many bytes of interim
    heads and blank lines precede it in the read that completes it, and in the `half_head` before that read. `switched`: the
    response is complete with its head, and the upstream speaks WebSocket from there on; `after_head`: what it has sent of it.
    """

    __slots__ = (
        "_reader",
        "_watches",
        "_websocket_key",
        "after_head",
        "before_head",
        "complete",
        "fault",
        "headers",
        "status",
        "switched",
    )

    def __init__(self, method: bytes, *, watches: bool = False, websocket_key: bytes | None = None) -> None:
        self.status: int | None = None
        self.complete = False
        self.before_head = 0
        self.fault: ResponseFault | None = None
        self._reader = ResponseReader(method.decode("latin-1"))
        self._watches = watches
        self._websocket_key = websocket_key
        self.switched = False
        self.after_head = b""
        self.headers: list[tuple[str, str]] = []  # of a head with which the upstream switched

    @property
    def content_type(self) -> str:
        """The values of all Content-Type fields."""
        return self._reader.content_type

    @property
    def persistent(self) -> bool:
        """Whether the upstream keeps its connection for the next request, by the head and the framing."""
        return self.fault is None and self._reader.persistent

    def may_keep_client(self, minor: int) -> bool:
        """Whether a client of HTTP/1.`minor` may use its connection again once the response is complete.

        Some clients of HTTP/1.1 (Java's HttpClient, wget) do so after each response of HTTP/1.0 with a length, also without
        `Connection: keep-alive`. The others close the connection themselves.
        """
        return self.fault is None and (self._reader.ends_by_itself if minor else self._reader.persistent_for_1_0)

    @property
    def untouched(self) -> bool:
        """Whether the final head is not complete yet, and no fault was found."""
        return self.status is None and self.fault is None

    @property
    def half_head(self) -> int:
        """How many of the last bytes belong to an incomplete head."""
        return self._reader.half_head

    @property
    def continues(self) -> bool:
        """Whether an interim head of status 100 came."""
        return self._reader.continues

    @property
    def until_eof(self) -> bool:
        """Whether only the connection's end marks the body's end."""
        framing = self._reader.framing
        return self.fault is not None or (framing is not None and framing.until_eof)

    @property
    def position(self) -> BodyPosition | None:
        """The position of the next byte in the body; None outside a body, and where the pump cannot continue."""
        framing = self._reader.framing
        return None if framing is None or self.fault is not None else framing.position

    def continue_at(self, position: BodyPosition) -> None:
        """Sets the position of the next byte, after the pump moved bytes that were not fed here."""
        assert self._reader.framing is not None
        self._reader.framing.continue_at(position)

    def feed(self, data: bytes) -> int:
        """Follows a read. Returns how many of its bytes belong to this response: all, unless the response ends in it. With a
        new fault in the body: how many come before the first doubtful line.
        """
        if self.complete:
            return 0
        if self.fault is not None:
            return len(data)
        body = data
        if self.status is None:
            earlier = self._reader.half_head
            head, body = self._reader.feed_head(data)
            self._take_head(head)
            self.before_head = earlier + len(data) - len(body) - self._reader.head_bytes
        framing = self._reader.framing
        if framing is None or self.fault is not None:
            return len(data)
        _, rest = framing.feed(body)
        if framing.broken or framing.ambiguous:
            self._fail(ResponseFault.BAD_CHUNKS)
            return len(data) if self._watches else len(data) - len(body) + framing.bytes_before_doubt
        self.complete = framing.complete
        if self.switched:
            self.after_head = rest
        return len(data) - len(rest)

    def end_of_input(self) -> bool:
        """Reports that the upstream has ended its side cleanly. Returns whether the response is complete."""
        if self.fault is None:
            self.complete = self._reader.end()
        return self.complete

    def _take_head(self, head: RawHead | None) -> None:
        """Sets `status` or `fault` from the final head, if it is complete."""
        reader = self._reader
        if reader.fault is not None:
            self._fail(ResponseFault(reader.fault.value))
        elif reader.status == 101:
            self._switch(head)
        elif reader.status is not None:
            self.status = reader.status
            if isinstance(reader.framing, Unframed):
                self._fail(ResponseFault.BAD_HEAD)
            elif reader.ambiguous and not self._watches:
                self._fail(ResponseFault.AMBIGUOUS_HEAD)

    def _switch(self, head: RawHead | None) -> None:
        """Accepts status 101 if it answers the handshake. A client refuses every other one, and an upstream that sends it may
        not have read the handshake as one.
        """
        parsed = None if head is None or head.ambiguous or self._websocket_key is None else head.parsed()
        if parsed is None or self._websocket_key is None or not accepts(parsed, self._websocket_key):
            self._fail(ResponseFault.UPGRADED)
            return
        self.status, self.switched, self.headers = 101, True, parsed.headers

    def _fail(self, fault: ResponseFault) -> None:
        self.fault = fault
