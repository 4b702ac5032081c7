"""The same exchange in each framing gives the same record, but for its bytes.

Every vector whose events a framing can carry is written in that framing, from its server-sent events: no dialect knows the
framing.
"""

import json
from collections.abc import Iterable
from itertools import accumulate
from typing import Any
from zlib import crc32

import msgspec
import pytest

from streamgauge.core.formats.sse import Event
from streamgauge.recorder.recorder import Recorder
from tests.core.formats.aws_messages import HOSTILE
from tests.each import check_each
from tests.vectors.compare import MS, SIZES, alike, same, without_times
from tests.vectors.drive import (
    Live,
    as_json,
    cut_short,
    in_pieces,
    live,
    messages,
    record_of,
    segments_of,
    settings,
    stamped,
    wire,
)
from tests.vectors.drive import response_head as head_of
from tests.vectors.framings import FRAMINGS, Framing, framed
from tests.vectors.load import Vector, blocks, vectors

# Framings of which at least one vector of the dialect must be written.
OWED = {
    ("ollama", "json lines"),
    ("cohere-v1", "json lines"),
    ("gemini", "json array"),
    ("gemini", "json lines"),
    ("bedrock-converse", "aws events"),
    ("bedrock-converse", "aws chunks"),  # Nova's
    ("bedrock-text", "aws chunks"),
    ("cohere-v1", "aws chunks"),
    ("anthropic-messages", "aws chunks"),
}

FRAMED = [
    (framing, vector, *written)
    for framing in FRAMINGS
    for vector in vectors()
    if (written := framed(vector, framing)) is not None
]


def test_every_framing_is_shown_by_its_dialects() -> None:
    assert {(vector.dialect, framing.name) for framing, vector, *_ in FRAMED} >= OWED


def name_of(case: tuple[Framing, Vector, Vector, list[bytes]]) -> str:
    framing, vector, *_ = case
    return f"{framing.name} {vector.dialect}/{vector.name}"


# Of the pairs that no provider sends, a fourth of the vectors, the same ones each time.
_EVERY = 4


def is_sent(case: tuple[Framing, Vector, Vector, list[bytes]]) -> bool:
    framing, vector, *_ = case
    return (vector.dialect, framing.name) in OWED or crc32(name_of(case).encode()) % _EVERY == 0


SENT = [case for case in FRAMED if is_sent(case)]


def record(vector: Vector, how: Live, pieces: list[bytes] | None = None) -> dict[str, Any]:
    return alike(live(vector, how, pieces or [wire(vector, how)]), *SIZES)


def is_the_record_of_server_sent_events(case: tuple[Framing, Vector, Vector, list[bytes]]) -> None:
    _, vector, other, _ = case
    for capture in ("full", "masked"):
        how = Live(capture=capture, framing="chunked")
        expected = record(vector, how)
        same(record(other, how), expected, capture)
        same(record(other, how, in_pieces(wire(other, how), other.name)), expected, capture)


def has_the_times_of_its_pieces(case: tuple[Framing, Vector, Vector, list[bytes]]) -> None:
    """Each event has the time of the read that completes it: none waits for the next one."""
    _, vector, other, pieces = case
    reads = [((place + 2) * 10 * MS, piece) for place, piece in enumerate(pieces)]
    got = stamped(other, Live(), [(5 * MS, head_of(other, Live(), other.body)), *reads], 10_000 * MS)
    seconds = [stamp / 1e9 for stamp, _ in reads]
    tokens = [seconds[place] for place in vector.token_events_at]
    assert got["timing"]["first_token_s"] == (pytest.approx(tokens[0], abs=1e-6) if tokens else None)
    assert got["timing"]["last_token_s"] == (pytest.approx(tokens[-1], abs=1e-6) if tokens else None)
    assert got["timing"]["first_event_s"] == pytest.approx(seconds[0], abs=1e-6)
    same(alike(without_times(got), *SIZES), alike(without_times(live(vector, Live(), [wire(vector, Live())])), *SIZES))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_record_is_that_of_server_sent_events() -> None:
    check_each(SENT, is_the_record_of_server_sent_events, name_of)


def test_each_event_has_the_time_of_the_piece_that_completes_it() -> None:
    timed = [case for case in SENT if not case[1].no_timing and case[1].ending == "complete"]
    check_each(timed, has_the_times_of_its_pieces, name_of)


def test_masked_framings_carry_no_text() -> None:
    """What a tap sends to Kafka of each framing holds no word of a prompt, a text or an argument."""
    canary = "Canary7391"
    line = {
        "model": "m",
        "message": {"content": canary, "tool_calls": [{"function": {"name": "f", "arguments": {canary: canary}}}]},
    }
    unknown = {"model": "m", "done": False, canary: {"a": canary}, "context": [canary]}
    error = {"error": f"no {canary}"}
    contents = [{**line, "done": False}, unknown, error, {**line, "done": True, "done_reason": "stop"}]
    for framing in FRAMINGS:
        written = framing.write([Event("", json.dumps(value).encode()) for value in contents])
        assert written is not None
        for cut in (0, 9):
            body = b"".join(written)[: len(b"".join(written)) - cut]
            vector = Vector(
                "", {}, [], dialect="ollama", body=body, target="/api/chat", content_type=framing.content_type
            )
            for segment in segments_of("masked", messages(vector, [(None, wire(vector, Live()))])):
                assert canary.encode() not in msgspec.msgpack.encode(segment), framing.name


BY_CASE = {name_of(case): case for case in FRAMED}
CUT_EVERYWHERE = [
    "aws events bedrock-converse/happy",
    "aws events bedrock-converse/tools",
    "aws events bedrock-converse/reasoning",
    "aws events bedrock-converse/error-mid-stream",
    "aws chunks bedrock-text/happy",
    "aws chunks anthropic-messages/no-event-lines",
    "json lines ollama/tools",
    "json lines cohere-v1/happy",
    "json array gemini/happy",
]
# Of a stream that was cut, what does not depend on how its events were framed.
OF_A_CUT = (
    "outcome",
    "error",
    "finish_reason",
    "finish_reason_raw",
    "choices",
    "usage",
    "provider_timing",
    "service_tier",
)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CUT_EVERYWHERE)
def test_a_stream_that_is_cut_at_each_byte_has_its_whole_events(name: str) -> None:
    """The record is that of as many server-sent events, for each ending; half a message, line or element is none."""
    _, vector, other, pieces = BY_CASE[name]
    line_end = len(b"\n") if name.startswith("json lines") else 0  # a line is whole without it
    ends = [end - line_end for end in accumulate(map(len, pieces))]
    events = blocks(vector.body)
    sse = [b"".join(events[:count]) for count in range(len(pieces) + 1)]
    for ending in ("complete", "reset", "client"):
        wanted = [cut_short(vector, body, ending) for body in sse]
        for size in range(len(other.body)):
            records, expects = cut_short(other, other.body[:size], ending), wanted[sum(end <= size for end in ends)]
            assert len(records) == len(expects), (size, ending)
            for record, expected in zip(records, expects, strict=True):
                assert [record[member] for member in OF_A_CUT] == [expected[member] for member in OF_A_CUT], (
                    size,
                    ending,
                )
                counts = ("events", "token_events", "text_chars", "reasoning_chars")
                assert [record["counts"][one] for one in counts] == [expected["counts"][one] for one in counts]
                assert record["integrity"]["complete"], (size, ending)


def damaged_record(vector: Vector, how: Live, pieces: Iterable[bytes]) -> dict[str, Any]:
    """The record of a stream with a fault in its framing, which the recorder counts once."""
    recording = Recorder(settings(how.capture))
    for message in messages(vector, ((None, piece) for piece in pieces)):
        recording.handle(message)
    segments = list(recording.segments())
    assert (recording.dropped.total(), recording.incidents.total()) == (0, 1)
    return as_json(record_of(segments))


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("behind", [2, 6], ids=["amid the text", "behind the terminal"])
def test_a_hostile_message_ends_what_can_be_read(kind: str, behind: int) -> None:
    """Its lengths or checksums do not fit: the messages before it count, none behind it, and the record says why."""
    _, vector, other, pieces = BY_CASE["aws events bedrock-converse/happy"]
    assert vector.terminal_at is not None
    body = b"".join([*pieces[:behind], HOSTILE[kind], *pieces[behind:]])
    damaged = msgspec.structs.replace(other, body=body)
    for capture in ("full", "masked"):
        how = Live(capture=capture)
        record = damaged_record(damaged, how, [wire(damaged, how)])
        assert record["counts"]["events"] == behind
        assert record["integrity"]["decode_error"] == "bad_event_framing"
        assert not record["integrity"]["complete"]
        assert record["outcome"] == ("completed" if behind > vector.terminal_at else "truncated")
        again = damaged_record(damaged, how, in_pieces(wire(damaged, how), kind))
        same(alike(again, *SIZES), alike(record, *SIZES), capture)
