"""HTTP on one connection: which exchanges there are, what is told of each, and how each ends. By packets throughout."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.segments import Ending
from streamgauge.taps.messages import (
    MAX_REQUEST_BODY,
    Arrived,
    Asked,
    Dropped,
    Ended,
    Message,
    Opened,
    Sent,
)
from streamgauge.taps.packets.conversation import MAX_WAITING
from tests.taps.packets.wire import BEGAN, STEP, Line, by_stream, followed, records
from tests.taps.talk import EVENTS, SSE, chunked, head

BODY = b'{"model":"m","stream":true}'
CHUNKED = ("transfer-encoding", "chunked")
STREAM = head(SSE, CHUNKED)
CHUNKS = [chunked(event)[:-5] for event in EVENTS]
WHOLE = [STREAM, *CHUNKS, b"0\r\n\r\n"]
JSON = head(("content-type", "application/json"), ("content-length", "2")) + b"{}"


def asking(body: bytes = BODY, path: str = "/v1/chat/completions", *fields: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def only(messages: list[Message]) -> list[Message]:
    (one,) = by_stream(messages)
    return one


def ended(messages: list[Message]) -> Ended:
    last = messages[-1]
    assert isinstance(last, Ended)
    return last


def endings(messages: list[Message]) -> list[Ending]:
    return [ended(one).ending for one in by_stream(messages)]


def arrived(messages: list[Message]) -> bytes:
    return b"".join(message.data for message in messages if isinstance(message, Arrived))


def asked(messages: list[Message]) -> bytes:
    return b"".join(message.data for message in messages if isinstance(message, Asked))


def sent(messages: list[Message]) -> Sent | None:
    return next((message for message in messages if isinstance(message, Sent)), None)


def names(messages: list[Message]) -> list[str]:
    return [type(message).__name__ for message in messages]


def test_an_exchange_is_told_with_the_stamps_of_its_packets() -> None:
    request = asking(BODY, "/v1/chat/completions", "Authorization: Bearer key", "Cookie: secret")
    told = only(followed(Line().open().ask(request[:60], request[60:]).answer(*WHOLE)))
    zero = BEGAN + 3 * STEP
    assert told[0] == Opened(
        0,
        zero,
        zero,
        "up",
        "POST",
        "/v1/chat/completions",
        [("authorization", "Bearer key")],
        "packets",
    )
    assert asked(told) == BODY
    assert sent(told) == Sent(0, zero + STEP, None, len(BODY), True)
    assert arrived(told) == b"".join(WHOLE)
    assert [read.at_ns for read in told if isinstance(read, Arrived)] == [
        zero + (2 + n) * STEP for n in range(len(WHOLE))
    ]
    assert told[-1] == Ended(0, zero + (1 + len(WHOLE)) * STEP, Ending.COMPLETE)


def test_a_kept_alive_connection_has_one_stream_for_each_request() -> None:
    line = Line().open()
    for _ in range(3):
        line.ask(asking()).answer(*WHOLE).acknowledge()
    streams = by_stream(followed(line))
    assert [arrived(one) for one in streams] == [b"".join(WHOLE)] * 3
    assert [ended(one).ending for one in streams] == [Ending.COMPLETE] * 3
    zeros = [one[0].at_ns for one in streams if isinstance(one[0], Opened)]
    assert zeros[1] - zeros[0] == (len(WHOLE) + 2) * STEP


def test_pipelined_requests_get_their_answers_in_order() -> None:
    line = Line().open().ask(asking(b"{}") + asking(b"[]")).answer(b"".join(WHOLE) + JSON)
    first, second = by_stream(followed(line))
    assert (asked(first), asked(second)) == (b"{}", b"[]")
    assert (arrived(first), arrived(second)) == (b"".join(WHOLE), JSON)


def test_interim_answers_belong_to_the_answer_that_follows() -> None:
    request, interim = asking(BODY, "/v1/messages", "Expect: 100-continue"), head(status=100)
    line = Line().open().ask(request[: -len(BODY)]).answer(interim).ask(BODY).answer(*WHOLE)
    told = only(followed(line))
    assert arrived(told) == interim + b"".join(WHOLE)
    assert asked(told) == BODY


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_end_with_their_head(status: int) -> None:
    line = Line().open().ask(asking()).answer(head(("content-length", "99"), status=status)).ask(asking()).answer(JSON)
    assert [ended(one).at_ns for one in by_stream(followed(line))] == [BEGAN + 4 * STEP, BEGAN + 6 * STEP]


def test_the_answer_to_head_has_no_body() -> None:
    line = Line().open().ask(asking(b"", "/v1/responses/r1", method="GET")).answer(JSON)
    line.ask(asking(b"", "/events", method="HEAD")).answer(head(SSE)).ask(asking()).answer(JSON)
    assert endings(followed(line)) == [Ending.COMPLETE] * 3


def test_an_answer_may_come_before_its_request_is_whole() -> None:
    request, error = asking(bytes(1000)), head(("content-length", "0"), status=413)
    line = Line().open().ask(request[:-500]).answer(error).ask(request[-500:] + asking()).answer(JSON)
    first, second = by_stream(followed(line))
    assert (sent(first), arrived(first), ended(first).ending) == (None, error, Ending.COMPLETE)
    assert (asked(second), arrived(second)) == (BODY, JSON)


@pytest.mark.parametrize("end", ["finish", "reset"])
def test_an_answer_that_only_the_connection_ends(end: str) -> None:
    line = Line().open().ask(asking()).answer(head(SSE), *EVENTS)
    told = only(followed(line.finish() if end == "finish" else line.reset()))
    assert ended(told).ending is (Ending.COMPLETE if end == "finish" else Ending.RESET)
    assert arrived(told) == head(SSE) + b"".join(EVENTS)


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("answer", [[], [STREAM[:9]], [STREAM], [STREAM, CHUNKS[0]]])
def test_a_server_that_ends_amid_its_answer_has_broken_it(answer: list[bytes], reset: bool) -> None:
    line = Line().open().ask(asking()).answer(*answer)
    (record,) = records(followed(line.reset() if reset else line.finish()))
    assert record.outcome == "upstream_reset"


def test_http_that_ends_well_without_the_protocols_end_is_truncated() -> None:
    (record,) = records(followed(Line().open().ask(asking()).answer(*WHOLE[:3], WHOLE[-1])))
    assert (record.outcome, record.integrity.complete) == ("truncated", True)


def test_a_client_that_resets_has_left() -> None:
    line = Line().open().ask(asking()).answer(STREAM, CHUNKS[0]).acknowledge().answer(CHUNKS[1]).reset(0)
    one = ended(only(followed(line.lose().reset(0))))
    # The acknowledgement that comes with the reset counts: the reset's own is taken by the host, not by the client.
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


def test_a_client_that_is_only_done_with_asking_gets_the_whole_answer() -> None:
    one = ended(only(followed(Line().open().ask(asking()).finish(0).answer(*WHOLE).acknowledge().finish())))
    assert (one.ending, one.client_gone_ns) == (Ending.COMPLETE, None)


def test_a_client_that_left_before_an_answer_that_the_connection_ends_has_left() -> None:
    line = Line().open().ask(asking()).answer(head(SSE), EVENTS[0]).finish(0).finish(1)
    assert endings(followed(line)) == [Ending.CLIENT]
    line = Line().open().ask(asking()).answer(head(SSE), *EVENTS).finish(0).finish(1)
    assert [record.outcome for record in records(followed(line))] == ["completed"]


def test_who_leaves_before_the_head_has_left() -> None:
    line = Line().open().ask(asking()[:-3]).reset(0)
    one = only(followed(line))
    assert (ended(one).ending, sent(one)) == (Ending.CLIENT, None)


def test_silence_ends_as_a_timeout_when_it_has_lasted_for_its_limit() -> None:
    idle = 5 * STEP
    line = Line().open().ask(asking()).answer(STREAM, CHUNKS[0])
    last = line.now - STEP
    line.wait(4 * STEP).answer(CHUNKS[1]).wait(20 * STEP).answer(CHUNKS[2])
    one = only(followed(line, idle_ns=idle))
    assert (ended(one).ending, ended(one).at_ns) == (Ending.TIMEOUT, last + 5 * STEP + idle)
    assert arrived(one) == STREAM + CHUNKS[0] + CHUNKS[1]


def test_behind_a_timeout_the_connection_is_taken_up_at_its_next_request() -> None:
    line = Line().open().ask(asking()).answer(STREAM).wait(20 * STEP).answer(*CHUNKS).ask(asking()).answer(JSON)
    first, second = by_stream(followed(line, idle_ns=9 * STEP))
    assert ended(first).ending is Ending.TIMEOUT
    assert (asked(second), arrived(second), ended(second).ending) == (BODY, JSON, Ending.COMPLETE)


def test_what_is_open_when_the_capture_ends_is_cut() -> None:
    (record,) = records(followed(Line().open().ask(asking()).answer(*WHOLE[:3])))
    assert record.outcome == "abandoned"


# What is captured.


def test_a_path_that_is_no_llms_is_told_only_where_its_answer_is_an_event_stream() -> None:
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
    assert isinstance(one[0], Opened)
    assert (one[0].target, arrived(one)) == ("/mine", b"".join(WHOLE))
    assert names(one[:4]) == ["Opened", "Sent", "Arrived", "Arrived"]
    assert sent(one) == Sent(0, BEGAN + 5 * STEP, None, len(BODY), False)


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
def test_what_the_relay_would_refuse_is_left_alone_for_good(beginning: bytes) -> None:
    line = Line().open().ask(beginning).answer(JSON).ask(asking()).answer(JSON).finish(0).finish(1)
    assert followed(line) == []


def test_another_protocol_is_left_alone() -> None:
    line = Line().open().ask(asking()).answer(head(status=101)).ask(b"\x81\x05hello").answer(*WHOLE)
    one = only(followed(line))
    assert (ended(one).ending, arrived(one)) == (Ending.RESET, head(status=101))


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\0\0\0\0", b"HTTP/2 200 OK\r\n\r\n"])
def test_an_answer_that_is_none_ends_the_exchange(answer: bytes) -> None:
    line = Line().open().ask(asking()).answer(answer).ask(asking()).answer(JSON)
    assert [record.outcome for record in records(followed(line))] == ["upstream_reset"]


def test_chunks_that_are_none_end_with_the_clients_next_request() -> None:
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


def test_what_nobody_asked_for_belongs_to_no_answer() -> None:
    timeout = head(("content-length", "0"), status=408)
    line = Line().open().ask(asking()).answer(JSON).answer(timeout).ask(asking()).answer(JSON)
    assert [arrived(one) for one in by_stream(followed(line))] == [JSON, JSON]


def test_a_flood_of_pipelined_requests_is_not_followed() -> None:
    line = Line().open().ask(*[asking(b"")] * (MAX_WAITING + 5)).answer(*[JSON] * (MAX_WAITING + 5))
    streams = by_stream(followed(line))
    assert len(streams) == MAX_WAITING
    assert {ended(one).ending for one in streams} == {Ending.CUT}


def test_a_long_body_is_told_up_to_its_limit() -> None:
    size = MAX_REQUEST_BODY + 10
    request = asking(bytes(size))
    pieces = [request[at : at + 60_000] for at in range(0, len(request), 60_000)]
    one = only(followed(Line().open().ask(*pieces).answer(JSON)))
    said = sent(one)
    assert said is not None
    assert (said.body_bytes, said.whole) == (size, False)
    assert len(asked(one)) <= MAX_REQUEST_BODY


# Losses.


def test_a_lost_packet_of_a_stream_is_a_loss_on_its_record() -> None:
    line = (
        Line()
        .open()
        .ask(asking())
        .answer(STREAM, *CHUNKS[:2])
        .answer(CHUNKS[2])
        .lose()
        .answer(*CHUNKS[3:], b"0\r\n\r\n")
    )
    line.acknowledge().ask(asking()).answer(*WHOLE)
    first, second = records(followed(line))
    assert (first.outcome, first.integrity.complete, first.integrity.dropped_reads) == ("abandoned", False, 1)
    assert first.counts.token_events == 1
    assert (second.outcome, second.integrity.complete) == ("completed", True)


def test_a_loss_within_a_body_whose_length_is_known_hides_no_end() -> None:
    body = b"".join(EVENTS)
    line = Line().open().ask(asking()).answer(head(SSE, ("content-length", str(len(body)))), *EVENTS[:2])
    line.answer(EVENTS[2]).lose().answer(*EVENTS[3:]).acknowledge().ask(asking()).answer(*WHOLE)
    one, _ = by_stream(followed(line))
    assert names(one)[3:] == ["Arrived", "Arrived", "Arrived", "Dropped", "Arrived", "Ended"]
    first, second = records(followed(line))
    assert (first.outcome, first.integrity.reasons, first.counts.token_events) == ("completed", ["dropped_reads"], 1)
    assert (second.outcome, second.integrity.complete) == ("completed", True)


def test_a_loss_within_one_chunk_hides_no_end() -> None:
    one = chunked(b"".join(EVENTS))
    line = Line().open().ask(asking()).answer(STREAM, one[:20], one[20:40]).lose().answer(one[40:]).acknowledge()
    (record,) = records(followed(line.ask(asking()).answer(*WHOLE)))[:1]
    assert (record.integrity.reasons, record.timing.end_s is not None) == (["dropped_reads"], True)
    assert endings(followed(line)) == [Ending.COMPLETE, Ending.COMPLETE]


def test_a_lost_last_packet_of_an_answer_is_known_when_it_is_acknowledged() -> None:
    body = b"".join(EVENTS)
    line = Line().open().ask(asking()).answer(head(SSE, ("content-length", str(len(body)))), *EVENTS)
    one = only(followed(line.lose().acknowledge()))
    assert names(one)[-2:] == ["Dropped", "Ended"]
    assert (ended(one).ending, ended(one).at_ns) == (Ending.COMPLETE, line.now - STEP)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_head_of_an_answer_leaves_the_stream_incomplete(lost: int) -> None:
    line = Line().open().ask(asking())
    for number, piece in enumerate((STREAM[:20], STREAM[20:])):
        line.answer(piece)
        if number == lost:
            line.lose()
    line.answer(*WHOLE[1:]).acknowledge().ask(asking()).answer(JSON)
    first, second = records(followed(line))
    assert (first.outcome, first.status_code, first.integrity.complete) == ("abandoned", None, False)
    assert (second.status_code, second.integrity.complete) == (200, True)


def test_a_lost_piece_of_a_request_leaves_its_facts_unknown() -> None:
    request = asking(b'{"model":"m","n":1}')
    line = Line().open().ask(request[:-9], request[-9:-4]).lose().ask(request[-4:]).answer(*WHOLE)
    (record,) = records(followed(line))
    assert (record.outcome, record.request_model, record.request_digest) == ("completed", None, None)
    assert record.request is not None
    assert record.request.body_bytes == 19
    assert record.integrity.complete, "the stream itself was seen whole"


def test_a_lost_head_of_a_request_hides_that_exchange_alone() -> None:
    request = asking()
    line = (
        Line().open().ask(request[:40]).lose().ask(request[40:]).answer(*WHOLE).acknowledge().ask(asking()).answer(JSON)
    )
    one = only(followed(line))
    assert (asked(one), arrived(one)) == (BODY, JSON)


def test_a_lost_beginning_of_a_chunked_request_does_not_hide_its_answer() -> None:
    request = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    line = Line().open().ask(request, b"5\r\nhello\r\n").lose().ask(b"5\r\nworld\r\n", b"0\r\n\r\n").answer(*WHOLE)
    line.acknowledge().ask(asking()).answer(JSON)
    first, second = by_stream(followed(line))
    assert (sent(first), arrived(first), ended(first).ending) == (None, b"".join(WHOLE), Ending.COMPLETE)
    assert arrived(second) == JSON


def test_a_capture_that_begins_amid_a_connection_takes_it_up_at_a_request() -> None:
    line = Line(first=(5, 9)).ask(b"the end of a body").answer(*WHOLE[3:]).acknowledge()
    line.ask(asking()).answer(*WHOLE)
    one = only(followed(line))
    assert (asked(one), arrived(one), ended(one).ending) == (BODY, b"".join(WHOLE), Ending.COMPLETE)


def test_amid_a_connection_what_is_no_whole_request_line_begins_nothing() -> None:
    line = Line(first=(5, 9)).ask(b"POST /v1/messages", asking()[20:]).answer(*WHOLE)
    assert followed(line) == []


def test_a_stale_answer_is_not_taken_for_that_of_a_request_that_was_picked_up() -> None:
    """Pipelined before the capture began: what comes first answers somebody else."""
    line = Line(first=(5, 9)).ask(asking()).answer(*WHOLE[3:]).answer(*WHOLE)
    (record,) = records(followed(line))
    assert (record.outcome, record.counts.token_events) == ("abandoned", 0)


@given(st.data())
def test_whatever_packets_are_lost_each_stream_is_told_in_order_and_says_so(data: st.DataObject) -> None:
    line = Line().open()
    for _ in range(2):
        line.ask(asking()[:70], asking()[70:]).answer(*WHOLE).acknowledge()
    line.finish(0).finish(1)
    whole = [packet for _, packet in line.sent]
    kept = data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
    line.sent = [one for one, keep in zip(line.sent, kept, strict=True) if keep]
    messages = followed(line)
    for one in by_stream(messages):
        told = b"".join(WHOLE)
        lossy = any(isinstance(message, Dropped) for message in one)
        if not lossy and ended(one).ending is Ending.COMPLETE:
            assert arrived(one) == told
        assert lossy or told.startswith(arrived(one))
    for record in records(messages):
        assert (
            record.outcome == "completed"
            or not record.integrity.complete
            or record.outcome in ("abandoned", "upstream_reset")
        )


@given(cuts=st.lists(st.integers(1, 400), max_size=12), seed=st.randoms(use_true_random=False))
def test_however_packets_are_cut_and_reordered_the_streams_are_the_same(cuts: list[int], seed: object) -> None:
    def cut(data: bytes) -> list[bytes]:
        edges = sorted({0, len(data), *[one % len(data) for one in cuts]})
        return [data[a:b] for a, b in pairwise(edges)]

    line = Line().open()
    line.ask(*cut(asking())).answer(*cut(b"".join(WHOLE)))
    requests, answers = line.sent[3 : 3 + len(cut(asking()))], line.sent[3 + len(cut(asking())) :]
    for part in (requests, answers):
        order = list(part)
        seed.shuffle(order)  # type: ignore[attr-defined]
        for place, (stamp, _) in enumerate(part):
            part[place] = (stamp, order[place][1])
    line.sent = [*line.sent[:3], *requests, *answers]
    one = only(followed(line))
    assert (asked(one), arrived(one), ended(one).ending) == (BODY, b"".join(WHOLE), Ending.COMPLETE)
    assert not any(isinstance(message, Dropped) for message in one)
