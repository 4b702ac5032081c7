"""Reads an HTTP/1 response from its bytes, in any pieces: where its head, its body and its end are (RFC 9112).

HEAD --interim head--> HEAD --final head--> BODY --last byte--> COMPLETE

This is the only reader of HTTP/1 responses: relay, recorder and packet tap use it, so that their decisions never differ. It
has no I/O and no clock. It reads tolerantly, because the client gets the same bytes and has a parser of its own. Where the
parsers of clients may differ, it sets `ambiguous`, and the caller decides.
"""

from streamgauge.core.http1.framing import Framing, framing_of, has_no_body
from streamgauge.core.http1.head import HeadFault, HeadReader, RawHead


class ResponseReader:
    """Reads one response. `method`: of the request. Never raises.

    `status`: of the final head; None until that is complete. The other attributes are set with it.

    `framing`: of the body. `coding`: the codings to remove from the body besides its chunks, as a value of Content-Encoding.
    `content_type`: all values of the field, joined. `persistent`: the connection can be used again after the response.
    `has_keep_alive`: the head has `Connection: keep-alive`, which HTTP/1.0 requires for that.
    """

    __slots__ = (
        "_head_is_ambiguous",
        "_heads",
        "_method",
        "coding",
        "content_type",
        "framing",
        "has_keep_alive",
        "persistent",
        "status",
    )  # fmt: skip

    def __init__(self, method: str) -> None:
        self.status: int | None = None
        self.framing: Framing | None = None
        self.coding = self.content_type = ""
        self.persistent = self.has_keep_alive = False
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
        """Whether parsers of clients may read the response so far differently."""
        return self._head_is_ambiguous or (self.framing is not None and self.framing.ambiguous)

    @property
    def complete(self) -> bool:
        """Whether the whole response was fed."""
        return self.framing is not None and self.framing.complete

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's bytes in `data`, and the bytes after the response's end."""
        if self.framing is not None:
            return self.framing.feed(data)
        _, rest = self.feed_head(data)
        return self.framing.feed(rest) if self.framing is not None else (b"", b"")

    def feed_head(self, data: bytes) -> tuple[RawHead | None, bytes]:
        """Reads up to the end of the final head. Returns the head, once, and the bytes after it. Call it until `status` is
        set.
        """
        head = self._heads.feed(data)
        if head is None:
            return None, b""
        self._decide(head)
        rest, self._heads.rest = self._heads.rest, b""
        return head, rest

    def end(self) -> bool:
        """Reports a clean end of the connection. Returns whether the response is complete."""
        if self.framing is not None:
            self.framing.end()
        return self.complete

    def _decide(self, head: RawHead) -> None:
        """Sets the attributes that depend on the head."""
        fields, modern = head.deciding(), head.http_minor != 0
        options, lengths = fields.get(b"connection", ()), fields.get(b"content-length", ())
        transfers = fields.get(b"transfer-encoding", [])
        self.status, self._head_is_ambiguous = head.status, head.ambiguous
        self.content_type = ", ".join(fields.get(b"content-type", ()))
        self.framing = framing_of(head.status, self._method, transfers, lengths)
        self.has_keep_alive = "keep-alive" in options
        self.persistent = not head.ambiguous and "close" not in options and (modern or self.has_keep_alive)
        if has_no_body(head.status, self._method):
            return
        if transfers:
            # With both fields the length is ignored, and it may be an attack: no reuse (RFC 9112, 6.1).
            self.persistent = self.persistent and not lengths and modern
        self.persistent = self.persistent and not self.framing.until_eof
        codings = transfers[:-1] if transfers[-1:] == ["chunked"] else transfers
        self.coding = ", ".join((*fields.get(b"content-encoding", ()), *codings))
