"""Judges the result of a schedule by what the taps sent, and by an assembler that never crashed."""

import json
from collections.abc import Iterator
from itertools import pairwise
from uuid import UUID

from streamgauge.core.assembly.assembler import PRODUCERS, Assembler
from streamgauge.worker.faults import LogRecreatedError
from tests.worker.simulation.broker import EPOCH_MS
from tests.worker.simulation.schedule import Schedule
from tests.worker.simulation.taps import Sent, Stream


def wrong(schedule: Schedule) -> list[str]:
    """Everything that does not hold after `schedule.run()`; nothing if all is well."""
    return list(_judged(schedule))


def _judged(schedule: Schedule) -> Iterator[str]:
    yield from schedule.violations
    yield from schedule.world.unhandled
    faults = [life.fault for life in schedule.lives if life.fault is not None]
    recreated = [fault for fault in faults if isinstance(fault, LogRecreatedError)]
    yield from (
        f"a worker ended: {fault!r}" for fault in faults if fault not in recreated or not schedule.faults.recreated
    )
    if not schedule.violations and not faults and not schedule.is_finished:
        yield f"not done after {schedule.world.now} s: {schedule.group.committed}"
    yield from _each_record_once(schedule)
    yield from _observed_once(schedule)
    if schedule.is_finished:
        yield from _streams(schedule)
        yield from _nothing_is_left(schedule)
        if not schedule.is_disturbed:
            yield from _as_the_oracle_says(schedule)
    if schedule.is_finished and schedule.deleted > schedule.gaps_reported:
        yield f"{schedule.deleted} messages were deleted unread, {schedule.gaps_reported} are reported"
    ends = [log.end for log in schedule.broker.logs[schedule.topics.segments]]
    if not recreated and any(offset > ends[number] for number, offset in schedule.lost_with_log.items()):
        yield "the log was recreated, and no worker reports it"


def _each_record_once(schedule: Schedule) -> Iterator[str]:
    known = {str(UUID(bytes=stream.id)) for stream in schedule.streams}
    for stream, records in schedule.recorded.items():
        if stream not in known:
            yield f"a record of {stream}, which never was"
        if len(set(records)) > 1 and not schedule.is_disturbed:
            yield f"{len(set(records))} different records of {stream}"
        kept = schedule.shelf.records.get(stream)
        if kept is not None and kept not in records:
            yield f"the ledger has another record of {stream}"


def _observed_once(schedule: Schedule) -> Iterator[str]:
    """Metrics count a stream at most once over all lives, but for a zombie's, which did not know yet."""
    if schedule.faults.freezes or schedule.is_disturbed:
        return
    observed: dict[str, int] = {}
    for life in schedule.lives:
        for stream, times in life.metrics.streams.items():
            observed[stream] = observed.get(stream, 0) + times
    yield from (f"{stream} was observed {times} times" for stream, times in observed.items() if times > 1)


def _as_the_oracle_says(schedule: Schedule) -> Iterator[str]:
    expected: dict[str, bytes] = {}
    for oracle in schedule.oracles:
        oracle.advance(1 << 60)
        expected |= oracle.records
        yield from (f"the assembler makes two records of {stream}" for stream in oracle.twice)
        if oracle.assembler.open_streams:
            yield f"{oracle.assembler.open_streams} streams are still open"
    if schedule.shelf.records != expected:
        missing = expected.keys() - schedule.shelf.records.keys()
        more = schedule.shelf.records.keys() - expected.keys()
        other = [
            key
            for key in expected.keys() & schedule.shelf.records.keys()
            if schedule.shelf.records[key] != expected[key]
        ]
        yield f"missing in the ledger: {sorted(missing)}, too many: {sorted(more)}, other: {sorted(other)}"


def _nothing_is_left(schedule: Schedule) -> Iterator[str]:
    """The state that is durable holds no open stream."""
    newest: dict[tuple[int, int], tuple[int, bytes]] = {}
    for number, log in enumerate(schedule.broker.logs[schedule.topics.state]):
        for entry in log.entries:
            assert entry.key is not None and entry.value is not None
            key = int(entry.key.split(b"/")[1])
            assembler = Assembler()
            assembler.load(key, entry.value)
            at = assembler.applied_offset(key)
            if at >= newest.get((number, key), (-1, b""))[0]:
                newest[number, key] = (at, entry.value)
    for number in range(schedule.faults.partitions):
        assembler = Assembler()
        for key in range(PRODUCERS + 1):
            if (number, key) in newest:
                assembler.load(key, newest[number, key][1])
        if assembler.open_streams:
            yield f"{assembler.open_streams} streams are open in the state of partition {number}"


# What is ahead of something missing waits for so many more segments, and 30 s of its tap's time: two of these delays (s).
_BOUND = 16
_BOUND_S = 10.0


def _is_within_bound(stream: Stream) -> bool:
    """Whether its bundles came in an order that must make no difference."""
    arrivals = sorted((sent.arrivals[0][0], number, sent) for number, sent in enumerate(stream.bundles))
    due, ahead = 0, set[int]()
    for _, number, sent in arrivals:
        if (sent.arrivals[0][1] - EPOCH_MS) / 1000 - sent.sent_at > _BOUND_S and (number != due or ahead):
            return False
        ahead.add(number)
        while due in ahead:
            ahead.remove(due)
            due += 1
        if len(ahead) > _BOUND:
            return False
    return True


# --- each stream, by what its tap sent ---------------------------------------------------------------------------------


def _streams(schedule: Schedule) -> Iterator[str]:
    arrived: dict[tuple[bytes, int], list[Sent]] = {}
    for tap in schedule.taps:
        for sent in tap.sent:
            if sent.arrivals:
                arrived.setdefault((tap.instance, sent.partition), []).append(sent)
    for stream in schedule.streams:
        if stream.bundles:
            others = arrived.get((stream.instance, stream.partition), [])
            yield from (
                f"{stream.script.name} {UUID(bytes=stream.id)}: {what}" for what in _stream(schedule, stream, others)
            )


def _stream(schedule: Schedule, stream: Stream, others: list[Sent]) -> Iterator[str]:
    record = schedule.shelf.records.get(str(UUID(bytes=stream.id)))
    if record is None:
        if stream.bundles[0].arrivals and not schedule.is_disturbed:
            yield "it has no record, and its beginning came"
        return
    decoded = json.loads(record)
    complete = decoded["integrity"]["complete"]
    lost = [sent for sent in stream.bundles if not sent.arrivals]
    if complete and (lost or not stream.is_ended):
        yield f"its record says that it is complete; {len(lost)} bundles were lost, ended: {stream.is_ended}"
    expected = stream.script.record(stream.id, stream.instance, len(stream.bundles))
    if complete and record != expected:
        yield "its record says that it is complete, and is not what was sent"
    if _was_open_at_gap(schedule, stream) and not {"log_gap", "no_end"} & {*decoded["integrity"]["reasons"]}:
        yield f"the log lost messages while it was open, and its record says {decoded['integrity']['reasons']}"
    yield from _ended_by_its_tap(schedule, stream)
    if complete and decoded["outcome"] != stream.script.outcome:
        yield f"it ended as {decoded['outcome']}, by its document as {stream.script.outcome}"
    if not schedule.is_disturbed and _is_undisturbed(schedule, stream, others) and record != expected:
        yield f"nothing happened to it, and its record is another: {decoded['integrity']}, {decoded['outcome']}"


def _was_open_at_gap(schedule: Schedule, stream: Stream) -> bool:
    """It began in what was committed, and ended after what was lost."""
    gap = schedule.gaps.get(stream.partition)
    if (
        gap is None
        or str(UUID(bytes=stream.id)) in gap.recorded
        or any(not bundle.arrivals for bundle in stream.bundles)
    ):
        return False
    firsts = [sent.arrivals[0][0] for sent in stream.bundles]
    return stream.is_ended and firsts[0] < gap.committed and firsts[-1] >= gap.begins


def _ended_by_its_tap(schedule: Schedule, stream: Stream) -> Iterator[str]:
    """What was open at its tap's farewell is ended by it, at once."""
    if schedule.is_disturbed or stream.is_ended or any(not bundle.arrivals for bundle in stream.bundles):
        return
    made_at = schedule.oracles[stream.partition].made_at.get(str(UUID(bytes=stream.id)))
    tap = next(tap for tap in schedule.taps if tap.instance == stream.instance)
    for sent in tap.sent:
        if sent.farewell and sent.arrivals and sent.slot == stream.slot and made_at is not None:
            said_at = sent.arrivals[0][0]
            if made_at > said_at > max(bundle.arrivals[0][0] for bundle in stream.bundles):
                yield f"it was open at its tap's farewell at {said_at}, and has its record from {made_at} only"


def _is_undisturbed(schedule: Schedule, stream: Stream, others: list[Sent]) -> bool:
    """All of it came, in order or nearly; nothing ended it before its end; its tap was never given up meanwhile."""
    if any(not sent.arrivals for sent in stream.bundles) or not _is_within_bound(stream):
        return False
    firsts = sorted(sent.arrivals[0] for sent in stream.bundles)
    begin, end = firsts[0][0], firsts[-1][0]
    lives = sorted(arrival for sent in others for arrival in sent.arrivals)
    limit_ms = schedule.settings.abandon_after * 1000
    # Who was given up once may send what comes in order, and no more: a segment above 0 opens nothing then.
    in_order = [sent.arrivals[0] for sent in stream.bundles] == sorted(sent.arrivals[0] for sent in stream.bundles)
    meanwhile = [at_ms for offset, at_ms in lives if offset <= end and (offset >= begin or not in_order)]
    if any(later - earlier >= limit_ms for earlier, later in pairwise(meanwhile)):
        return False
    endings = (sent for tap in schedule.taps for sent in tap.sent if sent.ends and sent.partition == stream.partition)
    return not any(offset <= end for sent in endings for offset, _ in sent.arrivals[:1] if offset >= begin)
