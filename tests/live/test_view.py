"""What the page is told of open and finished streams; tests of the parts are beside this file."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Ending, Head, Segment, StreamEnding
from streamgauge.core.limits import Limits
from streamgauge.core.record import RateLimit
from streamgauge.live.stored import Wanted
from streamgauge.live.view import MAX_KEPT, MAX_ROWS, SHARE, Scope
from tests.live.streams import SECOND, Process, read_of, segment, token
from tests.metrics.records import make_record
from tests.streams import FINISH, INSTANCE, MS, bundles_of, interleaved, stream_id

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "streams.md"


def ended(number: int, place: int, at_ns: int) -> Segment:
    end = StreamEnding(Ending.COMPLETE, stamp_ns=at_ns, client_bytes=1)
    return Segment(stream_id(number), place, reads=[read_of(FINISH, at_ns)], end=end)


def json_of(answer: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.fixture
def process() -> Process:
    return Process()


def test_an_open_stream_has_its_ticks_and_its_silence(process: Process) -> None:
    process.take([segment(1, 0, [token(100 * MS), token(200 * MS), token(1_500 * MS)])], 1_600 * MS)
    process.clock.now = 2.0
    process.take([], 10 * SECOND)  # a heartbeat
    process.clock.now = 3.5
    open_streams = process.view.overview().open
    assert (open_streams.total, open_streams.silent, open_streams.not_shown) == (1, 0, 0)
    [row] = open_streams.streams
    assert row.id == str(UUID(bytes=stream_id(1)))
    assert (row.upstream, row.model, row.dialect, row.outcome) == ("sim", "m", "openai-chat", None)
    assert row.first_token_s == 0.1
    assert row.token_events == 3
    assert row.longest_gap_s == 1.3
    assert row.silent_s == pytest.approx(8.4)  # 0.1 s of these are the age of the first bundle
    assert row.open_s == pytest.approx(9.9)
    assert row.tap_heard_s == 1.5
    assert row.ticks is not None
    assert sum(row.ticks) == 3
    assert (row.ticks[-1 - 8], row.ticks[-1 - 9]) == (1, 2)


def test_silence_stands_still_while_the_tap_is_not_heard(process: Process) -> None:
    process.take([segment(1, 0, [token(100 * MS)])], 100 * MS)
    process.clock.now = 500.0
    [row] = process.view.overview().open.streams
    assert row.silent_s == 0.0
    assert row.tap_heard_s == 500.0
    assert row.is_silent is False


def test_a_request_without_an_answer_is_silent_from_its_beginning(process: Process) -> None:
    asked = msgspec.structs.replace(segment(1, 0, []), head=None)
    process.take([asked], 200 * MS)
    process.take([], 40 * SECOND)
    open_streams = process.view.overview().open
    [row] = open_streams.streams
    assert row.silent_s == pytest.approx(39.8, abs=0.01)
    assert (row.is_silent, open_streams.silent) == (True, 1)
    assert row.first_token_s is None


def test_the_longest_silent_come_first_or_as_asked(process: Process) -> None:
    for number in range(5):
        process.take([segment(number, 0, [token(number * SECOND)] * (5 - number))], 5 * SECOND)
    silent = [row.silent_s for row in process.view.overview(3).open.streams]
    assert silent == sorted(silent, reverse=True)  # type: ignore[type-var]
    assert process.view.overview(3).open.not_shown == 2
    tokens = [row.token_events for row in process.view.overview(sort="tokens").open.streams]
    assert tokens == [5, 4, 3, 2, 1]
    assert len(process.view.overview(10**6, "age").open.streams) == 5


def test_no_more_rows_than_the_limit(process: Process) -> None:
    for number in range(300):
        process.take([segment(number, 0, [token(SECOND)])], 2 * SECOND)
    open_streams = process.view.overview(10**6).open
    assert len(open_streams.streams) == MAX_ROWS
    assert open_streams.total == 300 == len(open_streams.streams) + open_streams.not_shown


def test_an_answer_that_took_long_is_given_again_for_twenty_times_as_long(process: Process) -> None:
    visits = []

    def slow() -> Scope:
        visits.append(process.clock.now)
        process.clock.now += 0.2
        return Scope({0: process.assembler})

    process.view.scope = slow
    first = process.view.overview(rows=5)
    assert process.view.overview(rows=5) is first
    process.clock.now += 0.2 / SHARE - 0.1
    assert process.view.overview(rows=5) is first
    assert process.view.overview(rows=6) is not first
    assert len(visits) == 2
    process.clock.now += 0.2
    assert process.view.overview(rows=5) is not first
    for rows in range(MAX_KEPT + 1):
        process.view.overview(rows=rows)
    assert len(visits) == 3 + MAX_KEPT + 1
    process.view.overview(rows=0)  # the oldest is forgotten
    assert len(visits) == 3 + MAX_KEPT + 2


def test_an_error_in_an_open_stream_is_shown_at_once(process: Process) -> None:
    error = read_of(b'data: {"error":{"type":"overloaded_error","message":"A SECRET"}}\n\n', 300 * MS)
    process.take([segment(1, 0, [token(100 * MS), error])], 400 * MS)
    [row] = process.view.overview().open.streams
    assert row.error is not None
    assert (row.error.type, row.outcome) == ("overloaded_error", None)
    timeline = process.view.timeline(UUID(bytes=stream_id(1)))
    assert timeline is not None
    assert timeline.error_at_s == 0.3


def test_a_finished_stream_keeps_its_timeline(process: Process) -> None:
    process.take([segment(1, 0, [token(100 * MS), token(150 * MS)])], 200 * MS)
    process.take([segment(1, 1, [token(7 * SECOND)])], 8 * SECOND)
    process.take([ended(1, 2, 9 * SECOND)], 10 * SECOND)
    process.clock.now = 4.0
    overview = process.view.overview()
    assert overview.open.total == 0
    for rows in (overview.worst.first_token, overview.worst.gap, overview.worst.recent):
        [row] = rows
        assert (row.outcome, row.ended_s_ago, row.longest_gap_s) == ("completed", 4.0, 6.85)
    assert overview.worst.broken == []
    timeline = process.view.timeline(UUID(bytes=stream_id(1)))
    assert timeline is not None
    assert [(step.at_s, step.gap_s, step.stall) for step in timeline.steps] == [
        (0.1, None, False),
        (0.15, 0.05, False),
        (7.0, 6.85, True),
        (9.0, 2.0, False),
    ]
    assert timeline.steps[-1].kinds == ("usage", "finish", "terminal")
    assert (timeline.reads, timeline.skipped_reads, timeline.error_at_s) == (4, 0, None)
    assert timeline.record.outcome == "completed"
    assert timeline.record.timing.gaps.stalls == 1
    assert process.view.overview().hour.streams == 1


def test_a_transport_error_came_at_the_end(process: Process) -> None:
    process.take([segment(1, 0, [token(100 * MS)])], 200 * MS)
    process.take(
        [Segment(stream_id(1), 1, end=StreamEnding(Ending.RESET, stamp_ns=2 * SECOND, fault="reset"))], 3 * SECOND
    )
    timeline = process.view.timeline(UUID(bytes=stream_id(1)))
    assert timeline is not None
    assert (timeline.stream.outcome, timeline.error_at_s) == ("upstream_reset", 2.0)
    assert [row.id for row in process.view.overview().worst.broken] == [timeline.stream.id]


def test_an_unknown_stream_has_no_timeline(process: Process) -> None:
    assert process.view.timeline(UUID(int=1)) is None


def test_a_stream_that_came_with_the_state_has_an_unknown_silence(process: Process) -> None:
    before = Process()
    before.take([segment(1, 0, [token(100 * MS)])], 200 * MS)
    for key in before.assembler.changed():
        process.assembler.load(key, before.assembler.dump(key))
    process.view.scope = lambda: Scope({3: process.assembler}, partitioned=True)
    overview = process.view.overview()
    [row] = overview.open.streams
    assert overview.partitions == [3]
    assert (row.silent_s, row.open_s, row.ticks, row.tap_heard_s) == (None, None, None, None)
    assert row.first_token_s == 0.1
    later = Bundle(INSTANCE, 0, 1, 2_000 * SECOND, [segment(1, 1, [token(3 * SECOND)])])
    records = process.assembler.apply(1, 2_000_000, later)
    process.view.applied(later, process.assembler, records)
    [row] = process.view.overview().open.streams
    assert row.silent_s == 0.0
    assert row.ticks is not None
    timeline = process.view.timeline(UUID(bytes=stream_id(1)))
    assert timeline is not None
    assert (timeline.reads, len(timeline.steps), timeline.steps[0].tokens) == (2, 1, 1)


def test_a_process_without_partitions_says_why(process: Process) -> None:
    process.view.scope = lambda: Scope({}, partitioned=True, unready="its consumer group is rebalancing")
    overview = process.view.overview()
    assert (overview.partitions, overview.unready, overview.open.total) == ([], "its consumer group is rebalancing", 0)


def test_a_stream_that_is_no_llm_is_not_shown(process: Process) -> None:
    first = segment(1, 0, [read_of(b"data: {}\n\n", MS)])
    assert first.opening is not None
    other = msgspec.structs.replace(first, opening=msgspec.structs.replace(first.opening, path=None))
    process.take([other], 10 * MS)
    assert process.view.overview().open.total == 0


def test_a_duplicate_bundle_of_ended_streams_makes_no_tracks(process: Process) -> None:
    """Nothing ended such a track, since its stream gets no other record."""
    bundle = Bundle(INSTANCE, 0, 0, 2_000 * SECOND, [segment(1, 0, [token(0)]), ended(1, 1, SECOND)])
    for offset in range(2):
        records = process.assembler.apply(offset, offset, bundle)
        process.view.applied(bundle, process.assembler, records)
        assert len(process.view.tracks) == len(records)
        for record in records:
            process.view.finished(record)
    assert len(process.view.tracks) == 0


def test_a_duplicate_bundle_leaves_the_track_of_a_record_that_is_not_durable_yet(process: Process) -> None:
    """A worker reports the record after its checkpoint."""
    bundle = Bundle(INSTANCE, 0, 0, 2_000 * SECOND, [segment(1, 0, [token(0)]), ended(1, 1, SECOND)])
    [record] = process.assembler.apply(0, 0, bundle)
    process.view.applied(bundle, process.assembler, [record])
    process.view.applied(bundle, process.assembler, process.assembler.apply(1, 1, bundle))
    process.view.finished(record)
    timeline = process.view.timeline(UUID(bytes=stream_id(1)))
    assert timeline is not None
    assert len(timeline.steps) == 2


def test_a_stream_that_is_ignored_leaves_no_track(process: Process) -> None:
    first = segment(1, 0, [read_of(b"data: {}\n\n", MS)])
    assert first.opening is not None
    process.take([msgspec.structs.replace(first, opening=msgspec.structs.replace(first.opening, path=None))], 10 * MS)
    process.take([ended(1, 1, 300 * MS)], 400 * MS)
    assert process.assembler.open_streams == 0
    assert len(process.view.tracks) == 0


def test_records_are_the_same_with_and_without_a_page_that_looks(process: Process) -> None:
    """Law 2: the page applies buffered reads earlier than the assembler would."""
    unseen, records, watched = Assembler(Limits()), [], []
    for offset, bundle in enumerate(bundles_of(interleaved(40, seed=7, tokens=30))):
        records += unseen.apply(offset, offset, bundle)
        made = process.assembler.apply(offset, offset, bundle)
        watched += made
        process.view.applied(bundle, process.assembler, made)
        process.view.overview()
        for state in process.assembler.open_states()[:3]:
            process.view.timeline(UUID(bytes=state.stream))
    assert watched == records
    assert len(records) == 40


def test_no_text_is_in_an_answer(process: Process) -> None:
    process.take([segment(1, 0, [token(100 * MS, "A SECRET")]), segment(2, 0, [token(MS, "A SECRET")])], 200 * MS)
    process.take([ended(1, 1, 300 * MS)], 400 * MS)
    answers = [process.view.overview(), *(process.view.timeline(UUID(bytes=stream_id(number))) for number in (1, 2))]
    assert all(answer is not None and b"SECRET" not in msgspec.json.encode(answer) for answer in answers)


def test_a_fault_of_the_page_does_not_reach_the_assembler(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug of the page")

    monkeypatch.setattr("streamgauge.live.reads.Tracks.add", broken)
    monkeypatch.setattr("streamgauge.live.finished.History.add", broken)
    process.take([segment(1, 0, [token(100 * MS)])], 200 * MS)
    process.take([ended(1, 1, 300 * MS)], 400 * MS)
    assert process.view.overview().hour.streams == 0


@pytest.mark.slow
def test_what_a_process_keeps_is_bounded() -> None:
    """Four thousand streams of 40 reads, 500 open at a time: what the table of decision 33 allows."""
    process = Process()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(4_000):
            at = number * 10 * MS
            tokens = [token(at % SECOND + place * MS) for place in range(40)]
            process.take([segment(number, 0, tokens)], at)
            if number >= 500:
                process.take([ended(number - 500, 1, 2 * SECOND)], at)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 40 * 1024 * 1024


def test_a_busy_process_follows_some_streams_until_someone_looks() -> None:
    process = Process()
    for second in range(4):
        for number in range(200):
            tokens = [token(second * SECOND + place * MS) for place in range(100)]
            process.take([segment(1_000 * second + number * 257, 0, tokens)], (1 + second) * SECOND)
        process.clock.now += 1.0
        process.take([], (1 + second) * SECOND)
    kept = [process.view.timeline(UUID(bytes=stream_id(3_000 + number * 257))) for number in range(200)]
    followed = [timeline for timeline in kept if timeline is not None and timeline.steps]
    assert 10 < len(followed) < 80
    assert {timeline.reads for timeline in kept if timeline is not None} == {100}
    process.clock.now += 1.0
    process.take([], 6 * SECOND)
    process.take([segment(3_000 + number * 257, 1, [token(6 * SECOND)]) for number in range(200)], 6 * SECOND)
    late = process.view.timeline(UUID(bytes=stream_id(3_000 + 199 * 257)))
    assert late is not None
    assert late.steps[-1].at_s == 6.0
    assert late.skipped_reads == (0 if len(late.steps) > 1 else 100)


def names_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "record":
                yield name
                yield from names_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names_in(inner)


def test_every_member_of_an_answer_is_in_the_reference(process: Process) -> None:
    process.take([segment(1, 0, [token(100 * MS)]), segment(2, 0, [token(MS)])], 200 * MS)
    process.take([ended(1, 1, 300 * MS)], 400 * MS)
    process.view.finished(make_record(rate_limit=RateLimit(1, 1, 1.0, 1, 1, 1.0)))
    page = REFERENCE.read_text()
    found = {
        *names_in(json_of(process.view.overview())),
        *names_in(json_of(process.view.timeline(UUID(bytes=stream_id(1))))),
        *names_in(json_of(process.view.summary())),
        *names_in(json_of(process.view.kept(Wanted()))),
    }
    outcomes = {"completed"}
    assert [name for name in sorted(found - outcomes) if f"`{name}`" not in page] == []


def test_heads_are_read() -> None:
    process = Process()
    first = msgspec.structs.replace(segment(1, 0, []), head=Head(503, 5 * MS, False))
    process.take([first], 10 * MS)
    [row] = process.view.overview().open.streams
    assert row.status_code == 503
