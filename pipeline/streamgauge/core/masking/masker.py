"""Masks whole events: keeps what the dialect's allowlist of paths names, and replaces everything else.

Structure, token events and the number of decoded code points are preserved, so that a record made from a masked capture
equals one from a full capture in all but `arguments_valid`. With full capture events pass unchanged; the values that a
record shows of them pass through the same filters (`safe_values.py`).
"""

from collections.abc import Mapping, Sequence

import msgspec

from streamgauge.core.allowlist import Spec, apply_allowlist, encoded
from streamgauge.core.dialects import (
    BY_NAME,
    DONE,
    Dialect,
    dialect_of_endpoint,
    dialect_of_text_event,
    is_whole,
    recognised,
    recognised_body,
)
from streamgauge.core.dialects.contract import KEEP_ERRORS
from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.core.formats.sse import (
    HALF_EVENT,
    Event,
    canonical_events,
    canonical_events_of,
    comment_lines,
    write_tail,
)
from streamgauge.core.masking.known_masks import KnownMasks
from streamgauge.core.masking.mask_learning import Masked
from streamgauge.core.safe_values import safe_code, safe_id

# What is kept of an event that no dialect recognises: only what shows an error, or that the event is not from an LLM.
_KEEP_UNKNOWN: Mapping[str, Spec] = KEEP_ERRORS

# Replaces data that is not JSON. The replacement does not parse either.
_UNPARSABLE = b"masked"


class Masker:
    """Masks the events of one stream, in order.

    `path`: the endpoint's template, a hint until the events show their dialect. `full`: full capture, nothing is masked.
    """

    def __init__(self, path: str | None, full: bool, dialect: str | None = None) -> None:
        self._full = full
        self._dialect = BY_NAME.get(dialect or "") or dialect_of_endpoint(path)
        self._shown: Dialect | None = None
        self._known = KnownMasks()
        self._spec: Mapping[str, Spec] | None = None  # the allowlist for the last event's data; None if that was text
        self._has_spec = False  # whether `_spec` decided how the last event was masked
        self._passed = 0  # events that `known`, `usual` and `usual_each` passed, with full capture

    @property
    def quick_events(self) -> int:
        """How many events `known`, `usual` and `usual_each` have masked so far, without decoding each event."""
        return self._passed + self._known.events

    def known(self, content: bytes) -> tuple[bytes, bytes]:
        """The masked events at the beginning of decoded bytes, as far as learnt forms cover them; and the rest of the bytes.

        The bytes must begin with a block: no part of an event may be pending.
        """
        if not self._full:
            return self._known.mask(content)
        end = content.rfind(b"\n\n") + 2
        events = canonical_events(content[:end])
        self._passed += events
        return (content[:end], content[end:]) if events else (b"", content)

    def usual(self, content: bytes) -> bytes | None:
        """What `known` would return for the usual content, one event of plain text; None for any other content."""
        if self._full:
            events = canonical_events(content)
            self._passed += events
            return content if events else None
        return self._known.plain(content)

    def usual_each(self, contents: Sequence[bytes]) -> list[bytes]:
        """The masked forms of the first contents, as `usual` makes them, up to one that has to be masked by itself."""
        if not self._full:
            return self._known.each(contents)
        events = canonical_events_of(contents)
        self._passed += events
        return list(contents) if events else []

    def learn(self, block: bytes, event: Event, became: Event) -> None:
        """Learns from the last event, as it came and as it was masked. `block`: its bytes without the blank line."""
        if self._has_spec and not self._full:
            self._known.see(Masked(block, event, became, self._spec))

    def event(self, event: Event) -> Event:
        """The event in the form that may be stored."""
        if self._full:
            return event
        self._has_spec = False
        return msgspec.structs.replace(
            event,
            name=safe_code(event.name) or "",
            id=None if event.id is None else safe_id(event.id) or "",
            data=None if event.data is None else self._data(event.name, event.data),
            error=None if event.error is None else _masked_json(KEEP_ERRORS, event.error),
            bare=None if event.bare is None else _masked_json(KEEP_ERRORS, event.bare),
        )

    def tail(self, event: Event) -> bytes:
        """The masked form of the event that was pending at the end, as canonical SSE without its blank line.

        HALF_EVENT replaces an event that is not whole.
        """
        return (
            write_tail(self.event(event))
            if is_whole(event, self._shown)
            else comment_lines(event.comments) + HALF_EVENT
        )

    def body(self, raw: bytes) -> bytes | None:
        """The masked body of a response that is not an event stream; None if the body is not JSON."""
        value = parse(raw)
        if value is UNPARSED:
            return None
        if self._full:
            return raw
        return encoded([self._answer(one) for one in value] if isinstance(value, list) else self._answer(value))

    def _answer(self, value: object) -> object:
        """Masks one response, or one event of a list of events."""
        whole = recognised_body(value)
        shown = whole or recognised("", value)
        if shown is not None and whole is None:
            return apply_allowlist(shown.keep, value)
        dialect = shown or self._dialect
        return apply_allowlist(KEEP_ERRORS if dialect is None else {**KEEP_ERRORS, **dialect.keep_body}, value)

    def _data(self, name: str, data: bytes) -> bytes:
        speaker = dialect_of_text_event(name, self._shown)
        if speaker is not None:
            self._shown = speaker
            self._is(speaker)
            self._spec, self._has_spec = None, True
            return b"x" * len(data.decode("utf-8", "replace"))
        if data.startswith(DONE):
            return DONE
        if not data.strip():
            return data
        value = parse(data)
        if value is UNPARSED:
            return _UNPARSABLE
        self._shown = recognised(name, value, self._shown) or self._shown
        self._is(self._shown or self._dialect)
        self._spec, self._has_spec = _keep(self._dialect), True
        return _masked(self._spec, value)

    def _is(self, dialect: Dialect | None) -> None:
        if dialect is not self._dialect:
            self._known.forget()
        self._dialect = dialect
        self._known.rules = self._shown.name if self._shown is not None else None


def _keep(dialect: Dialect | None) -> Mapping[str, Spec]:
    return _KEEP_UNKNOWN if dialect is None else dialect.keep


def _masked_json(spec: Mapping[str, Spec], raw: bytes) -> bytes:
    value = parse(raw)
    return _UNPARSABLE if value is UNPARSED else _masked(spec, value)


def _masked(spec: Mapping[str, Spec], value: object) -> bytes:
    """Masks an event, or a list of events (Gemini's errors)."""
    return encoded(
        [apply_allowlist(spec, one) for one in value] if isinstance(value, list) else apply_allowlist(spec, value)
    )
