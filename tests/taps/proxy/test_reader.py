"""A client's bytes as events, however they are split; malformed input ends them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.settings.declarations import ProxySettings
from streamgauge.taps.proxy.limits import MAX_FIELDS, MAX_PIPELINED_BYTES, OBJECT_BYTES
from streamgauge.taps.proxy.reader import MIN_PIECE, WHOLE, Event, RequestReader
from streamgauge.taps.proxy.request import RefusedError, Request

POST = b"POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = (
    b"PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrail: er\r\n\r\n"
)
GET = b"GET /d HTTP/1.0\r\nHost: h\r\n\r\n"
H2C = (
    b"POST /e HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"
)


def read(*pieces: bytes) -> list[Event]:
    """Events, with the pieces of a body joined. Each request is finished as soon as it is complete."""
    reader = RequestReader()
    for at, piece in enumerate(pieces):
        reader.feed(at, piece)
        go_on(reader)
    events: list[Event] = []
    for event in reader.events:
        if isinstance(event, bytes) and events and isinstance(events[-1], bytes):
            events[-1] += event
        else:
            events.append(event)
    return events


def go_on(reader: RequestReader) -> None:
    """Finishes exchanges as a connection does, until nothing more can be read."""
    before = -1
    while before != len(reader.events):
        before = len(reader.events)
        reader.parse_next()


def shown(events: list[Event]) -> list[object]:
    return [
        (event.method, event.target, event.minor, event.keep_alive, event.headers)
        if isinstance(event, Request)
        else event
        for event in events
    ]


@pytest.mark.parametrize("data", [POST + CHUNKS + GET, H2C + H2C + POST])
def test_every_split(data: bytes) -> None:
    whole = shown(read(data))
    for cut in range(1, len(data)):
        assert shown(read(data[:cut], data[cut:])) == whole
    assert shown(read(*(data[at : at + 1] for at in range(len(data))))) == whole


def test_events_in_order() -> None:
    host = (b"Host", b"h")
    assert shown(read(b"\r\n" + POST + CHUNKS + GET)) == [
        (b"POST", b"/a?b", 1, True, [host, (b"Content-Length", b"5")]),
        b"hello",
        WHOLE,
        (b"PUT", b"/c", 1, True, [host, (b"Transfer-Encoding", b"chunked")]),
        b"abcde",
        WHOLE,
        (b"GET", b"/d", 0, False, [host]),
        WHOLE,
    ]


def test_an_upgrade_is_ignored_and_its_body_kept() -> None:
    request, body, whole, get, end = read(H2C + GET)
    assert isinstance(request, Request) and request.target == b"/e"
    assert (b"Upgrade", b"h2c") not in request.headers
    assert (body, whole, end) == (b"hi", WHOLE, WHOLE) and isinstance(get, Request)


def test_time_zero_is_the_read_that_brought_the_first_byte() -> None:
    for data in (POST, H2C):
        reader = RequestReader()
        reader.feed(7, data[:1])
        reader.feed(8, data[1:-1])
        reader.feed(9, data[-1:] + GET[:3])
        assert not reader.in_head
        reader.feed(10, GET[3:])
        go_on(reader)
        assert [event.began_ns for event in reader.events if isinstance(event, Request)] == [7, 9]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
        b"GET / HTTP/1.1\r\n: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: identity, xchunked\r\n\r\nabc",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_malformed_input_is_refused_once_and_nothing_after_it_is_read(data: bytes) -> None:
    events = read(data, GET)
    assert [type(event) for event in events if not isinstance(event, Request)] == [RefusedError]
    refused = events[-1]
    assert isinstance(refused, RefusedError) and refused.status == 400


@pytest.mark.parametrize("body", [b"3\r\nabcd\r\n", b"x\r\n", b"3\nabc\n", b"fffffffffffffffff\r\n", b"-1\r\n"])
def test_malformed_chunks_refuse_within_the_body(body: bytes) -> None:
    events = read(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    assert isinstance(events[0], Request) and isinstance(events[-1], RefusedError)
    assert WHOLE not in events


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /" + b"a" * ProxySettings.max_request_head + b" HTTP/1.1\r\nHost: a\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 20_000 + b"\r\n"],
        [b"GET / HTTP/1.1\r\nA: ", *[b"a" * 8192] * 9],
        [b"G", *[b"E" * 8192] * 9],
    ],
)
def test_heads_beyond_the_limit_are_refused_while_they_arrive(pieces: list[bytes]) -> None:
    (refused,) = read(*pieces)
    assert isinstance(refused, RefusedError) and refused.status in (400, 431)
    if pieces[0] != b"G":
        assert refused.code == "headers_too_large"


# llhttp takes these for HTTP/1.0.
OTHER_PROTOCOLS = (b"GET /x RTSP/1.0", b"POST /x RTSP/1.1", b"OPTIONS /x  RTSP/1.0", b"SOURCE /x ICE/1.0")
BODY = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 22\r\n\r\nGET /x HTTP/1.1\r\nHost:"


@pytest.mark.parametrize("line", OTHER_PROTOCOLS)
def test_a_version_of_another_protocol_is_refused_however_it_is_split(line: bytes) -> None:
    raw = line + b"\r\nHost: a\r\nX: GET /x HTTP/1.1\r\n\r\n"
    for before in (b"", b"\r\n", GET, CHUNKS, BODY):
        whole = before + raw
        for at in range(len(before), len(whole)):
            events = read(whole[:at], whole[at:])
            assert isinstance(events[-1], RefusedError) and events[-1].code == "malformed_request"
            assert sum(isinstance(event, Request) for event in events) == bool(before.strip())


def test_the_name_of_another_protocol_elsewhere_is_no_fault() -> None:
    for raw in (
        b"GET /RTSP/1.0 HTTP/1.1\r\nHost: a\r\nX: GET / RTSP/1.0\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 11\r\n\r\n / RTSP/1.0",
        b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ):
        for at in range(len(raw)):
            kinds = [type(event) for event in read(raw[:at], raw[at:]) if not isinstance(event, bytes)]
            assert kinds == [Request, type(WHOLE)]


def test_the_name_of_another_protocol_in_the_piece_of_a_head_is_no_fault() -> None:
    """In a chunked body before the head, and in a request after it."""
    before = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nRTSP/1.0 \r\n0\r\n\r\n"
    events = read(before + b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n" + b"GET /c RTSP/1.0\r\nHost: a\r\n\r\n", b"")
    assert [event.target for event in events if isinstance(event, Request)] == [b"/a", b"/b"]
    assert isinstance(events[-1], RefusedError) and events[-1].code == "malformed_request"


def test_a_large_body_does_not_count_as_a_head() -> None:
    big = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000) + GET[:10]
    events = read(big, GET[10:])
    assert [type(event) for event in events] == [Request, bytes, type(WHOLE), Request, type(WHOLE)]


def test_bodies_of_the_same_read_do_not_count_for_the_next_head() -> None:
    """A chunked body, a request with a large body, and the beginning of a third request, all in one read."""
    big = b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000)
    events = read(CHUNKS + big + GET[:10], GET[10:])
    assert [event.target for event in events if isinstance(event, Request)][1:] == [b"/b", GET.split()[1]]
    assert sum(event is WHOLE for event in events) == 3


def test_events_after_closing_are_dropped() -> None:
    reader = RequestReader()
    reader.feed(1, POST)
    reader.close()
    reader.feed(2, POST)
    assert not reader.events


WIRES = [
    POST * 3,
    CHUNKS * 3,
    GET.replace(b"1.0", b"1.1") * 5,
    CHUNKS + POST + H2C + GET.replace(b"1.0", b"1.1"),
    b"\r\n\r\n" + POST + b"\r\n" + POST,
    POST.replace(b"hello", b"\r\n\r\n!") * 3,
    CHUNKS.replace(b"abc", b"\r\n\r").replace(b"Trail: er\r\n", b"") * 3,
]


@pytest.mark.parametrize("wire", WIRES)
@given(st.lists(st.integers(0, 600), max_size=6))
def test_one_request_at_a_time_is_parsed_and_the_rest_is_buffered(wire: bytes, cuts: list[int]) -> None:
    """However the bytes are cut, no event of a later request is there before `go_on`, and no byte is lost. After a chunked
    body those of the same MIN_PIECE bytes are.
    """
    reader = RequestReader()
    events: list[Event] = []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(wire)), len(wire)]
    for at, (begin, end) in enumerate(itertools.pairwise(bounds)):
        reader.feed(at, wire[begin:end])
        while reader.events:
            if CHUNKS[:4] not in wire:  # otherwise the next requests may be in the same piece
                assert sum(event is WHOLE for event in reader.events) <= 1
                assert sum(isinstance(event, Request) for event in reader.events) <= 1
            complete = WHOLE in reader.events
            events += reader.events
            reader.events.clear()
            if complete:
                reader.parse_next()
    want = [event for event in shown(read(wire)) if not isinstance(event, bytes)]
    assert [event for event in shown(events) if not isinstance(event, bytes)] == want
    assert reader.held_bytes == 0


def test_after_a_chunked_body_few_requests_are_parsed_ahead() -> None:
    reader = RequestReader()
    get = b"GET / HTTP/1.1\r\nHost:a\r\n\r\n"
    reader.feed(1, CHUNKS + get * 40_000)
    assert 1 <= sum(isinstance(event, Request) for event in reader.events) <= 2 + MIN_PIECE // len(get)


def test_pipelined_bytes_are_buffered_within_a_limit() -> None:
    reader = RequestReader()
    get = b"GET / HTTP/1.1\r\nHost:a\r\n\r\n"
    reader.feed(1, POST + get * 40_000)  # 1 MB
    assert [type(event) for event in reader.events] == [Request, bytes, type(WHOLE)]
    assert reader.held_bytes <= MAX_PIPELINED_BYTES
    reader.feed(2, get * 1000)
    assert reader.held_bytes <= MAX_PIPELINED_BYTES
    go_on(reader)
    requests = sum(isinstance(event, Request) for event in reader.events)
    assert requests == 1 + (MAX_PIPELINED_BYTES - OBJECT_BYTES) // len(get)
    refused = reader.events[-1]
    assert isinstance(refused, RefusedError) and (refused.status, refused.code) == (431, "pipelined_too_much")
    assert reader.refused and reader.held_bytes == 0


def test_many_small_pieces_count_with_their_objects() -> None:
    reader = RequestReader()
    reader.feed(1, POST)
    for at in range(MAX_PIPELINED_BYTES // OBJECT_BYTES + 1):
        reader.feed(at, b"G")
    assert MAX_PIPELINED_BYTES - OBJECT_BYTES - 1 <= reader.held_bytes <= MAX_PIPELINED_BYTES
    reader.refuse_without_memory()
    assert reader.refused and reader.held_bytes == 0


def test_a_head_of_many_small_fields_is_refused_while_it_arrives() -> None:
    reader = RequestReader()
    reader.feed(1, b"GET / HTTP/1.1\r\nHost:a\r\n" + b"a:\r\n" * (MAX_FIELDS - 1))
    assert not reader.events and reader.held_bytes > OBJECT_BYTES * MAX_FIELDS
    reader.feed(2, b"a:\r\n" * 2)
    (refused,) = reader.events
    assert isinstance(refused, RefusedError) and refused.status == 431
    assert reader.held_bytes == 0
    reader = RequestReader()
    reader.feed(1, b"GET / HTTP/1.1\r\nHost:a\r\n" + b"a:\r\n" * (MAX_FIELDS - 1) + b"\r\n")
    assert [type(event) for event in reader.events] == [Request, type(WHOLE)]
