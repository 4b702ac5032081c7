"""Content-only chunks (plain deltas), applied to a stream's state many at a time.

The result is the same as if `stream.Stream` applied the events one by one. Which events are plain deltas is decided by
their types (`dialects/typed_deltas.py`), and by the state: an event that reports something new, as a first time, a choice, a
call or a response id, is none.
"""

import bisect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from streamgauge.core.assembly.repeated_output import REASONING, REFUSAL, TEXT, TOOL, is_tracked
from streamgauge.core.assembly.state import ChoiceState, StreamState, ToolState
from streamgauge.core.capture.segments import Read
from streamgauge.core.dialects import BY_NAME, Dialect
from streamgauge.core.dialects.deltas import Output
from streamgauge.core.dialects.typed_deltas import DeltaType, types_of
from streamgauge.core.formats.json_validator import feed
from streamgauge.core.formats.sse import MAX_EVENT_BYTES, Event
from streamgauge.core.safe_values import safe_id
from streamgauge.core.usage import take

_KINDS = {Output.TEXT: TEXT, Output.REASONING: REASONING, Output.REFUSAL: REFUSAL, Output.ARGUMENTS: TOOL}

_BLANK = b"\n\n"
# The lines before the value of an event's data, as `write_event` writes them.
_HEAD = re.compile(rb"(event: [^\n\r]*\n)?(?:id: ([^\n\r\0]*)\n)?data: ")
_NEXT_HEAD = re.compile(rb"\n\n(event: [^\n\r]*\n)?id: ([^\n\r\0]*)\ndata: ")
_first, _last_byte, _last_two = itemgetter(0), itemgetter(-1), itemgetter(slice(-2, None))
_ERROR = "error"  # an event of this name is an error, whatever it holds

# The lines before an event's data, and the types that the event may have.
_FirstEvent = tuple["re.Match[bytes]", Sequence[DeltaType]]


class PlainDeltas:
    """Applies plain deltas to the state of one stream."""

    def __init__(self, state: StreamState, stall_ns: int) -> None:
        self._state = state
        self._stall_ns = stall_ns

    def take_reads(self, reads: Sequence[Read]) -> int:
        """Apply the first of these reads that hold nothing but plain deltas; return how many, which the caller counts."""
        is_stamped = any(read.stamp_ns is not None for read in reads)
        if (first := self._first_event(reads[0].content, is_stamped)) is None:
            return 0
        reads, contents = _complete_reads(reads)
        joined = b"".join(contents)
        if not contents or len(joined) > MAX_EVENT_BYTES:
            return 0
        run, events, ids = self._run_of_reads(first, contents, joined, is_stamped)
        if run is None:
            return 0
        taken, counts = len(contents), None
        if events != taken or run.count < events:
            taken, counts = run.shorten_to_reads(contents)
            if not taken:
                return 0
        self._state.timing.tokens([read.stamp_ns for read in reads[:taken]], counts, self._stall_ns)
        self._apply(run, ids[run.count - 1] if ids else None)
        return taken

    def take_events(self, events: Sequence[Event], stamp: int | None) -> int:
        """Apply the first of these events of one read that are plain deltas; return how many."""
        dialect, name, first = self._dialect(), events[0].name, events[0].data
        if dialect is None or first is None or name == _ERROR:
            return 0
        is_stamped = stamp is not None
        types = self._types(dialect, first, is_stamped)
        if not types:
            return 0
        payloads: list[bytes] = []
        for event in events:
            if event.data is None or event.name != name or not _is_bare(event):
                break
            payloads.append(event.data)
        run = self._run(types, _insides(payloads), is_stamped)
        if run is None:
            return 0
        gaps: list[int] = []
        for _ in range(run.count):
            self._state.timing.token(stamp, gaps)
        self._state.timing.add_gaps(gaps, self._stall_ns)
        ids = [event.id.encode() for event in events[: run.count] if event.id is not None]
        self._apply(run, ids[-1] if ids else None)
        return run.count

    def _dialect(self) -> Dialect | None:
        """The dialect that the stream has shown, if it has token events: before them nothing is known."""
        state = self._state
        return BY_NAME.get(state.dialect or "") if state.timing.token_events else None

    # --- which events are plain deltas ------------------------------------------------------------------------------

    def _first_event(self, content: bytes, is_stamped: bool) -> _FirstEvent | None:
        """The first event of a read; None if it is no plain delta."""
        dialect = self._dialect()
        head = None if dialect is None else _HEAD.match(content)
        if dialect is None or head is None or _name_of(head[1]) == _ERROR:
            return None
        types = self._types(dialect, content, is_stamped)
        return (head, types) if types else None

    def _run_of_reads(
        self, first: _FirstEvent, contents: Sequence[bytes], joined: bytes, is_stamped: bool
    ) -> tuple["_Run | None", int, list[bytes]]:
        """The first events that are plain deltas, the number of all events in these reads, and the ids of the events."""
        head, types = first
        begin, name, event_id = head[0], head[1], head[2]
        if event_id is None:
            is_one_each = contents[0].count(_BLANK) == 1
            events = contents if is_one_each else [event + _BLANK for event in joined.split(_BLANK)[:-1]]
            run = self._repeats(types, events, begin, is_stamped)
            if run is not None:
                return run, len(events), []
            insides = _objects(joined, begin)
            return self._run(types, insides, is_stamped), len(insides), []
        payloads, ids = _payloads(joined, begin, name, event_id)
        return self._run(types, _insides(payloads), is_stamped), len(payloads), ids

    def _types(self, dialect: Dialect, data: bytes, is_stamped: bool) -> Sequence[DeltaType]:
        """The types that an event with this data may have, if the stream has shown the first times of such output."""
        return [
            kind
            for kind in types_of(dialect)
            if kind.clue in data and self._has_first_times(_KINDS[kind.delta.output], is_stamped)
        ]

    def _repeats(
        self, types: Sequence[DeltaType], events: Sequence[bytes], head: bytes, is_stamped: bool
    ) -> "_Run | None":
        """The first events that differ in their text alone, if most events are such."""
        for delta_type in types:
            repeated = delta_type.repeats(events, head)
            if repeated is not None:
                event, texts = repeated
                run = _Run(delta_type, texts, [event])
                return run if 2 * run.count > len(events) and self._is_known(run, is_stamped) else None
        return None

    def _run(self, types: Sequence[DeltaType], insides: Sequence[bytes], is_stamped: bool) -> "_Run | None":
        """The first events that are plain deltas. `insides`: their data without the braces."""
        for delta_type in types if insides else ():
            events = delta_type.decode(insides)
            while events:
                run = _Run(delta_type, delta_type.texts(events), events)
                if self._is_known(run, is_stamped):
                    return run
                events = events[: len(events) // 2]
        return None

    def _has_first_times(self, kind: int, is_stamped: bool) -> bool:
        timing = self._state.timing
        if kind == REASONING and not timing.reasoning_form:
            return False
        first = timing.first_content if kind in (TEXT, REFUSAL) else timing.first_token
        if kind in (REASONING, TOOL):
            first = timing.first_reasoning if kind == REASONING else timing.first_tool
        return not is_stamped or (first is not None and timing.first_event is not None)

    def _knows_choices(self, run: "_Run", is_stamped: bool) -> bool:
        choices = [self._choice(index) for index in run.choices]
        return all(choice is not None and (choice.first_token is not None or not is_stamped) for choice in choices)

    def _is_known(self, run: "_Run", is_stamped: bool) -> bool:
        """Whether the state has all that these events report, apart from their output and their usage."""
        identity, items, events, kind = self._state.identity, self._state.items, run.events, run.type
        if not self._knows_choices(run, is_stamped):
            return False
        if identity.response_id is None and any(any(column(events)) for column in kind.ids):
            return False
        if identity.response_model is None and any(any(column(events)) for column in kind.models):
            return False
        tiers = {tier for column in kind.tiers for tier in column(events)} - {
            None,
            msgspec.UNSET,
            identity.service_tier,
        }
        if tiers:
            return False
        if run.kind == TOOL:
            return self._call_of(run) is not None
        if kind.items is None or items is None:
            return True
        return all(
            is_tracked(items, item or 0 if isinstance(item, int) else None, run.kind)
            for item in set(kind.items(events))
        )

    def _call_of(self, run: "_Run") -> ToolState | None:
        """The call that all these fragments belong to; None if it is not known, or there are several."""
        kind = run.type
        keys = set(kind.keys(run.events)) if kind.keys else set()
        choice = self._choice(next(iter(run.choices))) if len(run.choices) == 1 else None
        if choice is None or len(keys) != 1:
            return None
        key = next(iter(keys))
        if not isinstance(key, int):
            return None
        tool = next((tool for tool in reversed(choice.tools) if tool.key == key), None)
        known = kind.delta.client is None or (tool is not None and tool.client == kind.delta.client)
        return tool if known else None

    def _choice(self, index: int) -> ChoiceState | None:
        return next((choice for choice in self._state.choices if choice.index == index), None)

    # --- what they change -------------------------------------------------------------------------------------------

    def _apply(self, run: "_Run", event_id: bytes | None) -> None:
        """Apply what these events report, apart from their reads and times."""
        state, counts = self._state, self._state.counts
        counts.events += run.count
        counts.token_events += run.count
        for index, events in run.choices.items():
            choice = self._choice(index)
            if choice is not None:
                choice.token_events += events
        chars = sum(map(len, run.texts))
        if run.kind == TEXT:
            counts.text_chars += chars
        elif run.kind == REASONING:
            counts.reasoning_chars += chars
            state.timing.reasoning_events += run.count
        elif run.kind == REFUSAL:
            counts.refusal_chars += chars
        tool = self._call_of(run) if run.kind == TOOL else None
        if tool is not None:
            tool.argument_chars += chars
            if tool.check is not None:
                feed(tool.check, "".join(run.texts))
        if event_id is not None:
            state.identity.last_event_id = safe_id(event_id.decode("utf-8", "replace"))
        self._note(run)

    def _note(self, run: "_Run") -> None:
        """Apply the last position and the last usage."""
        state, dialect, kind = self._state, BY_NAME[self._state.dialect or ""], run.type
        sequence = _last(kind.sequences(run.events)) if kind.sequences else None
        if sequence is not None:
            state.identity.last_sequence_number = sequence
        if kind.usages is not None:
            rules, served = dialect.usage, {path.rpartition(".")[2] for path in dialect.deltas.tier}
            reported = list(filter(None, kind.usages(run.events)))
            while rules.reasoning_outside and reported and not _merged(reported[-1:], rules.spec).keys() - served:
                reported.pop()  # it reports only how the request was served
            final = any(choice.finish_raw is not None for choice in state.choices)
            # The last one by itself: what it lacks may have a meaning (`UsageState.earlier_output`).
            for usages in (reported[:-1], reported[-1:]) if rules.reasoning_outside else (reported,):
                usage = _merged(usages, rules.spec) if usages else {}
                if usage.keys() - served:
                    take(state.usage, rules, usage, final=final)


class _Run:
    """Plain deltas of one kind. `choices`: how many events each choice has.

    `events`: as structs, one for each text; a single one if they differ in their text alone.
    """

    def __init__(self, delta_type: DeltaType, texts: list[str], events: list[Any]) -> None:
        self.kind, self.type = _KINDS[delta_type.delta.output], delta_type
        self.texts, self.events = texts, events
        self.choices = self._choices()

    @property
    def count(self) -> int:
        return len(self.texts)

    def _choices(self) -> Mapping[int, int]:
        if self.type.choices is None:
            return {0: len(self.texts)}
        indices = self.type.choices(self.events)
        if indices.count(indices[0]) == len(indices):
            return {indices[0] or 0: len(self.texts)}
        return Counter([index or 0 for index in indices])

    def shorten_to_reads(self, contents: Sequence[bytes]) -> tuple[int, list[int] | None]:
        """Keep the events of whole reads. Return the number of these reads, and of the events in each (None: one each)."""
        counts = [content.count(_BLANK) for content in contents]
        totals = list(accumulate(counts))
        taken = bisect.bisect_right(totals, self.count)
        kept = totals[taken - 1] if taken else 0
        if kept < self.count:
            self.texts, self.events = self.texts[:kept], self.events[:kept]
            self.choices = self._choices() if kept else {}
        return taken, None if kept == taken else counts[:taken]


def _complete_reads(reads: Sequence[Read]) -> tuple[Sequence[Read], list[bytes]]:
    """The reads before the first read that has no time of its own or holds a part of an event; their contents."""
    sizes = [read.body_bytes for read in reads]
    contents = [read.content for read in reads]
    ends = list(map(_last_two, contents))
    if 0 in sizes or ends.count(_BLANK) < len(ends):
        end = next(at for at, size in enumerate(sizes) if not size or ends[at] != _BLANK)
        return reads[:end], contents[:end]
    return reads, contents


def _payloads(joined: bytes, head: bytes, name: bytes | None, event_id: bytes) -> tuple[list[bytes], list[bytes]]:
    """The data of events with ids whose other lines are as in the first one, and their ids.

    An event whose other lines differ is not separated from the one before: that payload then holds a line end, and the
    decoder refuses it.
    """
    parts = _NEXT_HEAD.split(joined[len(head) : -len(_BLANK)])
    names, payloads = parts[1::3], parts[::3]
    alike = next((at for at, other in enumerate(names) if other != name), len(names))
    if alike < len(names):
        payloads = [*payloads[: alike + 1], b"\n"]  # which is no data
    return payloads, [event_id, *parts[2::3]]


def _objects(joined: bytes, head: bytes) -> list[bytes]:
    """As `_payloads`, of events without ids: their data without the braces. Empty if the first has no brace."""
    start, end = head + b"{", b"}" + _BLANK
    if not joined.startswith(start):
        return []
    # If the last event does not end with a brace, its blank line stays, and the decoder refuses it.
    return joined[len(start) :].removesuffix(end).split(end + start)


def _insides(payloads: Sequence[bytes]) -> list[bytes]:
    """The bytes between the braces of each data, up to the first data without braces."""
    insides = [payload[1:-1] for payload in payloads]
    if not insides:
        return []
    if (
        set(map(len, payloads)) & {0, 1}
        or set(map(_first, payloads)) != {0x7B}
        or set(map(_last_byte, payloads)) != {0x7D}
    ):
        bad = (at for at, payload in enumerate(payloads) if len(payload) < 2 or payload[:1] + payload[-1:] != b"{}")
        return insides[: next(bad)]
    return insides


def _name_of(line: bytes | None) -> str:
    return "" if line is None else line.removeprefix(b"event: ")[:-1].decode("utf-8", "replace")


def _is_bare(event: Event) -> bool:
    """Whether an event has nothing but a name, an id and data."""
    return (
        not (event.comments or event.oversized) and event.retry is None and event.error is None and event.bare is None
    )


def _last(values: Sequence[Any]) -> int | None:
    """The last of these values that is a number."""
    return next((value for value in reversed(values) if isinstance(value, int)), None)


def _merged(usages: Sequence[msgspec.Struct], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The last value of each number that several usage objects report one after the other."""
    merged: dict[str, Any] = {}
    for name in usages[0].__struct_fields__:
        if name not in spec:
            continue
        column = list(map(attrgetter(name), usages))
        last = next((value for value in reversed(column) if value is not msgspec.UNSET and value is not None), None)
        if last is not None and isinstance(spec[name], Mapping):
            merged[name] = _merged([value for value in column if isinstance(value, msgspec.Struct)], spec[name])
        elif last is not None:
            merged[name] = msgspec.to_builtins(last)
    return merged
