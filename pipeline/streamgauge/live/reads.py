"""The reads of streams, for the page: kept as they came in bundles, and decoded when a page requests them.

A stream keeps its first chunk, its newest reads, and the first read after each long gap between two chunks. (A stall is
longer than the recorder's flush, so the read after it begins a chunk.) All limits are per process.

A moment is a decoded read: the numbers of its events and token events, and their kinds. Each read is applied to a stream
state that only the decoder uses, by the code that makes records; the difference shows the content of the read. No text is
kept: kinds are words of KINDS.
"""

from collections import OrderedDict, deque
from operator import attrgetter

import msgspec

from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.stream import Stream
from streamgauge.core.capture.segments import Opening, Read, Segment

# In this order in a moment. `tool`: name or arguments of a call; `output`: other generated output, such as audio;
# `finish`: a finish reason; `terminal`: the protocol's own end.
KINDS = ("text", "reasoning", "refusal", "tool", "output", "usage", "finish", "terminal", "error", "comment", "other")


class Moment(msgspec.Struct, frozen=True, gc=False):
    """One read. `index`: its number in the stream; `gap_ns`: the time since the read before it, None if that is unknown."""

    index: int
    at_ns: int | None
    gap_ns: int | None
    stall: bool
    body_bytes: int
    events: int
    tokens: int
    kinds: tuple[str, ...]


class ReadDecoder:
    """Decodes the reads of one stream, in their order. `dialect`: the dialect that the stream has shown, since its first
    reads may be missing.
    """

    def __init__(self, opening: Opening | None, dialect: str | None, stall_ns: int) -> None:
        self._state = StreamState(b"", b"", 0, opening=opening, dialect=dialect, items={})
        self._stall_ns = stall_ns
        self._stream = Stream(self._state, stall_ns)

    def moment(self, index: int, gap_ns: int | None, read: Read) -> Moment:
        """The moment of the next read. Reads before it may be missing."""
        before = _facts(self._state)
        self._stream.apply(Segment(b"", self._state.next_segment, reads=[read]))
        self._stream.apply_pending_reads()
        after = _facts(self._state)
        grown = tuple([new - old for new, old in zip(after, before, strict=True)])
        events, tokens = grown[0], grown[1]
        kinds = [kind for kind, more in zip(_GROWING, grown[2:], strict=True) if more > 0]
        if tokens and not any(kind in kinds for kind in ("text", "reasoning", "refusal", "tool")):
            kinds.append("output")
        if not kinds and events:
            kinds.append("other")
        ordered = tuple([kind for kind in KINDS if kind in kinds])
        stall = gap_ns is not None and gap_ns > self._stall_ns
        return Moment(index, read.stamp_ns, gap_ns, stall, read.body_bytes, events, tokens, ordered)


# What `_facts` counts after events and token events.
_GROWING = ("text", "reasoning", "refusal", "tool", "usage", "finish", "terminal", "error", "comment")


def _facts(state: StreamState) -> tuple[int, ...]:
    counts, tools = state.counts, [tool for choice in state.choices for tool in choice.tools]
    return (
        counts.events,
        counts.token_events,
        counts.text_chars,
        counts.reasoning_chars,
        counts.refusal_chars,
        len(tools) + sum([tool.argument_chars for tool in tools]),
        len(state.usage.raw),
        sum([choice.finish_raw is not None for choice in state.choices]),
        state.terminal,
        state.error is not None,
        counts.comments,
    )


# Reads of one stream: ten seconds of a fast model, two minutes of a slow one.
MAX_STREAM_READS = 512
# Each open stream may keep this many, even if there are very many streams.
MIN_STREAM_READS = 16
# Reads of all open streams, and the bytes of their events: 16 MiB of memory, about.
MAX_READS = 32_768
MAX_BYTES = 8 * 1024 * 1024
# Open streams that are followed; a track without reads takes about 400 bytes.
MAX_TRACKS = 20_000
# The limits of a finished stream.
FINISHED_READS = 256
FINISHED_BYTES = 64 * 1024
# Reads after long gaps that a stream keeps besides.
MAX_NOTABLE = 32
# Moments of all open streams that a page has asked for: 10 MiB, about.
MAX_MOMENTS = 65_536

_content_of = attrgetter("content")


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Reads that came together. `start`: the number of the first of them in the stream; `gap_ns`: the time before it."""

    start: int
    gap_ns: int | None
    reads: list[Read]
    content_bytes: int


class Track:
    """The timeline of one stream. `followed`: whether its reads are kept; if not, they are only counted.

    `began_ns`: its tap's clock when the request began, late by the age of a bundle at most; None before a stamp came.
    `total`: the reads so far; `kept`: those that are kept and not decoded yet; `content_bytes`: the bytes of their events.
    """

    __slots__ = (
        *("_decoded", "_decoder", "_first", "_last_ns", "_newest", "_notable", "_stall_ns"),
        *("began_ns", "content_bytes", "followed", "kept", "moments", "next_segment", "opening", "total"),
    )

    def __init__(self, stall_ns: int) -> None:
        self._stall_ns = stall_ns
        self.followed = True
        self.opening: Opening | None = None
        self.began_ns: int | None = None
        self.next_segment = self.total = self.kept = self.content_bytes = 0
        self.moments: list[Moment] = []
        self._first: Chunk | None = None
        self._newest: deque[Chunk] = deque()
        self._notable: list[Chunk] = []
        self._last_ns: int | None = None
        self._decoder: ReadDecoder | None = None
        self._decoded = -1  # index of the last read that was decoded

    def add(self, segment: Segment, tap_ns: int) -> None:
        """Takes the reads of the next segment, unless the segment was seen before."""
        if segment.number < self.next_segment:
            return
        self.next_segment = segment.number + 1
        self.opening = self.opening or segment.opening
        newest_ns = _newest_stamp(segment)
        if newest_ns is not None:
            began_ns = tap_ns - newest_ns
            self.began_ns = began_ns if self.began_ns is None else min(self.began_ns, began_ns)
        if not self.followed:
            self._count_reads(segment.reads)
        elif segment.reads:
            self._add_reads(segment.reads)

    def skip(self, segment: Segment) -> None:
        """Counts the reads of the next segment, unless the segment was seen before."""
        if segment.number >= self.next_segment:
            self.next_segment = segment.number + 1
            self._count_reads(segment.reads)

    def _count_reads(self, reads: list[Read]) -> None:
        if reads:
            self.total += len(reads)
            self._last_ns = reads[-1].stamp_ns

    def _add_reads(self, reads: list[Read]) -> None:
        index, before_ns, stamp_ns = self.total, self._last_ns, reads[0].stamp_ns
        self.total += len(reads)
        self._last_ns = reads[-1].stamp_ns
        gap_ns = None if stamp_ns is None or before_ns is None else stamp_ns - before_ns
        if len(reads) > MAX_STREAM_READS:
            skipped = len(reads) - MAX_STREAM_READS
            reads, index, gap_ns = reads[skipped:], index + skipped, None
        chunk = Chunk(index, gap_ns, reads, sum(map(len, map(_content_of, reads))))
        self._count(chunk)
        if self._first is None and index == 0:
            self._first = chunk
            return
        self._newest.append(chunk)
        if gap_ns is not None and gap_ns > self._stall_ns and len(self._notable) < MAX_NOTABLE:
            self._notable.append(Chunk(index, gap_ns, reads[:1], len(reads[0].content)))
            self._count(self._notable[-1])

    def _count(self, chunk: Chunk, sign: int = 1) -> None:
        self.kept += sign * len(chunk.reads)
        self.content_bytes += sign * chunk.content_bytes

    def drop_oldest(self, max_reads: int, max_bytes: int) -> None:
        """Drops the oldest chunks after the first one, until no more than this is kept."""
        while self._newest and (self.kept > max_reads or self.content_bytes > max_bytes):
            self._count(self._newest.popleft(), -1)

    def drop_all(self) -> None:
        """Drops all reads that are not decoded."""
        self._first = None
        self._newest.clear()
        self._notable.clear()
        self.kept = self.content_bytes = 0

    def shrink(self) -> None:
        """Reduces the track to the limits of a finished stream."""
        self._trim_moments(FINISHED_READS)
        self.drop_oldest(FINISHED_READS, FINISHED_BYTES)
        if self.kept > 2 * FINISHED_READS or self.content_bytes > FINISHED_BYTES:
            self.drop_all()

    def decode(self, dialect: str | None) -> list[Moment]:
        """All that is kept, decoded; the reads are then dropped. `dialect`: of the stream, as far as it is known."""
        if self._decoder is None:
            self._decoder = ReadDecoder(self.opening, dialect, self._stall_ns)
        first = [] if self._first is None else [self._first]
        # The first read after a gap may be kept twice: as a part of its chunk, and alone.
        for chunk in sorted(
            [*first, *self._notable, *self._newest], key=lambda chunk: (chunk.start, -len(chunk.reads))
        ):
            gap_ns = chunk.gap_ns
            for number, read in enumerate(chunk.reads):
                if number:
                    before_ns = chunk.reads[number - 1].stamp_ns
                    gap_ns = None if read.stamp_ns is None or before_ns is None else read.stamp_ns - before_ns
                if chunk.start + number > self._decoded:
                    self._decoded = chunk.start + number
                    self.moments.append(self._decoder.moment(self._decoded, gap_ns, read))
        self.drop_all()
        self._trim_moments(MAX_STREAM_READS)
        return self.moments

    def _trim_moments(self, most: int) -> None:
        """Of more than `most` moments, keeps the first, the newest `most` / 2, and moments with a stall or an error."""
        if len(self.moments) <= most:
            return
        newest = most // 2
        older, newer = self.moments[:-newest], self.moments[-newest:]
        special = [moment for moment in older[MIN_STREAM_READS:] if moment.stall or "error" in moment.kinds]
        self.moments = [*older[:MIN_STREAM_READS], *special[-MAX_NOTABLE:], *newer]


class Tracks:
    """The tracks of all open streams, the least recently active first. `stall_ns`: a longer gap is a stall.

    `reads`, `content_bytes`, `moments`: sums over the tracks. `share`: the number of streams in 256 that are followed; their
    ids decide.
    """

    def __init__(self, stall_ns: int) -> None:
        self._stall_ns = stall_ns
        self._tracks: OrderedDict[bytes, Track] = OrderedDict()
        self._holding: OrderedDict[bytes, None] = OrderedDict()  # streams that keep reads
        self._asked: OrderedDict[bytes, None] = OrderedDict()  # streams with moments, the latest request last
        self.reads = self.content_bytes = self.moments = 0
        self.share = 256

    def __len__(self) -> int:
        return len(self._tracks)

    def get(self, stream: bytes) -> Track | None:
        """The track of a stream, if it has one."""
        return self._tracks.get(stream)

    def add(self, segment: Segment, tap_ns: int) -> None:
        """Takes a segment of a bundle that was closed at `tap_ns` of its tap's clock."""
        stream = segment.stream
        track = self._tracks.get(stream)
        if track is None:
            track = self._tracks[stream] = Track(self._stall_ns)
            if len(self._tracks) > MAX_TRACKS:
                self.take(next(iter(self._tracks)))
        track.followed = stream[-2] < self.share
        if not track.followed and track.began_ns is not None:
            track.skip(segment)
            return
        self._tracks.move_to_end(stream)
        kept, content = track.kept, track.content_bytes
        track.add(segment, tap_ns)
        if track.kept:
            self._holding[stream] = None
            self._holding.move_to_end(stream)
            limit = min(MAX_STREAM_READS, max(MIN_STREAM_READS, MAX_READS // len(self._holding)))
            track.drop_oldest(limit, MAX_BYTES)
        self._count(track, kept, content)
        while self._holding and (self.reads > MAX_READS or self.content_bytes > MAX_BYTES):
            self._release(next(iter(self._holding)))

    def _count(self, track: Track, kept: int, content: int) -> None:
        """Corrects the sums. `kept`, `content`: the reads and bytes that the track kept before."""
        self.reads += track.kept - kept
        self.content_bytes += track.content_bytes - content

    def _release(self, stream: bytes) -> None:
        """Drops the reads of a stream to make room."""
        del self._holding[stream]
        track = self._tracks[stream]
        kept, content = track.kept, track.content_bytes
        track.drop_all()
        self._count(track, kept, content)

    def decode(self, stream: bytes, dialect: str | None) -> list[Moment]:
        """The moments of an open stream."""
        track = self._tracks.get(stream)
        if track is None:
            return []
        kept, content, known = track.kept, track.content_bytes, len(track.moments)
        moments = track.decode(dialect)
        self._holding.pop(stream, None)
        self._count(track, kept, content)
        self._asked[stream] = None
        self._asked.move_to_end(stream)
        self.moments += len(moments) - known
        while self.moments > MAX_MOMENTS and len(self._asked) > 1:
            oldest = self._tracks[self._asked.popitem(last=False)[0]]
            self.moments -= len(oldest.moments)
            oldest.moments = []
        return moments

    def end(self, segment: Segment) -> None:
        """Removes the track of a stream that is not open any more. If its track has the segment already, the bundle is
        a duplicate, and the record that takes the track is still to come."""
        track = self._tracks.get(segment.stream)
        if track is not None and segment.number >= track.next_segment:
            self.take(segment.stream)

    def take(self, stream: bytes) -> Track | None:
        """Removes the track of a stream that has ended."""
        track = self._tracks.pop(stream, None)
        if track is not None:
            self._holding.pop(stream, None)
            self._asked.pop(stream, None)
            self.reads -= track.kept
            self.content_bytes -= track.content_bytes
            self.moments -= len(track.moments)
        return track


def _newest_stamp(segment: Segment) -> int | None:
    """The newest time in a segment (ns since the request began): the segment's tap closed its bundle soon after."""
    if segment.end is not None and segment.end.stamp_ns is not None:
        return segment.end.stamp_ns
    if segment.reads:
        return segment.reads[-1].stamp_ns
    if segment.head is not None and segment.head.stamp_ns is not None:
        return segment.head.stamp_ns
    if segment.request is not None and segment.request.sent_ns is not None:
        return segment.request.sent_ns
    return 0 if segment.opening is not None and segment.opening.tap != "replay" else None
