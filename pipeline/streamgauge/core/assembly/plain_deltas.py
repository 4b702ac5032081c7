"""Applies plain deltas to a stream's state, many at a time: events that bring output, and otherwise repeat what is known.

The result is that of applying the events one by one, as `stream.Stream` does. Which events are plain deltas is decided by
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

# The lines before an event's data, whether the data is text itself, and the types that the event may have.
_FirstEvent = tuple["re.Match[bytes]", bool, Sequence[DeltaType]]


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
        run, found, ids = self._run_of_reads(first, contents, joined, is_stamped)
        if run is None:
            return 0
        taken, counts = len(contents), None
        if found != taken or run.count < found:
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
        is_text, is_stamped = name in dialect.text_events, stamp is not None
        types = () if is_text else self._types(dialect, first, is_stamped)
        if not types and not is_text:
            return 0
        payloads: list[bytes] = []
        for event in events:
            if event.data is None or event.name != name or not _is_bare(event):
                break
            payloads.append(event.data)
        run = self._texts(payloads, is_stamped) if is_text else self._run(types, _insides(payloads), is_stamped)
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
        if dialect is None or head is None or (name := _name_of(head[1])) == _ERROR:
            return None
        is_text = name in dialect.text_events
        types = () if is_text else self._types(dialect, content, is_stamped)
        is_possible = bool(types) or (is_text and self._has_first_times(TEXT, is_stamped))
        return (head, is_text, types) if is_possible else None

    def _run_of_reads(
        self, first: _FirstEvent, contents: Sequence[bytes], joined: bytes, is_stamped: bool
    ) -> tuple["_Run | None", int, list[bytes]]:
        """The first events that are plain deltas, the number of all events in these reads, and the ids of the events."""
        head, is_text, types = first
        begin, name, event_id = head[0], head[1], head[2]
        if types and event_id is None:
            is_one_each = contents[0].count(_BLANK) == 1
            events = contents if is_one_each else [event + _BLANK for event in joined.split(_BLANK)[:-1]]
            run = self._repeats(types, events, begin, is_stamped)
            if run is not None:
                return run, len(events), []
        if event_id is None and not is_text:
            insides = _objects(joined, begin)
            return self._run(types, insides, is_stamped), len(insides), []
        payloads, ids = _payloads(joined, begin, name, event_id)
        run = self._texts(payloads, is_stamped) if is_text else self._run(types, _insides(payloads), is_stamped)
        return run, len(payloads), ids

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
        for kind in types:
            found = kind.repeats(events, head)
            if found is not None:
                event, texts = found
                run = _Run(_KINDS[kind.delta.output], texts, kind, [event])
                return run if 2 * run.count > len(events) and self._is_known(run, kind, is_stamped) else None
        return None

    def _run(self, types: Sequence[DeltaType], insides: Sequence[bytes], is_stamped: bool) -> "_Run | None":
        """The first events that are plain deltas. `insides`: their data without the braces."""
        for kind in types if insides else ():
            events = kind.decode(insides)
            while events:
                run = _Run(_KINDS[kind.delta.output], kind.texts(events), kind, events)
                if self._is_known(run, kind, is_stamped):
                    return run
                events = events[: len(events) // 2]
        return None

    def _texts(self, payloads: Sequence[bytes], is_stamped: bool) -> "_Run | None":
        """The first events that are plain deltas, where data is text itself."""
        run = _plain_texts(payloads) if self._has_first_times(TEXT, is_stamped) else None
        return run if run is not None and self._knows_choices(run, is_stamped) else None

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

    def _is_known(self, run: "_Run", kind: DeltaType, is_stamped: bool) -> bool:
        """Whether the state has all that these events report, apart from their output and their usage."""
        identity, items, events = self._state.identity, self._state.items, run.events
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
            return self._call_of(run, kind) is not None
        if kind.items is None or items is None:
            return True
        return all(
            is_tracked(items, item or 0 if isinstance(item, int) else None, run.kind)
            for item in set(kind.items(events))
        )

    def _call_of(self, run: "_Run", kind: DeltaType) -> ToolState | None:
        """The call that all these fragments belong to; None if it is not known, or there are several."""
        keys = set(kind.keys(run.events)) if kind.keys else set()
        choice = self._choice(next(iter(run.choices))) if len(run.choices) == 1 else None
        if choice is None or len(keys) != 1:
            return None
        key = next(iter(keys))
        if not isinstance(key, int):
            return None
        tool = next((one for one in reversed(choice.tools) if one.key == key), None)
        known = kind.delta.client is None or (tool is not None and tool.client == kind.delta.client)
        return tool if known else None

    def _choice(self, index: int) -> ChoiceState | None:
        return next((choice for choice in self._state.choices if choice.index == index), None)

    # --- what they change -------------------------------------------------------------------------------------------

    def _apply(self, run: "_Run", event_id: bytes | None) -> None:
        """Apply what these events report, apart from their reads and times."""
        state, counts, kind = self._state, self._state.counts, run.type
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
        tool = self._call_of(run, kind) if kind is not None and run.kind == TOOL else None
        if tool is not None:
            tool.argument_chars += chars
            if tool.check is not None:
                feed(tool.check, "".join(run.texts))
        if event_id is not None:
            state.identity.last_event_id = safe_id(event_id.decode("utf-8", "replace"))
        if kind is not None:
            self._note(run, kind)

    def _note(self, run: "_Run", kind: DeltaType) -> None:
        """Apply the last position and the last usage."""
        state, dialect = self._state, BY_NAME[self._state.dialect or ""]
        sequence = _last(kind.sequences(run.events), int) if kind.sequences else None
        event_id = _last(kind.event_ids(run.events), str) if kind.event_ids else None
        if sequence is not None:
            state.identity.last_sequence_number = sequence
        if event_id is not None:
            state.identity.last_event_id = safe_id(event_id)
        if kind.usages is not None:
            rules, served = dialect.usage, {path.rpartition(".")[2] for path in dialect.deltas.tier}
            given = list(filter(None, kind.usages(run.events)))
            while rules.reasoning_outside and given and not _merged(given[-1:], rules.spec).keys() - served:
                given.pop()  # it tells only how the request was served
            final = any(choice.finish_raw is not None for choice in state.choices)
            # The last one by itself: what it lacks may have a meaning (`UsageState.earlier_output`).
            for usages in (given[:-1], given[-1:]) if rules.reasoning_outside else (given,):
                usage = _merged(usages, rules.spec) if usages else {}
                usage = {name: value for name, value in usage.items() if name not in rules.zero_is_absent}
                if usage.keys() - served:
                    take(state.usage, rules, usage, final=final)


class _Run:
    """Plain deltas of one kind. `choices`: how many events each choice has.

    `events`: as structs, one for each text; a single one if they differ in their text alone.
    """

    def __init__(
        self, kind: int, texts: list[str], of: DeltaType | None = None, events: list[Any] | None = None
    ) -> None:
        self.kind, self.type = kind, of
        self.texts = texts
        self.events: list[Any] = events or []
        self.choices = self._choices()

    @property
    def count(self) -> int:
        return len(self.texts)

    def _choices(self) -> Mapping[int, int]:
        if self.type is None or self.type.choices is None:
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
    """The reads before the first one that has no time of its own or holds a part of an event; their contents."""
    sizes = [read.body_bytes for read in reads]
    contents = [read.content for read in reads]
    ends = list(map(_last_two, contents))
    if 0 in sizes or ends.count(_BLANK) < len(ends):
        end = next(at for at, size in enumerate(sizes) if not size or ends[at] != _BLANK)
        return reads[:end], contents[:end]
    return reads, contents


def _payloads(
    joined: bytes, head: bytes, name: bytes | None, event_id: bytes | None
) -> tuple[list[bytes], list[bytes]]:
    """The data of events whose other lines are as in the first one, and their ids if they have any.

    An event whose other lines differ is not separated from the one before: that payload then holds a line end, and the
    decoder refuses it.
    """
    inside = joined[len(head) : -len(_BLANK)]
    if event_id is None:
        return inside.split(_BLANK + head), []
    parts = _NEXT_HEAD.split(inside)
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
    """What stands between the first and the last byte of data, up to data that has no brace there."""
    insides = [payload[1:-1] for payload in payloads]
    if not insides:
        return []
    if (
        set(map(len, payloads)) & {0, 1}
        or set(map(_first, payloads)) != {0x7B}
        or set(map(_last_byte, payloads)) != {0x7D}
    ):
        bad = (at for at, one in enumerate(payloads) if len(one) < 2 or one[:1] != b"{" or one[-1:] != b"}")
        return insides[: next(bad)]
    return insides


def _name_of(line: bytes | None) -> str:
    return "" if line is None else line.removeprefix(b"event: ")[:-1].decode("utf-8", "replace")


def _is_bare(event: Event) -> bool:
    """Whether an event has nothing but a name, an id and data."""
    return (
        not (event.comments or event.oversized) and event.retry is None and event.error is None and event.bare is None
    )


def _plain_texts(payloads: Sequence[bytes]) -> _Run | None:
    """The events up to one that is no line of text, if their data is text itself."""
    joined = b"".join(payloads)
    if b"" in payloads or b"\n" in joined or b"\r" in joined:
        broken = (at for at, one in enumerate(payloads) if not one or b"\n" in one or b"\r" in one)
        payloads = payloads[: next(broken)]
    try:
        return _Run(TEXT, [payload.decode() for payload in payloads]) if payloads else None
    except UnicodeDecodeError:
        return None


def _last(values: Sequence[Any], wanted: type) -> Any:
    """The last of these values that is there."""
    if isinstance(values[-1], wanted):
        return values[-1]
    return next((value for value in reversed(values) if isinstance(value, wanted)), None)


def _merged(usages: Sequence[msgspec.Struct], spec: Mapping[str, Any]) -> dict[str, Any]:
    """What several usage objects report one after the other: of each number the last."""
    merged: dict[str, Any] = {}
    for name in usages[0].__struct_fields__:
        if name not in spec:
            continue
        column = list(map(attrgetter(name), usages))
        last = next((value for value in reversed(column) if value is not msgspec.UNSET and value is not None), None)
        if last is not None and isinstance(spec[name], Mapping):
            merged[name] = _merged([one for one in column if isinstance(one, msgspec.Struct)], spec[name])
        elif last is not None:
            merged[name] = msgspec.to_builtins(last)
    return merged
