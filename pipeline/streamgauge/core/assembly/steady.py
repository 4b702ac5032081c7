"""The steady part of a stream: reads that hold deltas and nothing else, taken without a look at each event.

What such reads change is what `stream.Stream` would change event by event: counts, times, a tool's arguments, the last
id, sequence number and running usage. Everything else of the stream is as it was, or else they are not steady.
"""

from collections.abc import Sequence

from streamgauge.core.assembly.envelope import EVENT_ID, Delta, Envelope
from streamgauge.core.assembly.event_sink import StreamEventSink
from streamgauge.core.assembly.forms import Run
from streamgauge.core.assembly.known_envelopes import envelope_of, envelope_of_one
from streamgauge.core.assembly.learning import VOLATILE, path_to, says_the_same
from streamgauge.core.assembly.repeated_output import REASONING, REFUSAL, TEXT, TOOL
from streamgauge.core.assembly.state import ChoiceState, StreamState
from streamgauge.core.capture.segments import Read
from streamgauge.core.dialects import Dialect
from streamgauge.core.formats.json_validator import feed
from streamgauge.core.formats.sse import Event
from streamgauge.core.safe_values import safe_id, whole_number

# Envelopes that a stream keeps: text and reasoning of two choices, say. Each is about 1 KB beside the state.
MAX_ENVELOPES = 4
# Reads that are looked at together: twice as many each time that all of them fit, fewer where they do not.
FIRST_WINDOW, MAX_WINDOW, MIN_WINDOW = 256, 256, 4
# To learn takes about as long as to read this many events, and is paid with what steady events saved; a stream begins
# with this much to spend. So a stream whose events share nothing is read only a little slower.
LEARNING_COST = 10
FIRST_CREDIT = 80
# To look whether an event fits what others taught.
TRYING_COST = 1


class Steady:
    """What was learnt of one stream. It is a help and no state: without it the stream says the same, later."""

    def __init__(self, state: StreamState, stall_ns: int) -> None:
        self._state = state
        self._stall_ns = stall_ns
        self._envelopes: list[Envelope] = []
        self._seen: list[Delta] = []
        self._credit = FIRST_CREDIT
        self._window = FIRST_WINDOW
        self._dialect: str | None = None  # what the stream had shown itself to be when something was learnt

    def take(self, reads: Sequence[Read], at: int, until: int) -> int:
        """Takes reads from `at` on, up to `until`, as long as they are steady; gives how many."""
        if self._state.dialect != self._dialect or at >= until:
            return 0
        content = reads[at].content
        for place, envelope in enumerate(self._envelopes):
            if content.startswith(envelope.before):
                left = self._timed_alike(envelope.delta, reads[at : min(at + self._window, until)])
                if not left:
                    return 0
                taken = (len(left) == 1 and self._take_one(envelope, left[0])) or self._take(envelope, left)
                self._window = min(2 * self._window, MAX_WINDOW) if taken == len(left) else max(2 * taken, MIN_WINDOW)
                if taken:
                    if place:
                        self._envelopes.insert(0, self._envelopes.pop(place))
                    return taken
        return 0

    def _timed_alike(self, delta: Delta, reads: Sequence[Read]) -> Sequence[Read]:
        """The first of these reads that change no first time: all, or where these are not known yet, those without stamps."""
        if self._has_first_times(delta):
            return reads
        return reads[: next((at for at, read in enumerate(reads) if read.stamp_ns is not None), len(reads))]

    def _has_first_times(self, delta: Delta) -> bool:
        timing = self._state.timing
        first = timing.first_content if delta.kind in (TEXT, REFUSAL) else timing.first_token
        if delta.kind in (REASONING, TOOL):
            first = timing.first_reasoning if delta.kind == REASONING else timing.first_tool
        return first is not None and self._choice(delta.choice).first_token is not None

    def _choice(self, index: int) -> ChoiceState:
        choice = self._state.choices[0]
        return choice if choice.index == index else next(one for one in self._state.choices if one.index == index)

    def _take_one(self, envelope: Envelope, read: Read) -> int:
        """A single read with a single plain text: what a segment holds where many streams share a bundle."""
        text = envelope.plain_text(read.content) if envelope.only_text and read.body_bytes else None
        if text is None:
            return 0
        counts, timing = self._state.counts, self._state.timing
        counts.reads += 1
        counts.bytes += read.body_bytes
        timing.read(read.stamp_ns)
        timing.token(read.stamp_ns, self._stall_ns)
        self._count(envelope.delta, 1, text)
        return 1

    def _take(self, envelope: Envelope, reads: Sequence[Read]) -> int:
        sizes = [read.body_bytes for read in reads]
        if 0 in sizes:  # no read by its time
            reads, sizes = reads[: sizes.index(0)], sizes[: sizes.index(0)]
        run = envelope.run([read.content for read in reads]) if reads else None
        if run is None:
            return 0
        if run.reads < len(reads):
            reads, sizes = reads[: run.reads], sizes[: run.reads]
        counts, events = self._state.counts, run.events
        counts.reads += run.reads
        counts.bytes += sum(sizes)
        self._state.timing.tokens([read.stamp_ns for read in reads], events, self._stall_ns)
        self._say(envelope, run.reads if events is None else sum(events), run)
        return run.reads

    @property
    def is_ready(self) -> bool:
        """Whether something was learnt."""
        return bool(self._envelopes)

    def take_blocks(self, blocks: Sequence[bytes], stamp: int | None) -> int:
        """The same for events of one read, without their blank lines, which whoever has it accounts for; gives how many."""
        if self._state.dialect != self._dialect:
            return 0
        for envelope in self._envelopes:
            run = envelope.blocks(blocks) if stamp is None or self._has_first_times(envelope.delta) else None
            if run is not None:
                for _ in range(run.reads):
                    self._state.timing.token(stamp, self._stall_ns)
                self._say(envelope, run.reads, run)
                return run.reads
        return 0

    # --- learning ---------------------------------------------------------------------------------------------------

    def see(self, event: Event, value: object, dialect: Dialect, reading: StreamEventSink, before: str | None) -> None:
        """An event was read in the ordinary way; `value` is its JSON, None where its data is no JSON.

        `before`: the dialect that the stream had shown until then.
        """
        given = _kept(reading.given, dialect)
        if self._envelopes:
            self._forget(reading, given)
        if len(reading.told) != 1 or reading.told[0][3] is None or self._credit < LEARNING_COST:
            return
        if event.comments or event.retry is not None or event.error is not None or event.bare is not None:
            return
        delta = _delta_of(event, value, reading, given)
        if delta is None:
            return
        seen = next((one for one in self._seen if one.sign == delta.sign), None)
        if seen is None:
            self._seen = [delta, *self._seen[: MAX_ENVELOPES - 1]]
            # What such an event tells depends on its bytes alone, but for what is beyond a limit, for what a stream is, and
            # for counts of input that fall to 0.
            if (
                before in (None, self._state.dialect)
                and not self._state.loss.state_limit
                and not reading.has_bad_values
            ):
                self._credit -= TRYING_COST
                self._keep(envelope_of_one(delta, dialect.name))
        elif reading.steady and seen.text != delta.text:
            self._learn(seen, delta, dialect)

    def _forget(self, reading: StreamEventSink, given: object) -> None:
        """What an event told anew, the next one of an envelope may tell back: such envelopes are learnt anew.

        A usage that differs in more than what is counted is such news; that of the envelope's own kind is none.
        """
        if not reading.steady or self._state.dialect != self._dialect:
            self._envelopes = []
        elif given is not None:
            self._envelopes = [
                one
                for one in self._envelopes
                if one.delta.given is None or says_the_same(one.delta.given, given, one.counted)
            ]

    def _learn(self, before: Delta, delta: Delta, dialect: Dialect) -> None:
        self._credit -= LEARNING_COST
        self._seen = [delta, *(one for one in self._seen if one is not before)]
        self._keep(envelope_of(before, delta, dialect.name, dialect.usage, VOLATILE | dialect.volatile))

    def _keep(self, envelope: Envelope | None) -> None:
        if envelope is not None:
            others = [one for one in self._envelopes if one.delta.sign != envelope.delta.sign]
            self._envelopes = [envelope, *others[: MAX_ENVELOPES - 1]]
            self._dialect = self._state.dialect

    # --- what steady reads change -----------------------------------------------------------------------------------

    def _say(self, envelope: Envelope, events: int, run: Run) -> None:
        """What so many events said, apart from their reads and their times."""
        self._count(envelope.delta, events, run.text)
        if not envelope.only_text:
            self._note(run)

    def _count(self, delta: Delta, events: int, text: str) -> None:
        counts = self._state.counts
        counts.events += events
        counts.token_events += events
        self._credit = min(FIRST_CREDIT, self._credit + events)
        self._generate(delta, events, text)

    def _note(self, run: Run) -> None:
        state = self._state
        if run.id is not None:
            state.identity.last_event_id = safe_id(run.id.decode("utf-8", "replace"))
        if run.sequence is not None:
            state.identity.last_sequence_number = run.sequence
        for path, count in run.usage:
            _put(state.usage.raw, path, count)

    def _generate(self, delta: Delta, events: int, text: str) -> None:
        counts, kind = self._state.counts, delta.kind
        choice = self._choice(delta.choice)
        choice.token_events += events
        if kind == TEXT:
            counts.text_chars += len(text)
        elif kind == REASONING:
            counts.reasoning_chars += len(text)
        elif kind == REFUSAL:
            counts.refusal_chars += len(text)
        elif kind == TOOL:
            tool = next(tool for tool in reversed(choice.tools) if delta.key is None or tool.key == delta.key)
            tool.argument_chars += len(text)
            if tool.check is not None:
                feed(tool.check, text)


def _kept(given: object, dialect: Dialect) -> object:
    """Of a usage what its dialect reads: one that is the whole event holds its text as well."""
    return (
        {key: member for key, member in given.items() if key in dialect.usage.spec}
        if isinstance(given, dict)
        else given
    )


def _delta_of(event: Event, value: object, reading: StreamEventSink, given: object) -> Delta | None:
    """The one piece that an event told; None where its usage was told from elsewhere than one place in the event."""
    usage = None if reading.given is None else path_to(value, reading.given)
    if reading.given is not None and usage is None:
        return None
    known = value if isinstance(value, dict) else {}
    is_numbered = whole_number(known.get("sequence_number")) is not None
    is_named = isinstance(known.get(EVENT_ID), str)
    kind, choice, key, text = reading.told[0]
    return Delta(event, kind, choice, key, text or "", usage, given, value is None, is_numbered, is_named)


def _put(into: dict[str, object], path: Sequence[str | int], count: int) -> None:
    *keys, last = (str(key) for key in path)
    for key in keys:
        inner = into.get(key)
        if not isinstance(inner, dict):
            return
        into = inner
    into[last] = count
