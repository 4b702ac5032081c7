"""A call of JSON-RPC by its answer: duration and error, or why it was not measured; and that nothing of it is stored."""

import gzip
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.formats.json_rpc import Call, CallResult, Unmeasured
from streamgauge.recorder import call_session, recorder
from streamgauge.recorder.protocol import CallData, CallEnded, CallOpened, Message
from streamgauge.recorder.recorder import MAX_HELD_BYTES, Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge.spool.read_counters import Incident

CALL = Call("mcp", "tools/call", "add")
AGENT = Call("a2a", "message/stream")
SETTINGS = CaptureSettings("full", "1", b"k" * 32)
S = 1_000_000_000


def head(kind: str, *fields: str, status: int = 200) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} OK", f"Content-Type: {kind}", *fields, "", ""]).encode()


def answer(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode()


def event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"


def whole(message: bytes) -> bytes:
    return head("application/json", f"Content-Length: {len(message)}") + message


RESULT = answer(result={"content": [{"type": "text", "text": "5"}]})
PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
SSE = head("text/event-stream")


def told(one: Recorder, *messages: Message) -> list[CallResult]:
    for message in messages:
        one.handle(message)
    assert one.segments() == []
    assert one.open_streams == one.pending_bytes == one.seen == 0
    assert not one.dropped
    assert not one.unmade
    return one.calls


def measured(
    *reads: tuple[float, bytes],
    call: Call = CALL,
    ending: Ending = Ending.COMPLETE,
    fault: TransportFault | None = None,
) -> CallResult:
    """The result of a call whose request began at 1 s, and whose exchange ended at 9 s. `reads`: seconds and bytes."""
    one = Recorder(SETTINGS)
    data = [CallData(1, round(at * S), piece) for at, piece in reads]
    opened = CallOpened(1, S, "up", call)
    [result] = told(one, opened, *data, CallEnded(1, 9 * S, ending, fault, opened))
    assert one._budget.free == MAX_HELD_BYTES
    assert result.upstream == "up"
    assert result.call == call
    return result


def ended_call(number: int) -> CallEnded:
    return CallEnded(number, 9 * S, Ending.COMPLETE, None, CallOpened(number, S, "up", CALL))


def done(duration_s: float | None, error: str | None = None, unmeasured: Unmeasured | None = None) -> CallResult:
    return CallResult("up", CALL, duration_s, error, unmeasured)


def test_a_whole_answer() -> None:
    assert measured((2, whole(RESULT)[:70]), (3, whole(RESULT)[70:])) == done(2.0)
    assert measured((2, whole(answer(result={"isError": True})))) == done(1.0, "tool_error")
    assert measured((2, whole(answer(error={"code": -32601})))) == done(1.0, "-32601")


def test_an_answer_in_a_stream_ends_the_call_before_the_response_ends() -> None:
    assert measured((2, SSE + event(PROGRESS)), (3, event(RESULT)), (8, b": ping\n\n")) == done(2.0)


def test_the_last_answer_of_an_agent_ends_its_call() -> None:
    states = [answer(result={"kind": "status-update", "status": {"state": state}}) for state in ("working", "failed")]
    reads = [(2.0, SSE), *((3.0 + at, event(state)) for at, state in enumerate(states))]
    result = measured(*reads, call=AGENT)
    assert (result.duration_s, result.error_type) == (3.0, "task_failed")


@pytest.mark.parametrize("coding", ["gzip", "chunked"])
def test_framing_and_coding_are_removed(coding: str) -> None:
    body = event(PROGRESS) + event(RESULT)
    if coding == "gzip":
        sent = head("text/event-stream", "Content-Encoding: gzip") + gzip.compress(body)
    else:
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        sent = head("text/event-stream", "Transfer-Encoding: chunked") + chunks
    assert measured(*((2.0, sent[at : at + 11]) for at in range(0, len(sent), 11))) == done(1.0)


def test_a_notification_is_acknowledged() -> None:
    note = Call("mcp", "notifications/initialized", None, is_notification=True)
    accepted = head("text/plain", "Content-Length: 0", status=202)
    assert measured((2, accepted), call=note) == CallResult("up", note, 8.0)
    assert measured((2, accepted)) == done(None, None, Unmeasured.ELSEWHERE)


@pytest.mark.parametrize(
    ("reads", "ending", "fault", "error"),
    [
        ([(2, head("text/plain", status=502))], Ending.COMPLETE, None, "502"),
        ([(2, head("application/json", status=404) + answer(error={"code": -32001}))], Ending.COMPLETE, None, "-32001"),
        ([(2, SSE + event(PROGRESS))], Ending.COMPLETE, None, "no_answer"),
        ([(2, head("text/html") + b"<p>")], Ending.COMPLETE, None, "no_answer"),
        ([(2, SSE + event(PROGRESS))], Ending.RESET, TransportFault.CLOSED, "closed"),
        ([(2, SSE + event(RESULT)[:-9])], Ending.RESET, None, "upstream_reset"),
        ([(2, whole(RESULT)[:-1])], Ending.RESET, TransportFault.RESET, "reset"),
        ([(2, SSE)], Ending.CLIENT, None, "client_abort"),
        ([], Ending.TIMEOUT, TransportFault.CONNECT_TIMEOUT, "connect_timeout"),
        ([], Ending.RESET, TransportFault.REFUSED, "refused"),
    ],
)
def test_a_call_without_a_result(
    reads: list[tuple[float, bytes]], ending: Ending, fault: TransportFault | None, error: str
) -> None:
    assert measured(*reads, ending=ending, fault=fault) == done(8.0 if error != "-32001" else 1.0, error)


def test_a_client_that_leaves_after_the_answer_has_it() -> None:
    assert measured((2, SSE + event(RESULT)), ending=Ending.CLIENT) == done(1.0)


def test_what_is_not_known_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured((2, SSE), ending=Ending.CUT) == done(None, None, Unmeasured.STOPPED)
    bad = head("text/event-stream", "Content-Encoding: gzip") + b"no gzip"
    assert measured((2, bad)) == done(None, None, Unmeasured.UNDECODABLE)
    assert measured((2, b"no HTTP\r\n\r\n")) == done(None, None, Unmeasured.UNDECODABLE)
    assert measured((2, whole(b'{"jsonrpc":"2.0","id":1,"result":NaN}'))) == done(None, None, Unmeasured.UNDECODABLE)
    assert measured((2, SSE + event(b'{"jsonrpc":"2.0",'))) == done(None, None, Unmeasured.UNDECODABLE)
    resumed = SSE + b"id: 1\nretry: 500\ndata: \n\n"
    assert measured((2, resumed)) == done(None, None, Unmeasured.ELSEWHERE)
    assert measured((2, resumed + event(RESULT))) == done(1.0)
    monkeypatch.setattr(call_session, "MAX_CALL_BYTES", 90)
    assert measured((2, whole(RESULT))) == done(None, None, Unmeasured.TOO_LARGE)
    assert measured((2, SSE), (3, event(PROGRESS)), (4, event(RESULT))) == done(None, None, Unmeasured.TOO_LARGE)


def test_an_answer_over_the_limit_is_read_no_further_once_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_session, "MAX_CALL_BYTES", 400)
    late = [(3.0, event(PROGRESS)) for _ in range(20)]
    assert measured((2, SSE + event(RESULT)), *late) == done(1.0)
    assert measured((2, SSE + event(RESULT)), *late, call=AGENT).unmeasured is Unmeasured.TOO_LARGE


def test_the_answers_of_one_flush_are_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "CALL_BYTES", 1_000)
    one = Recorder(SETTINGS)
    for number in range(20):
        if number == 15:
            list(one.each_due())
        one.handle(CallOpened(number, S, "up", CALL))
        one.handle(CallData(number, 2 * S, SSE + event(RESULT)))
        one.handle(ended_call(number))
    found = [result.unmeasured for result in one.calls]
    assert found[0] is found[15] is None
    assert found[14] is found[19] is Unmeasured.BEHIND


def test_a_call_that_began_before_the_recorder_is_counted_once() -> None:
    read, ended = CallData(1, 2 * S, SSE + event(RESULT)), ended_call(1)
    assert told(Recorder(SETTINGS), read, read, ended) == [done(None, None, Unmeasured.GONE)]
    assert told(Recorder(SETTINGS), ended) == [done(None, None, Unmeasured.GONE)]


def test_a_gap_in_the_answer_leaves_it_unmeasured() -> None:
    opened, ended = CallOpened(1, S, "up", CALL), ended_call(1)
    gap = CallData(1, 3 * S, event(RESULT), True)
    assert told(Recorder(SETTINGS), opened, CallData(1, 2 * S, SSE), gap, ended) == [
        done(None, None, Unmeasured.BEHIND)
    ]


def test_a_sender_that_is_gone_cuts_its_calls() -> None:
    one = Recorder(SETTINGS)
    told(one, CallOpened(1, S, "up", CALL))
    one.cut(0, 2 * S)
    assert one.calls == [done(None, None, Unmeasured.STOPPED)]


def test_a_number_that_is_used_again_ends_the_call_before() -> None:
    opened, ended = CallOpened(1, S, "up", CALL), ended_call(1)
    read = CallData(1, 2 * S, SSE + event(RESULT))
    assert told(Recorder(SETTINGS), opened, opened, read, ended) == [done(None, None, Unmeasured.STOPPED), done(1.0)]


def test_calls_beyond_the_limit_are_not_read() -> None:
    one = Recorder(SETTINGS, max_open_streams=1)
    opened = [CallOpened(number, S, "up", CALL) for number in (1, 2)]
    data = [CallData(number, 2 * S, SSE + event(RESULT)) for number in (1, 2)]
    ends = [ended_call(number) for number in (1, 2)]
    assert told(one, *opened, *data, *ends) == [done(1.0), done(None, None, Unmeasured.LIMIT)]


def test_a_bug_costs_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(message: bytes) -> Sequence[str]:
        raise RuntimeError

    monkeypatch.setattr(call_session, "errors_of", broken)
    one = Recorder(SETTINGS)
    read, ended = CallData(1, 2 * S, SSE + event(RESULT)), ended_call(1)
    opened = CallOpened(1, S, "up", CALL)
    assert told(one, opened, read, read, ended) == [done(None, None, Unmeasured.FAULT)]
    assert one.incidents == {Incident.CAPTURE_FAULT: 1}


def test_an_event_without_an_end_is_held_within_the_budget() -> None:
    one = Recorder(SETTINGS, max_held_bytes=200_000)
    one.handle(CallOpened(1, S, "up", CALL))
    one.handle(CallData(1, 2 * S, SSE + b"data: "))
    for _ in range(30):
        one.handle(CallData(1, 2 * S, b"x" * 10_000))
    one.handle(ended_call(1))
    assert one.calls == [done(None, None, Unmeasured.BEHIND)]
    assert one._budget.free == 200_000


def test_a_bomb_is_decoded_in_steps() -> None:
    bomb = gzip.compress(event(answer(result="x" * 50_000_000)))
    sent = head("text/event-stream", "Content-Encoding: gzip") + bomb
    assert measured((2, sent)).unmeasured is Unmeasured.TOO_LARGE


@given(st.binary(max_size=200), st.lists(st.integers(0, 400), max_size=6), st.sampled_from(list(Ending)))
def test_any_bytes_end_in_one_result(tail: bytes, cuts: list[int], ending: Ending) -> None:
    body = SSE + event(PROGRESS) + tail + event(RESULT)
    ends = [*sorted(cut for cut in cuts if cut < len(body)), len(body)]
    reads = [(2.0, body[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
    measured(*reads, ending=ending)
