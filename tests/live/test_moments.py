"""What each read of a stream brought: counts and kinds, never text."""

import msgspec

from streamgauge.core.capture.segments import Read
from streamgauge.live.moments import KINDS, Moment, ReadDecoder
from tests.live.streams import SECOND, read_of, token
from tests.streams import FINISH, MS, chat_event, opening

STALL = 5 * SECOND


def decoded(*reads: Read, dialect: str | None = None) -> list[Moment]:
    decoder = ReadDecoder(opening(), dialect, STALL)
    return [decoder.moment(index, None, read) for index, read in enumerate(reads)]


def test_each_kind_is_recognised() -> None:
    reads = [
        read_of(chat_event(role="assistant", content=""), MS),
        read_of(chat_event(reasoning_content="thinking"), 2 * MS),
        token(3 * MS),
        read_of(chat_event(refusal="no"), 4 * MS),
        read_of(chat_event(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]), 5 * MS),
        read_of(b": ping\n\n", 6 * MS),
        read_of(b'event: error\ndata: {"error":{"type":"overloaded_error","message":"SECRET"}}\n\n', 7 * MS),
        read_of(FINISH, 8 * MS),
    ]
    moments = decoded(*reads)
    assert [moment.kinds for moment in moments] == [
        ("other",),
        ("reasoning",),
        ("text",),
        ("refusal",),
        ("tool",),
        ("comment",),
        ("error",),
        ("usage", "finish", "terminal"),
    ]
    assert [moment.tokens for moment in moments] == [0, 1, 1, 1, 1, 0, 0, 0]
    assert [moment.events for moment in moments] == [1, 1, 1, 1, 1, 0, 1, 2]
    assert {kind for moment in moments for kind in moment.kinds} <= set(KINDS)


def test_a_read_without_a_whole_event_has_no_kind() -> None:
    [moment] = decoded(Read(MS, 3, 3))
    assert (moment.kinds, moment.events, moment.body_bytes) == ((), 0, 3)


def test_several_events_of_one_read_are_one_moment() -> None:
    [moment] = decoded(read_of(chat_event(content="a") + chat_event(content="b"), MS))
    assert (moment.events, moment.tokens, moment.kinds) == (2, 2, ("text",))


def test_reads_from_the_middle_of_a_stream_are_decoded_by_the_known_dialect() -> None:
    data = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}'
    event = b"event: content_block_delta\ndata: " + data + b"\n\n"
    [moment] = decoded(read_of(event, MS), dialect="anthropic-messages")
    assert (moment.tokens, moment.kinds) == (1, ("text",))


def test_a_gap_above_the_limit_is_a_stall() -> None:
    decoder = ReadDecoder(opening(), None, STALL)
    assert not decoder.moment(0, STALL, token(MS)).stall
    assert decoder.moment(1, STALL + 1, token(2 * MS)).stall


def test_no_text_is_in_a_moment() -> None:
    for moment in decoded(token(MS), read_of(chat_event(reasoning_content="a SECRET thought"), MS)):
        assert b"SECRET" not in msgspec.json.encode(moment)
