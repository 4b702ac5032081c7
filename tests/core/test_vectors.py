"""Every vector through recorder, segments and assembler: the same, expected record for any way in which its bytes come.

Each dialect has one test for the expected records, and one for all ways in which the bytes of its vectors can come, their
times and their cuts. A note below a failed assertion names the vector and the way that failed.
"""

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.dialects import endpoint_of
from streamgauge.core.record import SCHEMA_VERSION
from streamgauge.records import Record
from tests.core.cuts import at as cut_at
from tests.each import check_each
from tests.vectors.compare import MS, SIZES, alike, anywhere, pace, randomly, same, times_of, without_times
from tests.vectors.drive import Live, byte_by_byte, cut_short, encoded, in_pieces, live, replayed, stamped, wire
from tests.vectors.drive import response_head as head_of
from tests.vectors.load import Vector, blocks, differences, is_dispatched, vectors, with_line_ends

ALL = vectors()

# Splitting at each position takes quadratic time: bodies up to this size (bytes) are split at every other position, longer
# ones at random.
SPLIT_EVERYWHERE = 250
# One byte a read takes some 30 us a byte: the head and the first events come so, the rest in pieces of 1 to 40 bytes (bytes).
BYTE_BY_BYTE = 400
# Random ways to cut each vector, besides those that Hypothesis searches for (count).
RANDOM_CUTS = 3
CODINGS = ["gzip", "gzip-members", "deflate", "br", "zstd"]
# Dialects whose finish reason comes before the terminal, in another event (message_delta, then message_stop).
FINISH_BEFORE_TERMINAL = {"anthropic-messages", "sourcegraph"}
# Fields that a plain file does not have.
TRANSPORT = (
    *("tap", "tap_instance", "tap_version", "upstream", "request", "request_digest", "request_model"),
    *("started_at", "status_code", "content_encoding", "counts.client_bytes"),
)

Check = Callable[[Vector], None]
T = TypeVar("T")
PLAIN = Live()
# What `whole` returned, as JSON: most checks compare with the same record.
_WHOLE: dict[tuple[str, str, Live], str] = {}


def is_timed(vector: Vector) -> bool:
    return vector.is_stream and not vector.no_timing and vector.body.endswith((b"\n\n", b"\r\n\r\n"))


def by_dialect(found: list[Vector]) -> pytest.MarkDecorator:
    dialects: dict[str, list[Vector]] = defaultdict(list)
    for vector in found:
        dialects[vector.dialect].append(vector)
    return pytest.mark.parametrize("among", dialects.values(), ids=dialects)


def whole(vector: Vector, how: Live = PLAIN) -> dict[str, Any]:
    """The record of the stream that arrived in one piece."""
    key = vector.dialect, vector.name, how
    if key not in _WHOLE:
        _WHOLE[key] = json.dumps(live(vector, how, [wire(vector, how)]))
    record: dict[str, Any] = json.loads(_WHOLE[key])
    return record


@by_dialect(ALL)
def test_the_record_is_that_of_the_documents(among: list[Vector]) -> None:
    check_each(among, says_what_the_documents_say, lambda vector: vector.name)


def says_what_the_documents_say(vector: Vector) -> None:
    agrees_with_itself(vector)
    record = whole(vector)
    assert list(differences(vector.record, record)) == []
    assert record["counts"]["bytes"] == len(vector.body)
    assert Record.model_validate(record).schema_version == SCHEMA_VERSION
    without_stamps_there_are_no_times(vector, record["timing"])


def agrees_with_itself(vector: Vector) -> None:
    counts = vector.record["counts"]
    if vector.is_stream:
        dispatched = sum(is_dispatched(block) for block in blocks(with_line_ends(vector.body, b"\n")))
    else:  # the elements of an array
        dispatched = counts.get("events", 0)
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


def from_a_file(vector: Vector) -> None:
    if vector.live_only:
        return
    from_file = replayed(vector, [vector.body])
    expected = {key: value for key, value in vector.record.items() if key != "request"}
    assert list(differences(expected, from_file)) == []
    same(alike(from_file, *TRANSPORT), alike(whole(vector), *TRANSPORT))
    same(alike(replayed(vector, in_pieces(vector.body, vector.name))), alike(from_file))


def one_byte_a_read(vector: Vector) -> None:
    how = Live(framing="chunked" if len(vector.name) % 2 else "length")
    data = wire(vector, how)
    # Of a long one only the beginning, where most is decided.
    pieces = [*byte_by_byte(data[:BYTE_BY_BYTE]), *in_pieces(data[BYTE_BY_BYTE:], vector.name)]
    same(alike(live(vector, how, pieces)), alike(whole(vector, how)))


def one_of(kinds: Sequence[T], vector: Vector) -> T:
    """One example for each vector, the same in each run: each kind of vector gets its share."""
    return kinds[crc32(vector.name.encode()) % len(kinds)]


def split_in_two_anywhere(vector: Vector) -> None:
    """At the even or the odd positions: small vectors are alike, and half of them have the others."""
    if len(vector.body) > SPLIT_EVERYWHERE:
        return
    expected, data = alike(whole(vector)), wire(vector, Live())
    for at in range(data.index(b"\r\n\r\n") - 2 + one_of((0, 1), vector), len(data), 2):
        same(alike(live(vector, Live(), [data[:at], data[at:]])), expected, at)


def other_line_ends(vector: Vector) -> None:
    if not vector.is_stream:
        return
    expected = alike(whole(vector), *SIZES)
    piecemeal = one_of((b"\r\n", b"\r"), vector)
    for end in (b"\r\n", b"\r"):
        body = with_line_ends(vector.body, end)
        sent = wire(vector, Live(), body)
        record = live(vector, Live(), [sent])
        assert record["counts"]["bytes"] == len(body)
        same(alike(record, *SIZES), expected, end)
        if end != piecemeal:
            continue
        pieces = byte_by_byte(sent) if len(body) <= BYTE_BY_BYTE else in_pieces(sent, vector.name)
        same(alike(live(vector, Live(), pieces), *SIZES), expected, end)


def compressed(vector: Vector) -> None:
    """Each vector with one coding; tests/core/http1/test_body.py tests the codings themselves."""
    coding = one_of(CODINGS, vector)
    how = Live(coding=coding, framing="chunked" if coding == "br" else "length")
    expected = alike(whole(vector), *SIZES, "content_encoding")
    data = wire(vector, how)
    for pieces in ([data], [*byte_by_byte(data[:BYTE_BY_BYTE]), *in_pieces(data[BYTE_BY_BYTE:], vector.name)]):
        record = live(vector, how, pieces)
        assert record["content_encoding"] == coding.removesuffix("-members")
        assert record["counts"]["bytes"] == len(encoded(vector.body, coding))
        same(alike(record, *SIZES, "content_encoding"), expected)


def masked(vector: Vector) -> None:
    """A masked record differs only in the validity of arguments."""
    without, full = whole(vector, Live(capture="masked")), whole(vector)
    assert (without["capture"], full["capture"]) == ("masked", "full")
    for record in (without, full):
        for choice in record["choices"]:
            for call in choice["tool_calls"]:
                assert record is full or call["arguments_valid"] is None
                call["arguments_valid"] = None
    same(alike(without, "capture"), alike(full, "capture"))


def more_behind_the_body(vector: Vector) -> None:
    if vector.ending != "complete":
        return
    expected = alike(whole(vector))
    for framing in ("length", "chunked"):
        how = Live(framing=framing, behind=b'data: {"error":{"message":"next"}}\n\nHTTP/1.1 200 OK\r\n\r\n')
        same(alike(whole(vector, how)), expected, framing)
        if framing == one_of(("length", "chunked"), vector):
            same(alike(live(vector, how, in_pieces(wire(vector, how), vector.name))), expected, framing)


def closed_by_the_connections_end(vector: Vector) -> None:
    if vector.is_stream and vector.ending == "complete":
        same(alike(whole(vector, Live(framing="close"))), alike(whole(vector)))


def framings_of(vector: Vector) -> list[Any]:
    return ["length", "chunked", *(["close"] if vector.ending == "complete" and vector.is_stream else [])]


def cut_at_random(vector: Vector) -> None:
    expected = alike(whole(vector), *SIZES, "content_encoding")
    chosen = random.Random(vector.name)
    for _ in range(RANDOM_CUTS):
        how = Live(
            framing=chosen.choice(framings_of(vector)), coding=chosen.choice([None, "gzip", "deflate", "br", "zstd"])
        )
        sent = wire(vector, how)
        places = sorted(chosen.randrange(len(sent)) for _ in range(chosen.randrange(12)))
        same(alike(live(vector, how, cut_at(sent, places)), *SIZES, "content_encoding"), expected, (how, places))


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


def times_are_those_of_the_reads(vector: Vector) -> None:
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


def one_read_of_everything_is_a_burst(vector: Vector) -> None:
    if len(vector.token_events_at) < 5:
        return
    timing = stamped(vector, Live(), [(30 * MS, wire(vector, Live()))], 40 * MS)["timing"]
    assert timing["burst"] is True
    assert (timing["first_token_s"], timing["last_token_s"]) == (0.03, 0.03)


def each_event_has_the_time_of_the_read_that_completes_it(
    vector: Vector, places: list[int], pauses: list[int], expected: dict[str, Any]
) -> None:
    sent, head = wire(vector, Live()), head_of(vector, Live(), vector.body)
    stamps = [total * MS for total in itertools.accumulate(pauses)]
    record = stamped(vector, Live(), list(zip(stamps, cut_at(sent, places), strict=True)), stamps[-1] + MS)
    same(without_times(record), expected, (places, pauses))
    times = times_of(vector, head, places, stamps)
    assert {name: record["timing"][name] for name in times} == pytest.approx(times, abs=1e-6), (places, pauses)
    assert record["timing"]["gaps"]["count"] == max(len(vector.token_events_at) - 1, 0)


def times_of_random_cuts(vector: Vector) -> None:
    expected, size = without_times(whole(vector)), len(wire(vector, Live()))
    chosen = random.Random(vector.name)
    for _ in range(RANDOM_CUTS):
        places = sorted(chosen.randrange(size) for _ in range(chosen.randrange(12)))
        pauses = [chosen.choice((0, 1, 30, 6_000)) for _ in range(len(places) + 1)]
        each_event_has_the_time_of_the_read_that_completes_it(vector, places, pauses, expected)


def stamps_give_the_stated_timing(vector: Vector) -> None:
    """Each block is a read; or two of the same time, since how a read is cut means nothing."""
    cut, head = blocks(vector.body), (MS, head_of(vector, Live(), vector.body))
    reads = [(stamp * MS, block) for stamp, block in zip(vector.stamps_ms, cut, strict=True)]
    halves = [(stamp, part) for stamp, block in reads for part in (block[: len(block) // 2], block[len(block) // 2 :])]
    for how in (Live(), Live(capture="masked")):
        for pieces in (reads, halves):
            record = stamped(vector, how, [head, *pieces], reads[-1][0] + MS)
            assert {name: record["timing"][name] for name in vector.timing} == vector.timing, how


@by_dialect([vector for vector in ALL if vector.stamps_ms])
def test_stamps_give_the_stated_timing(among: list[Vector]) -> None:
    check_each(among, stamps_give_the_stated_timing, lambda vector: vector.name)


def without_stamps_there_are_no_times(vector: Vector, timing: dict[str, Any]) -> None:
    gaps = timing.pop("gaps")
    assert set(timing.values()) == {None}
    assert gaps.pop("count") == max(len(vector.token_events_at) - 1, 0)
    assert set(gaps.values()) == {None}


@pytest.mark.slow
@by_dialect(ALL)
def test_any_split_under_any_framing_and_coding(among: list[Vector]) -> None:
    @settings(randomly, max_examples=2 * len(among))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        vector = data.draw(st.sampled_from(among))
        coding = data.draw(st.sampled_from([None, None, "gzip", "deflate", "br", "zstd"]))
        how = Live(framing=data.draw(st.sampled_from(framings_of(vector))), coding=coding)
        sent = wire(vector, how)
        pieces = cut_at(sent, data.draw(anywhere(sent)))
        expected = alike(whole(vector), *SIZES, "content_encoding")
        same(alike(live(vector, how, pieces), *SIZES, "content_encoding"), expected)

    holds()


@pytest.mark.slow
@by_dialect([vector for vector in ALL if is_timed(vector)])
def test_any_split_gives_each_event_the_time_of_the_read_that_completes_it(among: list[Vector]) -> None:
    @settings(randomly, max_examples=2 * len(among))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        vector = data.draw(st.sampled_from(among))
        places = data.draw(anywhere(wire(vector, Live())))
        pauses = data.draw(pace(len(places) + 1))
        each_event_has_the_time_of_the_read_that_completes_it(vector, places, pauses, without_times(whole(vector)))

    holds()


def cuts(vector: Vector) -> Iterator[tuple[bytes, int]]:
    """The body up to the end of each of its blocks, and how many events were dispatched by then."""
    cut = blocks(vector.body)
    for count in range(len(cut) + 1):
        yield b"".join(cut[:count]), sum(is_dispatched(block) for block in cut[:count])


def outcome_of_cut(ending: str, terminal: bool) -> tuple[str, dict[str, Any] | None]:
    """Outcome and error of a stream that ended so, before its terminal or after it."""
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


def the_terminal_decides_wherever_it_is_cut(vector: Vector) -> None:
    for ending, (body, events) in itertools.product(("complete", "reset", "client"), list(cuts(vector))):
        records = cut_short(vector, body, ending)
        if not records:  # no LLM endpoint, and nothing of an LLM has come so far
            assert endpoint_of(vector.method, vector.target) is None
            assert events <= min([*vector.token_events_at, vector.terminal_at or 0])
            continue
        (record,) = records
        check_cut(vector, record, events, ending)


WAYS: list[Check] = [
    from_a_file,
    masked,
    closed_by_the_connections_end,
    more_behind_the_body,
    cut_at_random,
    other_line_ends,
    compressed,
    one_byte_a_read,
    split_in_two_anywhere,
]
TIMES: list[Check] = [times_are_those_of_the_reads, one_read_of_everything_is_a_burst, times_of_random_cuts]


# Each vector is sent in one of so many ways, in other ones than the next vector.
_EVERY = {"few": 6, "many": 1}.get(settings.get_current_profile_name(), 4)


def ways_of(vector: Vector) -> list[Check]:
    timed = TIMES if is_timed(vector) else []
    ended = [the_terminal_decides_wherever_it_is_cut] if vector.terminal_at is not None else []
    return [*WAYS, *timed, *ended]


@pytest.mark.slow
@pytest.mark.timeout(600)
@by_dialect(ALL)
def test_the_record_does_not_depend_on_how_the_bytes_come(among: list[Vector]) -> None:
    """Each vector in a fourth of the ways; in all with the profile `many`."""

    def in_some_ways(vector: Vector) -> None:
        ways = ways_of(vector)[crc32(vector.name.encode()) % _EVERY :: _EVERY]
        check_each(ways, lambda way: way(vector), lambda way: way.__name__)

    check_each(among, in_some_ways, lambda vector: vector.name)
