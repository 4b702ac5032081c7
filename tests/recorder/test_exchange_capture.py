"""The capture of one exchange: everything that a recorder needs, in order; what does not fit is dropped, reported and
counted.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import ExchangeCapture, attributes_in, kept_headers
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    REQUEST_HEADERS,
    ExchangeEnding,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.settings.attributes import Attribute
from streamgauge.spool.read_counters import DropReason
from tests.recorder.fake_client import BugError, FakeClient


def started(room: FakeClient) -> ExchangeCapture:
    capture = ExchangeCapture(room)
    capture.start(5, 6, "up", "POST", "/v1/messages", [("x-api-key", "k")], tap="httpx", tenant_header="x-team")
    return capture


START = RequestStarted(
    7, 5, 6, "up", "POST", "/v1/messages", [("x-api-key", "k")], "httpx", None, None, tenant_header="x-team"
)


def test_a_whole_exchange() -> None:
    room = FakeClient(first=7)
    capture = started(room)
    capture.request_body(b"ab")
    capture.request_body(b"")
    capture.request_sent(6, 1, 2)
    capture.response_head(7, 200, [(b"Content-Type", b"text/event-stream"), ("Set-Cookie", "secret")])
    capture.read(8, b"1")
    capture.read(None, b"2")
    capture.end(9, Ending.CLIENT, gone_ns=9, blocked_ns=3, unsent_bytes=4)
    assert room.messages == [
        START,
        RequestBody(7, b"ab"),
        RequestSent(7, 6, 1, 2, True),
        ResponseHead(7, 7, 200, [("content-type", "text/event-stream")]),
        ResponseRead(7, 8, b"1"),
        ResponseRead(7, None, b"2"),
        ExchangeEnding(7, 9, Ending.CLIENT, 9, 3, 4),
    ]
    assert (room.seen, room.dropped, room.faults) == (2, {}, 0)


def test_without_room_reads_are_dropped_in_order_and_the_rest_is_reported() -> None:
    room = FakeClient(first=7)
    capture = started(room)
    capture.request_body(b"ab")
    capture.read(1, b"1")
    room.full = True
    capture.request_body(b"left out")
    capture.read(2, b"2")
    capture.read(3, b"3")
    room.full = False
    capture.request_body(b"left out, too: the body has a hole before it")
    capture.read(4, b"4")
    capture.read(5, b"5")
    room.full = True
    capture.read(6, b"6")
    capture.request_sent(7, None, 2)
    capture.end(8, Ending.COMPLETE)
    assert room.messages[1:] == [
        RequestBody(7, b"ab"),
        ResponseRead(7, 1, b"1"),
        ReadsDropped(7, 2),
        ResponseRead(7, 4, b"4"),
        ResponseRead(7, 5, b"5"),
        RequestSent(7, 7, None, 2, False),
        ReadsDropped(7, 1),
        ExchangeEnding(7, 8, Ending.COMPLETE),
    ]
    assert (room.seen, room.dropped) == (6, {DropReason.RECORDER_BEHIND: 3})


def test_an_exchange_without_room_for_its_start_is_not_reported() -> None:
    room = FakeClient(first=7)
    room.overfull = room.full = True
    capture = started(room)
    room.overfull = room.full = False
    capture.request_body(b"ab")
    capture.request_sent(6, None, 2)
    capture.response_head(7, 200, [])
    capture.read(8, b"1")
    capture.lose_read(DropReason.PACKETS_LOST)
    capture.end(9, Ending.COMPLETE)
    assert room.messages == []
    assert (room.seen, room.dropped) == (2, {DropReason.RECORDER_BEHIND: 1, DropReason.PACKETS_LOST: 1})


def test_reads_lost_elsewhere_are_reported_in_order() -> None:
    room = FakeClient(first=7)
    capture = started(room)
    capture.reads_dropped(0)
    assert capture.steady
    capture.reads_dropped(2)  # the pump counted them
    assert not capture.steady
    capture.lose_read(DropReason.PACKETS_LOST)
    capture.read(1, b"1")
    assert capture.steady
    assert room.messages[1:] == [ReadsDropped(7, 3), ResponseRead(7, 1, b"1")]
    assert (room.seen, room.dropped) == (2, {DropReason.PACKETS_LOST: 1})


@pytest.mark.parametrize(("reported", "body_bytes", "whole"), [(b"abc", 3, True), (b"abc", 5, False), (b"", 0, True)])
def test_a_body_is_whole_if_all_of_it_was_reported(reported: bytes, body_bytes: int, whole: bool) -> None:
    room = FakeClient(first=7)
    capture = started(room)
    capture.request_body(reported)
    capture.request_sent(5, None, body_bytes)
    capture.request_sent(6, None, body_bytes)  # sent again: reported once
    assert [message for message in room.messages if isinstance(message, RequestSent)] == [
        RequestSent(7, 5, None, body_bytes, whole)
    ]


def test_a_body_with_an_unknown_piece_is_not_whole() -> None:
    room = FakeClient(first=7)
    capture = started(room)
    capture.request_body(b"abc")
    capture.lose_request_body()
    capture.request_body(b"def")
    capture.request_sent(5, None, 6)
    assert room.messages[1:] == [RequestBody(7, b"abc"), RequestSent(7, 5, None, 6, False)]


def test_a_long_request_body_is_dropped_and_reported_as_dropped() -> None:
    room = FakeClient(first=7)
    capture = started(room)
    half = bytes(MAX_REQUEST_BODY // 2)
    for _ in range(3):
        capture.request_body(half)
    capture.request_sent(None, None, 3 * len(half))
    assert [type(message) for message in room.messages] == [RequestStarted, RequestBody, RequestBody, RequestSent]
    assert room.messages[-1] == RequestSent(7, None, None, 3 * len(half), False)


def test_the_end_is_reported_once_and_nothing_after_it() -> None:
    room = FakeClient(first=7)
    capture = started(room)
    capture.end(1, Ending.COMPLETE)
    before = list(room.messages)
    capture.end(2, Ending.RESET)
    for full in (False, True):
        room.full = full
        capture.read(3, b"late")
        capture.request_body(b"late")
        capture.response_head(3, 200, [])
    assert (room.messages, room.seen, capture.steady) == (before, 0, False)


@pytest.mark.parametrize("kind", [RequestBody, RequestSent, ResponseHead, ResponseRead])
def test_a_bug_ends_the_capture_and_reports_what_is_lost(kind: type[Message]) -> None:
    room = FakeClient(kind, first=7)
    capture = started(room)
    for _ in range(2):
        capture.request_body(b"ab")
        capture.request_sent(6, None, 2)
        capture.response_head(7, 200, [])
        capture.read(8, b"1")
    capture.end(9, Ending.COMPLETE)
    assert room.messages[-2:] == [ReadsDropped(7, 2), ExchangeEnding(7, 9, Ending.COMPLETE)]
    assert (room.seen, room.dropped, room.faults) == (2, {DropReason.CAPTURE_FAULT: 2}, 1)


def test_a_bug_at_the_start_reports_nothing() -> None:
    room = FakeClient(RequestStarted, first=7)
    capture = started(room)
    capture.read(8, b"1")
    capture.end(9, Ending.COMPLETE)
    assert (room.messages, room.dropped, room.faults) == ([], {DropReason.CAPTURE_FAULT: 1}, 1)


def test_counters_that_fail_do_not_raise() -> None:
    class Broken(FakeClient):
        def count_dropped(self, reason: DropReason) -> None:
            raise BugError

        count_fault = count_dropped  # type: ignore[assignment]

    room = Broken(ResponseRead, first=7)
    capture = started(room)
    capture.read(8, b"1")
    capture.lose_read(DropReason.PACKETS_LOST)
    capture.fail()
    capture.end(9, Ending.COMPLETE)
    assert isinstance(room.messages[-1], ExchangeEnding)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        ("response_head", (1, 200, 5)),
        ("response_head", (1, 200, [("a",)])),
        ("request_body", (None,)),
        ("start", (1, 2, None, "POST", "/", [("a", None)])),
    ],
)
def test_malformed_facts_do_not_raise(call: str, facts: tuple[object, ...]) -> None:
    room = FakeClient(first=7)
    capture = started(room) if call != "start" else ExchangeCapture(room)
    getattr(capture, call)(*facts, **({"tap": "asgi"} if call == "start" else {}))
    capture.read(4, b"d")
    capture.end(5, Ending.COMPLETE)
    expected = [] if call == "start" else [RequestStarted, ReadsDropped, ExchangeEnding]
    assert [type(message) for message in room.messages] == expected
    assert (room.dropped, room.faults) == ({DropReason.CAPTURE_FAULT: 1}, 1)


def test_headers_by_allowlist_as_text_or_bytes() -> None:
    headers: list[tuple[str | bytes, str | bytes]] = [
        ("Authorization", "Bearer k"),
        (b"X-API-Key", b"\xfc"),
        (b"Cookie", b"c"),
        ("Host", "h"),
    ]
    assert kept_headers(headers, REQUEST_HEADERS) == [("authorization", "Bearer k"), ("x-api-key", "\xfc")]


STEPS = st.lists(st.tuples(st.sampled_from("rbdpnf"), st.booleans()), max_size=40)


@given(steps=STEPS, overfull=st.booleans())
def test_all_reads_are_counted_and_the_exchange_is_reported_in_order(
    steps: list[tuple[str, bool]], overfull: bool
) -> None:
    room = FakeClient(first=7)
    room.overfull = overfull
    capture = started(room)
    counted_elsewhere = 0
    for kind, full in steps:
        room.full = full
        match kind:
            case "r":
                capture.read(1, b"x")
            case "b":
                capture.request_body(b"y")
            case "d":
                capture.lose_read(DropReason.PACKETS_LOST)
            case "p":
                counted_elsewhere += 2
                capture.reads_dropped(2)
            case "n":
                capture.request_sent(1, None, sum(one == "b" for one, _ in steps))
            case "f":
                capture.fail()
    capture.end(9, Ending.COMPLETE)
    reported = sum(isinstance(message, ResponseRead) for message in room.messages)
    missing = sum(message.reads for message in room.messages if isinstance(message, ReadsDropped))
    assert room.seen == sum(kind in "rd" for kind, _ in steps) == reported + sum(room.dropped.values())
    if overfull:
        assert room.messages == []
        return
    assert missing == sum(room.dropped.values()) + counted_elsewhere
    assert isinstance(room.messages[0], RequestStarted) and isinstance(room.messages[-1], ExchangeEnding)
    bodies = [full for kind, full in steps[: _first_fault(steps)] if kind == "b"]
    expected = bodies.index(True) if True in bodies else len(bodies)
    assert sum(isinstance(message, RequestBody) for message in room.messages) == expected
    for sent in (message for message in room.messages if isinstance(message, RequestSent)):
        assert not sent.whole or expected == sent.body_bytes


def _first_fault(steps: list[tuple[str, bool]]) -> int:
    return next((place for place, (kind, _) in enumerate(steps) if kind == "f"), len(steps))


def test_attributes_come_from_the_first_field_of_their_headers() -> None:
    wanted = (Attribute("agent", "x-agent"), Attribute("again", "x-agent"), Attribute("session", "x-session"))
    headers: list[tuple[str | bytes, str | bytes]] = [
        (b"X-Agent", b"pl\xe4n"), ("x-agent", "second"), ("cookie", "secret"),
    ]  # fmt: skip
    assert attributes_in(headers, wanted) == [("agent", "pl\xe4n"), ("again", "pl\xe4n")]
    assert attributes_in(headers, ()) == []


def test_attributes_are_reported_with_the_start() -> None:
    room = FakeClient(first=7)
    found = [("agent", "planner")]
    ExchangeCapture(room).start(5, 6, "up", "POST", "/x", [("x-api-key", "k")], tap="httpx", attributes=found)
    assert room.messages == [
        RequestStarted(7, 5, 6, "up", "POST", "/x", [("x-api-key", "k")], "httpx", attributes=found)
    ]
