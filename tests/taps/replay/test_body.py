"""A recording becomes segments: the same content as live, and nothing that the file does not contain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Ending, Opening, Segment, StreamEnding
from streamgauge.core.record import Record, encode_record
from streamgauge.taps.replay import CHUNK_BYTES, replay
from tests.taps import talk
from tests.taps.talk import BODY, EVENTS, SSE, answer, arrivals, ended, head, opened, recorded

ID = bytes(range(16))


def replayed(*chunks: bytes, capture: str = "full", dialect: str | None = None) -> list[Segment]:
    return list(replay(chunks, talk.settings(capture), dialect=dialect, new_id=lambda _: ID))


def record(segments: list[Segment]) -> Record:
    (one,) = Assembler().apply(0, 0, Bundle(b"i" * 16, 0, 0, 0, segments))
    return one


def test_nothing_is_invented() -> None:
    stream = talk.Recorded(replayed(BODY, dialect="openai-chat"))
    assert stream.segments[0].opening == Opening("replay", "1.2", "full", dialect="openai-chat")
    assert stream.segments[0].stream == ID
    assert stream.head is not None
    assert (stream.head.status, stream.head.stamp_ns, stream.head.event_stream) == (None, None, True)
    assert {(read.stamp_ns, read.wire_bytes) for read in stream.reads} == {(None, 0)}
    assert stream.body_bytes == len(BODY)
    assert stream.request is None
    assert stream.end == StreamEnding(Ending.COMPLETE)


def test_an_empty_recording_is_a_stream_without_facts() -> None:
    assert (
        replayed()
        == replayed(b"")
        == [Segment(ID, 0, Opening("replay", "1.2", "full"), end=StreamEnding(Ending.COMPLETE))]
    )
    replayed_record = record(replayed())
    assert (replayed_record.streaming, replayed_record.dialect, replayed_record.outcome) == (None, None, "truncated")


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b'{"error":{"message":"x","type":"y"}}', b'{"error":{"message":"x","type":"y"}}'),
        (b' \n[{"a":1}]', b' \n[{"a":1}]'),
        (b"<html>", None),
        (b"\xef\xbb\xbf<html>", None),
    ],
)
def test_what_begins_as_json_or_html_is_no_event_stream(body: bytes, kept: bytes | None) -> None:
    stream = talk.Recorded(replayed(body))
    assert stream.head is not None
    assert (stream.head.event_stream, stream.end.body, stream.content) == (False, kept, b"")


@pytest.mark.parametrize("body", [b"\n", b"hello", b": only a comment\n\n", b"data", b"id: 1\n\n", b"\xff\xfe"])
def test_everything_else_is_an_event_stream(body: bytes) -> None:
    stream = talk.Recorded(replayed(body))
    assert stream.head is not None
    assert stream.head.event_stream


@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_segments_do_not_depend_on_how_the_file_is_read(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from([BODY, BODY[:-1], BODY * 400, b"{" + BODY, b"", b"\xef\xbb\xbf" + BODY]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=9)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert replayed(*pieces) == replayed(body)


def test_a_large_file_is_read_in_pieces() -> None:
    stream = talk.Recorded(replayed(BODY * 1000))
    assert [read.body_bytes for read in stream.reads][:-1] == [CHUNK_BYTES] * (len(BODY) * 1000 // CHUNK_BYTES)
    assert stream.content == BODY.replace(b": keep-alive\n", b":\n") * 1000


def test_segments_come_while_the_file_is_read() -> None:
    def chunks() -> object:
        for _ in range(3):
            yield BODY * 1000
        raise OSError("the disk is gone")

    segments = replay(chunks(), talk.settings())  # type: ignore[arg-type]
    assert next(segments).reads
    with pytest.raises(OSError, match="gone"):
        list(segments)


@pytest.mark.parametrize("capture", ["full", "masked"])
@pytest.mark.parametrize(
    "body",
    [
        BODY,
        BODY.replace(b"\n", b"\r\n"),
        BODY[:-1],
        BODY[:-40],
        b'{"error":{"message":"x","type":"y"}}',
        b'{\n  "error": {"message": "x"}\n}\n\n' + BODY,
        b"event: error\ndata: {}\n\n",
        b"",
    ],
)
def test_equal_bytes_give_equal_content_live_and_replayed(body: bytes, capture: str) -> None:
    from streamgauge.recorder.recorder import Recorder

    live = recorded(
        answer(head(SSE), *[body[at : at + 7] for at in range(0, len(body), 7)]), Recorder(talk.settings(capture))
    )
    again = talk.Recorded(replayed(body, capture=capture))
    assert (live.content, live.end.tail, live.end.body) == (again.content, again.end.tail, again.end.body)
    assert live.body_bytes == again.body_bytes
    if body:
        assert live.head is not None
        assert again.head is not None
        assert live.head.event_stream == again.head.event_stream


TRANSPORT = {"stream_id", "tap", "upstream", "endpoint", "started_at", "status_code", "request", "timing"}


def test_equal_bytes_give_equal_records_live_and_replayed() -> None:
    live = recorded([opened(), *arrivals(head(SSE), *EVENTS), ended()])
    one, two = record(list(live.segments)), record(replayed(BODY))
    for choice in (*one.choices, *two.choices):
        choice.first_token_s = None
    for name in set(one.__struct_fields__) - TRANSPORT - {"counts"}:
        assert getattr(one, name) == getattr(two, name), name
    for name in set(one.counts.__struct_fields__) - {"reads", "segments", "client_bytes"}:
        assert getattr(one.counts, name) == getattr(two.counts, name), name
    assert two.timing.end_s is None
    assert two.timing.gaps.count == 1
    assert b'"first_token_s":null' in encode_record(two)
