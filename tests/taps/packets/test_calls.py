"""Calls of JSON-RPC in captured packets: they are measured as through the relay, and a lost part leaves them unmeasured."""

from streamgauge.core.capture.segments import Ending
from streamgauge.core.formats.json_rpc import Call, CallResult, Unmeasured
from streamgauge.recorder.protocol import CallData, CallEnded, CallOpened, Message
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from tests.taps.packets.talking import asking, names
from tests.taps.packets.wire import BEGAN, STEP, Line, followed
from tests.taps.talk import SSE, chunked, head

ASKED = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":"CANARY"}}}'
STREAM = head(SSE, ("transfer-encoding", "chunked"))
EVENTS = [
    chunked(b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n\n')[:-5],
    chunked(b'data: {"jsonrpc":"2.0","id":1,"result":{"isError":true}}\n\n'),
]
REQUEST = asking(ASKED, "/mcp", "Content-Type: application/json")
CALL = Call("mcp", "tools/call", "add")


def results(messages: list[Message]) -> list[CallResult]:
    recorder = Recorder(CaptureSettings("full", "1", b"k" * 32))
    for message in messages:
        recorder.handle(message)
    assert recorder.segments() == []
    return recorder.calls


def test_a_call_has_the_stamps_of_its_packets() -> None:
    messages = followed(Line().open().ask(REQUEST[:70], REQUEST[70:]).answer(STREAM, *EVENTS))
    assert names(messages) == ["CallOpened", "CallData", "CallData", "CallData", "CallEnded"]
    zero = BEGAN + 3 * STEP
    assert messages[0] == CallOpened(0, zero, "up", CALL)
    assert b"".join(one.data for one in messages if isinstance(one, CallData)) == STREAM + b"".join(EVENTS)
    assert isinstance(messages[-1], CallEnded)
    assert messages[-1].ending is Ending.COMPLETE
    assert b"CANARY" not in repr(messages).encode()
    assert results(messages) == [CallResult("up", CALL, 4 * STEP / 1e9, "tool_error")]


def test_a_call_whose_answer_is_not_whole_in_the_capture_is_not_measured() -> None:
    messages = followed(Line().open().ask(REQUEST).answer(STREAM, EVENTS[0]).lose().answer(EVENTS[1]))
    assert results(messages) == [CallResult("up", CALL, None, unmeasured=Unmeasured.BEHIND)]
