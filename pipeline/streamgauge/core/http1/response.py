"""Reads an HTTP/1 response from its bytes, in any pieces: where its head, its body and its end are (RFC 9112).

HEAD --interim head--> HEAD --final head--> BODY --last byte--> COMPLETE

This is the only reader of HTTP/1 responses: relay, recorder and packet capture take each of these decisions from it, so that
no two of them differ. It does no I/O and knows no time. It reads tolerantly, since the client has the same bytes and reads
them in its own way; where clients may differ, it says so (`ambiguous`), and its user decides.
"""

from collections.abc import Sequence

from streamgauge.core.http1.framing import Framing, framing_of, has_no_body
from streamgauge.core.http1.head import HeadFault, HeadReader, ResponseHead, members


class ResponseReader:
    """Reads one response. `method`: of the request. Never raises.

    `head`: the final head, once it is complete. `framing`: that of the body after it. `coding`: the codings to remove from
    the body besides its chunks, in the order in which they were applied, as a value of Content-Encoding. `persistent`: by
    its head, the response leaves the connection usable; `says_keep_alive`: it has `Connection: keep-alive`, which HTTP/1.0
    requires.
    """

    __slots__ = ("_heads", "_method", "coding", "framing", "head", "persistent", "says_keep_alive")

    def __init__(self, method: str) -> None:
        self.head: ResponseHead | None = None
        self.framing: Framing | None = None
        self.coding = ""
        self.persistent = self.says_keep_alive = False
        self._heads = HeadReader()
        self._method = method

    @property
    def fault(self) -> HeadFault | None:
        """Why there is no head. After it nothing more is read. Faults of the body are `framing.broken`."""
        return self._heads.fault

    @property
    def interim(self) -> int:
        """How many interim heads came."""
        return self._heads.interim

    @property
    def half_head(self) -> int:
        """How many of the last bytes belong to an incomplete head."""
        return self._heads.held_bytes

    @property
    def ambiguous(self) -> bool:
        """Some part of the response so far is one that clients read differently."""
        return self._heads.ambiguous or (self.framing is not None and self.framing.ambiguous)

    @property
    def complete(self) -> bool:
        """The whole response has come."""
        return self.framing is not None and self.framing.complete

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's bytes in `data`, and the bytes after the response's end."""
        if self.framing is not None:
            return self.framing.feed(data)
        rest = self.feed_head(data)
        return self.framing.feed(rest) if self.framing is not None else (b"", b"")

    def feed_head(self, data: bytes) -> bytes:
        """Reads up to the end of the final head; returns the bytes after it. To be called until there is a `head`."""
        head = self._heads.feed(data)
        if head is None:
            return b""
        self.head = head
        self._decide(head, self._heads.fields)
        rest, self._heads.rest, self._heads.fields = self._heads.rest, b"", []
        return rest

    def end(self) -> bool:
        """The connection has ended cleanly. Returns whether the response is complete."""
        if self.framing is not None:
            self.framing.end()
        return self.complete

    def _decide(self, head: ResponseHead, fields: Sequence[tuple[str, str]]) -> None:
        """Takes from the head what the body and the connection depend on."""
        found: dict[str, list[str]] = {"connection": [], "content-length": [], "transfer-encoding": []}
        for name, value in fields:
            if name in found:
                found[name].append(value)
        options, lengths, transfers = map(members, found.values())
        self.framing = framing_of(head.status, self._method, transfers, lengths)
        self.says_keep_alive = "keep-alive" in options
        modern = head.http_minor != 0
        self.persistent = not self._heads.ambiguous and "close" not in options and (modern or self.says_keep_alive)
        if has_no_body(head.status, self._method):
            return
        if transfers:
            # With both fields the length is ignored, and it may be an attack: no reuse (RFC 9112, 6.1).
            self.persistent = self.persistent and not lengths and modern
        self.persistent = self.persistent and not self.framing.until_eof
        codings = transfers[:-1] if transfers[-1:] == ["chunked"] else transfers
        self.coding = ", ".join((*head.all("content-encoding"), *codings))
