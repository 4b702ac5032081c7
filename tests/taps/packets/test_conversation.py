"""HTTP on one connection: which exchanges there are, what is reported of each, and how each ends. All input is packets."""

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    ExchangeEnding,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.taps.packets.conversation import MAX_WAITING
from tests.taps.packets.talking import (
    BODY,
    CHUNKS,
    JSON,
    STREAM,
    WHOLE,
    arrived,
    asking,
    ended,
    endings,
    names,
    only,
    request_body_of,
    sent,
)
from tests.taps.packets.wire import BEGAN, STEP, Line, by_stream, followed, records
from tests.taps.talk import EVENTS, SSE, head


def test_an_exchange_is_reported_with_the_stamps_of_its_packets() -> None:
    request = asking(BODY, "/v1/chat/completions", "Authorization: Bearer key", "Cookie: secret")
    messages = only(followed(Line().open().ask(request[:60], request[60:]).answer(*WHOLE)))
    zero = BEGAN + 3 * STEP
    assert messages[0] == RequestStarted(
        0,
        zero,
        zero,
        "up",
        "POST",
        "/v1/chat/completions",
        [("authorization", "Bearer key")],
        "packets",
        host="here",
    )
    assert request_body_of(messages) == BODY
    assert sent(messages) == RequestSent(0, zero + STEP, None, len(BODY), True)
    assert arrived(messages) == b"".join(WHOLE)
    assert [read.at_ns for read in messages if isinstance(read, ResponseRead)] == [
        zero + (2 + n) * STEP for n in range(len(WHOLE))
    ]
    assert messages[-1] == ExchangeEnding(0, zero + (1 + len(WHOLE)) * STEP, Ending.COMPLETE)


def test_a_kept_alive_connection_has_one_stream_for_each_request() -> None:
    line = Line().open()
    for _ in range(3):
        line.ask(asking()).answer(*WHOLE).acknowledge()
    streams = by_stream(followed(line))
    assert [arrived(stream) for stream in streams] == [b"".join(WHOLE)] * 3
    assert [ended(stream).ending for stream in streams] == [Ending.COMPLETE] * 3
    zeros = [stream[0].at_ns for stream in streams if isinstance(stream[0], RequestStarted)]
    assert zeros[1] - zeros[0] == (len(WHOLE) + 2) * STEP  # type: ignore[operator]


def test_pipelined_requests_get_their_responses_in_order() -> None:
    line = Line().open().ask(asking(b"{}") + asking(b"[]")).answer(b"".join(WHOLE) + JSON)
    first, second = by_stream(followed(line))
    assert (request_body_of(first), request_body_of(second)) == (b"{}", b"[]")
    assert (arrived(first), arrived(second)) == (b"".join(WHOLE), JSON)


def test_interim_responses_belong_to_the_response_that_follows() -> None:
    request, interim = asking(BODY, "/v1/messages", "Expect: 100-continue"), head(status=100)
    line = Line().open().ask(request[: -len(BODY)]).answer(interim).ask(BODY).answer(*WHOLE)
    messages = only(followed(line))
    assert arrived(messages) == interim + b"".join(WHOLE)
    assert request_body_of(messages) == BODY


@pytest.mark.parametrize("status", [204, 304])
def test_responses_without_a_body_end_with_their_head(status: int) -> None:
    line = Line().open().ask(asking()).answer(head(("content-length", "99"), status=status)).ask(asking()).answer(JSON)
    assert [ended(one).at_ns for one in by_stream(followed(line))] == [BEGAN + 4 * STEP, BEGAN + 6 * STEP]


def test_the_response_to_head_has_no_body() -> None:
    line = Line().open().ask(asking(b"", "/v1/responses/r1", method="GET")).answer(JSON)
    line.ask(asking(b"", "/events", method="HEAD")).answer(head(SSE)).ask(asking()).answer(JSON)
    assert endings(followed(line)) == [Ending.COMPLETE] * 3


def test_a_response_may_start_before_its_request_is_complete() -> None:
    request, error = asking(bytes(1000)), head(("content-length", "0"), status=413)
    line = Line().open().ask(request[:-500]).answer(error).ask(request[-500:] + asking()).answer(JSON)
    first, second = by_stream(followed(line))
    assert (sent(first), arrived(first), ended(first).ending) == (None, error, Ending.COMPLETE)
    assert (request_body_of(second), arrived(second)) == (BODY, JSON)


@pytest.mark.parametrize("end", ["finish", "reset"])
def test_a_response_may_be_ended_by_the_connection(end: str) -> None:
    line = Line().open().ask(asking()).answer(head(SSE), *EVENTS)
    messages = only(followed(line.finish() if end == "finish" else line.reset()))
    assert ended(messages).ending is (Ending.COMPLETE if end == "finish" else Ending.RESET)
    assert arrived(messages) == head(SSE) + b"".join(EVENTS)


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("answer", [[], [STREAM[:9]], [STREAM], [STREAM, CHUNKS[0]]])
def test_a_server_that_ends_within_its_response_has_broken_it(answer: list[bytes], reset: bool) -> None:
    line = Line().open().ask(asking()).answer(*answer)
    (record,) = records(followed(line.reset() if reset else line.finish()))
    assert record.outcome == "upstream_reset"


def test_a_complete_response_without_its_dialects_end_is_truncated() -> None:
    (record,) = records(followed(Line().open().ask(asking()).answer(*WHOLE[:3], WHOLE[-1])))
    assert (record.outcome, record.integrity.complete) == ("truncated", True)


def test_a_client_that_resets_has_left() -> None:
    line = Line().open().ask(asking()).answer(STREAM, CHUNKS[0]).acknowledge().answer(CHUNKS[1]).reset(0)
    one = ended(only(followed(line.lose().reset(0))))
    # The acknowledgement sent with the reset counts: the reset itself goes to the host, not to the client.
    assert (one.ending, one.client_gone_ns, one.at_ns) == (Ending.CLIENT, line.now - STEP, line.now - STEP)
    assert one.unsent_bytes == len(CHUNKS[1])


@pytest.mark.parametrize("then", ["reset by the client", "reset", "finish"])
def test_a_client_that_ends_its_side_has_left_if_the_server_does_not_go_on_to_the_end(then: str) -> None:
    line = Line().open().ask(asking()).answer(STREAM, CHUNKS[0]).finish(0)
    left = line.now - STEP
    line.answer(CHUNKS[1])
    one = only(followed(line.finish() if then == "finish" else line.reset(int(then == "reset"))))
    assert (ended(one).ending, ended(one).client_gone_ns) == (Ending.CLIENT, left)
    assert arrived(one) == STREAM + CHUNKS[0] + CHUNKS[1]


def test_a_client_that_only_ends_its_requests_gets_the_whole_response() -> None:
    one = ended(only(followed(Line().open().ask(asking()).finish(0).answer(*WHOLE).acknowledge().finish())))
    assert (one.ending, one.client_gone_ns) == (Ending.COMPLETE, None)


def test_a_client_that_left_before_a_response_that_the_connection_ends_has_left() -> None:
    line = Line().open().ask(asking()).answer(head(SSE), EVENTS[0]).finish(0).finish(1)
    assert endings(followed(line)) == [Ending.CLIENT]
    line = Line().open().ask(asking()).answer(head(SSE), *EVENTS).finish(0).finish(1)
    assert [record.outcome for record in records(followed(line))] == ["completed"]


def test_a_client_that_leaves_before_the_head_has_left() -> None:
    line = Line().open().ask(asking()[:-3]).reset(0)
    one = only(followed(line))
    assert (ended(one).ending, sent(one)) == (Ending.CLIENT, None)


def test_silence_ends_a_stream_as_a_timeout_after_its_limit() -> None:
    idle = 5 * STEP
    line = Line().open().ask(asking()).answer(STREAM, CHUNKS[0])
    last = line.now - STEP
    line.wait(4 * STEP).answer(CHUNKS[1]).wait(20 * STEP).answer(CHUNKS[2])
    one = only(followed(line, idle_ns=idle))
    assert (ended(one).ending, ended(one).at_ns) == (Ending.TIMEOUT, last + 5 * STEP + idle)
    assert arrived(one) == STREAM + CHUNKS[0] + CHUNKS[1]


def test_after_a_timeout_the_connection_is_followed_from_its_next_request() -> None:
    line = Line().open().ask(asking()).answer(STREAM).wait(20 * STEP).answer(*CHUNKS).ask(asking()).answer(JSON)
    first, second = by_stream(followed(line, idle_ns=9 * STEP))
    assert ended(first).ending is Ending.TIMEOUT
    assert (request_body_of(second), arrived(second), ended(second).ending) == (BODY, JSON, Ending.COMPLETE)


def test_what_is_open_when_the_capture_ends_is_cut() -> None:
    (record,) = records(followed(Line().open().ask(asking()).answer(*WHOLE[:3])))
    assert record.outcome == "abandoned"


# What is captured.


def test_a_path_that_is_not_an_llms_is_reported_only_with_an_event_stream() -> None:
    line = (
        Line()
        .open()
        .ask(asking(BODY, "/health"))
        .answer(JSON)
        .ask(asking(BODY, "/mine"))
        .answer(STREAM[:30], STREAM[30:])
    )
    line.answer(*WHOLE[1:])
    one = only(followed(line))
    assert isinstance(one[0], RequestStarted)
    assert (one[0].target, arrived(one)) == ("/mine", b"".join(WHOLE))
    assert names(one[:4]) == ["RequestStarted", "RequestSent", "ResponseRead", "ResponseRead"]
    assert sent(one) == RequestSent(0, BEGAN + 5 * STEP, None, len(BODY), False)


@pytest.mark.parametrize(
    "beginning",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT here:443 HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET http://there/v1/responses/r1 HTTP/1.1\r\nHost: there\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        b"nothing of the kind, but long enough for everybody to see that\r\n\r\n",
    ],
)
def test_what_the_relay_would_refuse_ends_the_connections_capture(beginning: bytes) -> None:
    line = Line().open().ask(beginning).answer(JSON).ask(asking()).answer(JSON).finish(0).finish(1)
    assert followed(line) == []


def test_another_protocol_is_not_captured() -> None:
    line = Line().open().ask(asking()).answer(head(status=101)).ask(b"\x81\x05hello").answer(*WHOLE)
    one = only(followed(line))
    assert (ended(one).ending, arrived(one)) == (Ending.RESET, head(status=101))


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\0\0\0\0", b"HTTP/2 200 OK\r\n\r\n"])
def test_a_malformed_response_ends_the_exchange(answer: bytes) -> None:
    line = Line().open().ask(asking()).answer(answer).ask(asking()).answer(JSON)
    assert [record.outcome for record in records(followed(line))] == ["upstream_reset"]


def test_malformed_chunks_end_with_the_clients_next_request() -> None:
    line = (
        Line()
        .open()
        .ask(asking())
        .answer(STREAM, CHUNKS[0], b"zz\r\nhello\r\n")
        .acknowledge()
        .ask(asking())
        .answer(JSON)
    )
    first, second = by_stream(followed(line))
    assert (ended(first).ending, arrived(first)) == (Ending.RESET, STREAM + CHUNKS[0] + b"zz\r\nhello\r\n")
    assert (ended(second).ending, arrived(second)) == (Ending.COMPLETE, JSON)


def test_an_unrequested_response_belongs_to_no_request() -> None:
    timeout = head(("content-length", "0"), status=408)
    line = Line().open().ask(asking()).answer(JSON).answer(timeout).ask(asking()).answer(JSON)
    assert [arrived(one) for one in by_stream(followed(line))] == [JSON, JSON]


def test_too_many_pipelined_requests_are_not_followed() -> None:
    line = Line().open().ask(*[asking(b"")] * (MAX_WAITING + 5)).answer(*[JSON] * (MAX_WAITING + 5))
    streams = by_stream(followed(line))
    assert len(streams) == MAX_WAITING
    assert {ended(stream).ending for stream in streams} == {Ending.CUT}


def test_a_long_body_is_reported_up_to_its_limit() -> None:
    size = MAX_REQUEST_BODY + 10
    request = asking(bytes(size))
    pieces = [request[at : at + 60_000] for at in range(0, len(request), 60_000)]
    one = only(followed(Line().open().ask(*pieces).answer(JSON)))
    reported = sent(one)
    assert reported is not None
    assert (reported.body_bytes, reported.whole) == (size, False)
    assert len(request_body_of(one)) <= MAX_REQUEST_BODY
