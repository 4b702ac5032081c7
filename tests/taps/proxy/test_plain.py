"""plain.py: what is read in C comes to what Python makes of it, or to nothing."""

import os
import shutil
import sys
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.proxy import response
from streamgauge.taps.proxy.known_heads import MAX_HEAD_BYTES, whole_request
from streamgauge.taps.proxy.plain import CHUNKED, UNTIL_EOF, plain_head, plain_request
from streamgauge.taps.proxy.response import MAX_RESPONSE_HEAD, ResponseFraming
from tests.taps.proxy.raw_requests import CASES

OK = b"HTTP/1.1 200 OK\r\n"
REAL = (
    b"HTTP/1.1 200 OK\r\nDate: Thu, 14 Aug 2025 10:00:00 GMT\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\nx-request-id: req_1\r\nX-Empty:\r\n\r\n"
)
POST = b"POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nAccept: */*\r\n\r\n{}"

built = pytest.mark.skipif(plain_head is None, reason="not built: it needs Linux and a C compiler")


def test_it_is_built_where_it_can_be() -> None:
    if not sys.platform.startswith("linux") or shutil.which(os.environ.get("CC") or "cc") is None:
        pytest.skip("no Linux, or no C compiler")
    assert plain_head is not None and plain_request is not None, "python scripts/build_pump.py"


# --- heads of responses ---------------------------------------------------------------------------------------------

PLAIN = {
    REAL: (len(REAL), 200, b"text/event-stream; charset=utf-8", CHUNKED, False, True),
    OK + b"\r\n": (19, 200, b"", UNTIL_EOF, False, False),
    b"HTTP/1.1 204\r\nCONNECTION:  close \r\n\r\n": (37, 204, b"", UNTIL_EOF, True, False),
    b"HTTP/1.1 500 No\r\ncontent-length:0\r\n\r\n": (37, 500, b"", 0, False, False),
    OK + b"Content-Length: 999999999999999999\r\n\r\n{}": (55, 200, b"", 10**18 - 1, False, False),
    OK + b"A: \xff\r\n\r\n": (25, 200, b"", UNTIL_EOF, False, False),
}
ODD = [
    b"",
    REAL[:-1],
    REAL[:-2],
    b"\r\n" + REAL,
    REAL.replace(b"\r\n", b"\n"),
    b"HTTP/1.0 200 OK\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Upgrade\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1  200 OK\r\n\r\n",
    b"http/1.1 200 OK\r\n\r\n",
    OK + b"A: b\r\n c\r\n\r\n",
    OK + b"A : b\r\n\r\n",
    OK + b" A: b\r\n\r\n",
    OK + b"A: b\tc\r\n\r\n",
    OK + b"A: b\0c\r\n\r\n",
    OK + b"A: b\rc\r\n\r\n",
    OK + b"A: b\nContent-Length: 1\r\n\r\n",
    OK + b"A\r\n\r\n",
    OK + b": b\r\n\r\n",
    OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
    OK + b"Content-Length: 1, 1\r\n\r\n",
    OK + b"Content-Length: -1\r\n\r\n",
    OK + b"Content-Length: +1\r\n\r\n",
    OK + b"Content-Length:\r\n\r\n",
    OK + b"Content-Length: 1000000000000000000\r\n\r\n",
    OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    OK + b"Connection: close, x\r\n\r\n",
    OK + b"Connection: close\r\nConnection: close\r\n\r\n",
    OK + b"Content-Type: a\r\nContent-Type: b\r\n\r\n",
    OK + b"A: %b\r\n\r\n" % (b"x" * MAX_RESPONSE_HEAD),
]


@built
@pytest.mark.parametrize(("data", "want"), PLAIN.items(), ids=range(len(PLAIN)))
def test_a_plain_head_is_read(data: bytes, want: tuple[object, ...]) -> None:
    assert plain_head is not None
    assert plain_head(data) == plain_head(data + b"HTTP/1.1 404 No\r\n\r\n") == want


@built
@pytest.mark.parametrize("data", ODD, ids=range(len(ODD)))
def test_of_any_other_nothing_is_said(data: bytes) -> None:
    assert plain_head is not None
    assert plain_head(data) is None


LINES = st.lists(
    st.sampled_from(
        b"Content-Length: 3|content-length:0|Content-Length: 3x|Transfer-Encoding: chunked|TE: x|transfer-encoding: gzip|"
        b"Connection: close|connection: Keep-Alive|Connection: a, close|Content-Type: text/event-stream|Content-Type:|"
        b"X-Content-Length: 7| folded|A : b|A: \0|A: b\nContent-Length: 9|A: b\rc|no colon|: x|A: \xe9|A:\tb".split(
            b"|"
        )
    ),
    max_size=5,
)
STARTS = st.sampled_from(
    b"HTTP/1.1 200 OK|HTTP/1.1 200|HTTP/1.1 204 No|HTTP/1.1 304 Not|HTTP/1.0 200 OK|HTTP/1.1 103 E|HTTP/1.1 200OK|HTTP/2 200|"
    b"|HTTP/1.1 101 Up|HTTP/1.1 599 ".split(b"|")
)
BODIES = st.sampled_from([b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"3\r\nab", b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"])


def followed(reads: list[bytes], head_only: bool) -> list[object]:
    """What a framing says behind each read."""
    framing = ResponseFraming(head_only)
    found: list[object] = []
    for read in reads:
        taken = framing.feed(read)
        found.append((taken, framing.status, framing.content_type, framing.persistent, framing.says_keep_alive))
        found.append((framing.complete, framing.fault, framing.untouched, framing.half_head, framing.until_eof))
        found.append(framing.place)
    return found


@built
@given(STARTS, LINES, BODIES, st.booleans(), st.sampled_from([b"\r\n", b"\n"]), st.data())
def test_what_is_read_is_what_python_reads(
    start: bytes, lines: list[bytes], body: bytes, head_only: bool, end: bytes, data: st.DataObject
) -> None:
    wire = end.join((start, *lines, b"", b"")) + body
    cut = data.draw(st.integers(0, len(wire)))
    reads = [read for read in (wire[:cut], wire[cut:]) if read]
    found = followed(reads, head_only)
    with mock.patch.object(response, "plain_head", None):
        assert found == followed(reads, head_only)


# --- requests -------------------------------------------------------------------------------------------------------

REQUESTS = [case.sent for case in CASES] + [
    POST,
    POST + b"x",
    POST[:-1],
    POST.replace(b"Content-Length", b"CONTENT-length"),
    POST.replace(b"Length: 2", b"Length:2"),
    POST.replace(b"Length: 2", b"Length: 02"),
    POST.replace(b"Length: 2", b"Length: 2 "),
    POST.replace(b"Length: 2", b"Length:  2"),
    POST.replace(b"Length: 2", b"Length: 0")[:-2],
    POST.replace(b"Content-Length: 2", b"X: \r\nContent-Length: 2"),
    POST.replace(b"Content-Length: 2\r\n", b"")[:-2],
    POST.replace(b"Length: 2", b"Length: 1000000000000000000"),
    POST.replace(b"Length: 2\r\n", b"Length: x\r\nContent-Length: 2\r\n"),
    b"A: %b\r\n\r\n" % (b"x" * (MAX_HEAD_BYTES - 7)),
    b"A: %b\r\n\r\n" % (b"x" * (MAX_HEAD_BYTES - 6)),
    b"",
]


@built
@given(st.sampled_from(REQUESTS), st.data())
def test_a_whole_request_is_what_python_finds(wire: bytes, data: st.DataObject) -> None:
    assert plain_request is not None
    begin, end = sorted(data.draw(st.tuples(st.integers(0, len(wire)), st.integers(0, len(wire)))))
    other = data.draw(st.sampled_from([wire[begin:end], b"", b"\r\n", b"\r\n\r\n", b"Content-Length: 2\r\n", b"\0"]))
    for read in (wire, wire[:begin] + other + wire[end:]):
        found = whole_request(read)
        assert plain_request(read) == (None if found is None else tuple(found))


@built
def test_what_is_no_bytes_is_refused() -> None:
    assert plain_head is not None and plain_request is not None
    for read in (plain_head, plain_request):
        with pytest.raises(TypeError):
            read("HTTP/1.1 200 OK\r\n\r\n")  # type: ignore[arg-type]
