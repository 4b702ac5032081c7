"""Reads an HTTP/1 response from its bytes, in any pieces: where its head, its body and its end are (RFC 9112).

HEAD --interim head--> HEAD --final head--> BODY --last byte--> COMPLETE

This is the only reader of HTTP/1 responses: relay, recorder and packet capture take each of these decisions from it, so that
no two of them differ. It does no I/O and knows no time. It reads tolerantly, since the client has the same bytes and reads
them in its own way; where clients may differ, it says so (`ambiguous`), and its user decides.
"""

from streamgauge.core.http1.framing import Framing, framing_of, has_no_body
from streamgauge.core.http1.head import HeadFault, HeadReader, RawHead


class ResponseReader:
    """Reads one response. `method`: of the request. Never raises.

    `status`: that of the final head, once it is complete; None before. The head decides: `framing`: that of the body;
    `coding`: the codings to remove from the body besides its chunks, as a value of Content-Encoding; `content_type`: all its
    values; `persistent`: the response leaves the connection usable; `says_keep_alive`: it has `Connection: keep-alive`, which
    HTTP/1.0 requires.
    """

    __slots__ = ("_head_is_ambiguous", "_heads", "_method", "coding", "content_type", "framing", "persistent",
                 "says_keep_alive", "status")  # fmt: skip

    def __init__(self, method: str) -> None:
        self.status: int | None = None
        self.framing: Framing | None = None
        self.coding = self.content_type = ""
        self.persistent = self.says_keep_alive = False
        self._heads = HeadReader()
        self._head_is_ambiguous = False
        self._method = method

    @property
    def fault(self) -> HeadFault | None:
        """Why there is no head. After it nothing more is read. Faults of the body are `framing.broken`."""
        return self._heads.fault

    @property
    def half_head(self) -> int:
        """How many of the last bytes belong to an incomplete head."""
        return self._heads.held_bytes

    @property
    def ambiguous(self) -> bool:
        """Some part of the response so far is one that clients read differently."""
        return self._head_is_ambiguous or (self.framing is not None and self.framing.ambiguous)

    @property
    def complete(self) -> bool:
        """The whole response has come."""
        return self.framing is not None and self.framing.complete

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's bytes in `data`, and the bytes after the response's end."""
        if self.framing is not None:
            return self.framing.feed(data)
        _, rest = self.feed_head(data)
        return self.framing.feed(rest) if self.framing is not None else (b"", b"")

    def feed_head(self, data: bytes) -> tuple[RawHead | None, bytes]:
        """Reads up to the end of the final head. Returns the head, once, and the bytes after it. To be called until there is
        a `status`.
        """
        head = self._heads.feed(data)
        if head is None:
            return None, b""
        self._decide(head)
        rest, self._heads.rest = self._heads.rest, b""
        return head, rest

    def end(self) -> bool:
        """The connection has ended cleanly. Returns whether the response is complete."""
        if self.framing is not None:
            self.framing.end()
        return self.complete

    def _decide(self, head: RawHead) -> None:
        """Takes from the head what the body and the connection depend on."""
        fields, modern = head.deciding(), head.http_minor != 0
        options, lengths = fields.get(b"connection", ()), fields.get(b"content-length", ())
        transfers = fields.get(b"transfer-encoding", [])
        self.status, self._head_is_ambiguous = head.status, head.ambiguous
        self.content_type = ", ".join(fields.get(b"content-type", ()))
        self.framing = framing_of(head.status, self._method, transfers, lengths)
        self.says_keep_alive = "keep-alive" in options
        self.persistent = not head.ambiguous and "close" not in options and (modern or self.says_keep_alive)
        if has_no_body(head.status, self._method):
            return
        if transfers:
            # With both fields the length is ignored, and it may be an attack: no reuse (RFC 9112, 6.1).
            self.persistent = self.persistent and not lengths and modern
        self.persistent = self.persistent and not self.framing.until_eof
        codings = transfers[:-1] if transfers[-1:] == ["chunked"] else transfers
        self.coding = ", ".join((*fields.get(b"content-encoding", ()), *codings))
