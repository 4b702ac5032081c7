"""known_heads.py: a reader that remembers heads gives what one that forgets gives, whatever came before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.proxy.known_heads import MAX_HEAD_BYTES, MAX_HEADS, MAX_SEEN, KnownHeads, whole_request
from streamgauge.taps.proxy.reader import WHOLE, RequestReader
from streamgauge.taps.proxy.request import RefusedError, Request, Routes
from tests.taps.proxy.raw_requests import CASES

ROUTES = Routes([("u0", "http://up.example:8000/base")], single=False)
POST = b"POST /u0/v1/messages HTTP/1.1\r\nHost: c\r\nX-Api-Key: k\r\nContent-Length: %d\r\nAccept: */*\r\n\r\n%b"
GET = b"GET /u0/v1/models HTTP/1.1\r\nHost: c\r\n\r\n"
MAX_BODY = 4000


def post(body: bytes) -> bytes:
    return POST % (len(body), body)


def read(known: KnownHeads, wire: bytes, *, cut: int | None = None, again: bool = False) -> list[object]:
    """What a new connection's bytes come to; `again`: the same bytes once more on it."""
    reader = RequestReader(max_body=MAX_BODY, known=known)
    came: list[object] = []
    for piece in [wire[:cut], *([wire[cut:]] if cut is not None else []), *([wire] if again else [])]:
        reader.feed(7, piece)
        while reader.events:
            event = reader.events.popleft()
            came.append(shown(event, known) if isinstance(event, Request) else event)
            if isinstance(event, RefusedError):
                came[-1] = (event.status, event.code)
    return came


def shown(request: Request, known: KnownHeads) -> object:
    facts = request.method, request.target, request.minor, request.headers, request.keep_alive, request.began_ns
    try:
        outgoing = known.outgoing(request, ROUTES)
    except RefusedError as refused:
        return facts, request.names, refused.status, refused.code
    return facts, request.names, outgoing.route, outgoing.target, outgoing.head, outgoing.framing


def test_a_head_that_came_before_is_not_read_again() -> None:
    known = KnownHeads()
    reader = RequestReader(known=known)
    for body in (b"one", b"two", b"another", b"x" * 3000, b""):
        reader.feed(1, post(body))
        request = reader.events.popleft()
        assert isinstance(request, Request)
        assert (request.known is not None) == (body not in (b"one", b"two"))
        assert known.outgoing(request, ROUTES).head == (
            b"POST /base/v1/messages HTTP/1.1\r\nHost: up.example:8000\r\nX-Api-Key: k\r\nContent-Length: %d\r\n"
            b"Accept: */*\r\n\r\n" % len(body)
        )
        assert request.headers[2] == (b"Content-Length", b"%d" % len(body))
        assert [*reader.events] == ([body, WHOLE] if body else [WHOLE])
        reader.events.clear()


requests = st.sampled_from([case.sent for case in CASES]) | st.sampled_from(
    [
        GET,
        GET + GET,
        b"\r\n" + GET,
        post(b"a") + GET,
        post(b"abc")[:-1],
        post(b"x" * MAX_BODY),
        post(b"x" * (MAX_BODY + 1)),
        post(b"ab").replace(b"Host", b"host"),
        post(b"ab").replace(b"Accept:", b"Connection: close\r\nAccept:"),
        post(b"ab").replace(b"Accept:", b"Connection: x-api-key\r\nAccept:"),
        post(b"ab").replace(b"Accept:", b"Connection: upgrade\r\nUpgrade: h2c\r\nAccept:"),
        post(b"ab").replace(b"Length: 2", b"Length: 002"),
        post(b"ab").replace(b"Length: 2", b"Length:2"),
        post(b"ab").replace(b"Length: 2", b"LENGTH: 2"),
        post(b"ab").replace(b"Content-Length: 2", b"Content-Length: \r\nContent-Length: 2"),
        post(b"ab").replace(b"HTTP/1.1", b"HTTP/1.0"),
        post(b"ab").replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\nConnection: keep-alive\r\n"),
        post(b"ab").replace(b"\r\n", b"\n"),
        b"POST /u0/x HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /u0/x HTTP/1.1\nHost: c\n\nGET / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab",
    ]
)


@given(st.lists(st.tuples(requests, st.none() | st.integers(1, 120), st.booleans()), max_size=8))
def test_remembering_changes_nothing(wires: list[tuple[bytes, int | None, bool]]) -> None:
    known = KnownHeads()
    for wire, cut, again in wires:
        assert read(known, wire, cut=cut, again=again) == read(KnownHeads(plainly=False), wire, cut=cut, again=again)
        for _ in range(2):
            assert read(known, wire) == read(KnownHeads(plainly=False), wire)


@given(st.binary(max_size=6).map(lambda raw: raw + GET) | requests, st.data())
def test_heads_that_are_altered_by_a_byte(wire: bytes, data: st.DataObject) -> None:
    known = KnownHeads()
    for _ in range(2):
        read(known, wire)
    at = data.draw(st.integers(0, len(wire) - 1))
    altered = (
        wire[:at]
        + data.draw(st.sampled_from([b"", b"\r", b"\n", b" ", b"\0", b":", b"7", b"x", b"\r\n"]))
        + wire[at + 1 :]
    )
    assert read(known, altered) == read(KnownHeads(plainly=False), altered)
    assert read(known, wire) == read(KnownHeads(plainly=False), wire)


@pytest.mark.parametrize("wire", [case.sent for case in CASES], ids=[case.name for case in CASES])
def test_only_what_was_forwarded_is_remembered(wire: bytes) -> None:
    known = KnownHeads()
    first = read(known, wire)
    assert read(known, wire) == first
    forwarded = [event for event in first if isinstance(event, tuple) and len(event) == 6]
    reader = RequestReader(max_body=MAX_BODY, known=known)
    reader.feed(7, wire)
    recognised = [event for event in reader.events if isinstance(event, Request) and event.known is not None]
    assert len(recognised) <= len(forwarded)
    assert read(known, wire) == first


def test_what_is_remembered_is_bounded() -> None:
    known = KnownHeads()
    for number in range(3 * MAX_HEADS):
        for _ in range(2):
            read(known, post(b"x").replace(b"X-Api-Key: k", b"X-Api-Key: k%d" % number))
        assert len(vars(known)["_known"]) <= MAX_HEADS
    long = post(b"x").replace(b"X-Api-Key: k", b"X-Api-Key: " + b"k" * MAX_HEAD_BYTES)
    assert whole_request(long) is None
    assert read(known, long) == read(KnownHeads(), long)


def test_a_head_that_comes_once_takes_no_room() -> None:
    known = KnownHeads()
    for number in range(MAX_SEEN + 10):
        read(known, post(b"x").replace(b"X-Api-Key: k", b"X-Api-Key: k%d" % number))
    assert not vars(known)["_known"] and len(vars(known)["_seen"]) <= MAX_SEEN
