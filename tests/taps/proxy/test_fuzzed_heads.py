"""Fuzzed requests, with h11 as the oracle of what is valid.

What the relay forwards is, to h11, exactly one request with the method, target, fields and body that h11 reads in what the
client sent. What h11 accepts and the relay refuses has a reason in the table below.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamgauge.taps.proxy.reader import WHOLE, RequestReader
from streamgauge.taps.proxy.request import HOP_BY_HOP, Outgoing, RefusedError, Request, Routes

ROUTES = Routes([("", "http://up.example:8000/base")], single=True)
MAX_HEAD = 400


@dataclass(frozen=True)
class Read:
    """One whole request."""

    method: bytes
    target: bytes
    version: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes


def read_by_h11(data: bytes) -> tuple[Read, bytes] | None:
    """The first request that is whole, and what lies behind it; None if h11 refuses or wants more."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1024 * 1024)
    request: h11.Request | None = None
    body = b""
    try:
        parser.receive_data(data)
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                fields = request.headers.raw_items()
                read = Read(request.method, request.target, request.http_version, fields, body)
                return read, parser.trailing_data[0]
            else:
                return None
    except h11.RemoteProtocolError:
        return None


def forwarded(data: bytes) -> bytes | RefusedError | None:
    """What the upstream gets of the first request once it is whole; None if it is not."""
    reader = RequestReader(max_head=MAX_HEAD)
    reader.feed(1, data)
    outgoing: Outgoing | None = None
    sent = b""
    for event in reader.events:
        if isinstance(event, RefusedError):
            return event
        if isinstance(event, Request):
            try:
                outgoing = ROUTES.outgoing(event)
            except RefusedError as refused:
                return refused
            sent = outgoing.head
        elif isinstance(event, bytes):
            assert outgoing is not None
            sent += b"%x\r\n%b\r\n" % (len(event), event) if outgoing.framing == "chunked" else event
        elif event is WHOLE:
            assert outgoing is not None
            return sent + (b"0\r\n\r\n" if outgoing.framing == "chunked" else b"")
    return None


def head_of(data: bytes) -> bytes:
    end = re.search(rb"\n\r?\n", data.lstrip(b"\r\n"))
    return data.lstrip(b"\r\n")[: end.end()] if end else data


def values(read: Read, name: bytes) -> list[bytes]:
    return [value for found, value in read.fields if found.lower() == name]


def get(*lines: bytes, first: bytes = b"GET / HTTP/1.1") -> bytes:
    return b"\r\n".join((first, b"Host: c", *lines, b"", b""))


def chunks(body: bytes) -> bytes:
    return get(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.1") + body


# What h11 takes and we refuse: why, an example, and how it is told. `data` is what was sent, `read` what h11 made of it.
Told = Callable[[bytes, Read], object]
REASONS: dict[str, tuple[bytes, Told]] = {
    "a bare LF ends a line (RFC 9112, 2.2: may be taken, but others do not)": (
        b"GET / HTTP/1.1\nHost: c\n\n",
        lambda data, _: re.search(rb"(?<!\r)\n", data),
    ),
    "a folded line (RFC 9112, 5.2: refuse)": (get(b"A: b", b" c"), lambda data, _: re.search(rb"\r\n[ \t]", data)),
    "a control character in a value (RFC 9110, 5.5)": (
        get(b"A: b\x7f"),
        lambda data, _: re.search(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", data),
    ),
    "a bare CR (RFC 9112, 2.2)": (
        chunks(b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
        lambda data, _: re.search(rb"\r(?!\n)", data),
    ),
    "a method that HTTP does not register": (
        get(first=b"BREW / HTTP/1.1"),
        lambda _, read: read.method not in (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS"),
    ),
    "a version other than 1.0 and 1.1": (
        get(first=b"GET / HTTP/1.2"),
        lambda _, read: read.version not in (b"1.0", b"1.1"),
    ),
    "no path: absolute form, authority or *": (
        get(first=b"GET http://c/ HTTP/1.1"),
        lambda _, read: read.target[:1] != b"/",
    ),
    "a fragment or a backslash in the target": (
        get(first=b"GET /a\\b HTTP/1.1"),
        lambda _, read: re.search(rb"#|^[^?]*\\", read.target),
    ),
    "a path that climbs": (
        get(first=b"GET /a/..;b/ HTTP/1.1"),
        lambda _, read: re.search(rb"(?i)(\.|%2e){2}", read.target),
    ),
    "a length beside a coding, or twice (RFC 9112, 6.3)": (
        get(b"Content-Length: 0", b"Content-Length: 0"),
        lambda data, read: (
            len(re.findall(rb"(?i)\ncontent-length:", data)) + len(values(read, b"transfer-encoding")) > 1
            or re.search(rb"(?i)\ncontent-length:[^\n]*,", data)
        ),
    ),
    "HTTP/1.0 with a coding (RFC 9112, 6.1)": (
        get(b"Transfer-Encoding: chunked", first=b"GET / HTTP/1.0") + b"0\r\n\r\n",
        lambda _, read: read.version == b"1.0" and values(read, b"transfer-encoding"),
    ),
    "a length of more than 18 digits": (
        get(b"Content-Length: " + b"0" * 19),
        lambda _, read: any(len(one) > 18 for one in values(read, b"content-length")),
    ),
    "a name with _ for - (WSGI and CGI take it for the other)": (
        get(b"Content_Length: 5"),
        lambda _, read: values(read, b"content_length") or values(read, b"transfer_encoding"),
    ),
    "an upgrade": (get(b"Connection: upgrade", b"Upgrade: x"), lambda _, read: values(read, b"upgrade")),
    "too large a head": (get(b"A: " + b"b" * MAX_HEAD), lambda data, _: len(head_of(data)) > MAX_HEAD),
    "a chunk's size with a blank behind it, or an extension that is none (RFC 9112, 7.1.1)": (
        chunks(b"5 \r\nhello\r\n0\r\n\r\n"),
        lambda data, _: re.search(rb"\n[0-9a-fA-F]+(?=[ \t;])(?!(?:;\w+(?:=\w+)?)+\r\n)", data),
    ),
    "a tab behind a coding (llhttp; RFC 9112, 5.1 allows it, nobody sends it)": (
        get(b"Transfer-Encoding: chunked\t", first=b"POST / HTTP/1.1") + b"0\r\n\r\n",
        lambda data, _: re.search(rb"(?i)\ntransfer-encoding:[^\r]*\t", data),
    ),
    "a trailer that tells framing": (
        chunks(b"0\r\nContent-Length: 5\r\n\r\n"),
        lambda data, _: re.search(rb"(?i)\n0*\r\n(.*\n)?(content-length|transfer-encod)", data),
    ),
}


@pytest.mark.parametrize("why", REASONS)
def test_each_reason_stands_for_something(why: str) -> None:
    data, told = REASONS[why]
    theirs = read_by_h11(data)
    assert theirs is not None and told(data, theirs[0])
    assert isinstance(forwarded(data), RefusedError)


# A request in parts: what is usual for each, and what is not.
USUAL = {
    "before": [b""],
    "method": [b"GET", b"POST", b"PUT", b"HEAD"],
    "blank": [b" "],
    "target": [b"/", b"/v1/x?y=z", b"/a%2Fb", b"//c", b"/d;e@f"],
    "blank 2": [b" "],
    "version": [b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"],
    "line end": [b"\r\n"],
    "host": [b"Host: c\r\n"],
    "field": [
        b"X-A: b\r\n",
        b"Connection: X-A, host\r\n",
        b"TE: trailers\r\n",
        b"Expect: 100-continue\r\n",
        b"X:\xe9\r\n",
    ],
    "framing and body": [
        b"\r\n",
        b"Content-Length: 5\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"transfer-encoding:CHUNKED  \r\n\r\n3\r\nabc\r\n00005\r\nhello\r\n0;a\r\n\r\n",
    ],
}
ODD = {
    "before": [b"\r\n", b"\n", b"\r", b" ", b"\0"],
    "method": [b"get", b"BREW", b"", b"PRI", b"G\xc3\xa9T", b"CONNECT", b"OPTIONS"],
    "blank": [b"", b"  ", b"\t", b"\x0b"],
    "target": [b"/" + b"g" * MAX_HEAD, b"/a/../b", b"/%2e%2e", b"/a\\b", b"/#", b"*", b"http://evil/x", b"evil:80", b"",
               b"/\xc3\xa9", b"/?#", b"/?\\", b"/..;/", b"/..a", b"/\x7f"],
    "blank 2": [b"", b"  ", b"\t"],
    "version": [b"HTTP/1.2", b"HTTP/0.9", b"http/1.1", b"HTTP/11", b"", b"HTTP/2.0", b"HTTP/1.1 x"],
    "line end": [b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\r\n\t"],
    "host": [b"", b"Host: c\r\nhost: d\r\n", b"Host : c\r\n", b"Host:\r\n", b"Host: a b\r\n", b" Host: c\r\n"],
    "field": [b"X A: b\r\n", b"X\r\n", b": b\r\n", b"X: a\rb\r\n", b"X: a\0b\r\n", b"X: a\x7fb\r\n", b"X: a\r\n b\r\n",
              b"X: a\n", b"X\t: a\r\n", b"X\xff: a\r\n", b"Content_Length: 5\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n",
              b"Upgrade: x\r\nConnection: upgrade\r\n", b"Upgrade: x\r\n", b"X: " + b"v" * MAX_HEAD + b"\r\n",
              b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close, \x0bhost\r\n"],
    "framing and body": [
        *(b"Content-Length: %b\r\n\r\nhello" % one for one in (b"5, 5", b"+5", b"0x5", b"05", b"5 ", b"5\x0b", b"5_0", b"")),
        b"Content-Length: " + b"9" * 19 + b"\r\n\r\nhello",
        *(b"Transfer-Encoding: %b\r\n\r\n0\r\n\r\n" % one for one in (b"gzip, chunked", b"identity", b"\x0bchunked")),
        *(b"Transfer-Encoding: chunked\r\n\r\n%b" % one for one in (
            b"5 \r\nhello\r\n0\r\n\r\n", b"+5\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"0x5\r\nhello\r\n0\r\n\r\n",
            b"5;\r\nhello\r\n0\r\n\r\n", b"0" * 17 + b"5\r\nhello\r\n0\r\n\r\n", b"5;a=\rb\r\nhello\r\n0\r\n\r\n",
            b"5\r\nhell\r\n0\r\n\r\n", b"0\r\nX: y\n\r\n", b"0\r\n\n", b"0\r\nContent-Length: 5\r\n\r\nhello", b"",
        )),
        b"\n", b"\r", b"\r\nhello", b" \r\n\r\n",
    ],
}  # fmt: skip


@st.composite
def built(draw: st.DrawFn) -> bytes:
    """A request with one odd part, sometimes two or none."""
    odd = [draw(st.sampled_from(sorted(USUAL))) for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2])))]
    return b"".join(draw(st.sampled_from((ODD if part in odd else USUAL)[part])) for part in USUAL)


GOOD = [
    b"POST /v1/x?y HTTP/1.1\r\nHost: c\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello",
    b"POST /v1/x HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: u\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request with a few bytes changed, added or taken."""
    data = draw(st.sampled_from(GOOD))
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.integers(0, 3))
        piece = draw(
            st.sampled_from([b"\r", b"\n", b"\0", b" ", b"\t", b":", b";", b"0", b"a", b"\r\n", b"\x80", b"\x0b", b""])
        )
        data = data[:start] + piece + data[end:]
    return data


def normal(read: Read) -> Read:
    """As it is to be forwarded: no hop-by-hop fields, and none that Connection names; framing and Host apart."""
    named = {one.strip().lower() for value in values(read, b"connection") for one in value.split(b",")}
    apart = HOP_BY_HOP | named | {b"host", b"content-length", b"transfer-encoding"}
    fields = [(name, value) for name, value in read.fields if name.lower() not in apart]
    return Read(read.method, read.target, read.version, fields, read.body)


@settings(max_examples=1500, deadline=None)
@given(st.one_of(built(), damaged()))
@example(b"\rGET  /  HTTP/1.1\r\nHost: c\r\n\r\n")
def test_what_is_forwarded_is_one_request_and_the_same_to_h11(data: bytes) -> None:
    sent = forwarded(data)
    # llhttp takes empty lines before a request, and more than one blank in its first line; what it writes has neither.
    theirs = read_by_h11(re.sub(rb"^[\r\n]*([^\r\n ]*) +([^\r\n ]*) +(HTTP/1\.[01]\r\n)", rb"\1 \2 \3", data))
    if isinstance(sent, RefusedError):
        if theirs is not None:
            assert any(told(data, theirs[0]) for _, told in REASONS.values()), (data, sent.code)
    elif sent is not None:
        again = read_by_h11(sent)
        assert again is not None and again[1] == b"", (data, sent)
        assert values(again[0], b"host") == [b"up.example:8000"]
        assert theirs is not None, (data, sent)
        wanted = normal(theirs[0])
        got = normal(again[0])
        assert (got.method, got.target, got.version, got.body) == (
            wanted.method, b"/base" + wanted.target, wanted.version, wanted.body,
        )  # fmt: skip
        assert got.fields == wanted.fields
