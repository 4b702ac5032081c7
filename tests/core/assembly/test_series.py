"""Streams that one process reads in turn: the record of each equals the one from a process of its own."""

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.cuts import at as cut_at
from tests.vectors.compare import MS, SIZES, alike, anywhere, pace, randomly, same, times_of, without_times
from tests.vectors.drive import (
    Capture,
    Framing,
    Live,
    by_turns,
    byte_by_byte,
    in_pieces,
    live,
    messages,
    one_by_one,
    response_head,
    wire,
)
from tests.vectors.load import Series, Vector, blocks, differences, is_dispatched, series

ALL = series()
CAPTURES: list[Capture] = ["masked", "full"]

each = pytest.mark.parametrize("several", ALL, ids=[f"{one.dialect}/{one.name}" for one in ALL])
captures = pytest.mark.parametrize("capture", CAPTURES)


def alone(vector: Vector, how: Live) -> dict[str, Any]:
    """The record of the stream in a process that has read no other stream."""
    return live(vector, how, [wire(vector, how)])


def pieces_of(vector: Vector, how: Live) -> dict[str, list[bytes]]:
    """The response in different pieces: at once, an event a read, in small pieces, in single bytes."""
    data = wire(vector, how)
    events = [response_head(vector, how, vector.body), *blocks(vector.body)]
    ways = {"whole": [data], "events": events, "pieces": in_pieces(data, vector.name), "bytes": byte_by_byte(data)}
    assert {b"".join(pieces) for pieces in ways.values()} == {data}
    return ways


def unjudged(record: dict[str, Any], capture: Capture) -> dict[str, Any]:
    """The expected record in this capture: in a masked one, the validity of arguments is unknown."""
    if capture == "full":
        return record
    out = copy.deepcopy(record)
    for choice in out.get("choices", []):
        for call in choice.get("tool_calls", []):
            call["arguments_valid"] = None
    return out


@captures
@each
def test_each_record_is_the_expected_one_and_the_one_of_a_process_of_its_own(several: Series, capture: Capture) -> None:
    how = Live(capture)
    expected = [alone(vector, how) for vector in several.vectors]
    for vector, record in zip(several.vectors, expected, strict=True):
        assert list(differences(unjudged(vector.record, capture), record)) == []
    ways = [pieces_of(vector, how) for vector in several.vectors]
    for way, order in itertools.product(ways[0], (one_by_one, by_turns)):
        streams = [
            messages(vector, [(None, piece) for piece in pieces[way]], stream=number)
            for number, (vector, pieces) in enumerate(zip(several.vectors, ways, strict=True))
        ]
        for record, wanted in zip(order(capture, streams), expected, strict=True):
            same(alike(record), alike(wanted), (way, order.__name__))


@captures
@each
def test_any_split_of_each_in_any_order_under_any_framing_and_coding(several: Series, capture: Capture) -> None:
    expected = [alike(alone(vector, Live(capture)), *SIZES, "content_encoding") for vector in several.vectors]
    framings: list[Framing] = ["length", "chunked", "close"]

    @randomly
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(len(expected))))
        streams = []
        for place in order:
            vector = several.vectors[place]
            coding = data.draw(st.sampled_from([None, None, "gzip", "br", "zstd"]))
            sent = wire(vector, Live(capture, data.draw(st.sampled_from(framings)), coding))
            pieces = cut_at(sent, data.draw(anywhere(sent)))
            streams.append(messages(vector, [(None, piece) for piece in pieces], stream=place))
        for place, record in zip(order, one_by_one(capture, streams), strict=True):
            same(alike(record, *SIZES, "content_encoding"), expected[place], place)

    holds()


@captures
@each
def test_any_split_gives_each_event_the_time_of_the_read_that_completes_it(several: Series, capture: Capture) -> None:
    how = Live(capture)
    expected = [without_times(alone(vector, how)) for vector in several.vectors]
    heads = [response_head(vector, how, vector.body) for vector in several.vectors]

    @randomly
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        streams: list[Any] = []
        times: list[Any] = []
        for vector, head in zip(several.vectors, heads, strict=True):
            sent = wire(vector, how)
            places = data.draw(anywhere(sent))
            stamps = [total * MS for total in itertools.accumulate(data.draw(pace(len(places) + 1)))]
            reads = list(zip(stamps, cut_at(sent, places), strict=True))
            streams.append(messages(vector, reads, stamps[-1] + MS, stream=len(streams)))
            times.append(times_of(vector, head, places, stamps))
        records = one_by_one(capture, streams)
        for vector, record, wanted, came in zip(several.vectors, records, expected, times, strict=True):
            same(without_times(record), wanted)
            assert {name: record["timing"][name] for name in came} == pytest.approx(came, abs=1e-6)
            assert record["timing"]["gaps"]["count"] == max(len(vector.token_events_at) - 1, 0)

    holds()


@each
def test_a_series_agrees_with_itself(several: Series) -> None:
    count = len(several.vectors)
    assert count > 1
    assert [vector.name for vector in several.vectors] == [f"{several.name}/{at}" for at in range(1, count + 1)]
    for vector in several.vectors:
        dispatched = sum(map(is_dispatched, blocks(vector.body)))
        counts = vector.record["counts"]
        assert vector.about
        assert vector.is_stream and vector.ending == "complete" and vector.body.endswith(b"\n\n")
        assert (counts["bytes"], counts["events"]) == (len(vector.body), dispatched)
        assert counts["token_events"] == len(vector.token_events_at)
        assert all(0 <= place < dispatched for place in [*vector.token_events_at, vector.terminal_at or 0])
        assert (vector.terminal_at is not None) == (vector.record["outcome"] == "completed")
