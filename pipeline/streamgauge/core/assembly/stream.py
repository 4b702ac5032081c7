"""Applies the segments of one stream to its state, in order. An event has the time of the read that completed it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from streamgauge.core.assembly.event_sink import StreamEventSink
from streamgauge.core.assembly.plain_deltas import PlainDeltas
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.capture.segments import Loss, Opening, Read, Segment, StreamEnding
from streamgauge.core.dialects import (
    BY_NAME,
    DONE,
    OTHER,
    Dialect,
    dialect_of_endpoint,
    dialect_of_error,
    dialect_of_text_event,
    error_in,
    is_foreign,
    is_whole,
    recognised,
    recognised_body,
)
from streamgauge.core.dialects.contract import may_be_error
from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.core.formats.sse import Event, SseDecoder, read_events
from streamgauge.core.outcome import FIRST_ERROR_STATUS
from streamgauge.core.resumption import begins_later, repeats
from streamgauge.core.safe_values import finite_number, safe_id, whole_number
from streamgauge.core.usage import INVOCATION_METRICS

# Reads buffered per stream before they are processed as a batch; batching amortises the fixed cost.
MAX_WAITING_READS = 256

# Fields whose values many streams of a tap share. The table of their values is cleared when it has _MAX_WORDS entries.
_SHARED_FIELDS = ("tap", "tap_version", "capture", "upstream", "path", "tenant", "credential_id", "host")
_MAX_WORDS = 1_024
_words: dict[str | None, str | None] = {}


def shared(opening: Opening) -> Opening:
    """The opening with interned values: streams with equal values share one copy, which saves memory."""
    if len(_words) >= _MAX_WORDS:
        _words.clear()
    same: dict[str, object] = {name: _words.setdefault(word := getattr(opening, name), word) for name in _SHARED_FIELDS}
    if opening.attributes:
        same["attributes"] = tuple([tuple([_words.setdefault(x, x) for x in pair]) for pair in opening.attributes])
    return msgspec.structs.replace(opening, **same)


class Stream:
    """Applies segments to a StreamState; it can be created from a state at any time.

    Reads are buffered until there are MAX_WAITING_READS, the stream ends, or the caller needs the state
    (`apply_pending_reads`). Nothing else that affects a record is kept outside the state.
    """

    def __init__(self, state: StreamState, stall_ns: int) -> None:
        self.state = state
        self._waiting: list[Read] = []
        self._stall_ns = stall_ns
        self._sink: StreamEventSink | None = None
        self._shown = BY_NAME.get(state.dialect or "")  # the dialect that the content has shown so far
        self._deltas = PlainDeltas(state, stall_ns)

    def apply(self, segment: Segment) -> None:
        """Apply the next segment of this stream. Never raises, whatever the segment holds."""
        state = self.state
        state.next_segment = segment.number + 1
        state.counts.segments += 1
        if (
            segment.opening is not None
            or segment.request is not None
            or segment.head is not None
            or segment.loss is not None
        ):
            self._begin(segment)
        waiting = self._waiting
        if segment.loss is None or not segment.loss.dropped_reads:
            waiting += segment.reads
        else:
            self._reads_with_gaps(segment.reads)
        if segment.end is not None:
            self.apply_pending_reads(ended=True)
            self._end(segment.end)
        elif len(waiting) >= MAX_WAITING_READS:
            self.apply_pending_reads()

    def _begin(self, segment: Segment) -> None:
        """Apply the parts of a segment that precede its reads: opening, request, head, loss."""
        state = self.state
        if segment.opening is not None:
            self.apply_pending_reads()
            state.opening = shared(segment.opening)
        if segment.request is not None:
            state.request = segment.request
        if segment.head is not None:
            state.head = segment.head
        if segment.loss is not None:
            self._add_loss(segment.loss)

    def mark_gap_here(self) -> None:
        """Record that reads of this stream are missing after those applied so far."""
        self.apply_pending_reads()
        self.state.timing.mark_gap()

    @property
    def waiting_reads(self) -> int:
        """Reads that were applied and are not yet in the state."""
        return len(self._waiting)

    def apply_pending_reads(self, *, ended: bool = False) -> None:
        """Process the buffered reads, so that the state holds all that was applied. `ended`: they are the stream's last."""
        if self._waiting:
            reads, self._waiting = self._waiting, []
            self._count(reads)
            # The last read of a stream is no delta: trying it in a batch would be wasted time.
            in_batches(reads, len(reads) - ended, self._may_batch, self._deltas.take_reads, self._read)
            self._close_sink()

    def _reads_with_gaps(self, reads: Sequence[Read]) -> None:
        """Process reads between which others are missing, at unknown positions."""
        self.mark_gap_here()
        self._count(reads)
        for read in reads:
            self._read(read)
            self.state.timing.mark_gap()
        self._close_sink()

    def _add_loss(self, loss: Loss) -> None:
        known = self.state.loss
        known.dropped_reads += loss.dropped_reads
        known.oversized_events += loss.oversized_events
        known.decode_error = known.decode_error or loss.decode_error

    def _count(self, reads: Sequence[Read]) -> None:
        counts = self.state.counts
        counts.reads += len(reads)
        counts.bytes += sum([read.body_bytes for read in reads])

    def _may_batch(self) -> bool:
        """Whether events may be processed as a batch: no terminal was seen, and the stream repeats no events."""
        return not self.state.terminal and not begins_later(self.state.opening)

    def _read(self, read: Read) -> None:
        stamp = read.stamp_ns
        if read.body_bytes:
            self.state.timing.read(stamp)
        if read.content:
            events = read_events(read.content)
            if len(events) == 1:
                self._event(events[0], stamp)
            else:
                self._events(events, stamp)

    def _events(self, events: Sequence[Event], stamp: int | None) -> None:
        in_batches(
            events,
            len(events),
            self._may_batch,
            lambda batch: self._deltas.take_events(batch, stamp),
            lambda event: self._event(event, stamp),
        )

    def _end(self, end: StreamEnding) -> None:
        state = self.state
        state.end = end
        if end.tail:
            self._tail(end.tail)
        if end.body is not None:
            self._body(end.body)
        self._close_sink()

    def _tail(self, tail: bytes) -> None:
        """Apply a last event without its blank line, if it is whole; half an event is only counted.

        Comments are lines, and need no blank line.
        """
        counts, decoder = self.state.counts, SseDecoder()
        decoder.feed(tail)
        comments = decoder.comments_pending
        pending = decoder.finish()
        counts.unterminated_events += pending is not None
        if pending is not None and (pending.oversized or is_whole(pending, self._shown)):
            self._event(pending, self.state.timing.last_read)
        else:
            counts.comments += comments

    # --- events -----------------------------------------------------------------------------------------------------

    def _event(self, event: Event, stamp: int | None) -> None:
        state, name, data = self.state, event.name, event.data
        if event.comments or event.id is not None or event.error is not None or event.bare is not None:
            self._fields_beside_data(event)
        if data is None:
            self._without_data(event)
            return
        state.counts.events += 1
        if state.timing.first_event is None:
            state.timing.first_event = stamp
        dialect = self._shown
        if name and (text_dialect := dialect_of_text_event(name, dialect)) is not None:
            self._text(text_dialect, data, stamp)
            return
        if data[:6] == DONE:
            self._done()
            return
        value = parse(data)
        if type(value) is not dict:
            self._other_data(name, data, value)
            return
        if may_be_error(name, value):
            self._error(name, value)
        if "sequence_number" in value or "event_id" in value:
            self._note_position(value)
        if state.terminal:
            state.counts.after_terminal_events += 1
            self._read_usage_after_done(value)
            return
        if dialect is None or not dialect.recognises(name, value):
            dialect = self._shown_by(name, value)
        if dialect is not None:
            repeated = state.opening is not None and state.opening.resumed_from is not None and self._is_repeated(value)
            if repeated:
                state.counts.repeated_events += 1
            sink = self._sink or self._new_sink()
            sink.begin(dialect, stamp, repeated)
            dialect.read(name, value, sink)
            _read_invocation_metrics(value, sink)
            sink.end()

    def _without_data(self, event: Event) -> None:
        """Note an event over the size limit of which nothing could be read."""
        if event.oversized:
            self.state.loss.unread_at = self.state.counts.token_events

    def _fields_beside_data(self, event: Event) -> None:
        state = self.state
        state.counts.comments += event.comments
        if event.id is not None:
            state.identity.last_event_id = safe_id(event.id)
        if event.error is not None:
            state.counts.error_fields += 1
            self._error("error", parse(event.error))
        if event.bare is not None:
            self._error("", parse(event.bare))

    def _other_data(self, name: str, data: bytes, value: object) -> None:
        """Apply an event whose data is another JSON value, or no JSON (`value` is UNPARSED)."""
        counts, shown = self.state.counts, self._shown
        if value is UNPARSED and data.strip() and not (shown is not None and shown.text_events):
            counts.unparsed_events += 1
        if self.state.terminal:
            counts.after_terminal_events += 1
        self._error(name, value)

    def _text(self, dialect: Dialect, text: bytes, stamp: int | None) -> None:
        """Apply an event whose data is generated text itself, not JSON."""
        state = self.state
        self._set_dialect(dialect)
        if state.terminal:
            state.counts.after_terminal_events += 1
            return
        repeated = self._is_repeated({})
        state.counts.repeated_events += repeated
        sink = self._sink_for(dialect, stamp, repeated)
        sink.text(0, text.decode("utf-8", "replace"))
        sink.end()

    def _note_position(self, value: dict[str, object]) -> None:
        number = whole_number(value.get("sequence_number"))
        if number is not None:
            self.state.identity.last_sequence_number = number
        event_id = value.get("event_id")
        if isinstance(event_id, str):
            self.state.identity.last_event_id = safe_id(event_id)

    def _shown_by(self, name: str, value: dict[str, object]) -> Dialect | None:
        """The dialect that an event shows, which becomes the stream's; if it shows none, the dialect to read it by."""
        shown = recognised(name, value)
        if shown is not None:
            self._set_dialect(shown)
        elif self.state.dialect is None and is_foreign(value):
            self.state.dialect = OTHER
        return shown or self.dialect

    def _read_usage_after_done(self, value: dict[str, object]) -> None:
        """Apply an event after the terminal: usage after [DONE] counts, unless it names another response."""
        dialect = self.dialect
        usage = None if dialect is None else dialect.usage_after_done(value)
        response = value.get("response")
        of = response.get("id") if isinstance(response, dict) else value.get("id")
        if usage is not None and safe_id(of) in (None, self.state.identity.response_id):
            self._sink_for(dialect, None).usage(usage)

    def _new_sink(self) -> StreamEventSink:
        self._sink = StreamEventSink(self.state, self._stall_ns)
        return self._sink

    def _close_sink(self) -> None:
        """Complete the state. To keep no sink saves memory for thousands of open streams; making one takes 1 us."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _sink_for(
        self, dialect: Dialect | None, stamp: int | None, repeated: bool = False, timed: bool = True
    ) -> StreamEventSink:
        sink = self._sink or self._new_sink()
        sink.begin(dialect, stamp, repeated, timed)
        return sink

    def _set_dialect(self, shown: Dialect) -> None:
        self.state.dialect, self._shown = shown.name, shown

    @property
    def dialect(self) -> Dialect | None:
        """The dialect that the content showed; else the operator's choice, else the endpoint's."""
        state, opening = self.state, self.state.opening
        if state.dialect is not None:
            return self._shown
        if opening is None:
            return None
        return BY_NAME.get(opening.dialect or "") or dialect_of_endpoint(opening.path)

    def _is_repeated(self, value: dict[str, object]) -> bool:
        opening, identity = self.state.opening, self.state.identity
        number = whole_number(value.get("sequence_number"))
        return opening is not None and repeats(opening, number, identity.last_event_id)

    def _done(self) -> None:
        """Apply [DONE]. It ends a stream whose dialect is unknown or has `done_is_terminal` (chat, completions)."""
        dialect = self.dialect
        if dialect is None:
            if self.state.counts.events == 1:
                self.state.hint = "openai-chat"  # after unrecognised events it shows no dialect
            self.state.terminal = True
        elif dialect.done_is_terminal:
            self.state.terminal = True
            if not any(choice.finish_raw for choice in self.state.choices):
                # Without any finish reason the usage reported so far is final.
                self.state.usage.final = self.state.usage.seen

    def _error(self, name: str, value: object) -> bool:
        """Report an in-band error to the sink; return whether there is one."""
        facts = error_in(name, value)
        if facts is None or self.state.dialect == OTHER:
            return False
        if self.state.opening is None or self.state.opening.path is None:
            self.state.hint = self.state.hint or dialect_of_error(value)
        self._sink_for(self.dialect, None).error(facts)
        return True

    # --- whole answers ----------------------------------------------------------------------------------------------

    def _body(self, body: bytes) -> None:
        """Apply the body of a response that is no event stream: one answer, or a list of events."""
        value = parse(body)
        self.state.body_read = value is not UNPARSED
        for answer in value if isinstance(value, list) else [value]:
            if isinstance(answer, dict):
                self._answer(answer)

    def _answer(self, value: dict[str, object]) -> None:
        status = self.state.head.status if self.state.head else None
        failed = status is not None and status >= FIRST_ERROR_STATUS
        whole = recognised_body(value)
        shown = whole or recognised("", value)
        if shown is not None:
            self._set_dialect(shown)
        if self._error("error" if failed else "", value) and shown is None:
            return
        dialect = shown or self.dialect
        if dialect is None:
            return
        sink = self._sink_for(dialect, None, timed=False)
        if shown is not None and whole is None:
            dialect.read("", value, sink)  # one of a list of events
        else:
            dialect.read_body(value, sink)


def _read_invocation_metrics(value: dict[str, object], sink: StreamEventSink) -> None:
    """Read Amazon Bedrock's own measures, which it puts beside the members of a vendor's last event. Times are in ms."""
    metrics = value.get(INVOCATION_METRICS)
    if isinstance(metrics, dict):
        first, total = (finite_number(metrics.get(name)) for name in ("firstByteLatency", "invocationLatency"))
        sink.usage({INVOCATION_METRICS: metrics})
        sink.provider_timing(
            first_token_s=None if first is None else first / 1000, total_s=None if total is None else total / 1000
        )


# --- batches -------------------------------------------------------------------------------------------------------

# After a batch that held no plain deltas, so many items are tried, and at most so many are applied one by one before the
# next try: twice as many after each such batch in a row.
_TRIAL = 8
_LONGEST_PAUSE = 32

_Item = TypeVar("_Item")


def in_batches(
    items: Sequence[_Item],
    batched: int,
    may_batch: Callable[[], bool],
    take: Callable[[Sequence[_Item]], int],
    apply: Callable[[_Item], None],
) -> None:
    """Apply items in order: by `take`, which returns how many of the first ones it applied, and the others by `apply`.

    Those before `batched` may be given to `take`, as long as `may_batch` holds. A batch of which nothing is taken costs time
    for each of its items. So after such a batch fewer items are tried, and later.
    """
    at, window, pause = 0, batched, 1
    while at < len(items):
        taken = take(items[at : min(batched, at + window)]) if at < batched and may_batch() else 0
        if taken:
            window, pause = 2 * window, 1
        else:
            for item in items[at : at + pause]:
                apply(item)
            taken, window, pause = pause, _TRIAL, min(2 * pause, _LONGEST_PAUSE)
        at += taken
