"""Many streams: a partition's bundles in, finished records out. Pure: the same log gives the same records, byte for byte.

Open streams lie in 64 buckets, by bits of their id. Each bucket, and the one entry for producers, can be dumped and
loaded by itself, and says up to which offset it speaks: what lies at or below that is skipped, so a replay of part of
the log after a crash changes nothing.

    a segment of an open stream     below the next number: a duplicate; above: it waits, for WAIT_SEGMENTS or WAIT_NS
    a segment 0 of no open stream   opens one
    any other                       opens one if a bundle is missing that may hold its beginning; else it is late
    silence of an instance          judged by the log's time, before each message: its streams are abandoned
    a farewell, or a successor      ends the streams of that instance and slot at once
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from streamgauge.core.assembly.record_builder import is_ignored, record_of
from streamgauge.core.assembly.reorder_buffer import MAX_WAITING_BYTES, ReorderBuffer, without_large_body
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.state_codec import decode_entry, encode_entry
from streamgauge.core.assembly.state_size import MAX_BUCKET_BYTES, evict_largest, max_growth_of, max_growth_of_in_order
from streamgauge.core.assembly.stream import Stream, shared
from streamgauge.core.assembly.tap_instances import TapInstances
from streamgauge.core.assembly.timing import STALL_SECONDS
from streamgauge.core.capture.segments import Bundle, Segment
from streamgauge.core.record import Record

BUCKETS = 64
PRODUCERS = BUCKETS
_ALL = frozenset(range(BUCKETS))

# A segment ahead of a missing one waits for this many more of its stream, or this long by its tap's own clock: a shipper
# keeps order, so only a resend or a lost bundle is behind it, and a resend takes seconds.
WAIT_SEGMENTS = 16
WAIT_NS = 30 * 1_000_000_000

# After this much silence by the log's time an instance is given up (seconds; --abandon-after).
ABANDON_AFTER_S = 3_600.0

# Open streams of one partition (a 64th of it in each bucket). At 1 KiB each this is 100 MiB; the oldest stream of a full
# bucket is closed to make room, and its record says so.
MAX_OPEN_STREAMS = 100_000

# Streams that were closed although segments were missing or no end had come: those may still come, and must not open a
# stream again. The latest ones of each bucket: a late bundle comes within the producers' window or not at all.
MAX_REMEMBERED = 64

# What may wait in readers, over all streams, until it is taken in: reads (about 300 bytes each) and bundles (up to
# 256 KiB each). Both are some 16 MiB.
MAX_HELD_READS = 50_000
MAX_HELD_BUNDLES = 64

# The instance of a message that only lets time pass.
TICK_INSTANCE = bytes(16)


class Limits(msgspec.Struct, frozen=True):
    abandon_after_s: float = ABANDON_AFTER_S
    stall_s: float = STALL_SECONDS
    max_open_streams: int = MAX_OPEN_STREAMS


class Bucket(msgspec.Struct, array_like=True):
    """Open streams by id, oldest first; `closed`: ids of streams that were closed with segments missing.

    `size`: as many bytes as it may have by now, told by what segments brought; less than none where nobody counted.
    """

    applied_offset: int = -1
    streams: dict[bytes, StreamState] = {}
    closed: list[bytes] = []
    size: int = -1


_ENCODER = msgspec.msgpack.Encoder()
_BUCKET = msgspec.msgpack.Decoder(Bucket)
_PRODUCERS = msgspec.msgpack.Decoder(TapInstances)


class Assembler:
    """One partition's open streams. `counts` tells what happened beside records; take and clear it at will."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._stall_ns = round(self._limits.stall_s * 1e9)
        self._abandon_after_ms = round(self._limits.abandon_after_s * 1000)
        self._buckets = [Bucket(size=0) for _ in range(BUCKETS)]
        self._producers = TapInstances()
        self._changed: set[int] = set()
        self._waiting = ReorderBuffer(BUCKETS)
        self._streams: dict[bytes, Stream] = {}  # readers of the open streams that were read of late
        self._held_reads = self._held_bundles = 0
        self._finished: list[Record] = []
        self._offset = self._loaded_offset = -1
        self._is_loaded = False  # since the last load nothing above it was applied
        # No instance that is not given up has been silent since before this time: so long nobody need be looked for.
        self._none_silent_before_ms = 0
        self.counts: Counter[str] = Counter()

    # --- the log ----------------------------------------------------------------------------------------------------

    def apply(self, offset: int, log_ms: int, bundle: Bundle) -> list[Record]:
        """Apply the message at `offset` (log time in milliseconds); gives the records of the streams that it finished."""
        if offset <= self._producers.applied_offset:
            return []  # buckets are made durable before producers: what this message did to them is in them
        self._offset = offset
        now_ms = self._producers.pass_time(log_ms)
        fresh = _ALL if offset > self._loaded_offset else self._buckets_to_apply(offset)
        if self._is_loaded and offset > self._loaded_offset:
            self._register_untracked_instances(now_ms)
        self._expire(now_ms, fresh)
        if bundle.instance != TICK_INSTANCE and self._is_new(bundle, now_ms):
            self._segments(bundle, fresh)
            self._bound_pending(bundle)
            if self._waiting:
                self._skip_timed_out_gaps(bundle, fresh)
            if bundle.farewell or bundle.dead:
                self._endings(bundle, fresh)
        self._producers.applied_offset = offset
        self._changed.add(PRODUCERS)
        return self.take_finished()

    def take_finished(self) -> list[Record]:
        """What was finished and not given yet: where `apply` failed, the records of the streams that it closed before."""
        finished, self._finished = self._finished, []
        return finished

    def _buckets_to_apply(self, offset: int) -> frozenset[int]:
        """Buckets that do not know this message: after a replay began, those whose state was loaded may."""
        return frozenset(key for key, bucket in enumerate(self._buckets) if offset > bucket.applied_offset)

    def _register_untracked_instances(self, now_ms: int) -> None:
        """All that was loaded has been caught up with. Where the log was cut off, streams may be open of an instance that
        nothing in it speaks of any more: they would never be given up."""
        self._is_loaded = False
        instances = {state.instance for bucket in self._buckets for state in bucket.streams.values()}
        if self._producers.register_missing(sorted(instances), now_ms):
            self._none_silent_before_ms = 0

    def _is_new(self, bundle: Bundle, now_ms: int) -> bool:
        self.counts["bundles"] += 1
        self._none_silent_before_ms = min(self._none_silent_before_ms, now_ms)
        if self._producers.record_bundle(bundle.instance, bundle.slot, bundle.number, now_ms):
            return True
        self.counts["duplicate_bundles"] += 1
        return False

    def _segments(self, bundle: Bundle, fresh: frozenset[int]) -> None:
        if 0 in [segment.number for segment in bundle.segments]:
            # Also where no bucket is fresh: when the log is read again it must be judged as the first time.
            self._producers.revive(bundle.instance)
        buckets, readers, changed = self._buckets, self._streams, self._changed
        for segment in bundle.segments:
            stream = segment.stream
            key = stream[-1] % BUCKETS
            if key not in fresh:
                continue
            bucket, reader = buckets[key], readers.get(stream)
            reader = reader if reader is not None and reader.state.instance == bundle.instance else None
            # Nearly always: the next segment of a stream that is being read.
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
                self._make_room(key)

    def _bound_pending(self, bundle: Bundle) -> None:
        """Let its reads wait for others of their streams, unless too much waits."""
        self._held_bundles += 1
        self._held_reads += sum([len(segment.reads) for segment in bundle.segments])
        if self._held_reads > MAX_HELD_READS or self._held_bundles >= MAX_HELD_BUNDLES:
            self._held_reads = self._held_bundles = 0
            for reader in self._streams.values():
                reader.apply_pending_reads()

    def _segment(self, key: int, bundle: Bundle, segment: Segment) -> None:
        state = self._buckets[key].streams.get(segment.stream) or self._open(key, bundle, segment)
        if state is None or state.instance != bundle.instance:
            self.counts["late_segments"] += 1  # or a second tap reads the same capture file, and cuts it elsewhere
            return
        self._touch(key)
        if segment.number > state.next_segment and segment.number not in state.waiting:
            self._hold(key, state, segment, bundle.tap_ns)
        elif segment.number != state.next_segment:
            self.counts["duplicate_segments"] += 1
        else:
            # Whether there is a reader is chance, so it is counted as in `_segments`.
            self._buckets[key].size += max_growth_of_in_order(segment, len(self._buckets[key].streams))
            self._reader(state).apply(segment)
            self._go_on(key, state)

    def _open(self, key: int, bundle: Bundle, segment: Segment) -> StreamState | None:
        """A new stream; None for a segment that comes too late for its own."""
        bucket = self._buckets[key]
        if segment.stream in bucket.closed:
            return None
        if segment.number > 0 and not self._producers.has_gap(bundle.instance, bundle.slot):
            return None
        if len(bucket.streams) * BUCKETS >= self._limits.max_open_streams:
            oldest = next(iter(bucket.streams.values()))
            oldest.loss.state_limit = True
            self._give_up(key, oldest)
        state = StreamState(segment.stream, bundle.instance, bundle.slot, items={})
        bucket.streams[segment.stream] = state
        return state

    def _make_room(self, key: int) -> None:
        """Where a bucket may be too large to be persisted, look how large it is, and close what takes most if need be."""
        self._settle(key)
        bucket = self._buckets[key]
        bucket.size, gone = evict_largest(bucket.streams.values())
        for state in gone:
            state.loss.state_limit = True
            self._give_up(key, state)

    def _hold(self, key: int, state: StreamState, segment: Segment, tap_ns: int) -> None:
        """Keep a segment that came ahead of a missing one."""
        if not state.waiting:
            state.waiting_since_ns = tap_ns
        state.waiting[segment.number] = held = without_large_body(segment)
        self._waiting.add(key, state.stream, held)
        self._buckets[key].size += max_growth_of(held)
        if len(state.waiting) > WAIT_SEGMENTS:
            self._skip_missing(key, state)
        # Where too much waits in a bucket, the stream of which most waits goes on without what is missing.
        while self._waiting.total(key) > MAX_WAITING_BYTES:
            self._skip_missing(key, self._buckets[key].streams[self._waiting.largest(key)])

    def _skip_missing(self, key: int, state: StreamState) -> None:
        """What is missing is missing: go on with what waits."""
        first = min(state.waiting)
        state.loss.missing_segments += first - state.next_segment
        state.next_segment = first
        self._reader(state).mark_gap_here()
        self._go_on(key, state)

    def _reader(self, state: StreamState) -> Stream:
        reader = self._streams.get(state.stream)
        if reader is None:
            reader = self._streams[state.stream] = Stream(state, self._stall_ns)
        return reader

    def _go_on(self, key: int, state: StreamState) -> None:
        """Apply what waited for the segment that has come; close the stream if its end is there."""
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
        else:
            self._finished.append(record_of(state))

    # --- endings without an end -------------------------------------------------------------------------------------

    def _skip_timed_out_gaps(self, bundle: Bundle, fresh: frozenset[int]) -> None:
        """Go on with streams of this instance that have waited too long for a missing segment."""
        for stream in self._waiting.streams():
            key = bucket_of(stream)
            state = self._buckets[key].streams[stream]
            late = bundle.tap_ns - state.waiting_since_ns > WAIT_NS
            if key in fresh and state.instance == bundle.instance and late:
                self._touch(key)
                self._skip_missing(key, state)

    def _endings(self, bundle: Bundle, fresh: frozenset[int]) -> None:
        """A farewell ends what its instance left open in this slot; a successor ends what the dead left there."""
        gone = {*bundle.dead, bundle.instance} if bundle.farewell else {*bundle.dead}
        self._abandon(fresh, lambda state: state.instance in gone and state.slot == bundle.slot)

    def _expire(self, now_ms: int, fresh: frozenset[int]) -> None:
        """Give up instances that have been silent for too long by the log's time, and those that are too many."""
        since_ms = now_ms - self._abandon_after_ms
        if since_ms >= self._none_silent_before_ms:
            silent = self._producers.silent(since_ms)
            self._abandon(fresh, lambda state: state.instance in silent)
            self._producers.give_up(silent)
            oldest = self._producers.oldest_ms()
            self._none_silent_before_ms = now_ms if oldest is None else oldest
        if crowd := self._producers.over_capacity():
            self._abandon(fresh, lambda state: state.instance in crowd)
            self._producers.forget(crowd)

    def _abandon(self, fresh: frozenset[int], is_gone: Callable[[StreamState], bool]) -> None:
        for key in sorted(fresh):
            for state in [state for state in self._buckets[key].streams.values() if is_gone(state)]:
                self._touch(key)
                self._give_up(key, state)

    def _give_up(self, key: int, state: StreamState) -> None:
        """End a stream whose tap is gone, with what is there of it."""
        while state.waiting and state.end is None:
            self._skip_missing(key, state)
        if state.stream in self._buckets[key].streams:
            self._close(key, state, remember=True)

    def mark_gap(self) -> None:
        """The log lost messages: every open stream may lack some."""
        for key, bucket in enumerate(self._buckets):
            for state in bucket.streams.values():
                state.loss.log_gap = True
                self._reader(state).mark_gap_here()
                self._changed.add(key)
        self.counts["log_gaps"] += 1

    # --- state ------------------------------------------------------------------------------------------------------

    def _touch(self, key: int) -> None:
        self._buckets[key].applied_offset = self._offset
        self._changed.add(key)

    @property
    def open_streams(self) -> int:
        return sum(len(bucket.streams) for bucket in self._buckets)

    @property
    def waiting_reads(self) -> int:
        """Reads that were applied and wait to be looked at together with others of their streams."""
        return sum(reader.waiting_reads for reader in self._streams.values())

    def changed(self) -> list[int]:
        """Keys whose state changed since it was last dumped: buckets first, PRODUCERS last."""
        return sorted(self._changed)

    def dump(self, key: int) -> bytes:
        """A key's state as bytes; it counts as unchanged from now on."""
        self._changed.discard(key)
        if key != PRODUCERS:
            self._settle(key)
        return encode_entry(_ENCODER.encode(self._producers if key == PRODUCERS else self._buckets[key]))

    def _settle(self, key: int) -> None:
        """Let the state of a bucket say all that was applied."""
        for stream in self._buckets[key].streams:
            if stream in self._streams:
                self._streams[stream].apply_pending_reads()

    def load(self, key: int, value: bytes) -> None:
        """Take over a key's dumped state. Raises msgspec.DecodeError for what is none, NewerStateError among them."""
        content = decode_entry(value)
        try:
            if key == PRODUCERS:
                self._producers = _PRODUCERS.decode(content)
                self._none_silent_before_ms = 0
                return
            bucket = _BUCKET.decode(content)
        except (UnicodeDecodeError, RecursionError) as error:  # msgspec's own, of damaged text and of nesting
            raise msgspec.DecodeError(str(error)) from error
        for stream in self._buckets[key].streams:
            self._streams.pop(stream, None)  # it read the state that is replaced
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
        """The offset up to which a key's state speaks; -1 for none."""
        return self._producers.applied_offset if key == PRODUCERS else self._buckets[key].applied_offset


def offset_of(value: bytes) -> int:
    """The applied offset inside a dumped value. Raises msgspec.DecodeError for what is none, NewerStateError among them."""
    try:
        fields = msgspec.msgpack.decode(decode_entry(value), type=list[msgspec.Raw])
        if not fields:
            raise msgspec.DecodeError("an entry of the state without its offset")
        return msgspec.msgpack.decode(fields[0], type=int)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec's own, of damaged text and of nesting
        raise msgspec.DecodeError(str(error)) from error


def bucket_of(stream: bytes) -> int:
    """The bucket of a stream id: bits of its random part."""
    return stream[-1] % BUCKETS
