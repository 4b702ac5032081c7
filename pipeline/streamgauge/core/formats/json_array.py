"""A JSON array whose elements come one after another, as Gemini sends a stream without `alt=sse`.

An element that is an object or a list ends with its last bracket; any other one ends before the comma or bracket after it.
Brackets are only counted: whether an element is JSON shows when its event is read. What follows the array is ignored.
"""

import re

import msgspec

from streamgauge.core.formats.reader import BLANKS, Content, json_line
from streamgauge.core.formats.sse import MAX_EVENT_BYTES, Event

# What matters between two strings: within an element brackets; between elements commas, too.
_WITHIN = re.compile(rb'["\[\]{}]')
_BETWEEN = re.compile(rb'["\[\]{},]')
# What matters within a string.
_IN_STRING = re.compile(rb'["\\]')
_QUOTE = ord('"')
_OPENING = b"[{"
_COMMA = ord(",")
# Raises unless the bytes are one JSON value; it makes no objects of it.
_whole_value = msgspec.json.Decoder(msgspec.Raw).decode


class JsonArrayReader:
    """Reads the elements of an array into events without a name: see `reader.EventReader`."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._cap = max_event_bytes
        self._element = Content(max_event_bytes)
        self._depth = 0  # of open brackets; 1: between elements, or in an element without brackets
        self._in_string = self._after_backslash = False
        self._over = False
        self.fault = False

    @property
    def pending_bytes(self) -> int:
        """The bytes that are held of an element that has not ended."""
        return len(self._element)

    def feed(self, data: bytes) -> list[Event]:
        """The events of the elements that `data` ends."""
        events: list[Event] = []
        if self._over or self.fault:
            return events
        if self._depth == 1 and self._element.is_empty and (event := self._one_element(data)) is not None:
            return [event]
        begin = at = 0 if self._depth else self._begin(data)
        while at < len(data) and not (self._over or self.fault):
            if self._in_string:
                at = self._after_string(data, at)
                continue
            mark = (_WITHIN if self._depth > 1 else _BETWEEN).search(data, at)
            if mark is None:
                break
            at = mark.end()
            ends = self._pass(data[at - 1])
            if ends is not None:
                self._element.add(data[begin : at - (not ends)])
                self._end(events)
                begin = at
        if not (self._over or self.fault):
            self._element.add(data[begin:])
        return events

    def _one_element(self, data: bytes) -> Event | None:
        """The event of bytes that are one whole object, perhaps behind a comma, as most reads are; None of all others."""
        text = data.strip(BLANKS).removeprefix(b",").lstrip(BLANKS)
        if not (text.startswith(b"{") and text.endswith(b"}") and len(text) <= self._cap):
            return None
        try:
            _whole_value(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return Event("", json_line(text))

    def finish(self) -> Event | None:
        """The element that has not ended."""
        return None if self._element.is_empty else self._element.take()

    def discard(self) -> None:
        """Discard the pending element."""
        self._element.discard()

    def _begin(self, data: bytes) -> int:
        """The position after the bracket that opens the array; the end of the data if it has not come."""
        rest = data.lstrip(BLANKS)
        if not rest:
            return len(data)
        if rest[:1] != b"[":
            self.fault = True
            return len(data)
        self._depth = 1
        return len(data) - len(rest) + 1

    def _after_string(self, data: bytes, at: int) -> int:
        """The position after the next quote or backslash in a string, and after the byte that a backslash escapes."""
        if self._after_backslash:
            self._after_backslash = False
            return at + 1
        mark = _IN_STRING.search(data, at)
        if mark is None:
            return len(data)
        self._in_string = self._after_backslash = data[mark.start()] != _QUOTE
        return mark.end()

    def _pass(self, mark: int) -> bool | None:
        """Whether an element ends with this mark (True) or before it (False); None if none ends."""
        if mark == _QUOTE:
            self._in_string = True
        elif mark in _OPENING:
            self._depth += 1
        elif mark == _COMMA:
            return False
        else:
            self._depth -= 1
            if self._depth == 0:
                self._over = True
                return False
            if self._depth == 1:
                return True
        return None

    def _end(self, events: list[Event]) -> None:
        if not self._element.is_empty:
            events.append(self._element.take())
