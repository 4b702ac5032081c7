"""Where a response ends: for any split, unusual heads, and bytes after the end."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.http1.body import BodyDecoder
from streamgauge.core.http1.response import ResponseReader
from streamgauge.taps.proxy.response import MAX_RESPONSE_HEAD, ResponseFault, ResponseFraming
from tests.core.http1.malformed import MALFORMED, Decided
from tests.each import each

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

pytestmark = pytest.mark.usefixtures("chunk_reader")


def framing_of(method: bytes = b"GET", *, watches: bool = False) -> ResponseFraming:
    return ResponseFraming(method, watches=watches)


WHOLE = {
    "length": OK + b"Content-Length: 5\r\n\r\nab\r\n\r",
    "empty": OK + b"content-length:0\r\n\r\n",
    "chunked": CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
    "chunks that look like ends": CHUNKED + b"5\r\n0\r\n\r\n\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n",
    "extensions, padding, zeros, trailers": CHUNKED + b"003;a=b\r\nabc\r\n2 \r\nde\r\n000\r\nX-T: 1\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na",
    "line feeds alone": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab",
    "folded": OK + b"Content-Type: text/event-stream;\r\n charset=utf-8\r\nContent-Length:\r\n 2\r\n\r\nab",
    "no body": b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunked wins": OK + b"Content-Length: 90\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "blank lines before": b"\r\n\n" + OK + b"Content-Length: 1\r\n\r\na",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na",
    "same length twice": OK + b"Content-Length: 1, 1\r\ncontent-length: 1\r\n\r\na",
}
# Those that clients read differently: for the relay they are faults, the packet tap follows them.
WATCHED = {"chunked wins", "folded", "not modified", "same length twice"}
BEHIND = [b"", b"\r\n", b"H", b"\r\n\r\n", b"0\r\n\r\n", OK + b"Content-Length: 1\r\n\r\nb"]


def feed(framing: ResponseFraming, data: bytes, cuts: list[int]) -> int:
    """How many bytes were taken; asserts that none are taken after the end."""
    taken = 0
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if start < end:
            size = framing.feed(data[start:end])
            assert size == end - start or framing.complete or framing.fault is not None
            taken += size
    return taken


@each(itertools.product(WHOLE, BEHIND))
def test_the_end_is_found_at_every_split(case: tuple[str, bytes]) -> None:
    whole, behind = WHOLE[case[0]], case[1]
    data = whole + behind
    for cuts in [[], *([cut] for cut in range(1, len(data))), list(range(1, len(data)))]:
        framing = framing_of(watches=case[0] in WATCHED)
        assert feed(framing, data, cuts) == len(whole), cuts
        assert framing.complete and framing.fault is None
    for size in range(len(whole)):
        framing = framing_of(watches=case[0] in WATCHED)
        feed(framing, whole[:size], [])
        assert not framing.complete and not framing.end_of_input()


@given(
    pieces=st.lists(
        st.binary(min_size=1, max_size=40) | st.sampled_from([b"\r\n\r\n", b"0\r\n\r\n", b"\n\n"]), max_size=8
    ),
    behind=st.binary(max_size=20),
    seed=st.lists(st.integers(1, 400), max_size=12),
)
def test_any_chunks_any_splits(pieces: list[bytes], behind: bytes, seed: list[int]) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    whole = CHUNKED + body + b"0\r\n\r\n"
    data = whole + behind
    framing = framing_of()
    assert feed(framing, data, sorted({cut for cut in seed if cut < len(data)})) == len(whole)
    assert framing.complete


@given(
    st.lists(
        st.sampled_from([b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"A", b"A: b", b"\r\nA: b\r\n", b"\xe9"]),
        max_size=9,
    ).map(b"".join)
)
def test_an_ambiguous_head_is_a_fault(lines: bytes) -> None:
    """What is none: each line a token, a colon and a value without control characters."""
    head = b"HTTP/1.1 204 X\r\nB: c" + lines + b"\r\n\r\n"
    framing = framing_of()
    assert framing.feed(head) <= len(head)
    raw = head[: next(re.finditer(rb"\n\r?\n", head)).start()].removesuffix(b"\r")
    _, *fields = raw.replace(b"\r\n", b"\n").split(b"\n")
    names = [name for name, _, _ in (field.partition(b":") for field in fields)]
    plain = all(b":" in field and not {0, 13} & set(field) for field in fields)
    unambiguous = plain and all(name and not set(name) & set(b" \t\xe9") for name in names)
    assert framing.fault is (None if unambiguous else ResponseFault.AMBIGUOUS_HEAD)
    assert framing.persistent == unambiguous
    watching = framing_of(b"GET", watches=True)
    watching.feed(head)
    assert (watching.fault, watching.persistent) == (None, unambiguous)


field = st.sampled_from(
    [
        b"Content-Length: 3",
        b"Content-Length: 3, 3",
        b"content-length : 4",
        b"Content-Length: -3",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: gzip",
        b"Connection: close",
        b"X-A: Content-Length: 1",
        b"X-B:",
        b"Content-Type: text/plain",
    ]
)


@given(
    status=st.sampled_from([200, 204, 304, 404]),
    fields=st.lists(field, max_size=4),
    line_end=st.sampled_from([b"\r\n", b"\n"]),
    head_only=st.booleans(),
)
def test_agrees_with_the_recorders_parser(status: int, fields: list[bytes], line_end: bytes, head_only: bool) -> None:
    raw = line_end.join([b"HTTP/1.1 %d X" % status, *fields, b"", b""])
    data = raw + b"3\r\nabc\r\n0\r\n\r\n"
    reader = ResponseReader("HEAD" if head_only else "GET")
    _, rest = reader.feed_head(data)
    assert reader.status == status and rest == data[len(raw) :]
    body = BodyDecoder(reader.framing, reader.coding)
    rest = body.feed(rest).rest
    framing = framing_of(b"HEAD" if head_only else b"GET", watches=True)
    taken = framing.feed(data)
    assert framing.complete == body.complete
    if body.complete:
        assert taken == len(data) - len(rest)
    assert framing.status == status


@pytest.mark.parametrize(
    ("head", "persistent"),
    [
        (OK + b"Content-Length: 1\r\n\r\n", True),
        (OK + b"Connection: close\r\nContent-Length: 1\r\n\r\n", False),
        (OK + b"Connection: x, Close\r\nContent-Length: 1\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", True),
        (OK + b"\r\n", False),
        (OK + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", False),
        (OK + b"Transfer-Encoding: gzip\r\n\r\n", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", True),
    ],
)
def test_whether_the_connection_may_be_used_again(head: bytes, persistent: bool) -> None:
    framing = framing_of()
    framing.feed(head)
    assert framing.persistent is persistent


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"220 smtp.example ESMTP\r\n", ResponseFault.NOT_HTTP),
        (b"HTTP/1.1 abc\r\n\r\n", ResponseFault.NOT_HTTP),
        (b"HTTP/2.0 200 OK\r\n\r\n", ResponseFault.NOT_HTTP),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", ResponseFault.UPGRADED),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", ResponseFault.BAD_HEAD),
        (OK + b"Content-Length: +1\r\n\r\n", ResponseFault.BAD_HEAD),
        (CHUNKED + b"xyz\r\n", ResponseFault.BAD_CHUNKS),
        (CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", ResponseFault.BAD_CHUNKS),
        (OK + b"X: " + b"a" * MAX_RESPONSE_HEAD, ResponseFault.TOO_LARGE),
        (OK + b"X: " + b"a" * MAX_RESPONSE_HEAD + b"\r\n\r\n", ResponseFault.TOO_LARGE),
    ],
)
def test_a_response_that_cannot_be_parsed_continues_to_the_end_and_is_never_reused(
    data: bytes, fault: ResponseFault
) -> None:
    for cuts in ([], [1], [len(data) - 1]):
        framing = framing_of()
        assert feed(framing, data, cuts) <= len(data)
        assert framing.fault is fault
        assert not framing.persistent
        assert framing.feed(b"more") == 4
        assert not framing.end_of_input()


@each(MALFORMED.items())
def test_a_malformed_response_is_handled_the_same_at_every_split(case: tuple[bytes, Decided]) -> None:
    wire, decided = case
    for cuts in [[], *([cut] for cut in range(1, len(wire))), list(range(1, len(wire)))]:
        framing = framing_of()
        feed(framing, wire, cuts)
        fault = None if framing.fault is None else framing.fault.value
        assert (fault, framing.complete and framing.persistent) == (decided.relay, decided.reused)


def test_without_length_the_end_of_input_is_the_end() -> None:
    framing = framing_of()
    assert framing.feed(OK + b"\r\nabc") == len(OK) + 5
    assert framing.until_eof and not framing.complete
    assert framing.end_of_input() and framing.complete


def test_nothing_is_taken_until_the_final_head_is_complete() -> None:
    framing = framing_of()
    assert framing.untouched
    framing.feed(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert framing.untouched and framing.status is None
    assert framing.half_head == 0
    framing.feed(b"HTTP/1.1 200 OK\r\n")
    assert framing.untouched and framing.half_head > 0
    framing.feed(b"\r\n")
    assert not framing.untouched and framing.half_head == 0


@pytest.mark.parametrize(
    ("data", "sure"),
    [
        (CHUNKED + b"3\r\nabc\r\n3\nabc\r\n0\r\n\r\n", b"3\n"),
        (CHUNKED + b"3\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n", b"Content"),
        (CHUNKED + b"3\r\nabc\n0\r\n\r\n", b"\n0"),
        (CHUNKED + b"3\r\nabcXX0\r\n\r\n", b"XX"),
        (CHUNKED + b"3\r\nabc\r\n0;\x01\r\n\r\n", b"0;"),
    ],
)
def test_of_a_doubtful_line_no_end_is_passed_on(data: bytes, sure: bytes) -> None:
    """Of the read with the fault only the bytes before the doubtful line count, and none if that line began before it."""
    at = data.index(sure, len(CHUNKED))
    for cut in range(len(CHUNKED), len(data)):
        framing = framing_of()
        passed = framing.feed(data[:cut])
        if framing.fault is None:
            assert passed == cut
            rest = framing.feed(data[cut:])
            assert rest == max(0, at - cut)
        else:
            assert passed == at
        assert framing.fault is ResponseFault.BAD_CHUNKS
