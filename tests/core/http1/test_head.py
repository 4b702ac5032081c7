"""head.py: heads as upstreams send them, in any pieces; which body follows them, with h11 as oracle."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.http1.head import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    HeadFault,
    HeadReader,
    ResponseHead,
    names_event_stream,
)
from tests.core import cuts


def read(pieces: list[bytes]) -> tuple[ResponseHead | None, bytes, HeadFault | None, int]:
    """The head, all bytes after it, the fault, and the count of interim heads."""
    reader = HeadReader()
    head, rest = None, b""
    for piece in pieces:
        found = reader.feed(piece)
        head = head if found is None else found.parsed()
        rest += reader.rest
        if reader.rest:
            reader.rest = b""
    return head, rest, reader.fault, reader.interim


def whole(wire: bytes) -> ResponseHead:
    head, _, fault, _ = read([wire])
    assert head is not None, fault
    return head


HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nX-Request-Id:req_1\r\nset-cookie: a\r\n"
    b"Set-Cookie: b\r\n\r\n"
)
PARSED = ResponseHead(
    200,
    1,
    [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("x-request-id", "req_1"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
    ],
)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
@pytest.mark.parametrize(
    "interim", [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3]
)
def test_a_head_at_every_split(end: bytes, interim: bytes) -> None:
    wire = (interim + HEAD).replace(b"\r\n", end)
    for pieces in cuts.every_way(wire + b"data: a\n\n"):
        assert read(pieces) == (PARSED, b"data: a\n\n", None, interim.count(b"HTTP"))


def test_the_fields_of_a_name() -> None:
    assert PARSED.all("set-cookie") == ["a", "b"]
    assert PARSED.first("set-cookie") == "a"
    assert PARSED.first("absent") is None


@pytest.mark.parametrize(
    ("wire", "head"),
    [
        (b"HTTP/1.0 404 Not Found\r\n\r\n", ResponseHead(404, 0, [])),
        (b"HTTP/1.1 204\r\n\r\n", ResponseHead(204, 1, [])),
        (b"HTTP/1.1 200 \r\nA: b\r\n\r\n", ResponseHead(200, 1, [("a", "b")])),
        (b"\r\n\n\r\nHTTP/1.1 200 \xff\0\r\n\r\n", ResponseHead(200, 1, [])),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", ResponseHead(101, 1, [("upgrade", "x")])),
        (
            b"HTTP/1.1 200 OK\r\nA: b\r\n  c\r\n\td \r\nE:\r\n f\r\n\r\n",
            ResponseHead(200, 1, [("a", "b c d"), ("e", "f")]),
        ),
        (b"HTTP/1.1 200 OK\r\n folded: into nothing\r\nA: b\r\n\r\n", ResponseHead(200, 1, [("a", "b")])),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n: no name\r\nA : b\r\n\r\n", ResponseHead(200, 1, [("a", "b")])),
        (b"HTTP/1.1 200 OK\r\nA: x\ry\0z\r\nB: \xe9:c\r\n\r\n", ResponseHead(200, 1, [("a", "x y z"), ("b", "é:c")])),
    ],
)
def test_a_tolerated_head_is_read(wire: bytes, head: ResponseHead) -> None:
    for pieces in cuts.every_way(wire):
        assert read(pieces) == (head, b"", None, 0)


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 ٢٠٠ OK\r\n\r\n".encode(),
        b"<html>\n\n",
        b"HTTP/1.1 100 Continue\r\n\r\nnonsense\r\n\r\n",
    ],
)
def test_bytes_that_are_no_head_are_a_fault(wire: bytes) -> None:
    for pieces in cuts.every_way(wire):
        head, _, fault, _ = read(pieces)
        assert (head, fault) == (None, HeadFault.NOT_HTTP)


@pytest.mark.parametrize(("extra", "fault"), [(-1, None), (0, None), (1, HeadFault.TOO_LARGE)])
def test_the_largest_head(extra: int, fault: HeadFault | None) -> None:
    start, end = b"HTTP/1.1 200 OK\r\nA: ", b"\r\n\r\n"
    wire = start + b"x" * (MAX_HEAD_BYTES + extra - len(start) - len(end)) + end
    for pieces in ([wire], cuts.at(wire, [10, 1000]), cuts.at(wire, [len(wire) - 1]), cuts.at(wire, [len(wire) - 3])):
        head, _, found, _ = read(pieces)
        assert (found, head is None) == (fault, fault is not None)


def test_an_endless_head_is_not_buffered() -> None:
    reader = HeadReader()
    reader.feed(b"HTTP/1.1 200 OK\r\n")
    tracemalloc.start()
    for _ in range(1000):
        assert reader.feed(b"x: y\r\n" * 1000) is None
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert reader.fault is HeadFault.TOO_LARGE
    assert kept < 100_000


def test_fields_beyond_the_limit_are_ignored() -> None:
    assert len(whole(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (MAX_FIELDS + 5) + b"\r\n").headers) == MAX_FIELDS


def test_later_feeds_are_rest() -> None:
    reader = HeadReader()
    head = reader.feed(HEAD + b"one")
    assert head is not None and head.parsed() == PARSED
    assert reader.rest == b"one"
    assert reader.feed(b"two") is None
    assert reader.rest == b"two"


SCRAPS = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 100 C", b"\r\n", b"\n", b"\r", b"A: b", b" ", b":", b"\0", b"\xff", b"\n\n"]
)


@given(st.lists(SCRAPS | st.binary(max_size=3), max_size=14).map(b"".join), cuts.places(60))
def test_splits_change_nothing_and_nothing_raises(wire: bytes, places: list[int]) -> None:
    head, _, fault, interim = read([wire])
    for pieces in (cuts.at(wire, places), [wire[index : index + 1] for index in range(len(wire))]):
        again = read(pieces)
        assert (again[0], again[2], again[3]) == (head, fault, interim)


@given(
    st.lists(SCRAPS | st.sampled_from([b"\t", b"a", b"\x0b", b"B:\t"]) | st.binary(max_size=3), max_size=14).map(
        b"".join
    )
)
def test_an_invalid_line_does_not_affect_the_others(lines: bytes) -> None:
    head = HeadReader().feed(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\nY: z\r\n\r\n")
    odd = HeadReader().feed(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\nY: z\r\nZ: \0\r\n\r\n")
    assert head is not None and odd is not None
    headers = head.parsed().headers
    assert odd.parsed().headers in (headers, [*headers, ("z", "")])


@pytest.mark.parametrize(
    ("content_types", "says"),
    [
        (["text/event-stream"], True),
        (["Text/Event-Stream ; charset=utf-8"], True),
        (["text/event-stream, text/event-stream"], True),
        (["text/event-stream; charset=utf-8,text/event-stream"], True),
        (["application/json, text/event-stream"], True),
        (["application/json", "text/event-stream"], True),
        ([], False),
        ([""], False),
        (["text/event-streams"], False),
        (["application/json; of=text/event-stream"], False),
    ],
)
def test_f6_one_of_the_types_is_an_event_stream(content_types: list[str], says: bool) -> None:
    assert names_event_stream(content_types) is says
