"""Makes records of a partition's bundles. Pure: the same log gives the same records, byte for byte.

Open streams are kept in 64 buckets, chosen by bits of their id. Each bucket, and the producers entry, can be dumped and
loaded by itself, and holds the last offset that was applied to it. It skips messages up to that offset, so a replay of
part of the log after a crash changes nothing.

    a segment of an open stream     below the next number: a duplicate; above: it waits, for WAIT_SEGMENTS or WAIT_NS
    a segment 0 of no open stream   opens a stream
    any other segment               opens a stream if a bundle is missing that may hold its beginning; else it is late
    silence of an instance          is measured by the log's time before each message; too long: its streams are abandoned
    a farewell, or a successor      abandons the streams of the instance that ended in that slot at once
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from streamgauge.core.assembly.record_builder import ignored_as, is_ignored, record_of
from streamgauge.core.assembly.reorder_buffer import MAX_WAITING_BYTES, ReorderBuffer, without_large_body
from streamgauge.core.assembly.silence import SilenceTracker
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.state_codec import decode_entry, encode_entry
from streamgauge.core.assembly.state_size import MAX_BUCKET_BYTES, evict_largest, max_growth_of, max_growth_of_in_order
from streamgauge.core.assembly.stream import Stream, shared
from streamgauge.core.assembly.tap_instances import TapInstances
from streamgauge.core.capture.segments import Bundle, Segment
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record

BUCKETS = 64
PRODUCERS = BUCKETS
_ALL = frozenset(range(BUCKETS))

# A segment after a missing one waits until more than this many of its stream wait, or this long by its tap's clock. A
# shipper keeps order, so the missing segment is being resent, which takes seconds, or its bundle is lost.
WAIT_SEGMENTS = 16
WAIT_NS = 30 * 1_000_000_000

# The latest streams of each bucket that were closed with segments missing or without an end. Their segments may still
# come, and must not open the stream again. A late bundle comes within `tap_instances.WINDOW` or not at all.
MAX_REMEMBERED = 64

# Reads that may be buffered over all streams before they are processed (about 300 bytes each), and the bundles that
# brought them (up to 256 KiB each). Both limits are some 16 MiB.
MAX_BUFFERED_READS = 50_000
MAX_BUFFERED_BUNDLES = 64

# The instance id of a tick, a message that only lets the log's time pass.
TICK_INSTANCE = bytes(16)


class Bucket(msgspec.Struct, array_like=True):
    """Open streams by id, oldest first; `closed`: ids of closed streams whose segments may still come (MAX_REMEMBERED).

    `size`: the estimated bytes of the bucket, from the segments applied (`state_size.py`); -1: an older program's state.
    """

    applied_offset: int = -1
    streams: dict[bytes, StreamState] = {}
    closed: list[bytes] = []
    size: int = -1


_ENCODER = msgspec.msgpack.Encoder()
_BUCKET = msgspec.msgpack.Decoder(Bucket)
_PRODUCERS = msgspec.msgpack.Decoder(TapInstances)


class Assembler:
    """The open streams of one partition. `new_stream`: makes the reader of a state, given the duration of a stall (ns)."""

    def __init__(self, limits: Limits | None = None, new_stream: Callable[[StreamState, int], Stream] = Stream) -> None:
        self._new_stream = new_stream
        self._limits = limits or Limits()
        self._stall_ns = round(self._limits.stall_seconds * 1e9)
        self._abandon_after_ms = round(self._limits.abandon_after * 1000)
        self._buckets = [Bucket(size=0) for _ in range(BUCKETS)]
        self._producers = TapInstances()
        self._silence = SilenceTracker(self._limits.silent_seconds)
        self._changed: set[int] = set()
        self._waiting = ReorderBuffer(BUCKETS)
        self._streams: dict[bytes, Stream] = {}  # of open streams that got a segment in this process
        self._buffered_reads = self._buffered_bundles = 0
        self._finished: list[Record] = []
        self._offset = self._loaded_offset = -1
        self._is_loaded = False  # True from a load until a message above all loaded offsets
        # Lower bound of `last_ms` of the instances not abandoned: `_expire` looks for silent ones once it is old.
        self._oldest_message_ms = 0
        self.counts: Counter[str] = Counter()  # what happened besides records; the caller may clear it
        # Streams that ended without a record: their upstreams, and `ignored_as`. The caller may clear it, too.
        self.ignored: Counter[tuple[str | None, str]] = Counter()

    # --- the log ----------------------------------------------------------------------------------------------------

    def apply(self, offset: int, log_ms: int, bundle: Bundle) -> list[Record]:
        """Apply the message at `offset` (log time in milliseconds); return the records of the streams that it ended."""
        if offset <= self._producers.applied_offset:
            return []  # the buckets have applied it, too: they are made durable before the producers entry
        self._offset = offset
        now_ms = self._producers.pass_time(log_ms)
        to_apply = _ALL if offset > self._loaded_offset else self._buckets_to_apply(offset)
        if self._is_loaded and offset > self._loaded_offset:
            self._register_untracked_instances(now_ms)
        self._expire(now_ms, to_apply)
        if bundle.instance != TICK_INSTANCE and self._is_new(bundle, now_ms):
            self._segments(bundle, to_apply)
            self._bound_pending(bundle)
            if self._waiting:
                self._skip_timed_out_gaps(bundle, to_apply)
            if bundle.farewell or bundle.dead:
                self._abandon_ended_instances(bundle, to_apply)
        self._producers.applied_offset = offset
        self._changed.add(PRODUCERS)
        return self.take_finished()

    def take_finished(self) -> list[Record]:
        """The records that `apply` has not returned: after an error in it, the records of the streams that it had closed."""
        finished, self._finished = self._finished, []
        return finished

    def _buckets_to_apply(self, offset: int) -> frozenset[int]:
        """The buckets that have not applied this message. In a replay, a loaded bucket may have applied it already."""
        return frozenset(key for key, bucket in enumerate(self._buckets) if offset > bucket.applied_offset)

    def _register_untracked_instances(self, now_ms: int) -> None:
        """Once the replay is over, register the instances of open streams that have no entry, or count as abandoned.
        Their messages may have expired from the log, and without an entry their streams would never be abandoned."""
        self._is_loaded = False
        instances = {state.instance for bucket in self._buckets for state in bucket.streams.values()}
        if self._producers.register_missing(sorted(instances), now_ms):
            self._oldest_message_ms = 0

    def _is_new(self, bundle: Bundle, now_ms: int) -> bool:
        self.counts["bundles"] += 1
        self._silence.pass_time(bundle.instance, bundle.tap_ns)
        self._oldest_message_ms = min(self._oldest_message_ms, now_ms)
        if self._producers.record_bundle(bundle.instance, bundle.slot, bundle.number, now_ms):
            return True
        self.counts["duplicate_bundles"] += 1
        return False

    def _segments(self, bundle: Bundle, to_apply: frozenset[int]) -> None:
        if 0 in [segment.number for segment in bundle.segments]:
            # Even if `to_apply` is empty: a replay gives the same producers entry.
            self._producers.revive(bundle.instance)
        buckets, readers, changed = self._buckets, self._streams, self._changed
        for segment in bundle.segments:
            key = segment.stream[-1] % BUCKETS
            if key not in to_apply:
                continue
            bucket, reader = buckets[key], readers.get(segment.stream)
            reader = reader if reader is not None and reader.state.instance == bundle.instance else None
            # The usual case: the next segment of a stream that has a `Stream` object.
            if reader is not None and segment.number == (state := reader.state).next_segment and not state.waiting:
                bucket.applied_offset = self._offset
                changed.add(key)
                bucket.size += max_growth_of_in_order(segment, len(bucket.streams))
                reader.apply(segment)
                if state.end is not None:
                    self._close(key, state, remember=bool(state.loss.missing_segments))
            else:
                self._segment(key, bundle, segment)
            if bucket.size > MAX_BUCKET_BYTES:
                self._shrink(key)

    def _bound_pending(self, bundle: Bundle) -> None:
        """Count the bundle's reads as buffered; process all buffered reads if there are too many."""
        self._buffered_bundles += 1
        self._buffered_reads += sum([len(segment.reads) for segment in bundle.segments])
        if self._buffered_reads > MAX_BUFFERED_READS or self._buffered_bundles >= MAX_BUFFERED_BUNDLES:
            self._buffered_reads = self._buffered_bundles = 0
            for reader in self._streams.values():
                reader.apply_pending_reads()

    def _segment(self, key: int, bundle: Bundle, segment: Segment) -> None:
        state = self._buckets[key].streams.get(segment.stream) or self._open(key, bundle, segment)
        if state is None or state.instance != bundle.instance:
            self.counts["late_segments"] += 1  # or a second tap replays the same file, with other segment borders
            return
        self._mark_changed(key)
        if segment.number > state.next_segment and segment.number not in state.waiting:
            self._keep_waiting(key, state, segment, bundle.tap_ns)
        elif segment.number != state.next_segment:
            self.counts["duplicate_segments"] += 1
        else:
            # The size must not depend on whether a `Stream` object exists, so it is counted as in `_segments`.
            self._buckets[key].size += max_growth_of_in_order(segment, len(self._buckets[key].streams))
            self._reader(state).apply(segment)
            self._apply_waiting(key, state)
            if state.waiting:
                state.waiting_since_ns = bundle.tap_ns  # of the next gap

    def _open(self, key: int, bundle: Bundle, segment: Segment) -> StreamState | None:
        """Open a stream for a segment; None if the segment is late, because its stream was closed before."""
        bucket = self._buckets[key]
        if segment.stream in bucket.closed:
            return None
        if segment.number > 0 and not self._producers.has_gap(bundle.instance, bundle.slot):
            return None
        if len(bucket.streams) * BUCKETS >= self._limits.max_open_streams:
            oldest = next(iter(bucket.streams.values()))
            oldest.loss.state_limit = True
            self._close_without_end(key, oldest)
        state = StreamState(segment.stream, bundle.instance, bundle.slot, items={})
        bucket.streams[segment.stream] = state
        return state

    def _shrink(self, key: int) -> None:
        """Measure a bucket that may be too large to be persisted. If it is, close its largest streams."""
        self._apply_pending_reads(key)
        bucket = self._buckets[key]
        bucket.size, evicted = evict_largest(bucket.streams.values())
        for state in evicted:
            state.loss.state_limit = True
            self._close_without_end(key, state)

    def _keep_waiting(self, key: int, state: StreamState, segment: Segment, tap_ns: int) -> None:
        """Keep a segment until the earlier segments of its stream that are missing have come."""
        if not state.waiting:
            state.waiting_since_ns = tap_ns
        state.waiting[segment.number] = kept = without_large_body(segment)
        self._waiting.add(key, state.stream, kept)
        self._buckets[key].size += max_growth_of(kept)
        if len(state.waiting) > WAIT_SEGMENTS:
            self._skip_missing(key, state)
        # If too much waits in a bucket, the stream with the most waiting bytes continues without its missing segments.
        while self._waiting.total(key) > MAX_WAITING_BYTES:
            self._skip_missing(key, self._buckets[key].streams[self._waiting.largest(key)])

    def _skip_missing(self, key: int, state: StreamState) -> None:
        """Count the missing segments in `loss.missing_segments`, and continue with those that wait."""
        first = min(state.waiting)
        state.loss.missing_segments += first - state.next_segment
        state.next_segment = first
        self._reader(state).mark_gap_here()
        self._apply_waiting(key, state)

    def _reader(self, state: StreamState) -> Stream:
        reader = self._streams.get(state.stream)
        if reader is None:
            reader = self._streams[state.stream] = self._new_stream(state, self._stall_ns)
        return reader

    def _apply_waiting(self, key: int, state: StreamState) -> None:
        """Apply the waiting segments that are next in order; close the stream if its end has come."""
        while (segment := state.waiting.pop(state.next_segment, None)) is not None:
            self._waiting.remove(key, state.stream, segment)
            self._reader(state).apply(segment)
        if not state.waiting:
            self._waiting.drop(key, state.stream)
        if state.end is not None:
            self._close(key, state, remember=bool(state.loss.missing_segments or state.waiting))

    def _close(self, key: int, state: StreamState, *, remember: bool) -> None:
        bucket = self._buckets[key]
        del bucket.streams[state.stream]
        reader = self._streams.pop(state.stream, None)
        if reader is not None:
            reader.apply_pending_reads()
        self._waiting.drop(key, state.stream)
        if remember:
            bucket.closed = [*bucket.closed[1 - MAX_REMEMBERED :], state.stream]
        if is_ignored(state):
            self.counts["not_llm"] += 1
            opening = state.opening
            self.ignored[opening.upstream if opening is not None else None, ignored_as(state)] += 1
        else:
            self._finished.append(record_of(state))

    # --- streams without an end -------------------------------------------------------------------------------------

    def _skip_timed_out_gaps(self, bundle: Bundle, to_apply: frozenset[int]) -> None:
        """Continue those streams of the bundle's instance that have waited WAIT_NS for a missing segment."""
        for stream in self._waiting.streams():
            key = bucket_of(stream)
            state = self._buckets[key].streams[stream]
            late = bundle.tap_ns - state.waiting_since_ns > WAIT_NS
            if key in to_apply and state.instance == bundle.instance and late:
                self._mark_changed(key)
                self._skip_missing(key, state)
                if state.waiting:
                    state.waiting_since_ns = bundle.tap_ns  # of the next gap

    def _abandon_ended_instances(self, bundle: Bundle, to_apply: frozenset[int]) -> None:
        """Abandon the open streams of ended instances in this slot: of the sender of a farewell, and of those in `dead`."""
        ended = {*bundle.dead, bundle.instance} if bundle.farewell else {*bundle.dead}
        self._abandon(to_apply, lambda state: state.instance in ended and state.slot == bundle.slot)

    def _expire(self, now_ms: int, to_apply: frozenset[int]) -> None:
        """Abandon the streams of instances that were silent too long by the log's time, or exceed MAX_INSTANCES."""
        since_ms = now_ms - self._abandon_after_ms
        if since_ms >= self._oldest_message_ms:
            silent = self._producers.silent(since_ms)
            self._abandon(to_apply, lambda state: state.instance in silent)
            self._producers.mark_abandoned(silent)
            oldest = self._producers.oldest_ms()
            self._oldest_message_ms = now_ms if oldest is None else oldest
        if excess := self._producers.over_capacity():
            self._abandon(to_apply, lambda state: state.instance in excess)
            self._producers.forget(excess)

    def _abandon(self, to_apply: frozenset[int], is_abandoned: Callable[[StreamState], bool]) -> None:
        for key in sorted(to_apply):
            for state in [state for state in self._buckets[key].streams.values() if is_abandoned(state)]:
                self._mark_changed(key)
                self._close_without_end(key, state)

    def _close_without_end(self, key: int, state: StreamState) -> None:
        """Close a stream without its end, with what was captured of it."""
        while state.waiting and state.end is None:
            self._skip_missing(key, state)
        if state.stream in self._buckets[key].streams:
            self._close(key, state, remember=True)

    def mark_gap(self) -> None:
        """The log lost messages: mark every open stream, since each may lack reads."""
        for key, bucket in enumerate(self._buckets):
            for state in bucket.streams.values():
                state.loss.log_gap = True
                self._reader(state).mark_gap_here()
                self._changed.add(key)
        self.counts["log_gaps"] += 1

    # --- state ------------------------------------------------------------------------------------------------------

    def _mark_changed(self, key: int) -> None:
        self._buckets[key].applied_offset = self._offset
        self._changed.add(key)

    def open_states(self) -> list[StreamState]:
        """All open streams, each with all that was applied to it, for reading only."""
        for reader in self._streams.values():
            reader.apply_pending_reads()
        return [state for bucket in self._buckets for state in bucket.streams.values()]

    def state_of(self, stream: bytes, *, whole: bool = True) -> StreamState | None:
        """An open stream, for reading only; None if it is not open. `whole`: with the reads that are buffered."""
        if whole and stream in self._streams:
            self._streams[stream].apply_pending_reads()
        return self._buckets[bucket_of(stream)].streams.get(stream)

    @property
    def open_streams(self) -> int:
        """The number of open streams in all buckets."""
        return sum(len(bucket.streams) for bucket in self._buckets)

    def silent_streams(self) -> Counter[str | None]:
        """The number of silent streams by upstream (`silence.py`). Call it every few seconds, between messages."""
        return self._silence.count(state for bucket in self._buckets for state in bucket.streams.values())

    @property
    def waiting_reads(self) -> int:
        """Reads that were applied and are buffered, to be processed as a batch."""
        return sum(reader.waiting_reads for reader in self._streams.values())

    def changed(self) -> list[int]:
        """Keys whose state changed since it was last dumped: buckets first, PRODUCERS last."""
        return sorted(self._changed)

    def dump(self, key: int) -> bytes:
        """A key's state as bytes. The key counts as unchanged from now on."""
        self._changed.discard(key)
        if key != PRODUCERS:
            self._apply_pending_reads(key)
        return encode_entry(_ENCODER.encode(self._producers if key == PRODUCERS else self._buckets[key]))

    def _apply_pending_reads(self, key: int) -> None:
        """Process the buffered reads of a bucket, so that its state holds all that was applied."""
        for stream in self._buckets[key].streams:
            if stream in self._streams:
                self._streams[stream].apply_pending_reads()

    def load(self, key: int, value: bytes) -> None:
        """Replace a key's state by a dumped one. Raises msgspec.DecodeError if it is damaged, NewerStateError if newer."""
        content = decode_entry(value)
        try:
            if key == PRODUCERS:
                self._producers = _PRODUCERS.decode(content)
                self._oldest_message_ms = 0
                return
            bucket = _BUCKET.decode(content)
        except (UnicodeDecodeError, RecursionError) as error:  # msgspec raises these for damaged text, deep nesting
            raise msgspec.DecodeError(str(error)) from error
        for stream in self._buckets[key].streams:
            self._streams.pop(stream, None)  # it belongs to the state that is replaced
        for state in bucket.streams.values():
            state.opening = state.opening and shared(state.opening)
        if bucket.size < 0:
            bucket.size = len(content)
        self._buckets[key] = bucket
        self._is_loaded = True
        self._loaded_offset = max(self._loaded_offset, bucket.applied_offset)
        waiting = {stream: state.waiting.values() for stream, state in bucket.streams.items() if state.waiting}
        self._waiting.replace(key, waiting)

    def applied_offset(self, key: int) -> int:
        """The last offset applied to a key's state; -1 for none."""
        return self._producers.applied_offset if key == PRODUCERS else self._buckets[key].applied_offset


def bucket_of(stream: bytes) -> int:
    """The bucket of a stream id, by bits of its random part."""
    return stream[-1] % BUCKETS
