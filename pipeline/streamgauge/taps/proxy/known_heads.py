"""Heads of requests that came before: what one meant, the same one means again.

A client writes the same head with each request, but for the number in its Content-Length. The first one is read by llhttp,
checked and routed as any other; a later one that equals it to the letter is not read again. Nothing is decided here.
"""

import re

from streamgauge.taps.proxy.plain import plain_request
from streamgauge.taps.proxy.request import Known, Outgoing, Request, Routes, Whole

# Heads that are remembered, and the longest (bytes): more than busy clients use at one time, and at most some 2 MiB.
MAX_HEADS = 128
MAX_HEAD_BYTES = 4096
# Heads that came once are told by their hashes: most of those that hold a field which changes each time never come again.
MAX_SEEN = 4096

_BLANK_LINE = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: ?(0|[1-9][0-9]{0,17})\r\n", re.IGNORECASE)
_LENGTH_NAME = b"content-length"


def whole_request(data: bytes) -> Whole | None:
    """What `data` is if it begins with a head that can be remembered, and that request ends where `data` does."""
    size = data.find(_BLANK_LINE, 0, MAX_HEAD_BYTES) + len(_BLANK_LINE)
    if size < len(_BLANK_LINE):
        return None
    found = _LENGTH.search(data, 0, size)
    if found is None:
        return Whole(data, size, None) if size == len(data) else None
    length = int(found[1])
    if size + length != len(data):
        return None
    begin, end = found.span(1)
    return Whole(data[:begin] + data[end:size], size, length)


class KnownHeads:
    """One relay's. Only of requests that were routed, that keep their connection alive, whose bodies are counted, and whose
    heads came twice. `plainly`: reads are told apart in C (if built).
    """

    def __init__(self, *, plainly: bool = True) -> None:
        self._plain_request = plain_request if plainly else None
        self._seen: set[int] = set()
        self._known: dict[bytes, Known] = {}

    def whole(self, data: bytes) -> Whole | None:
        """As `whole_request`."""
        if self._plain_request is None:
            return whole_request(data)
        found = self._plain_request(data)
        return None if found is None else Whole(*found)

    def request(self, whole: Whole, began_ns: int) -> Request | None:
        """The request of that read, if its head came before."""
        known = self._known.get(whole.key)
        if known is None:
            return None
        before, headers = known.request, known.request.headers
        if known.length_at is not None and whole.length is not None:
            headers = headers.copy()
            headers[known.length_at] = (headers[known.length_at][0], b"%d" % whole.length)
        return Request(before.method, before.target, before.minor, headers, True, began_ns, before.names, whole, known)

    def outgoing(self, request: Request, routes: Routes) -> Outgoing:
        """What of `request` goes where. Raises RefusedError."""
        known = request.known
        if known is None:
            outgoing = routes.outgoing(request)
            self._learn(request, outgoing)
            return outgoing
        first, length = known.outgoing, request.whole.length if request.whole is not None else None
        if length is None:
            return first
        head = b"%b%d%b" % (known.before, length, known.behind)
        return Outgoing(first.route, first.target, head, first.framing)

    def _learn(self, request: Request, outgoing: Outgoing) -> None:
        whole = request.whole
        if whole is None or not request.keep_alive or outgoing.framing == "chunked":
            return
        if hash(whole.key) not in self._seen:
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            self._seen.add(hash(whole.key))
            return
        lines = len(request.headers) + 2
        if not lines == whole.key.count(b"\n") == whole.key.count(b"\r") == whole.key.count(b"\r\n"):
            return  # llhttp may have seen the head's end, or a field's, elsewhere
        if (outgoing.framing == "length") != (whole.length is not None):
            return  # another way to write a length
        known = Known(request, outgoing)
        if whole.length is not None:
            digits = _LENGTH.search(outgoing.head)
            if digits is None:
                return
            known.length_at = request.names.index(_LENGTH_NAME)
            known.before, known.behind = outgoing.head[: digits.start(1)], outgoing.head[digits.end(1) :]
        if len(self._known) >= MAX_HEADS:
            self._known.clear()
        self._known[whole.key] = request.known = known
