"""Which stream a leg continues. Pure: what records say of each other, whoever counts by it.

A *leg* is a record whose request names a position in an earlier stream (`resumed_from`), or asks for a stored response from
its start; any other record is an *origin*. Each leg continues at most one earlier record of the same upstream and
credential: the one that the first of the rules below finds. An origin continues nothing, so two of them are never one
stream, whatever ids they share.

Positions that are numbers are the same in many streams by chance, so one alone shows nothing.

Decision 7 (docs/decisions/0007-resumed-streams.md) has the reasons.
"""

import re
from typing import Generic, NamedTuple, Protocol, TypeVar

from streamgauge.core.capture.segments import FROM_START
from streamgauge.core.safe_values import MASKED

# Sequence numbers, and the event ids of providers that count them in each stream anew.
_NUMBER = re.compile(r"[0-9]*")


class ResumableRecord(Protocol):
    """What the rules look at: a record, or as much of one."""

    @property
    def upstream(self) -> str | None: ...
    @property
    def credential_id(self) -> str | None: ...
    @property
    def request_digest(self) -> str | None: ...
    @property
    def response_id(self) -> str | None: ...
    @property
    def last_event_id(self) -> str | None: ...
    @property
    def resumed_from(self) -> str | None: ...
    @property
    def outcome(self) -> str: ...


class _Rule(NamedTuple):
    """A leg continues the latest earlier record whose `earlier` values are the leg's `own`; all of them must be known.

    Never one that says another response id than the leg. `any_event`: the position is not compared with the record's last
    event, only must not lie beyond it. `unlike_others`: the position must be an event's id, and no mere number.
    """

    own: tuple[str, ...]
    earlier: tuple[str, ...]
    any_event: bool = False
    unlike_others: bool = False


# A request that is sent again with a body (Last-Event-ID: the same request, WHATWG HTML 9.2.2) shows by it what it continues.
# The position is often not the last event that the tap saw: some are lost on the way to the client.
_WITH_BODY = (
    _Rule(("request_digest", "response_id", "resumed_from"), ("request_digest", "response_id", "last_event_id")),
    _Rule(("request_digest", "response_id"), ("request_digest", "response_id")),
    _Rule(("request_digest", "resumed_from"), ("request_digest", "last_event_id")),
    _Rule(("response_id",), ("response_id",)),
    _Rule(("request_digest",), ("request_digest",), any_event=True),
)
# A request without a body names a stored response in its path, which then is its record's response id even if the stream said
# none; or else it names an event alone, and the provider's event ids tell streams apart.
_WITHOUT_BODY = (
    _Rule(("response_id",), ("response_id",)),
    _Rule(("resumed_from",), ("last_event_id",), unlike_others=True),
)
_EARLIER = tuple({(rule.earlier, rule.any_event): None for rule in (*_WITH_BODY, *_WITHOUT_BODY)})

Key = tuple[object, ...]
Stream = TypeVar("Stream")
_Value = TypeVar("_Value")


class Known(NamedTuple, Generic[Stream]):
    """An earlier record: what may speak against a rule that found it, and the stream that it belongs to."""

    response_id: str | None
    last_event_id: str | None
    stream: Stream


class Table(Protocol[_Value]):
    """Where records are remembered: a dict, or something that forgets."""

    def get(self, key: Key, /) -> _Value | None: ...
    def __setitem__(self, key: Key, value: _Value, /) -> None: ...


class Streams(Generic[Stream]):
    """The records so far, by what rules ask for: under each key the latest that did not complete, and the latest that did.

    `broken` and `completed` are two tables, for one that forgets must not lose the few that broke to the many that did not.
    """

    def __init__(self, broken: Table[Known[Stream]], completed: Table[Known[Stream]]) -> None:
        self._broken = broken
        self._completed = completed

    def add(self, record: ResumableRecord, stream: Stream) -> None:
        """Remember a record as one of `stream`. Those that are added later are taken for later ones."""
        table = self._completed if record.outcome == "completed" else self._broken
        known = Known(record.response_id, record.last_event_id, stream)
        for names, any_event in _EARLIER:
            key = _key(record, names, names)
            if key is not None and not (any_event and record.last_event_id is None):
                table[key] = known

    @staticmethod
    def keys_of(record: ResumableRecord) -> list[Key]:
        """What `continued_by` would ask the tables for."""
        rules = () if record.resumed_from is None else _WITHOUT_BODY if record.request_digest is None else _WITH_BODY
        return [key for rule in rules if (key := _key(record, rule.own, rule.earlier)) is not None]

    def continued_by(self, record: ResumableRecord) -> Stream | None:
        """The stream that a record continues: None for an origin, and for a leg for which no rule finds anything."""
        if record.resumed_from is None:
            return None
        for rule in _WITHOUT_BODY if record.request_digest is None else _WITH_BODY:
            key = _key(record, rule.own, rule.earlier)
            found = None if key is None else self._broken.get(key) or self._completed.get(key)
            if found is not None and _fits(rule, record, found):
                return found.stream
        return None


def _key(record: ResumableRecord, names: tuple[str, ...], called: tuple[str, ...]) -> Key | None:
    """Values by which records are found, with the names that they are looked up by; None if one of them is not known."""
    key: list[object] = [called, record.upstream, record.credential_id]
    for name in names:
        value = getattr(record, name)
        if value is None or value == MASKED:
            return None
        key.append(value)
    return tuple(key)


def _fits(rule: _Rule, leg: ResumableRecord, found: Known[Stream]) -> bool:
    """Whether nothing speaks against what a rule has found."""
    position, last = leg.resumed_from or "", found.last_event_id or ""
    if rule.unlike_others and (position == FROM_START or _NUMBER.fullmatch(position)):
        return False
    if rule.any_event and _beyond(position, last):
        return False
    return found.response_id == leg.response_id or not {None, MASKED}.isdisjoint((found.response_id, leg.response_id))


def _beyond(position: str, last: str) -> bool:
    """Whether a position lies behind a stream's last event; False where it cannot be told. Numbers of any length."""
    if not (_NUMBER.fullmatch(position) and _NUMBER.fullmatch(last) and last):
        return False
    high, low = position.lstrip("0"), last.lstrip("0")
    return (len(high), high) > (len(low), low)
