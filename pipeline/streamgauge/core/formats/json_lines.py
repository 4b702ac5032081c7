"""JSON lines (NDJSON): one JSON value a line, as Ollama and Cohere's first API send them (https://github.com/ndjson).

A line ends with LF; a CR before it is a blank. Blank lines are skipped. Bytes that are not UTF-8 become U+FFFD.
"""

from streamgauge.core.formats.reader import BLANKS, Content, json_line
from streamgauge.core.formats.sse import MAX_EVENT_BYTES, Event


class JsonLinesReader:
    """Reads JSON lines into events without a name: see `reader.EventReader`. Memory stays below about twice the cap."""

    fault = False

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._cap = max_event_bytes
        self._line = Content(max_event_bytes)
        self._skips = False  # whether the rest of the line is skipped

    @property
    def pending_bytes(self) -> int:
        """The bytes that are held of a line that has not ended."""
        return len(self._line)

    def feed(self, data: bytes) -> list[Event]:
        """The events of the lines that `data` ends."""
        first, *lines = data.split(b"\n")
        if not self._skips:
            self._line.add(first)
        if not lines:
            return []
        events = [] if self._skips or self._line.is_empty else [self._line.take()]
        self._skips, rest = False, lines.pop()
        for line in [each.lstrip(BLANKS) for each in lines]:
            if len(line) <= self._cap:
                text = json_line(line)
                events += [Event("", text)] if text else []
            else:
                self._line.add(line)
                events.append(self._line.take())
        self._line.add(rest)
        return events

    def finish(self) -> Event | None:
        """The last line, if no LF ended it."""
        return None if self._line.is_empty else self._line.take()

    def discard(self) -> None:
        """Discard the pending line."""
        self._line.discard()

    def skip_line(self) -> None:
        """Skip to the byte after the next LF, because bytes are missing here."""
        self._line = Content(self._cap)
        self._skips = True
