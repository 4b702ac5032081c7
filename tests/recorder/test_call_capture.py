"""The capture of one call of JSON-RPC: reported as far as it can be measured, and nothing raises."""

from collections.abc import Callable

import pytest

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.formats.json_rpc import Call
from streamgauge.recorder import call_capture
from streamgauge.recorder.call_capture import CallCapture
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import CallData, CallEnded, CallOpened
from tests.recorder.fake_client import FakeClient

CALL, PARTY = Call("mcp", "tools/call", "add"), Party("a", "b")
OPENED = CallOpened(7, 5, "up", CALL)


def opened(room: FakeClient) -> CallCapture:
    capture = CallCapture(room)
    capture.open(5, "up", CALL, PARTY)
    return capture


def test_a_call_has_the_reads_of_its_answer_alone() -> None:
    room = FakeClient(first=7)
    capture = opened(room)
    capture.read(8, b"ab")
    capture.read(9, b"cd")
    capture.end(10, Ending.RESET, TransportFault.CLOSED)
    capture.end(11, Ending.COMPLETE, None)
    capture.read(12, b"late")
    assert capture.is_open
    assert room.messages == [
        OPENED,
        CallData(7, 8, b"ab"),
        CallData(7, 9, b"cd"),
        CallEnded(7, 10, Ending.RESET, TransportFault.CLOSED, OPENED),
    ]
    assert (room.seen, room.faults, room.responses) == (0, 0, {})


def test_after_a_read_without_room_nothing_but_its_end_is_reported() -> None:
    room = FakeClient(first=7)
    capture = opened(room)
    room.full = True
    capture.read(8, b"ab")
    room.full = False
    assert not capture.reads
    capture.read(9, b"cd")
    capture.lose_read()
    capture.end(10, Ending.COMPLETE, None)
    lost = CallData(7, 0, b"", is_lost=True)
    assert room.messages == [OPENED, lost, CallEnded(7, 10, Ending.COMPLETE, None, OPENED)]


def test_no_more_than_the_limit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_capture, "MAX_CALL_BYTES", 4)
    room = FakeClient(first=7)
    capture = opened(room)
    for piece in (b"abc", b"de", b"f"):
        capture.read(8, piece)
    assert not capture.reads
    assert [message.data for message in room.messages if isinstance(message, CallData)] == [b"abc", b"de"]


def overfull(room: FakeClient) -> None:
    room.overfull = True


def over_its_share(room: FakeClient) -> None:
    room.refused_parties.add(PARTY)


@pytest.mark.parametrize("state", [overfull, over_its_share])
def test_a_call_without_room_is_not_reported(state: Callable[[FakeClient], None]) -> None:
    room = FakeClient()
    state(room)
    capture = opened(room)
    capture.read(8, b"ab")
    capture.end(10, Ending.COMPLETE, None)
    assert (room.messages, capture.is_open, capture.reads, room.responses) == ([], False, False, {})


@pytest.mark.parametrize("kind", [CallOpened, CallData, CallEnded])
def test_a_bug_ends_the_capture_alone(kind: type[CallOpened | CallData | CallEnded]) -> None:
    room = FakeClient(kind, first=7)
    capture = opened(room)
    capture.read(8, b"ab")
    capture.read(9, b"cd")
    capture.end(10, Ending.COMPLETE, None)
    assert room.faults == 1
    assert not capture.reads
