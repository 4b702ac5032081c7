"""Every vector through recorder, segments and assembler: the same record however the bytes came, and the right one."""

import itertools
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.dialects import endpoint_of
from streamgauge.core.record import SCHEMA_VERSION
from streamgauge.records import Record
from tests.core.cuts import at as cut_at
from tests.vectors.compare import MS, SIZES, alike, anywhere, pace, randomly, same, times_of, without_times
from tests.vectors.drive import Live, byte_by_byte, cut_short, encoded, in_pieces, live, replayed, stamped, wire
from tests.vectors.drive import response_head as head_of
from tests.vectors.load import Vector, blocks, differences, is_dispatched, vectors, with_line_ends

ALL = vectors()
IDS = [f"{vector.dialect}/{vector.name}" for vector in ALL]
STREAMS = [vector for vector in ALL if vector.is_stream]
FILES = [vector for vector in ALL if not vector.live_only]
TIMED = [one for one in STREAMS if not one.no_timing and one.body.endswith((b"\n\n", b"\r\n\r\n"))]
ENDED = [vector for vector in ALL if vector.terminal_at is not None]

# Splitting everywhere costs the square of the size: bodies up to this size, others at random places alone (bytes).
SPLIT_EVERYWHERE = 400
# One byte a read costs some 30 us; what is longer comes in small pieces instead (bytes).
BYTE_BY_BYTE = 1000
CODINGS = ["gzip", "gzip-members", "deflate", "br", "zstd"]
# Whose finish reason comes with an event of its own, before the terminal (message_delta, then message_stop).
FINISH_BEFORE_TERMINAL = {"anthropic-messages"}
# What a plain file cannot tell.
TRANSPORT = (
    *("tap", "tap_instance", "tap_version", "upstream", "request", "request_digest", "request_model"),
    *("started_at", "status_code", "content_encoding", "counts.client_bytes"),
)

each = pytest.mark.parametrize("vector", ALL, ids=IDS)


def named(found: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", found, ids=[f"{one.dialect}/{one.name}" for one in found])


def whole(vector: Vector, how: Live | None = None, body: bytes | None = None) -> dict[str, Any]:
    way = how or Live()
    return live(vector, way, [wire(vector, way, body)])


@each
def test_says_what_the_documents_say(vector: Vector) -> None:
    record = whole(vector)
    assert list(differences(vector.record, record)) == []
    assert record["counts"]["bytes"] == len(vector.body)
    assert Record.model_validate(record).schema_version == SCHEMA_VERSION


@named(FILES)
def test_replay_of_the_file_says_the_same(vector: Vector) -> None:
    from_file = replayed(vector, [vector.body])
    expected = {key: value for key, value in vector.record.items() if key != "request"}
    assert list(differences(expected, from_file)) == []
    same(alike(from_file, *TRANSPORT), alike(whole(vector), *TRANSPORT))
    same(alike(replayed(vector, in_pieces(vector.body, vector.name))), alike(from_file))


@each
def test_byte_by_byte(vector: Vector) -> None:
    how = Live(framing="chunked" if len(vector.name) % 2 else "length")
    data = wire(vector, how)
    # Of a long one the beginning, where most is decided.
    pieces = [*byte_by_byte(data[:BYTE_BY_BYTE]), *in_pieces(data[BYTE_BY_BYTE:], vector.name)]
    same(alike(live(vector, how, pieces)), alike(whole(vector, how)))


@named([vector for vector in ALL if len(vector.body) <= SPLIT_EVERYWHERE])
def test_split_in_two_anywhere(vector: Vector) -> None:
    expected, data = alike(whole(vector)), wire(vector, Live())
    for at in range(data.index(b"\r\n\r\n") - 2, len(data)):
        same(alike(live(vector, Live(), [data[:at], data[at:]])), expected, at)


@pytest.mark.parametrize("end", [b"\r\n", b"\r"], ids=["crlf", "cr"])
@named(STREAMS)
def test_line_ends(vector: Vector, end: bytes) -> None:
    body = with_line_ends(vector.body, end)
    cut = byte_by_byte if len(body) <= BYTE_BY_BYTE else lambda data: in_pieces(data, vector.name)
    expected = alike(whole(vector), *SIZES)
    record = whole(vector, None, body)
    assert record["counts"]["bytes"] == len(body)
    same(alike(record, *SIZES), expected)
    same(alike(live(vector, Live(), cut(wire(vector, Live(), body))), *SIZES), expected)


@each
def test_compressed(vector: Vector) -> None:
    """Each vector with one coding: what codings do is tests/core/test_body.py's."""
    coding = CODINGS[crc32(vector.name.encode()) % len(CODINGS)]
    how = Live(coding=coding, framing="chunked" if coding == "br" else "length")
    expected = alike(whole(vector), *SIZES, "content_encoding")
    data = wire(vector, how)
    for pieces in ([data], byte_by_byte(data)):
        record = live(vector, how, pieces)
        assert record["content_encoding"] == coding.removesuffix("-members")
        assert record["counts"]["bytes"] == len(encoded(vector.body, coding))
        same(alike(record, *SIZES, "content_encoding"), expected)


@each
def test_masked_differs_in_nothing_but_validity(vector: Vector) -> None:
    masked, full = whole(vector, Live(capture="masked")), whole(vector)
    assert (masked["capture"], full["capture"]) == ("masked", "full")
    for record in (masked, full):
        for choice in record["choices"]:
            for call in choice["tool_calls"]:
                assert record is full or call["arguments_valid"] is None
                call["arguments_valid"] = None
    same(alike(masked, "capture"), alike(full, "capture"))


@named([vector for vector in ALL if vector.ending == "complete"])
def test_bytes_behind_the_body_are_not_the_stream(vector: Vector) -> None:
    expected = alike(whole(vector))
    for framing in ("length", "chunked"):
        how = Live(framing=framing, behind=b'data: {"error":{"message":"next"}}\n\nHTTP/1.1 200 OK\r\n\r\n')
        same(alike(whole(vector, how)), expected, framing)
        same(alike(live(vector, how, in_pieces(wire(vector, how), vector.name))), expected, framing)


@named([vector for vector in STREAMS if vector.ending == "complete"])
def test_a_body_that_the_connections_end_closes(vector: Vector) -> None:
    same(alike(whole(vector, Live(framing="close"))), alike(whole(vector)))


def token_times(vector: Vector) -> tuple[list[tuple[int, bytes]], list[int], list[int]]:
    """One block a read, the i-th at (i + 1) * 10 ms: the reads, the times of events, and of token events (ns)."""
    cut = blocks(vector.body)
    reads = [((place + 1) * 10 * MS, block) for place, block in enumerate(cut)]
    events = [stamp for stamp, block in reads if is_dispatched(block)]
    return reads, events, [events[place] for place in vector.token_events_at]


def nearest_rank(ordered: list[int], percent: int) -> float:
    return ordered[-(-percent * len(ordered) // 100) - 1] / 1e9


def expected_gaps(tokens: list[int]) -> dict[str, Any]:
    gaps = sorted(after - before for before, after in itertools.pairwise(tokens))
    if not gaps:
        return {"count": 0}
    stats = {"mean_s": sum(gaps) / len(gaps) / 1e9, "max_s": gaps[-1] / 1e9, "stalls": 0}
    stats |= {f"p{percent}_s": nearest_rank(gaps, percent) for percent in (50, 95, 99)}
    return {"count": len(gaps), **stats}


@named(TIMED)
def test_times_are_those_of_the_reads(vector: Vector) -> None:
    reads, events, tokens = token_times(vector)
    head = head_of(vector, Live(), vector.body)
    timing = stamped(vector, Live(), [(5 * MS, head), *reads], 10_000 * MS)["timing"]

    def seconds(times: list[int], place: int) -> float | None:
        return times[place] / 1e9 if times else None

    want = {"headers_s": 0.005, "first_event_s": seconds(events, 0), "end_s": 10.0, "burst": False}
    want |= {"first_token_s": seconds(tokens, 0), "last_token_s": seconds(tokens, -1)}
    assert {name: timing[name] for name in want} == pytest.approx(want, abs=1e-6)
    gaps = expected_gaps(tokens)
    assert {name: timing["gaps"][name] for name in gaps} == pytest.approx(gaps, abs=1e-6)
    if gaps["count"]:
        bound, cumulative = timing["gaps"]["buckets"][-1]
        assert (bound, cumulative) == (None, gaps["count"])


@named([one for one in STREAMS if len(one.token_events_at) >= 5 and not one.no_timing])
def test_one_read_of_everything_is_a_burst(vector: Vector) -> None:
    timing = stamped(vector, Live(), [(30 * MS, wire(vector, Live()))], 40 * MS)["timing"]
    assert timing["burst"] is True
    assert (timing["first_token_s"], timing["last_token_s"]) == (0.03, 0.03)


@each
def test_without_stamps_there_are_no_times(vector: Vector) -> None:
    timing = whole(vector)["timing"]
    gaps = timing.pop("gaps")
    assert set(timing.values()) == {None}
    assert gaps.pop("count") == max(len(vector.token_events_at) - 1, 0)
    assert set(gaps.values()) == {None}


@each
def test_a_vector_agrees_with_itself(vector: Vector) -> None:
    dispatched = sum(is_dispatched(block) for block in blocks(with_line_ends(vector.body, b"\n")))
    counts = vector.record["counts"]
    assert vector.about
    assert counts["bytes"] == len(vector.body)
    assert counts.get("token_events") == len(vector.token_events_at)
    assert all(0 <= place < dispatched for place in vector.token_events_at)
    if vector.is_stream and "events" in counts:
        assert counts["events"] == dispatched
    if vector.terminal_at is not None:
        assert 0 <= vector.terminal_at < dispatched
        assert (vector.ending, vector.status, vector.is_stream) == ("complete", 200, True)
        assert (vector.record["outcome"], vector.record["error"]) == ("completed", None)


@each
def test_any_split_under_any_framing_and_coding(vector: Vector) -> None:
    expected = alike(whole(vector), *SIZES, "content_encoding")

    @randomly
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        framings = ["length", "chunked", *(["close"] if vector.ending == "complete" and vector.is_stream else [])]
        coding = data.draw(st.sampled_from([None, None, "gzip", "deflate", "br", "zstd"]))
        how = Live(framing=data.draw(st.sampled_from(framings)), coding=coding)
        sent = wire(vector, how)
        pieces = cut_at(sent, data.draw(anywhere(sent)))
        same(alike(live(vector, how, pieces), *SIZES, "content_encoding"), expected)

    holds()


@named(TIMED)
def test_any_split_gives_each_event_the_time_of_the_read_that_completes_it(vector: Vector) -> None:
    expected, head = without_times(whole(vector)), head_of(vector, Live(), vector.body)
    sent = wire(vector, Live())

    @randomly
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        places = data.draw(anywhere(sent))
        pauses = data.draw(pace(len(places) + 1))
        stamps = [total * MS for total in itertools.accumulate(pauses)]
        reads = list(zip(stamps, cut_at(sent, places), strict=True))
        record = stamped(vector, Live(), reads, stamps[-1] + MS)
        same(without_times(record), expected)
        times = times_of(vector, head, places, stamps)
        assert {name: record["timing"][name] for name in times} == pytest.approx(times, abs=1e-6)
        assert record["timing"]["gaps"]["count"] == max(len(vector.token_events_at) - 1, 0)

    holds()


def cuts(vector: Vector) -> Iterator[tuple[bytes, int]]:
    """The body up to each of its blocks' ends, and how many events were dispatched by then."""
    cut = blocks(vector.body)
    for count in range(len(cut) + 1):
        yield b"".join(cut[:count]), sum(is_dispatched(block) for block in cut[:count])


def outcome_of_cut(ending: str, terminal: bool) -> tuple[str, dict[str, Any] | None]:
    """Outcome and error of a stream that ended so, before its terminal or behind it."""
    if terminal:
        return "completed", None
    if ending == "reset":
        return "upstream_reset", {"phase": "transport", "type": None, "code": None, "status": None}
    return {"complete": "truncated", "client": "client_abort"}[ending], None


def check_cut(vector: Vector, record: dict[str, Any], events: int, ending: str) -> None:
    terminal = vector.terminal_at is not None and events > vector.terminal_at
    assert (record["outcome"], record["error"]) == outcome_of_cut(ending, terminal)
    tokens = sum(place < events for place in vector.token_events_at)
    assert (record["counts"]["events"], record["counts"]["token_events"]) == (events, tokens)
    if terminal:
        return
    if len(vector.record["choices"]) == 1 and vector.dialect not in FINISH_BEFORE_TERMINAL:
        assert (record["finish_reason"], record["finish_reason_raw"]) == (None, None)
    if record["finish_reason_raw"] is None:
        assert record["usage"]["source"] in ("absent", "partial")


@pytest.mark.parametrize("ending", ["complete", "reset", "client"])
@named(ENDED)
def test_the_terminal_decides_wherever_it_is_cut(vector: Vector, ending: str) -> None:
    for body, events in cuts(vector):
        records = cut_short(vector, body, ending)
        if not records:  # a path of no LLM's, and nothing of an LLM came over it yet: neither text nor the end
            assert endpoint_of(vector.method, vector.target) is None
            assert events <= min([*vector.token_events_at, vector.terminal_at or 0])
            continue
        (record,) = records
        check_cut(vector, record, events, ending)
