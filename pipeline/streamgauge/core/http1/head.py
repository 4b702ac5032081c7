"""Reads the head of an HTTP/1 response from raw bytes (RFC 9112), and makes the decoder of the body that follows it.

The upstream has sent the head and the client has received it; refusing it would change nothing for them. So the reader is
tolerant: LF alone ends a line, obs-fold lines are joined, blank lines before the head and field lines without a name are
skipped. Only bytes that are not an HTTP/1 response head, or a head that is too large, are a fault.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from streamgauge.core.http1.body import BodyDecoder, DecodeFault, Memory

# One head with its line ends (bytes). Proxies and clients stop at 8 to 128 KiB; this limit is higher, so that every
# head that a client may accept is recorded.
MAX_HEAD_BYTES = 256 * 1024
# Field lines of one head; further lines are skipped. Clients stop at 100 to 1,000.
MAX_FIELDS = 1_000

_END = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?: .*)?", re.DOTALL)
# A field's value must not hold CR or NUL: each is read as a space (RFC 9110, 5.5).
_TO_SPACE = bytes.maketrans(b"\r\0", b"  ")
# A valid length has at most 18 digits: such a number is below an exabyte, and fits 64 bits.
_LENGTH = re.compile(r"[0-9]{1,18}")


class HeadFault(StrEnum):
    """Why no head could be read."""

    NOT_HTTP = "not_http"
    TOO_LARGE = "too_large"


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of a final response. Names are lower-case, values stripped; both are Latin-1, which can hold any byte."""

    status: int
    http_minor: int
    headers: list[tuple[str, str]]

    def all(self, name: str) -> list[str]:
        """The values of all fields with this lower-case name, in order."""
        return [value for field, value in self.headers if field == name]

    def first(self, name: str) -> str | None:
        """The value of the first field with this lower-case name; None if there is none."""
        return next((value for field, value in self.headers if field == name), None)

    def firsts(self) -> Mapping[str, str]:
        """The first value of each field."""
        return dict(reversed(self.headers))


class HeadReader:
    """Reads up to the final head. Interim heads (1xx except 101) are skipped and counted in `interim`.

    `rest`: the bytes of the last feed that follow the head. Never raises; after a `fault` nothing more is read.
    """

    def __init__(self) -> None:
        self.rest = b""
        self.fault: HeadFault | None = None
        self.interim = 0
        self._held = bytearray()
        self._searched = 0
        self._done = False

    def feed(self, data: bytes) -> ResponseHead | None:
        """The head, once, when `data` completes it; else None."""
        if self._done:
            self.rest = data
            return None
        if not self._held and (head := self._at_once(data)) is not None:
            return head
        self._held += data
        while (raw := self._next()) is not None:
            head = _parse(raw)
            if head is None:
                self._fail(HeadFault.NOT_HTTP)
            elif head.status == 101 or head.status >= 200:
                self._done, self.rest, self._held = True, bytes(self._held), bytearray()
                return head
            else:
                self.interim += 1
        return None

    def _at_once(self, data: bytes) -> ResponseHead | None:
        """The head of a usual read, which begins with a whole final head. None for any other read, which is not consumed."""
        end = _END.search(data, 0, MAX_HEAD_BYTES)
        head = _parse(data[: end.start()]) if end is not None else None
        if end is None or head is None or head.status < 200:
            return None
        self._done, self.rest = True, data[end.end() :]
        return head

    def _next(self) -> bytes | None:
        """Removes the next head from the input and returns it without blank lines around it; None until it is whole."""
        if self._held.startswith((b"\r", b"\n")):
            self._held = self._held.lstrip(b"\r\n")
        end = _END.search(self._held, self._searched)
        if (end.end() if end else len(self._held)) > MAX_HEAD_BYTES:
            self._fail(HeadFault.TOO_LARGE)
            return None
        if end is None:
            self._searched = max(0, len(self._held) - 2)
            return None
        raw = bytes(self._held[: end.start()])
        self._held, self._searched = self._held[end.end() :], 0
        return raw

    def _fail(self, fault: HeadFault) -> None:
        self.fault, self._done, self._held = fault, True, bytearray()


def _parse(raw: bytes) -> ResponseHead | None:
    first, _, rest = raw.partition(b"\n")
    status_line = _STATUS_LINE.fullmatch(first.rstrip(b"\r"))
    if status_line is None:
        return None
    headers = _headers(rest) if _is_odd(raw) else _plain_headers(rest.decode("latin-1"))
    return ResponseHead(int(status_line[2]), int(status_line[1]), headers)


def _is_odd(raw: bytes) -> bool:
    """Whether a head, given without its last LF, may hold anything but lines of a name, a colon and a value."""
    if b"\0" in raw or b"\n " in raw or b"\n\t" in raw or b"\x0b" in raw or b"\x0c" in raw:
        return True
    return raw.count(b"\r") - raw.count(b"\r\n") > raw.endswith(b"\r")


def _plain_headers(text: str) -> list[tuple[str, str]]:
    headers = []
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon and (name := name.strip(" \t")):
            headers.append((name.lower(), value.strip(" \t\r")))
    return headers[:MAX_FIELDS]


def _headers(raw: bytes) -> list[tuple[str, str]]:
    fields: list[tuple[bytes, bytes]] = []
    for line in raw.split(b"\n"):
        if line[:1] in (b" ", b"\t"):
            if fields:
                name, value = fields[-1]
                fields[-1] = name, value + b" " + line.strip()
            continue
        name, colon, value = line.partition(b":")
        if colon and name.strip() and len(fields) < MAX_FIELDS:
            fields.append((name, value.strip()))
    return [(known, _text(value)) for name, value in fields if (known := _text(name).lower())]


def _text(raw: bytes) -> str:
    return raw.translate(_TO_SPACE).decode("latin-1").strip(" \t")


def body_decoder_for(head: ResponseHead, request_method: str, memory: Memory | None = None) -> BodyDecoder:
    """The decoder of the body after `head`, by RFC 9112, 6.3. BAD_FRAMING if lengths are invalid or disagree."""
    coding = ", ".join(head.all("content-encoding"))
    if _no_body(head.status, request_method):
        return BodyDecoder(length=0)
    transfers = _members(head.all("transfer-encoding"))
    if transfers:
        return _transferred(transfers, coding, memory)
    lengths = set(_members(head.all("content-length")))
    if not lengths:
        return BodyDecoder(coding=coding, memory=memory)
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        return BodyDecoder(coding=coding, fault=DecodeFault.BAD_FRAMING)
    return BodyDecoder(coding=coding, length=int(length), memory=memory)


def _no_body(status: int, request_method: str) -> bool:
    connected = request_method == "CONNECT" and 200 <= status < 300
    return request_method == "HEAD" or connected or status < 200 or status in (204, 304)


def _transferred(transfers: list[str], coding: str, memory: Memory | None) -> BodyDecoder:
    """The decoder for transfer codings, which were applied after the content codings.

    The framing is chunked only if chunked is the last coding; otherwise the body ends with the connection.
    """
    *others, last = transfers
    if last != "chunked":
        return BodyDecoder(coding=", ".join((coding, *transfers)), memory=memory)
    if "chunked" in others:
        return BodyDecoder("chunked", fault=DecodeFault.BAD_FRAMING)
    return BodyDecoder("chunked", coding=", ".join((coding, *others)), memory=memory)


def _members(values: list[str]) -> list[str]:
    """The members of a list-valued field, lower-case."""
    return [member.strip().lower() for value in values for member in value.split(",") if member.strip()]
