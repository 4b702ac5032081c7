"""Reads an HTTP/1 response from its bytes, in any pieces: where its head, its body and its end are (RFC 9112).

HEAD --interim head--> HEAD --final head--> BODY --last byte--> COMPLETE

This is the only reader of HTTP/1 responses: relay, recorder and packet tap use it, so that their decisions never differ. It
has no I/O and no clock. It reads tolerantly, because the client gets the same bytes and has a parser of its own. Where the
parsers of clients may differ, it sets `ambiguous`, and the caller decides.
"""

import re
from collections.abc import Mapping

from streamgauge.core.http1.framing import Framing, framing_of, has_no_body
from streamgauge.core.http1.head import HeadFault, HeadReader, RawHead

# Ruby's net/http reads no body with these statuses, and Apache's HttpClient 4 none with 205.
_BODY_MAY_BE_UNREAD = frozenset((205, 305))
# Values of Content-Range (RFC 9110, 14.4), from which some clients take the length of the body: a range, also in forms that
# the RFC does not allow, and no range.
_RANGE = re.compile(r"bytes[ \t:=]*([0-9]{1,18})-([0-9]{1,18})(?:/(?:[0-9]+|\*))?[ \t]*")
_NO_RANGE = re.compile(r"bytes \*/[0-9]+[ \t]*")


class ResponseReader:
    """Reads one response. `method`: of the request. Never raises.

    `status`: of the final head; None until that is complete. The other attributes are set with it.

    `framing`: of the body. `coding`: the codings to remove from the body besides its chunks, as a value of Content-Encoding.
    `content_type`: all values of the field, joined.

    After the response, the connection can be used again: by its server if it is `persistent`; by a client of HTTP/1.1 if it
    `ends_by_itself`; by a client of HTTP/1.0, which needs `Connection: keep-alive` and reads no chunks, if it is
    `persistent_for_1_0`.
    """

    __slots__ = (
        "_head_is_ambiguous",
        "_heads",
        "_method",
        "coding",
        "content_type",
        "ends_by_itself",
        "framing",
        "persistent",
        "persistent_for_1_0",
        "status",
    )  # fmt: skip

    def __init__(self, method: str) -> None:
        self.status: int | None = None
        self.framing: Framing | None = None
        self.coding = self.content_type = ""
        self.persistent = self.ends_by_itself = self.persistent_for_1_0 = False
        self._heads = HeadReader()
        self._head_is_ambiguous = False
        self._method = method

    @property
    def fault(self) -> HeadFault | None:
        """The fault of the head; None without one. After a fault nothing more is read. Of the body see `framing.broken`."""
        return self._heads.fault

    @property
    def half_head(self) -> int:
        """The number of the last bytes that belong to an incomplete head."""
        return self._heads.held_bytes

    @property
    def head_bytes(self) -> int:
        """The size of the final head with its blank line; 0 until it is complete."""
        return self._heads.head_bytes if self.status is not None else 0

    @property
    def continues(self) -> bool:
        """Whether an interim head of status 100 came."""
        return self._heads.continues

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
        options, lengths = _members(fields, b"connection"), _members(fields, b"content-length")
        transfers = _members(fields, b"transfer-encoding")
        keep_alive, no_body = "keep-alive" in options, has_no_body(head.status, self._method)
        self.status = head.status
        self.content_type = ", ".join(_members(fields, b"content-type"))
        self.framing = framing_of(head.status, self._method, transfers, lengths)
        two_ends = self._method != "HEAD" and _has_two_ends(fields, no_body=no_body, old=not modern and keep_alive)
        closes = modern and fields.get(b"connection") == ["close"]
        if not (two_ends or no_body or closes or self.framing.broken):
            two_ends = _may_end_early(head.status, fields)
        self._head_is_ambiguous = head.ambiguous or (two_ends and not self.framing.broken)
        self.ends_by_itself = not head.ambiguous and "close" not in options
        if not no_body:
            # With both fields the length is ignored, and it may be an attack: no reuse (RFC 9112, 6.1).
            doubtful = bool(transfers) and (bool(lengths) or not modern)
            self.ends_by_itself = self.ends_by_itself and not doubtful and not self.framing.until_eof
            codings = transfers[:-1] if transfers[-1:] == ["chunked"] else transfers
            self.coding = ", ".join((*_members(fields, b"content-encoding"), *codings))
        self.persistent = self.ends_by_itself and (modern or keep_alive)
        self.persistent_for_1_0 = self.persistent and keep_alive and not transfers


def _members(fields: Mapping[bytes, list[str]], name: bytes) -> list[str]:
    """The members of a field's lists, without empty ones."""
    members = (member.strip(" \t\r") for value in fields.get(name, ()) for member in value.split(","))
    return [member for member in members if member]


def _has_two_ends(fields: Mapping[bytes, list[str]], *, no_body: bool, old: bool) -> bool:
    """Whether clients may see the end of the response elsewhere, by the fields that frame it. `no_body`: by its status.
    `old`: it has HTTP/1.0, and its connection is kept alive.

    Of Transfer-Encoding only `chunked` alone has one reading: http.client ignores every other value, also one that ends with
    chunked or with a blank, and reads chunks after a head whose status allows no body. HTTP/1.0 does not have the field, and
    Go ignores it there. A length beside it ought to be an error (RFC 9112, 6.3), as it is for llhttp. Of Content-Length
    http.client takes the first line, and no length from a list or an empty value.
    """
    transfers, lengths = fields.get(b"transfer-encoding"), fields.get(b"content-length", ())
    if transfers is not None:
        return transfers != ["chunked"] or bool(lengths) or no_body or old
    return not no_body and not all(value.rstrip(" \t").isdecimal() for value in lengths)


def _may_end_early(status: int, fields: Mapping[bytes, list[str]]) -> bool:
    """Whether some clients read less of the body than its framing says, and keep the connection. The lengths are valid.

    Some read no body with a status of _BODY_MAY_BE_UNREAD. Ruby's net/http takes a body's length from its range if there is
    no other, and wget in any case.
    """
    length = int(fields[b"content-length"][0]) if b"content-length" in fields else None
    if status in _BODY_MAY_BE_UNREAD:
        return length != 0
    ranges = (value for value in fields.get(b"content-range", ()) if "bytes" in value)
    return any(not _NO_RANGE.fullmatch(value) and _size_of_range(value) != length for value in ranges)


def _size_of_range(value: str) -> int:
    """The number of bytes in a range; -1 if it is not in the grammar."""
    match = _RANGE.fullmatch(value)
    return int(match[2]) - int(match[1]) + 1 if match else -1
