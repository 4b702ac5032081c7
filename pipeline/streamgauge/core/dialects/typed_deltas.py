"""Types of plain deltas: an event that decodes into one is a plain delta of that kind, any other event is read as usual.

A type is made from the dialect's allowlist and its declaration (`deltas.py`). Each member that the allowlist names has an
exact type: what the declaration allows, else null or absent. So an error, a finish reason or a second piece of output
makes an event no plain delta. Members that the allowlist does not name mean nothing to a dialect and are skipped.

Many events are decoded in one call, a line each. If a line is not one object, from its first byte to its last, the whole
call fails: so the events are those that reading one by one finds. Where events differ in their text alone, one of them is
decoded, and the texts of all.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal

import msgspec

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import Dialect
from streamgauge.core.dialects.deltas import ABSENT, Delta
from streamgauge.core.formats.json_text import MAX_DEPTH, is_too_deep
from streamgauge.core.safe_values import MAX_SAFE_INTEGER

# Lists the values of one member, one for each event.
Column = Callable[[Sequence[Any]], list[Any]]

_TEXT = Annotated[str, msgspec.Meta(min_length=1)]
_COUNT = Annotated[int, msgspec.Meta(ge=0, le=MAX_SAFE_INTEGER)]
_POSITIVE = Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INTEGER)]
_MEASURE = (
    Annotated[int, msgspec.Meta(ge=0, lt=MAX_SAFE_INTEGER)] | Annotated[float, msgspec.Meta(ge=0, lt=MAX_SAFE_INTEGER)]
)
_EMPTY = Annotated[list[None], msgspec.Meta(max_length=0)]
_NOTHING = Literal[""] | None
_SCALARS: dict[Spec, Any] = {Kind.COUNT: _COUNT, Kind.CODE: str, Kind.ID: str}

# The member that numbers the events of a stream.
SEQUENCE = "sequence_number"

# Events that are decoded in one call. If one is no plain delta, those before it are decoded again.
_AT_ONCE = 64

_BLANK = b"\n\n"
# A JSON string up to its closing quote.
_QUOTED = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'

_decode_texts = msgspec.json.Decoder(_TEXT).decode_lines

# What a decoder raises for bytes that do not fit.
_MISFITS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, OverflowError)
# Where msgspec names the element that does not fit.
_INDEX = re.compile(r"\$\[([0-9]{1,9})\]")

# Members that describe an error, and mean nothing without `error` or `errors`.
_OF_ERRORS = frozenset(("jsonrpc", "detail", "error_type", "trace", "code", "status", "status_code", "request_id"))


class DeltaType:
    """The type of one kind of plain delta, and functions that list the values of a member over several events.

    `texts`: their texts, never empty. `choices`, `keys`, `items`: indices; None or UNSET where the event names none. `ids`,
    `models`, `tiers`: a function for each member. `usages`: usage objects as structs, with the members of the usage. A
    function is None where no event of this type has the member.
    """

    def __init__(self, dialect: Dialect, delta: Delta) -> None:
        plan = _Plan(dialect, delta)
        self.delta = delta
        # What all such events hold; it only saves attempts to decode others.
        self.clue = b'"%b":' % delta.text.rpartition(".")[2].encode()
        self._text = re.compile(self.clue + b" ?" + _QUOTED, re.DOTALL)
        self._decode = msgspec.json.Decoder(plan.struct(dialect.keep, "")).decode_lines
        self._flags = [(plan.column(path), value) for path, value in plan.flags.items()]
        # The opening brackets that each event has: those around its text.
        self._brackets = 1 + delta.text.count(".") + plan.lists_around_text
        known = dialect.deltas
        self.texts = plan.column(delta.text)
        self.choices, self.keys, self.items, self.usages, self.sequences = [
            plan.column(path) if path is not None and path in plan.paths else None
            for path in (known.choice, known.key, known.item, known.usage, SEQUENCE if known.numbered else None)
        ]
        self.ids, self.models, self.tiers = [
            [plan.column(path) for path in paths if path in plan.paths]
            for paths in (known.response_id, known.model, known.tier)
        ]

    def decode(self, insides: Sequence[bytes]) -> list[Any]:
        """The leading events that are plain deltas of this type, as structs; the first other event ends them.

        `insides`: the data of the events, each without its first and last byte, which are its braces. If the first other
        event cannot be located, fewer events are decoded.
        """
        events: list[Any] = []
        for at in range(0, len(insides), _AT_ONCE):
            batch = insides[at : at + _AT_ONCE]
            events += self._first_of(batch)
            if len(events) < at + len(batch):
                break
        return events

    def repeats(self, events: Sequence[bytes], head: bytes) -> tuple[Any, list[str]] | None:
        """Decode the first event; return it with the texts of the following events that match it except in the text.

        `events`: each with its blank line. `head`: what stands before the data of the first one. None if the second event
        differs in more than the text, or if the first is no plain delta of this type.
        """
        first = events[0]
        data = first[len(head) : -len(_BLANK)]
        text = self._text.search(data)
        if text is None or len(events) == 1 or data[:1] != b"{" or data[-1:] != b"}":
            return None
        before, after = first[: len(head) + text.start(1)], first[len(head) + text.end(1) :]
        start, end, shortest = len(before), -len(after), len(before) + len(after)
        alike = (len(event) >= shortest and event.startswith(before) and event.endswith(after) for event in events)
        if not (next(alike) and next(alike)):
            return None
        # Decode the event with `-` in place of the match. If its text is then `-`, the match is the text, and not another
        # member with the same name.
        decoded = self.decode([b"%b-%b" % (data[1 : text.start(1)], data[text.end(1) : -1])])
        if not decoded or self.texts(decoded) != ["-"]:
            return None
        quoted = [event[start:end] for event in events]
        if before + (after + before).join(quoted) + after != b"".join(events):
            quoted = quoted[: 2 + next(at for at, is_alike in enumerate(alike) if not is_alike)]
        # No string holds a raw line end: so each line has at least one, and exactly one if there are as many as lines.
        try:
            texts = _decode_texts(b'"%b"' % b'"\n"'.join(quoted))
        except _MISFITS:
            return None
        return (decoded[0], texts) if len(texts) == len(quoted) else None

    def _first_of(self, insides: Sequence[bytes]) -> list[Any]:
        count = len(insides)
        while count:
            events, fewer = self._attempt(insides[:count] if count < len(insides) else insides)
            if events:
                return events
            count = fewer if 0 <= fewer < count else count // 2
        return []

    def _attempt(self, insides: Sequence[bytes]) -> tuple[list[Any], int]:
        """The events, if all are plain deltas; else none, and how many of them may be worth another attempt."""
        half, joined = len(insides) // 2, b"".join(insides)
        if b"\n" in joined or b"\r" in joined:
            return [], next(at for at, inside in enumerate(insides) if b"\n" in inside or b"\r" in inside)
        lines = b"{%b}" % b"}\n{".join(insides)
        # Each line begins with a brace and ends with one, and no comma is between two: so each begins and ends outside of all
        # brackets and strings. Then as many values as lines are one value a line.
        try:
            events = self._decode(lines)
        except _MISFITS as error:
            index = _INDEX.search(str(error))
            return [], half if index is None else int(index[1])
        if len(events) != len(insides):
            return [], half
        # After the decoding, since most events that are no plain delta fail there, at a hundredth of the time.
        if self._may_be_too_deep(insides, lines) and any(is_too_deep(b"{%b}" % inside) for inside in insides):
            return [], half
        for column, value in self._flags:
            flags = column(events)
            if (not value) in flags:
                return [], flags.index(not value)
        return events, 0

    def _may_be_too_deep(self, insides: Sequence[bytes], lines: bytes) -> bool:
        """Whether an event may be nested too deeply: one is long enough, and would be too deep if it had all the brackets
        beyond those around each event's text."""
        if max(map(len, insides)) <= 2 * MAX_DEPTH - 2:
            return False
        brackets = 2 * len(lines) - len(lines.replace(b"{", b"")) - len(lines.replace(b"[", b""))  # count() is slower
        return brackets - (len(insides) - 1) * self._brackets > MAX_DEPTH


def types_of(dialect: Dialect) -> tuple[DeltaType, ...]:
    """The types of a dialect's plain deltas."""
    types = _types.get(dialect.name)
    if types is None:
        types = _types[dialect.name] = tuple([DeltaType(dialect, delta) for delta in dialect.deltas.kinds])
    return types


_types: dict[str, tuple[DeltaType, ...]] = {}  # made once for each dialect


class _Plan:
    """Decides the type of each member of a plain delta."""

    def __init__(self, dialect: Dialect, delta: Delta) -> None:
        known = dialect.deltas
        self._usage, self._delta, self._usage_at = dialect.usage, delta, known.usage
        when = {**known.when, **delta.when}
        # Literal types have no true and false, so these are compared.
        self.flags = {path: value for path, (value, *_) in when.items() if isinstance(value, bool)}
        self._when = {path: values for path, values in when.items() if path not in self.flags}
        self._unread = known.unread | delta.unread | _OF_ERRORS
        self._timed = known.timed
        self._absent = known.absent
        self._indices = {known.choice, known.key, known.item}
        self._words = {*known.response_id, *known.model, *known.tier}
        self._numbered = known.numbered
        self._lists: set[str] = set()
        self.paths: set[str] = set()

    def struct(self, spec: Mapping[str, Spec], path: str) -> type[msgspec.Struct]:
        """The type of an object on the way to the text."""
        fields: list[Any] = []
        for name, inner in spec.items():
            where = f"{path}.{name}".lstrip(".")
            if where in self._unread:
                continue
            self.paths.add(where)
            member = self._type(where, inner)
            needed = self._is_needed(where)
            fields.append((name, member) if needed else (name, member | msgspec.UnsetType, msgspec.UNSET))
        absent = [where.rpartition(".") for where in self._absent]
        fields += [(name, msgspec.UnsetType, msgspec.UNSET) for within, _, name in absent if within == path]
        fields.sort(key=len)  # those without a default come first
        return msgspec.defstruct("Delta", fields, gc=False)

    def _is_needed(self, where: str) -> bool:
        is_way = self._delta.text == where or self._delta.text.startswith(f"{where}.")
        return is_way or where in self.flags or ABSENT not in self._when.get(where, (ABSENT,))

    def _type(self, where: str, spec: Spec) -> Any:
        if where == self._delta.text:
            return _TEXT
        if self._delta.text.startswith(f"{where}."):
            return self._nested(where, spec)
        if where in self.flags:
            return bool
        if where in self._when:
            return Literal[tuple([value for value in self._when[where] if value is not ABSENT])]
        if where in self._indices or (where == SEQUENCE and self._numbered):
            return _COUNT | None
        if where in self._words:
            return str | None
        if where == self._usage_at:
            return self._usage_struct(self._usage.spec, "") | None
        alternatives = spec if isinstance(spec, tuple) else (spec,)
        if Kind.TEXT in alternatives or Kind.ARGUMENTS in alternatives or Kind.REASON in alternatives:
            return _NOTHING
        return _EMPTY | None if any(isinstance(alternative, list) for alternative in alternatives) else None

    def _nested(self, where: str, spec: Spec) -> Any:
        alternatives = spec if isinstance(spec, tuple) else (spec,)
        inner = next(alternative for alternative in alternatives if not isinstance(alternative, Kind))
        if isinstance(inner, Mapping):
            return self.struct(inner, where)
        self._lists.add(where)
        element: Any = self.struct(inner[0], where)
        return tuple[element]

    def _usage_struct(self, spec: Mapping[str, Spec], path: str) -> type[msgspec.Struct]:
        """The type of a usage object, or of an object in it. It has no members outside of the allowlist."""
        fields = [
            (name, self._usage_type(inner, f"{path}.{name}".lstrip(".")) | msgspec.UnsetType, msgspec.UNSET)
            for name, inner in spec.items()
        ]
        return msgspec.defstruct("Usage", fields, forbid_unknown_fields=True, gc=False)

    def _usage_type(self, spec: Spec, path: str) -> Any:
        """The type of a number of a usage whose meaning no other event changes: it is no bad one, and no placeholder."""
        at = f"{self._usage_at}.{path}"
        if at in self._words:
            self.paths.add(at)
            return str
        if at in self._timed:
            return None
        if spec is Kind.COUNT:
            return _POSITIVE if path in self._usage.wholes else _COUNT
        if spec is Kind.NUMBER:
            return _MEASURE
        if isinstance(spec, Mapping):
            return self._usage_struct(spec, path)
        if isinstance(spec, list) and isinstance(spec[0], Mapping):
            part: Any = self._part(spec[0])
            return list[part]
        return None

    def _part(self, spec: Mapping[str, Spec]) -> type[msgspec.Struct]:
        fields = [
            (name, _SCALARS[kind] | msgspec.UnsetType, msgspec.UNSET) for name, kind in spec.items() if kind in _SCALARS
        ]
        return msgspec.defstruct("Part", fields, forbid_unknown_fields=True, gc=False)

    @property
    def lists_around_text(self) -> int:
        """The number of lists on the way to the text."""
        return len(self._lists)

    def column(self, path: str) -> Column:
        """A function that lists the values at a path over several events."""
        within = f"{self._usage_at}."
        if path.startswith(within):  # not each event has a usage
            usages, leaf = self.column(within[:-1]), attrgetter(path.removeprefix(within))
            return lambda events: list(map(leaf, filter(None, usages(events))))
        getters: list[Callable[[Any], Any]] = []
        names: list[str] = []
        at = ""
        for name in path.split("."):
            names.append(name)
            at = f"{at}.{name}".lstrip(".")
            if at in self._lists:
                getters += [attrgetter(".".join(names)), itemgetter(0)]
                names = []
        if names:
            getters.append(attrgetter(".".join(names)))
        return _chained(getters)


def _chained(getters: Sequence[Callable[[Any], Any]]) -> Column:
    def column(events: Sequence[Any]) -> list[Any]:
        values: Any = events
        for getter in getters:
            values = map(getter, values)
        return list(values)

    return column
