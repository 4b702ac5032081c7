"""Masks whole events: keeps what the dialect's allowlist of paths names, and replaces everything else.

Structure, token events and the number of decoded code points are preserved, so that a record made from a masked capture
equals one from a full capture in all but `arguments_valid`. With full capture events pass unchanged; the values that a
record shows of them pass through the same filters (`safe_values.py`). Messages of JSON-RPC (Model Context Protocol,
Agent2Agent) are masked with full capture, too: no record is made of them, so their contents are of no use (decision 62).
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import msgspec

from streamgauge.core.allowlist import Filter, Kind, Spec, allowlist_filter, apply_allowlist, encoded, encoded_each
from streamgauge.core.dialects import (
    BY_NAME,
    DIALECTS,
    DONE,
    Dialect,
    dialect_of_endpoint,
    dialect_of_text_event,
    is_whole,
    recognised,
    recognised_body,
)
from streamgauge.core.dialects.contract import KEEP_ERRORS, type_of
from streamgauge.core.formats.json_rpc import RPC_MARK
from streamgauge.core.formats.json_text import UNPARSED, parse, parse_each
from streamgauge.core.formats.sse import HALF_EVENT, Event, comment_lines, write_event, write_tail
from streamgauge.core.masking.frames import MIN_EVENTS, Frame, NotRecognisedError, frame_of
from streamgauge.core.safe_values import safe_code, safe_id
from streamgauge.core.usage import INVOCATION_METRICS, KEEP_INVOCATION_METRICS

# The filter of events that no dialect recognises: it keeps only signs of an error, and of an event that is not from an LLM.
_KEEP_ERRORS = allowlist_filter(KEEP_ERRORS)

_BLANK = b"\n\n"
_BRACE = ord("{")
# Names of events whose data may be text, not JSON.
_TEXT_EVENTS = frozenset(name for dialect in DIALECTS for name in dialect.text_events)
# Replaces data that is not JSON. The replacement does not parse either.
_UNPARSABLE = b"masked"
# What `_kept` returns for an event whose data stays unchanged.
_UNCHANGED = msgspec.Raw(b"")


class _Filters(dict[str, Filter]):
    """The filter of each dialect, by its name. It is made when an event first needs it: to make all takes 20 ms, and every
    process that imports this module would spend them.
    """

    def __init__(self, allowlist: Callable[[Dialect], Spec]) -> None:
        super().__init__()
        self._allowlist = allowlist

    def __missing__(self, name: str) -> Filter:
        masking_filter = self[name] = allowlist_filter(self._allowlist(BY_NAME[name]))
        return masking_filter


_KEEP = _Filters(lambda dialect: {**dialect.keep, INVOCATION_METRICS: KEEP_INVOCATION_METRICS})
_KEEP_BODY = _Filters(lambda dialect: {**KEEP_ERRORS, **dialect.keep_body})


def _keep_event(dialect: Dialect, name: str, value: object) -> object:
    """The masked value of an event with this name. Code that a model wrote is masked as its text is."""
    kept = _KEEP[dialect.name](value)
    if dialect.code_events and isinstance(value, dict) and "code" in value:
        kind = type_of(name, value)
        if isinstance(kind, str) and kind in dialect.code_events:
            assert isinstance(kept, dict)
            kept["code"] = apply_allowlist(Kind.TEXT, value["code"])
    return kept


class Masker:
    """Masks the events of one stream, in order.

    `path`: the endpoint's template, a hint until the events show their dialect. `full`: full capture, nothing is masked.
    """

    def __init__(self, path: str | None, full: bool, dialect: str | None = None) -> None:
        self.full = full
        self._hint = BY_NAME.get(dialect or "") or dialect_of_endpoint(path)
        self._shown: Dialect | None = None
        self._unrecognised = 0  # events that no dialect recognised
        self._changes = 0  # how often the events have shown another dialect than before
        self._frame: Frame | None = None  # the latest frame, of this dialect

    @property
    def has_frame(self) -> bool:
        """Whether there is a frame: `mask_contents` may then give something."""
        return self._frame is not None

    def mask_contents(self, contents: Sequence[bytes]) -> tuple[list[bytes], int]:
        """As `Frame.mask_contents`, by the latest frame; nothing if there is none. The events need not be decoded."""
        return ([], 0) if self._frame is None else self._frame.mask_contents(contents)

    def blocks(self, blocks: Sequence[bytes], decode: Callable[[bytes], list[Event]]) -> list[bytes]:
        """Whole blocks as canonical SSE in the form that may be stored. A block has no blank line, and no CR.

        `decode` returns the events of whole blocks. The result is the same as from `mask` for these events, in less time.
        """
        read = partial(_read, decode)
        first = self.mask(read(blocks[:1])) if self._shown is None else []  # may show the dialect
        rest = blocks[len(first) :]
        framed = self._framed(rest, read)
        if None not in framed:
            return [*map(write_event, first), *cast(Sequence[bytes], framed)]
        others = read([block for block, event in zip(rest, framed, strict=True) if event is None])
        shown, changes = self._shown, self._changes
        masked = iter(self.mask(others))
        if self._changes != changes:
            # Some events belong to another dialect, and the frame may not apply after them: mask all in order.
            self._shown, again = shown, iter(others)
            events = [read([block])[0] if event else next(again) for block, event in zip(rest, framed, strict=True)]
            return list(map(write_event, [*first, *self.mask(events)]))
        return [*map(write_event, first), *(event or write_event(next(masked)) for event in framed)]

    def _framed(
        self, blocks: Sequence[bytes], read: Callable[[Sequence[bytes]], list[Event]]
    ) -> Sequence[bytes | None]:
        """The masked form of each event that fits a frame; None for each other event. Changes only the frame."""

        def mask_copy(blocks: Sequence[bytes]) -> list[bytes]:
            masker = copy.copy(self)
            masked = masker.mask(read(blocks))
            if (masker._unrecognised, masker._changes) != (self._unrecognised, self._changes):
                raise NotRecognisedError
            return list(map(write_event, masked))

        # Anthropic pads its events, so that their size does not reveal the size of the text: {"type":...,"delta":{...}     }
        blocks = [block[:-1].rstrip(b" ") + b"}" if block.endswith(b" }") else block for block in blocks]
        framed: Sequence[bytes | None] = [None] * len(blocks)  # None: no frame has masked the event
        if self._frame is not None:
            framed = self._frame.mask(blocks)
            if None not in framed:
                return framed
        left = [block for block, event in zip(blocks, framed, strict=True) if event is None]
        may_have_frame = len(left) >= MIN_EVENTS and self._shown is not None and not self.full
        frame = frame_of(left, mask_copy) if may_have_frame else None
        if frame is None:
            return framed
        self._frame, more = frame, iter(frame.mask(left))
        return [event or next(more) for event in framed]

    def mask(self, events: Sequence[Event]) -> list[Event]:
        """The events in the form that may be stored. One call for many events takes less time than a call for each."""
        if self.full:
            return [self._masked_event(event) if _is_rpc_event(event) else event for event in events]
        values = parse_each([_json_of(event) or b"null" for event in events])
        kept = list(map(self._kept, events, values))
        return list(map(_masked, events, encoded_each(kept)))

    def event(self, event: Event) -> Event:
        """The event in the form that may be stored."""
        return event if self.full and not _is_rpc_event(event) else self._masked_event(event)

    def _masked_event(self, event: Event) -> Event:
        data = _json_of(event)
        value = None if data is None else parse(data)
        return _masked(event, encoded(self._kept(event, value)))

    def outline_of(self, event: Event) -> Event:
        """An event over the size limit, reduced to the members that its first and last bytes show.

        The event is unchanged if they do not show whether it ends the stream.
        """
        if event.cut is None:
            return event
        for dialect in DIALECTS if self._shown is None else (self._shown,):
            outline = dialect.outline_of(event.name, *event.cut)
            if outline is not None:
                data = encoded(_KEEP[dialect.name](outline)) if outline else None
                return msgspec.structs.replace(event, data=data, oversized=False, cut=None)
        return event

    def tail(self, event: Event) -> bytes:
        """The masked form of the event that was pending at the end, as canonical SSE without its blank line.

        HALF_EVENT replaces an event that is not whole.
        """
        may_be_whole = event.cut is not None and event.cut[1].rstrip().endswith(b"}")
        if may_be_whole:
            event = self.outline_of(event)
        if (may_be_whole and event.oversized) or is_whole(event, self._shown):
            return write_tail(self.event(event))
        return comment_lines(event.comments) + HALF_EVENT

    def body(self, raw: bytes) -> bytes | None:
        """The masked body of a response that is not an event stream; None if the body is not JSON."""
        value = parse(raw)
        if value is UNPARSED:
            return None
        if self.full and not (RPC_MARK in raw and _is_rpc(value)):
            return raw
        return encoded([self._answer(answer) for answer in value] if isinstance(value, list) else self._answer(value))

    def _answer(self, value: object) -> object:
        """Masks one response, or one event of a list of events."""
        whole = recognised_body(value)
        shown = whole or recognised("", value)
        if shown is not None and whole is None:
            return _keep_event(shown, "", value)
        dialect = shown or self._dialect
        return (_KEEP_ERRORS if dialect is None else _KEEP_BODY[dialect.name])(value)

    @property
    def _dialect(self) -> Dialect | None:
        return self._shown or self._hint

    def _kept(self, event: Event, value: object) -> object:
        """The masked value of an event's data, to be encoded. `value`: the parsed `_json_of(event)`."""
        shown, name = self._shown, event.name
        if shown is not None and value and type(value) is dict and shown.recognises(name, value):
            return _keep_event(shown, name, value)
        if event.data is None:
            return _UNCHANGED
        if _json_of(event) is None:
            text_dialect = dialect_of_text_event(name, shown)
            if text_dialect is not None:
                self._set_dialect(text_dialect)
                return msgspec.Raw(b"x" * len(event.data.decode("utf-8", "replace")))
            if event.data.startswith(DONE):
                return msgspec.Raw(DONE)
            if not event.data.strip():
                return _UNCHANGED
            value = parse(event.data)
        dialect = recognised(name, value, shown)
        if dialect is None:
            self._unrecognised += 1
        else:
            self._set_dialect(dialect)
        if value is UNPARSED:
            return msgspec.Raw(_UNPARSABLE)
        keep = _KEEP_ERRORS if self._dialect is None else partial(_keep_event, self._dialect, name)
        # Gemini sends errors as a list of events.
        return [keep(answer) for answer in value] if isinstance(value, list) else keep(value)

    def _set_dialect(self, dialect: Dialect) -> None:
        if dialect is not self._shown:
            self._changes += 1
            self._shown, self._frame = dialect, None


def _is_rpc_event(event: Event) -> bool:
    """Whether an event has a message of JSON-RPC, in its data or in a field beside it."""
    contents = (event.data, event.error, event.bare)
    return any(content is not None and RPC_MARK in content and _is_rpc(parse(content)) for content in contents)


def _is_rpc(value: object) -> bool:
    """Whether a value is a message of JSON-RPC, or a batch with one, that no dialect recognises."""
    if isinstance(value, list):
        return any(isinstance(one, dict) and _is_rpc(one) for one in value)
    return isinstance(value, dict) and "jsonrpc" in value and recognised("", value) is recognised_body(value) is None


def _masked(event: Event, data: bytes) -> Event:
    """The masked event with this data (empty: its own)."""
    return Event(
        safe_code(event.name) or "" if event.name else "",
        data or event.data,
        None if event.id is None else safe_id(event.id) or "",
        event.retry,
        event.comments,
        None if event.error is None else _masked_json(event.error),
        event.oversized,
        None if event.bare is None else _masked_json(event.bare),
    )


def _read(decode: Callable[[bytes], list[Event]], blocks: Sequence[bytes]) -> list[Event]:
    return decode(b"".join([block + _BLANK for block in blocks])) if blocks else []


def _json_of(event: Event) -> bytes | None:
    """The data of an event, if it can only be JSON; else None."""
    data = event.data
    if not data or event.name in _TEXT_EVENTS:
        return None
    return data if data[0] == _BRACE or not (data[:6] == DONE or data.isspace()) else None


def _masked_json(raw: bytes) -> bytes:
    value = parse(raw)
    if value is UNPARSED:
        return _UNPARSABLE
    return encoded([_KEEP_ERRORS(answer) for answer in value] if isinstance(value, list) else _KEEP_ERRORS(value))
