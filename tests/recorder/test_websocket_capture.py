"""The capture of one WebSocket: what does not fit is a gap of its direction, and nothing raises."""

from collections.abc import Callable

import pytest

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import ExchangeEnding, RequestStarted, WebSocketData, WebSocketOpened
from streamgauge.recorder.websocket_capture import WebSocketCapture
from streamgauge.spool.response_counters import NotCaptured
from tests.recorder.fake_client import FakeClient

PARTY = Party("a", "b")
REQUEST = RequestStarted(0, 5, 6, "up", "WEBSOCKET", "/v1/responses", [("authorization", "k")], party=PARTY)


def opened(room: FakeClient) -> WebSocketCapture:
    capture = WebSocketCapture(room, "up")
    capture.open(REQUEST, [("date", "x")])
    return capture


def test_a_whole_websocket() -> None:
    room = FakeClient(first=7)
    capture = opened(room)
    capture.client_data(8, b"ab")
    capture.upstream_data(9, b"cd")
    capture.end(10, Ending.RESET, TransportFault.RESET, 11)
    capture.end(12, Ending.COMPLETE, None)
    capture.client_data(13, b"late")
    assert room.messages == [
        WebSocketOpened(7, REQUEST, [("date", "x")]),
        WebSocketData(7, 8, b"ab", True),
        WebSocketData(7, 9, b"cd", False),
        ExchangeEnding(7, 10, Ending.RESET, 11, fault=TransportFault.RESET),
    ]
    # The recorder counts reads and responses.
    assert (room.seen, room.faults, room.responses) == (0, 0, {})


def test_what_has_no_room_is_a_gap_of_its_direction() -> None:
    room = FakeClient(first=7)
    capture = opened(room)
    room.full = True
    capture.client_data(1, b"lost")
    room.full = False
    capture.upstream_data(2, b"a")
    capture.client_data(3, b"b")
    capture.client_data(4, b"c")
    room.full = True
    capture.upstream_data(5, b"lost")
    capture.end(6, Ending.CUT, None)
    assert room.messages[1:] == [
        WebSocketData(7, 2, b"a", False),
        WebSocketData(7, 3, b"b", True, True),
        WebSocketData(7, 4, b"c", True),
        WebSocketData(7, 6, b"", False, True),
        ExchangeEnding(7, 6, Ending.CUT),
    ]


def overfull(room: FakeClient) -> None:
    room.overfull = True


def over_its_share(room: FakeClient) -> None:
    room.refused_parties.add(PARTY)


@pytest.mark.parametrize("state", [overfull, over_its_share])
def test_a_websocket_without_room_is_counted_and_not_reported(state: Callable[[FakeClient], None]) -> None:
    room = FakeClient()
    state(room)
    capture = opened(room)
    capture.upstream_data(2, b"a")
    capture.end(6, Ending.CUT, None)
    assert (room.messages, room.responses) == ([], {("up", NotCaptured.RECORDER_BEHIND): 1})


def test_a_bug_ends_the_capture_and_the_end_is_reported() -> None:
    room = FakeClient(WebSocketData, first=7)
    capture = opened(room)
    capture.upstream_data(2, b"a")
    room.breaks = ()
    capture.upstream_data(3, b"b")
    capture.end(6, Ending.CLIENT, None)
    gaps = [WebSocketData(7, 6, b"", from_client, True) for from_client in (False, True)]
    assert sorted(room.messages[1:-1], key=repr) == sorted(gaps, key=repr)
    assert (room.messages[-1], room.faults) == (ExchangeEnding(7, 6, Ending.CLIENT), 1)


def test_a_bug_before_the_start_is_counted_as_a_response() -> None:
    room = FakeClient(WebSocketOpened)
    capture = WebSocketCapture(room, "up")
    capture.open(REQUEST, [])
    capture.upstream_data(1, b"a")
    capture.end(2, Ending.CLIENT, None)
    assert (room.faults, room.messages, room.responses) == (1, [], {("up", NotCaptured.CAPTURE_FAULT): 1})


def test_it_is_reported_to_the_next_recorder_as_well() -> None:
    """Where it is in the bytes of either side is not known there."""
    room = FakeClient(first=7)
    capture = opened(room)
    capture.upstream_data(1, b"a")
    room.connections += 1
    for at_ns in (2, 3):
        capture.upstream_data(at_ns, b"b")
    capture.client_data(4, b"c")
    assert room.messages == [
        WebSocketOpened(7, REQUEST, [("date", "x")]),
        WebSocketData(7, 1, b"a", False),
        WebSocketOpened(7, REQUEST, [("date", "x")]),
        WebSocketData(7, 2, b"b", False, True),
        WebSocketData(7, 3, b"b", False),
        WebSocketData(7, 4, b"c", True, True),
    ]


def test_the_first_connection_is_no_change_of_the_recorder() -> None:
    room = FakeClient(first=7)
    room.connections = 0
    capture = opened(room)
    room.connections = 1
    capture.upstream_data(1, b"a")
    assert [type(message) for message in room.messages] == [WebSocketOpened, WebSocketData]
