"""The answers to the page's requests: the open streams, one stream's timeline, and the last hour.

A view belongs to one thread: the thread of the assemblers that it reads. Their owner calls `applied` after each
bundle, and `finished` for each record. A fault in the view is reported, and never raised to the assembler.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

import streamgauge
from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.assembly.record_builder import is_ignored, record_of
from streamgauge.core.assembly.silence import is_expected_to_generate
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record
from streamgauge.live.answers import (
    Finished,
    Limited,
    Money,
    OpenStreams,
    Overview,
    Responses,
    Row,
    Step,
    Summary,
    Timeline,
    Worst,
)
from streamgauge.live.finished import FinishedStream, Headroom, History, WorstStreams, hour_of
from streamgauge.live.reads import Moment, Track, Tracks
from streamgauge.live.stored import Wanted, matches, sorted_rows, without_age
from streamgauge.live.summaries import summary_of
from streamgauge.metrics.observe import StreamCost
from streamgauge.runtime.faults import report_fault

HOUR_S = 3_600.0
# Rows of open streams in one answer, if the request names no number; and the most that it may request.
ROWS = 50
MAX_ROWS = 200
# Seconds that the ticks of a row cover, one number each.
TICK_SECONDS = 60
# Tap instances whose clocks are kept; the instance whose last bundle is oldest is removed first.
MAX_INSTANCES = 4_096

# Above this rate (reads a second), sample which streams keep a timeline, unless a page is open: to keep a read takes 0.2 us,
# so this bounds the cost to a thousandth of a CPU.
BUSY_READS = 4_000
# How long after a request a page counts as open (seconds).
ASKED_S = 60.0
# Answers to the same request may take this share of the assembling thread's time: to visit 100,000 open streams takes tenths
# of a second. Until enough time has passed, the request gets the last answer again. MAX_KEPT: different requests with a last
# answer.
SHARE = 0.05
MAX_KEPT = 4

# What the rows of open streams are sorted by; the largest come first.
SORTS = ("silent", "age", "tokens")


class Scope(NamedTuple):
    """The assemblers that the process shows, by partition, or why there are none. `partitioned`: the process is a worker."""

    assemblers: Mapping[int, Assembler]
    partitioned: bool = False
    unready: str | None = None


class _Kept(NamedTuple):
    answer: Overview
    until_s: float


class _Open(NamedTuple):
    state: StreamState
    open_s: float | None
    silent_s: float | None
    heard_s: float | None
    is_silent: bool


class LiveView:
    """The view of one process. `process`: its command; `clock`: monotonic seconds; `wall`: seconds since 1970.

    `prices`: whether the process has prices. `tracks`: the streams that it follows.
    """

    def __init__(
        self,
        process: str,
        limits: Limits,
        clock: Callable[[], float],
        wall: Callable[[], float],
        *,
        prices: bool = False,
    ) -> None:
        self.scope: Callable[[], Scope] = lambda: Scope({})
        self.money: Callable[[], Money] = lambda: Money([], None)
        self.responses: Callable[[], Responses | None] = lambda: None
        self.missed_bundles = 0  # bundles that were not applied for want of room
        self._process = process
        self._prices = prices
        self._limits = limits
        self._clock = clock
        self._wall = wall
        self._stall_ns = round(limits.stall_seconds * 1e9)
        self._taps: OrderedDict[bytes, tuple[int, float]] = OrderedDict()  # instance -> its clock (ns), when heard
        self.tracks = Tracks(self._stall_ns)
        self._history = History()
        self._worst = WorstStreams()
        self._headroom = Headroom()
        self._since_s = self._hour_since_s = wall()
        self._loaded: set[str] = set()  # ids of streams that `load` has counted
        self._asked_s = float("-inf")
        self._kept: dict[tuple[int, str, bool], _Kept] = {}  # the last answers, by what was asked
        self._measured_s, self._reads = clock(), 0  # since when reads are counted, and how many there were

    # --- events -----------------------------------------------------------------------------------------------------

    def applied(self, bundle: Bundle, assembler: Assembler, records: Collection[Record]) -> None:
        """Takes a bundle that was applied to one of the assemblers. `records`: of the streams that it ended."""
        try:
            now_s = self._clock()
            if bundle.tap_ns:  # a tick has no clock
                known_ns, _ = self._taps.get(bundle.instance, (0, 0.0))
                self._taps[bundle.instance] = (max(bundle.tap_ns, known_ns), now_s)
                self._taps.move_to_end(bundle.instance)
                if len(self._taps) > MAX_INSTANCES:
                    self._taps.popitem(last=False)
            self._reads += sum([len(segment.reads) for segment in bundle.segments])
            ended = {UUID(record.stream_id).bytes for record in records}
            for segment in bundle.segments:
                if segment.stream in ended or assembler.state_of(segment.stream, whole=False) is not None:
                    self.tracks.add(segment, bundle.tap_ns)
                else:  # a duplicate, or a stream that ended without a record: nothing would end its track
                    self.tracks.end(segment)
            if now_s - self._measured_s >= 1.0:
                self._choose_share(now_s)
        except Exception as error:  # noqa: BLE001 - a fault of the page must not reach the assembler
            report_fault("the page's view of streams", error)

    def _choose_share(self, now_s: float) -> None:
        """Decides how many of the next streams are followed, by the rate of reads since the last call."""
        rate = self._reads / (now_s - self._measured_s)
        is_asked = now_s - self._asked_s < ASKED_S
        self.tracks.share = 256 if is_asked or rate <= BUSY_READS else max(1, int(256 * BUSY_READS / rate))
        self._measured_s, self._reads = now_s, 0

    def load(self, streams: Sequence[tuple[Record, StreamCost | None, float]], since_s: float) -> None:
        """Counts streams that ended before this process began, and since `since_s`: each with its cost and its end,
        in the order of their ends. Times are seconds since 1970.
        """
        now_s, wall_s = self._clock(), self._wall()
        for record, cost, ended_s in streams:
            self._history.add(record, cost, ended_s, own=False)
            self._worst.add(record, None, now_s - max(wall_s - ended_s, 0.0))
            self._loaded.add(record.stream_id)
        self._hour_since_s = since_s

    def finished(self, record: Record, cost: StreamCost | None = None) -> None:
        """Takes the record of a finished stream. `cost`: its addition to the cost, if it is known."""
        try:
            if record.stream_id in self._loaded:  # a worker may make a record twice
                return
            now_s = self._clock()
            self._history.add(record, cost, self._wall())
            self._worst.add(record, self.tracks.take(UUID(record.stream_id).bytes), now_s)
            self._headroom.add(record, now_s)
        except Exception as error:  # noqa: BLE001 - as above
            report_fault("the page's view of records", error)

    # --- requests ---------------------------------------------------------------------------------------------------

    def overview(self, rows: int = ROWS, sort: str = "silent", *, own: bool = False) -> Overview:
        """The answer of /streams. `rows`: the number of open streams; `sort`: one of SORTS; `own`: its hour leaves out
        the streams that `load` has counted.
        """
        began_s = self._asked_s = self._clock()
        kept = self._kept.pop((rows, sort, own), None)
        if kept is None or kept.until_s <= began_s:
            answer = self._overview(rows, sort, own, began_s)
            ended_s = self._clock()
            kept = _Kept(answer, ended_s + (ended_s - began_s) / SHARE)
        self._kept[rows, sort, own] = kept
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return kept.answer

    def _overview(self, rows: int, sort: str, own: bool, now_s: float) -> Overview:
        wall_s = self._wall()
        since_s = self._since_s if own else self._hour_since_s
        scope, money = self.scope(), self.money()
        return Overview(
            process=self._process,
            version=streamgauge.__version__,
            now=_rfc3339(wall_s),
            since=_rfc3339(self._since_s),
            partitions=sorted(scope.assemblers) if scope.partitioned else None,
            unready=scope.unready,
            missed_bundles=self.missed_bundles,
            stall_seconds=self._limits.stall_seconds,
            silent_seconds=self._limits.silent_seconds,
            open=self._open_streams(scope, min(rows, MAX_ROWS), sort, now_s),
            hour=hour_of(
                self._history.minutes(wall_s, own=own),
                since=_rfc3339(max(since_s, wall_s - HOUR_S)),
                prices=self._prices,
            ),
            responses=self.responses(),
            rate_limits=[Limited(*pair, limit) for pair, limit in self._headroom.limits(now_s)],
            budgets=money.budgets,
            audit=money.audit,
            worst=Worst(
                first_token=_rows_of(self._worst.worst("first_token", now_s), now_s),
                gap=_rows_of(self._worst.worst("gap", now_s), now_s),
                broken=_rows_of(self._worst.worst("broken", now_s), now_s),
                recent=_rows_of(self._worst.recent(), now_s),
            ),
        )

    def summary(self) -> Summary:
        """The answer of /summary, of the streams that this process has counted: for a process without a ledger."""
        wall_s = self._wall()
        minutes = self._history.minutes(wall_s)
        since = _rfc3339(max(self._hour_since_s, wall_s - HOUR_S))
        return summary_of(minutes, now=_rfc3339(wall_s), since=since, prices=self._prices)

    def kept(self, wanted: Wanted) -> Finished:
        """The answer of /finished, of the streams that this process keeps: for a process without a ledger."""
        wanted = without_age(wanted, self._wall())
        rows = [
            row
            for row in _rows_of(self._worst.kept(), self._clock())
            if matches(
                row, wanted, None if row.started_at is None else datetime.fromisoformat(row.started_at).timestamp()
            )
        ]
        return Finished("process", sorted_rows(rows, wanted.sort)[: wanted.limit], len(rows) > wanted.limit)

    def timeline(self, stream_id: UUID) -> Timeline | None:
        """One stream that is open or kept; None if it is neither."""
        now_s = self._asked_s = self._clock()
        for assembler in self.scope().assemblers.values():
            state = assembler.state_of(stream_id.bytes)
            if state is not None:
                moments = self.tracks.decode(state.stream, state.dialect)
                row = self._open_row(self._facts(state, now_s))
                return _timeline(row, record_of(state), moments, self.tracks.get(state.stream))
        finished = self._worst.find(str(stream_id))
        if finished is None:
            return None
        track, record = finished.track, finished.record
        return _timeline(_row_of(finished, now_s), record, track.decode(record.dialect) if track else [], track)

    def _open_streams(self, scope: Scope, rows: int, sort: str, now_s: float) -> OpenStreams:
        facts = [
            self._facts(state, now_s)
            for assembler in scope.assemblers.values()
            for state in assembler.open_states()
            if not is_ignored(state)
        ]
        shown = heapq.nlargest(rows, facts, key=lambda stream: _rank(stream, sort))
        silent = sum([stream.is_silent for stream in facts])
        return OpenStreams(len(facts), len(facts) - len(shown), silent, [self._open_row(stream) for stream in shown])

    def _facts(self, state: StreamState, now_s: float) -> _Open:
        track, heard = self.tracks.get(state.stream), self._taps.get(state.instance)
        if heard is None:
            return _Open(state, None, None, None, False)
        tap_ns, heard_s = heard
        if track is None or track.began_ns is None:
            return _Open(state, None, None, now_s - heard_s, False)
        open_ns, timing = tap_ns - track.began_ns, state.timing
        last_ns = timing.last_token if timing.token_events else 0
        silent_s = None if last_ns is None else max(0, open_ns - last_ns) / 1e9
        is_silent = silent_s is not None and silent_s > self._limits.silent_seconds and is_expected_to_generate(state)
        return _Open(state, open_ns / 1e9, silent_s, now_s - heard_s, is_silent)

    def _open_row(self, stream: _Open) -> Row:
        record = record_of(stream.state)
        row = row_of(record)
        row.outcome = row.end_s = None
        row.open_s, row.silent_s, row.is_silent = _rounded(stream.open_s), _rounded(stream.silent_s), stream.is_silent
        row.tap_heard_s = _rounded(stream.heard_s)
        row.ticks = _ticks(self.tracks.decode(stream.state.stream, stream.state.dialect), stream.open_s)
        return row


def _rank(stream: _Open, sort: str) -> float:
    value = {"silent": stream.silent_s, "age": stream.open_s}.get(sort, stream.state.timing.token_events)
    return -1.0 if value is None else value


def _ticks(moments: list[Moment], open_s: float | None) -> list[int] | None:
    """Token events in each of the last TICK_SECONDS seconds, the oldest first; None without times."""
    if open_s is None:
        return None
    ticks = [0] * TICK_SECONDS
    for moment in moments:
        if moment.tokens and moment.at_ns is not None:
            ago = int(open_s - moment.at_ns / 1e9)
            if 0 <= ago < TICK_SECONDS:
                ticks[TICK_SECONDS - 1 - ago] += moment.tokens
    return ticks


def row_of(record: Record) -> Row:
    """The row of a stream's record, without what no record has."""
    return Row(
        id=record.stream_id,
        upstream=record.upstream,
        dialect=record.dialect,
        endpoint=record.endpoint,
        model=record.response_model or record.request_model,
        tenant=record.tenant,
        started_at=record.started_at,
        status_code=record.status_code,
        outcome=record.outcome,
        error=record.error,
        finish_reason=record.finish_reason,
        first_token_s=record.timing.first_token_s,
        longest_gap_s=record.timing.gaps.max_s,
        stalls=record.timing.gaps.stalls,
        token_events=record.counts.token_events,
        output_tokens=record.usage.output_tokens,
        end_s=record.timing.end_s,
    )


def _row_of(finished: FinishedStream, now_s: float) -> Row:
    row = row_of(finished.record)
    row.ended_s_ago = _rounded(now_s - finished.ended_s)
    return row


def _rows_of(streams: list[FinishedStream], now_s: float) -> list[Row]:
    return [_row_of(stream, now_s) for stream in streams]


def _timeline(row: Row, record: Record, moments: list[Moment], track: Track | None) -> Timeline:
    steps, before = [], -1
    for moment in moments:
        skipped, before = moment.index - before - 1, moment.index
        steps.append(
            Step(
                _seconds(moment.at_ns),
                _seconds(moment.gap_ns),
                moment.stall,
                skipped,
                moment.body_bytes,
                moment.events,
                moment.tokens,
                moment.kinds,
            )
        )
    reads = max(record.counts.reads, track.total if track is not None else 0)
    return timeline_of(row, record, steps, reads)


def timeline_of(row: Row, record: Record, steps: list[Step], reads: int) -> Timeline:
    """The answer for a stream of which these reads are kept. `reads`: how many it had."""
    return Timeline(
        stream=row,
        reads=reads,
        skipped_reads=reads - len(steps),
        error_at_s=_error_at_s(record, steps),
        steps=steps,
        record=record,
    )


def _error_at_s(record: Record, steps: list[Step]) -> float | None:
    if record.error is None:
        return None
    match record.error.phase:
        case "transport":
            return record.timing.end_s
        case "before_stream":
            return record.timing.headers_s
        case _:
            return next((step.at_s for step in steps if "error" in step.kinds), None)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _rfc3339(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
