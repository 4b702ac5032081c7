"""Server-sent events: decodes bytes into events by the WHATWG's rules (HTML Standard, 9.2.6), and writes events as bytes.

How a stream is read:

- The bytes are UTF-8; one byte order mark at the very start is dropped. Bytes that are not UTF-8 become U+FFFD, as
  in the standard's decoder. No such sequence spans a line end, so lines are decoded one by one.
- A line ends with LF, CR or CRLF. A CR ends its line at once; an LF after it belongs to it, even in the next feed.
- A blank line ends a block. A block with a `data` line is dispatched; any other block only gives its id, name and comments.
- The name of a field ends at the first colon; one space after the colon is dropped. `data` values are joined by LF. Of
  other fields the last one counts. An `id` that holds NUL and a `retry` that is not a number are ignored.

Three rules go beyond the standard, because of what providers send: a field named `error` is kept; a block of bare JSON, sent
without `data:`, is kept; `finish()` returns a block that the end of input cut off. Each of these can be distinguished from
what the standard dispatches.

All sizes are in bytes. How the input is split into feeds affects only when an event is returned.
"""

import re
from collections.abc import Sequence

import msgspec

# The largest event (bytes of its values, as UTF-8). The largest recorded event has 100 KB, and an image of 3 MB in
# base64 still fits. The limit keeps an endless line from filling a tap's memory.
MAX_EVENT_BYTES = 4 * 1024 * 1024

# Digits of a `retry` (milliseconds). 18 digits fit 64 bits; Python refuses to convert thousands of digits.
MAX_RETRY_DIGITS = 18

# Replaces the last event of a stream that was cut inside that event: its data does not parse as JSON.
HALF_EVENT = b"data: {\n"

BOM = b"\xef\xbb\xbf"
# Marks an event over the cap in canonical bytes. The mark counts only in a block without data, so an upstream that
# sends this line changes nothing that the standard would dispatch.
_OVERSIZED = b"streamgauge-oversized"
# What is kept of the data of an event over the cap: so many of its first and of its last bytes. A type and a status lie in
# the first, usage in the last.
CUT_HEAD, CUT_TAIL = 4 * 1024, 16 * 1024
_DATA = b"data:"
# The longest name of a known field with colon and space: what a partial line may hold beside its value (bytes).
_LONGEST_PREFIX = len(b"event: ")


class Event(msgspec.Struct, gc=False):
    """One block of an event stream. Without `data` the standard dispatches nothing, but the block's id counts.

    `data` is valid UTF-8. `id` is the id in this block (None: it has none, or one that holds NUL). `retry` is in
    milliseconds. `comments` is the number of comment lines. `error` is the value of a field of that name. `bare` holds the
    lines of a block of bare JSON, joined by LF. `oversized`: the block exceeded the cap, so its content was skipped; of the
    other fields those are kept that came before. `cut`: the first and the last bytes of the data that was skipped.
    """

    name: str = ""
    data: bytes | None = None
    id: str | None = None
    retry: int | None = None
    comments: int = 0
    error: bytes | None = None
    oversized: bool = False
    bare: bytes | None = None
    cut: tuple[bytes, bytes] | None = None


class SseDecoder:
    """Decodes bytes into events, incrementally. Never raises; memory stays below about twice `max_event_bytes`."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._cap = max_event_bytes
        self._start: bytes | None = b""  # the first bytes, while they may be a byte order mark
        self._after_cr = False
        self._block: _Block | None = None  # None until one of its lines is whole
        self._line = bytearray()  # the beginning of a line whose end has not come yet

    @property
    def comments_pending(self) -> int:
        """The number of comment lines in the pending block, which no blank line has ended yet."""
        return self._block.comments if self._block else 0

    @property
    def idle(self) -> bool:
        """Whether no event is pending: the next bytes begin a block."""
        return self._start is None and not (self._after_cr or self._line or self._block)

    def feed(self, data: bytes) -> list[Event]:
        """The blocks that `data` completes, in order, also those that dispatch nothing. A lone blank line is no block."""
        if self._start is not None:
            data = self._after_bom(data)
        if self._after_cr or b"\r" in data:
            data = self._line_feeds(data)
        events: list[Event] = []
        if self._line or self._block:
            data = self._advance(data, events)
        end = data.rfind(b"\n\n") + 2
        usual = _usual(data[:end]) if 1 < end <= self._cap else None
        if usual is not None:
            events += usual
            data = data[end:]
        else:
            *blocks, data = data.split(b"\n\n")
            events += [event for block in blocks if block and (event := self._whole(block)) is not None]
        if data:
            self._advance(data, events)
        return events

    def finish(self) -> Event | None:
        """The block pending at the end of input; a partial line counts as a line. None if it holds nothing but comments.

        The caller decides by the content whether the event is whole. Feed nothing afterwards.
        """
        line = (self._start or b"") + bytes(self._line)
        block = self._block or _Block(self._cap)
        if line:
            block.add(line)
        self._block, self._start = None, None
        self._line.clear()
        return block.event() if block.has_fields else None

    def _after_bom(self, data: bytes) -> bytes:
        data = (self._start or b"") + data
        if len(data) < len(BOM) and BOM.startswith(data):
            self._start = data
            return b""
        self._start = None
        return data.removeprefix(BOM)

    def _line_feeds(self, data: bytes) -> bytes:
        """The same lines, each ended by LF alone. A CR at the end ends its line; the next feed drops an LF that follows."""
        if not data:
            return data
        if self._after_cr and data[0] == 0x0A:
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _advance(self, data: bytes, events: list[Event]) -> bytes:
        """Reads lines up to the end of the pending block, or to the end of `data`; returns the unread bytes."""
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            line = data[at:end]
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            at = end + 1
            if line:
                self._block = self._block or _Block(self._cap)
                self._block.add(line)
            elif self._block:
                events.append(self._block.event())
                self._block = None
                return data[at:]
        self._keep(data[at:])
        return b""

    def _keep(self, half: bytes) -> None:
        """Keeps the beginning of a line. Of a comment only the first byte is kept, of data over the cap both ends."""
        self._line += half
        if self._line.startswith(b":"):
            del self._line[1:]
        elif self._block or len(self._line) > self._cap:
            self._block = self._block or _Block(self._cap)
            # A line that marks an oversized event does not count towards the size, even while it is partial.
            if not _OVERSIZED.startswith(self._line) and self._block.full(len(self._line) - _LONGEST_PREFIX):
                if not self._line.startswith(_DATA):
                    del self._line[len(_DATA) :]
                elif len(self._line) > _LONGEST_PREFIX + CUT_HEAD + CUT_TAIL:
                    del self._line[_LONGEST_PREFIX + CUT_HEAD : -CUT_TAIL]

    def _whole(self, lines: bytes) -> Event | None:
        """The event of a block that lies whole in one feed."""
        block = _Block(self._cap)
        for line in lines.split(b"\n"):
            if line:
                block.add(line)
        return block.event() if block.begun else None


class _Block:
    """The lines since the last blank line. `data` and `bare` end each line with LF."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._size = 0
        self._name = ""
        self._id: str | None = None
        self._retry: int | None = None
        self._data: bytearray | None = None
        self._error: bytes | None = None
        self._bare: bytearray | None = None
        self._over = False
        self._marked = False
        self._head = self._tail = b""
        self.begun = False
        self.has_fields = False
        self.comments = 0

    def full(self, more: int) -> bool:
        """Whether the block with `more` bytes exceeds the cap. Once it does, it stays oversized."""
        if self._size + more > self._cap:
            self._over = True
            if self._data is not None:
                self._head, self._tail = bytes(self._data[:CUT_HEAD]), bytes(self._data[-CUT_TAIL:])
            self._data = self._error = self._bare = None
        return self._over

    def add(self, line: bytes) -> None:
        """Adds a line that is not blank, given without its end."""
        self.begun = True
        if line[0] == 0x3A:
            self.comments += 1
            return
        if not self.has_fields:
            self.has_fields = True
            self._bare = bytearray() if line[0] in b"{[" and not self._over else None
        if not self._over:
            self._field(line)
        if self._over and line.startswith(_DATA):
            value = line[len(_DATA) :].removeprefix(b" ") + b"\n"
            self._head += value[: CUT_HEAD - len(self._head)]
            self._tail = (self._tail + value[-CUT_TAIL:])[-CUT_TAIL:]

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field in _FIELDS:
            value = utf8(value)
            if not self.full(len(value) + 1):
                self._size += len(value) + 1
                self._set(field, value)
        elif self._bare is not None:
            line = utf8(line)
            if not self.full(len(line) + 1):
                self._size += len(line) + 1
                self._bare += line + b"\n"
        elif line == _OVERSIZED:
            self._marked = True
        else:
            self.full(len(line) + 1)

    def _set(self, field: bytes, value: bytes) -> None:
        match field:
            case b"data":
                self._data = bytearray() if self._data is None else self._data
                self._data += value + b"\n"
            case b"event":
                self._name = value.decode()
            case b"id":
                self._id = self._id if b"\0" in value else value.decode()
            case b"retry":
                self._retry = _milliseconds(value, self._retry)
            case _:
                self._error = value

    def event(self) -> Event:
        """The event of the lines so far."""
        empty = self._data is None and self._error is None and self._bare is None
        return Event(
            name=self._name,
            data=None if self._data is None else bytes(self._data[:-1]),
            id=self._id,
            retry=self._retry,
            comments=self.comments,
            error=self._error,
            oversized=self._over or (self._marked and empty),
            bare=None if self._bare is None else bytes(self._bare[:-1]),
            cut=(utf8(self._head), utf8(self._tail[:-1])) if self._tail else None,
        )


_FIELDS = frozenset((b"data", b"event", b"id", b"retry", b"error"))


# Comments that are kept of a block that never ended (count): 18 hours of one ping a second.
MAX_LAST_COMMENTS = 65_536

_BLANK = re.compile(b"\n\n")  # splitting by it takes half as long as with bytes.split


def utf8(raw: bytes) -> bytes:
    """`raw` itself if it is UTF-8; else a copy with U+FFFD in place of each maximal subpart that is not UTF-8.

    This is the rule of the UTF-8 decoder in the Encoding Standard.
    """
    if raw.isascii():
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode()
    return raw


def _usual(blocks: bytes) -> list[Event] | None:
    """The events of whole blocks of the usual kinds; None if any block is of another kind, or not whole.

    The usual kinds: each block is one line of data, which a name, an id or a name and an id may precede. Nearly all streams
    consist of such blocks. `blocks` may have line ends of all kinds.
    """
    if not blocks.isascii() and utf8(blocks) is not blocks:
        return None
    events = []
    lines = iter(blocks.splitlines())  # of bytes: at LF, CR and CRLF alone
    for first in lines:
        name, event_id, line = "", None, first
        if line[:6] != b"data: ":
            if line[:7] == b"event: ":
                name, line = line[7:].decode(), next(lines, b"")
            if line[:4] == b"id: " and b"\0" not in line:
                event_id, line = line[4:].decode(), next(lines, b"")
            if line[:6] != b"data: ":
                return None
        if next(lines, line):
            return None
        events.append(Event(name, line[6:], event_id))
    return events


def _milliseconds(digits: bytes, otherwise: int | None) -> int | None:
    significant = digits.lstrip(b"0")
    if not digits.isdigit() or len(significant) > MAX_RETRY_DIGITS:
        return otherwise
    return int(significant or b"0")


def read_events(blocks: bytes) -> list[Event]:
    """The events of whole blocks as `write_event` writes them: the result of a new `SseDecoder`, but faster."""
    usual = _usual(blocks) if len(blocks) <= MAX_EVENT_BYTES else None
    return SseDecoder().feed(blocks) if usual is None else usual


def canonical_events(content: bytes) -> int:
    """The number of events in these bytes, if they are whole blocks of a usual kind as `write_event` writes them; else 0.

    The usual kinds: each block is one line of data, or a name and one line of data. The result is also 0 if counting lines
    does not show the kind.
    """
    if not content.endswith(b"\n\n") or b"\r" in content or len(content) > MAX_EVENT_BYTES:
        return 0
    lines = content.count(b"\n")
    if content.startswith(b"data: "):
        events = content.count(b"\n\ndata: ") + 1
        usual = lines == 2 * events
    else:
        events = content.count(b"\n\nevent: ") + 1
        named = content.startswith(b"event: ") and b"event: \n" not in content
        usual = named and lines == 3 * events and content.count(b"\ndata: ") == events
    return events if usual and utf8(content) is content else 0


def canonical_events_of(contents: Sequence[bytes]) -> int:
    """The number of events in these contents, if each content is as `canonical_events` requires; else 0."""
    joined = b"".join(contents)
    if {content[-2:] for content in contents} != {b"\n\n"}:
        return 0
    if joined.count(b"\n") != 2 * len(contents) or {content[:6] for content in contents} != {b"data: "}:
        return canonical_events(joined)
    usual = b"\r" not in joined and len(joined) <= MAX_EVENT_BYTES and utf8(joined) is joined
    return len(contents) if usual else 0


def split_blocks(content: bytes) -> list[bytes]:
    """The blocks of a content, each without its blank line. Empty if the content has a CR or an unfinished block."""
    return [] if b"\r" in content or not content.endswith(b"\n\n") else _BLANK.split(content)[:-1]


def write_event(event: Event) -> bytes:
    """The event as canonical SSE (UTF-8, LF, no BOM) with its blank line. `SseDecoder` reads the same event from it, except
    for `cut`, which is not written: it holds text that was not masked.

    Accepts any event that a decoder returned: names, ids and the lines of the data hold no CR or LF.
    """
    return (b":\n" * event.comments + _field_lines(event) or b"event\n") + b"\n"


def write_tail(event: Event) -> bytes:
    """As `write_event` without the blank line, for an event from `finish()`. `finish()` reads the same event from it, except
    for `cut`."""
    return comment_lines(event.comments) + (_field_lines(event) or b"event\n")


def comment_lines(comments: int) -> bytes:
    """This many comment lines, without text, to follow a stream's last whole block; at most MAX_LAST_COMMENTS."""
    return b":\n" * min(comments, MAX_LAST_COMMENTS)


def _field_lines(event: Event) -> bytes:
    """The event's lines except comments; empty if the block has only unknown fields."""
    data = b"" if event.data is None else b"data: " + event.data.replace(b"\n", b"\ndata: ") + b"\n"
    name = b"event: " + event.name.encode() + b"\n" if event.name else b""
    if event.id is None and event.retry is None and event.error is None and event.bare is None and not event.oversized:
        return name + data
    out = [] if event.bare is None else [event.bare + b"\n"]
    out += [_OVERSIZED + b"\n"] if event.oversized else []
    out.append(name)
    out += [] if event.id is None else [b"id: " + event.id.encode() + b"\n"]
    out += [] if event.retry is None else [b"retry: %d\n" % event.retry]
    out += [] if event.error is None else [b"error: " + event.error + b"\n"]
    return b"".join((*out, data))
