"""Lost packets: a gap is reported at its place, and no end is guessed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    ReadsDropped,
)
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
from tests.taps.packets.wire import STEP, Line, by_stream, followed, records
from tests.taps.talk import EVENTS, SSE, chunked, head


def test_a_lost_packet_of_a_stream_is_a_gap_on_its_record() -> None:
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


def test_a_loss_within_a_body_of_known_length_hides_no_end() -> None:
    body = b"".join(EVENTS)
    line = Line().open().ask(asking()).answer(head(SSE, ("content-length", str(len(body)))), *EVENTS[:2])
    line.answer(EVENTS[2]).lose().answer(*EVENTS[3:]).acknowledge().ask(asking()).answer(*WHOLE)
    one, _ = by_stream(followed(line))
    assert names(one)[3:] == [
        "ResponseRead",
        "ResponseRead",
        "ResponseRead",
        "ReadsDropped",
        "ResponseRead",
        "ExchangeEnding",
    ]
    first, second = records(followed(line))
    assert (first.outcome, first.integrity.reasons, first.counts.token_events) == ("completed", ["dropped_reads"], 1)
    assert (second.outcome, second.integrity.complete) == ("completed", True)


def test_a_loss_within_one_chunk_hides_no_end() -> None:
    one = chunked(b"".join(EVENTS))
    line = Line().open().ask(asking()).answer(STREAM, one[:20], one[20:40]).lose().answer(one[40:]).acknowledge()
    (record,) = records(followed(line.ask(asking()).answer(*WHOLE)))[:1]
    assert (record.integrity.reasons, record.timing.end_s is not None) == (["dropped_reads"], True)
    assert endings(followed(line)) == [Ending.COMPLETE, Ending.COMPLETE]


@pytest.mark.parametrize("line_begun", [b"5;a=", b"0\r\nX: "])
def test_a_loss_within_a_line_of_the_framing_hides_the_end(line_begun: bytes) -> None:
    line = (
        Line()
        .open()
        .ask(asking())
        .answer(STREAM, line_begun, b"lost")
        .lose()
        .answer(b"\r\nhello\r\n0\r\n\r\n")
        .acknowledge()
    )
    assert endings(followed(line.ask(asking()).answer(*WHOLE))) == [Ending.CUT, Ending.COMPLETE]


def test_a_lost_last_packet_of_a_response_is_noticed_when_it_is_acknowledged() -> None:
    body = b"".join(EVENTS)
    line = Line().open().ask(asking()).answer(head(SSE, ("content-length", str(len(body)))), *EVENTS)
    one = only(followed(line.lose().acknowledge()))
    assert names(one)[-2:] == ["ReadsDropped", "ExchangeEnding"]
    assert (ended(one).ending, ended(one).at_ns) == (Ending.COMPLETE, line.now - STEP)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_head_of_a_response_leaves_the_stream_incomplete(lost: int) -> None:
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


def test_a_lost_head_of_a_request_hides_only_that_exchange() -> None:
    request = asking()
    line = (
        Line().open().ask(request[:40]).lose().ask(request[40:]).answer(*WHOLE).acknowledge().ask(asking()).answer(JSON)
    )
    one = only(followed(line))
    assert (request_body_of(one), arrived(one)) == (BODY, JSON)


def test_a_lost_beginning_of_a_chunked_request_does_not_hide_its_response() -> None:
    request = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    line = Line().open().ask(request, b"5\r\nhello\r\n").lose().ask(b"5\r\nworld\r\n", b"0\r\n\r\n").answer(*WHOLE)
    line.acknowledge().ask(asking()).answer(JSON)
    first, second = by_stream(followed(line))
    assert (sent(first), arrived(first), ended(first).ending) == (None, b"".join(WHOLE), Ending.COMPLETE)
    assert arrived(second) == JSON


def test_a_capture_that_starts_within_a_connection_follows_it_from_a_request() -> None:
    line = Line(first=(5, 9)).ask(b"the end of a body").answer(*WHOLE[3:]).acknowledge()
    line.ask(asking()).answer(*WHOLE)
    one = only(followed(line))
    assert (request_body_of(one), arrived(one), ended(one).ending) == (BODY, b"".join(WHOLE), Ending.COMPLETE)


def test_within_a_connection_only_a_whole_request_line_starts_the_capture() -> None:
    line = Line(first=(5, 9)).ask(b"POST /v1/messages", asking()[20:]).answer(*WHOLE)
    assert followed(line) == []


def test_an_earlier_response_is_not_taken_for_that_of_the_first_captured_request() -> None:
    """Pipelined before the capture began: the first response belongs to an earlier request."""
    line = Line(first=(5, 9)).ask(asking()).answer(*WHOLE[3:]).answer(*WHOLE)
    (record,) = records(followed(line))
    assert (record.outcome, record.counts.token_events) == ("abandoned", 0)


@given(st.data())
def test_with_any_lost_packets_each_stream_is_reported_in_order_and_as_incomplete(data: st.DataObject) -> None:
    line = Line().open()
    for _ in range(2):
        line.ask(asking()[:70], asking()[70:]).answer(*WHOLE).acknowledge()
    line.finish(0).finish(1)
    whole = [packet for _, packet in line.sent]
    kept = data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
    line.sent = [one for one, keep in zip(line.sent, kept, strict=True) if keep]
    messages = followed(line)
    for one in by_stream(messages):
        content = b"".join(WHOLE)
        lossy = any(isinstance(message, ReadsDropped) for message in one)
        if not lossy and ended(one).ending is Ending.COMPLETE:
            assert arrived(one) == content
        assert lossy or content.startswith(arrived(one))
    for record in records(messages):
        assert (
            record.outcome == "completed"
            or not record.integrity.complete
            or record.outcome in ("abandoned", "upstream_reset")
        )


@given(cuts=st.lists(st.integers(1, 400), max_size=12), seed=st.randoms(use_true_random=False))
def test_streams_do_not_depend_on_how_packets_are_cut_and_ordered(cuts: list[int], seed: object) -> None:
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
    assert (request_body_of(one), arrived(one), ended(one).ending) == (BODY, b"".join(WHOLE), Ending.COMPLETE)
    assert not any(isinstance(message, ReadsDropped) for message in one)
