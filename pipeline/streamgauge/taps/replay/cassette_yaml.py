"""YAML cassettes, one interaction in memory at a time; nothing in them is ever executed.

They are read from the parser's events, without PyYAML's constructors: tags do not name Python objects, numbers and dates
stay text, merge keys have no effect, and nesting is limited. (libyaml's own composer recurses, and about 100,000 levels
crash the process.)
"""

from collections.abc import Iterator
from typing import Any, cast

import yaml

from streamgauge.taps.replay.cassette import LISTS
from streamgauge.taps.replay.contract import BrokenExchange, BrokenRecording, Readable
from streamgauge.taps.replay.members import from_base64

# Limit of nesting levels in one interaction; a cassette has six.
MAX_DEPTH = 32
# Limit of anchors in one cassette: a writer sets one for each value that is repeated.
MAX_ANCHORS = 100_000

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def yaml_interactions(file: Readable) -> Iterator[object]:
    """The interactions of a YAML cassette. Raises BrokenRecording at damage, after the interactions before it."""
    reader = _Reader(file)
    try:
        yield from reader.interactions()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise BrokenRecording(f"it is not valid YAML ({where}{error.problem})") from None
    except yaml.reader.ReaderError as error:
        raise BrokenRecording(f"it is not valid YAML (position {error.position}: {error.reason})") from None
    except yaml.YAMLError:
        raise BrokenRecording("it is not valid YAML") from None
    if not reader.has_list:
        raise BrokenRecording("it is not a cassette: it has no list of interactions")


class _Reader:
    """Builds values from the parser's events: mappings, lists, text, bytes, None. Invalid base64 becomes a BrokenExchange."""

    def __init__(self, file: Readable) -> None:
        self.has_list = False
        self._events: Iterator[Any] = yaml.parse(cast(Any, file), Loader=_LOADER)
        self._anchors: dict[str, object] = {}

    def interactions(self) -> Iterator[object]:
        """Yields the interactions. A document is a mapping with the list, or (before vcrpy 1.0) the list itself."""
        for event in self._events:
            if isinstance(event, yaml.SequenceStartEvent):
                yield from self._items()
            elif isinstance(event, yaml.MappingStartEvent):
                yield from self._of_mapping()

    def _of_mapping(self) -> Iterator[object]:
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            name = self._value(event, 0)
            value = next(self._events)
            if name in LISTS and isinstance(value, yaml.SequenceStartEvent):
                yield from self._items()
            else:
                self._value(value, 0)

    def _items(self) -> Iterator[object]:
        self.has_list = True
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._value(event, 0)

    def _value(self, event: Any, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise BrokenRecording(f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            return self._anchors.get(event.anchor or "")
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth)
        else:
            value = self._mapping(depth)
        if event.anchor is not None:
            self._keep(event.anchor, value)
        return value

    def _sequence(self, depth: int) -> list[object]:
        values: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self._value(event, depth + 1))
        return values

    def _mapping(self, depth: int) -> dict[str, object]:
        members: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            name = self._value(event, depth + 1)
            value = self._value(next(self._events), depth + 1)
            if isinstance(name, str):
                members[name] = value
        return members

    def _keep(self, anchor: str, value: object) -> None:
        if len(self._anchors) >= MAX_ANCHORS:
            raise BrokenRecording(f"it has more than {MAX_ANCHORS} anchors")
        self._anchors[anchor] = value


def _scalar(event: Any) -> object:
    text: str = event.value
    if event.tag is not None and event.tag.endswith("binary"):
        try:
            return from_base64(text)
        except BrokenExchange as error:
            return error  # only this interaction is broken: `members.to_bytes` raises the error
    return None if event.implicit[0] and not event.style and text in _NULLS else text
