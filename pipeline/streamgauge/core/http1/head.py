"""Reads the head of an HTTP/1 response from raw bytes (RFC 9112, 2 to 5).

The upstream has sent the head, and its client reads it in its own way. So the reader is tolerant: LF alone ends a line,
obs-fold lines are joined, blank lines before the head and field lines without a name are skipped. Only bytes that are not an
HTTP/1 response head, or a head that is too large, are a fault. A head that clients read differently is `ambiguous`.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

# One head with its line ends (bytes). Proxies and clients stop at 8 to 128 KiB; this limit is higher, so that every
# head that a client may accept is recorded.
MAX_HEAD_BYTES = 256 * 1024
# Field lines of one head that are kept. Clients stop at 100 to 1,000.
MAX_FIELDS = 1_000

_END = re.compile(rb"\n\r?\n")
_BEGINNING = b"HTTP/1."
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?: .*)?", re.DOTALL)
_FOLD = re.compile(rb"\r?\n[ \t]+")
# Parts of a head that clients read differently: a CR or NUL within a line, a folded line, a blank before the colon.
_TWO_READINGS = re.compile(rb"\r(?!\n|\Z)|\0|\n[ \t]|\n[^:\n]*[ \t]:")
_BLANKS = " \t\r"
# A field's value must not hold CR or NUL: each is read as a space (RFC 9110, 5.5).
_TO_SPACE = str.maketrans("\r\0", "  ")

Fields = list[tuple[str, str]]


class HeadFault(StrEnum):
    """Why no head could be read."""

    NOT_HTTP = "not_http"
    TOO_LARGE = "too_large"


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of a final response, with its first MAX_FIELDS fields. Names are lower-case, values stripped; both are
    Latin-1, which can hold any byte.
    """

    status: int
    http_minor: int
    headers: Fields

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

    `rest`: the bytes of the last feed that follow the head. `fields`: all fields of the head, as `ResponseHead.headers`, but
    their values may hold CR and NUL. `ambiguous`: clients read the head differently. Never raises; after a `fault` nothing
    more is read.
    """

    def __init__(self) -> None:
        self.rest = b""
        self.fault: HeadFault | None = None
        self.interim = 0
        self.fields: Fields = []
        self.ambiguous = False
        self._held = bytearray()
        self._searched = 0
        self._done = False

    @property
    def held_bytes(self) -> int:
        """How many of the last bytes belong to an incomplete head."""
        return len(self._held)

    def feed(self, data: bytes) -> ResponseHead | None:
        """The head, once, when `data` completes it; else None."""
        if self._done:
            self.rest = data
            return None
        self._held += data
        while (raw := self._next()) is not None:
            head = self._parsed(raw)
            if head is None:
                self._fail(HeadFault.NOT_HTTP)
            elif head.status == 101 or head.status >= 200:
                self._done, self.rest, self._held = True, bytes(self._held), bytearray()
                return head
            else:
                self.interim += 1
        return None

    def _next(self) -> bytes | None:
        """Removes the next head from the input and returns it without blank lines around it; None until it is whole."""
        if self._held.startswith((b"\r", b"\n")):
            self._held = self._held.lstrip(b"\r\n")
        end = _END.search(self._held, self._searched)
        if (end.end() if end else len(self._held)) > MAX_HEAD_BYTES:
            self._fail(HeadFault.TOO_LARGE)
        elif end is not None:
            raw = bytes(self._held[: end.start()])
            self._held, self._searched = self._held[end.end() :], 0
            return raw
        elif not _BEGINNING.startswith(self._held[: len(_BEGINNING)]):
            self._fail(HeadFault.NOT_HTTP)
        else:
            self._searched = max(0, len(self._held) - 2)
        return None

    def _fail(self, fault: HeadFault) -> None:
        self.fault, self._done, self._held = fault, True, bytearray()

    def _parsed(self, raw: bytes) -> ResponseHead | None:
        line, _, lines = raw.partition(b"\n")
        status_line = _STATUS_LINE.fullmatch(line.rstrip(b"\r"))
        if status_line is None:
            return None
        self.ambiguous = _is_ambiguous(raw)
        if self.ambiguous:
            lines = _FOLD.sub(b" ", raw).partition(b"\n")[2]
        self.fields = _fields(lines.decode("latin-1"))
        headers = self.fields[:MAX_FIELDS]
        if self.ambiguous:
            headers = [(name, value.translate(_TO_SPACE).strip(_BLANKS)) for name, value in headers]
        return ResponseHead(int(status_line[2]), int(status_line[1]), headers)


def members(values: Sequence[str]) -> list[str]:
    """The members of a list-valued field, lower-case, without blanks around them."""
    return [stripped.lower() for value in values for member in value.split(",") if (stripped := member.strip(_BLANKS))]


def _is_ambiguous(raw: bytes) -> bool:
    """Whether clients read a head differently; `raw` has no last LF. For most heads the quick checks suffice."""
    if b"\t" in raw or b" :" in raw or b"\n " in raw or b"\0" in raw or raw.count(b"\r") > raw.count(b"\r\n") + 1:
        return _TWO_READINGS.search(raw) is not None
    return not raw.endswith(b"\r") and raw.count(b"\r") != raw.count(b"\r\n")


def _fields(lines: str) -> Fields:
    fields = []
    for line in lines.split("\n"):
        name, colon, value = line.partition(":")
        if colon and (name := name.strip(" \t")):
            fields.append((name.lower(), value.strip(_BLANKS)))
    return fields
