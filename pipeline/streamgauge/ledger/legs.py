"""Which stream a leg continues, and what a stream and its legs used together. Pure: rows in, numbers out.

A *leg* is a record whose request names a position in an earlier stream (`resumed_from`); any other record is an *origin*.
Each leg continues at most one earlier record of the same upstream and credential: the one that the first of the rules
below finds. An origin continues nothing, so two of them are never one stream, whatever ids they share. A leg for which no
rule finds anything counts by itself: what it continues may lie in another ledger.

Positions that are numbers are the same in many streams by chance, so one alone shows nothing.

Decision 7 (docs/decisions/0007-resumed-legs.md) has the reasons.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from streamgauge.core.labels import MASKED

# Sequence numbers, and the event ids of providers that count them in each stream anew.
_NUMBER = re.compile(r"[0-9]*")


class Part(NamedTuple):
    """A record, as far as it tells of legs. Ledgers read these columns, in this order."""

    stream_id: str
    upstream: str | None
    credential_id: str | None
    request_digest: str | None
    response_id: str | None
    last_event_id: str | None
    resumed_from: str | None
    outcome: str
    usage_source: str | None
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None


class Counted(NamedTuple):
    """What counts for a record in place of its own usage: for all but the first of a continued stream nothing does."""

    stream_id: str
    usage_source: str | None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


class _Rule(NamedTuple):
    """A leg continues the latest earlier record whose `earlier` values are the leg's `own`; all of them must be known.

    Never one that says another response id than the leg. `any_event`: the position is not compared with the record's last
    event, only must not lie beyond it. `unlike_others`: the position must be no mere number.
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

_Key = tuple[object, ...]


class _Seen:
    """The records so far, by what rules ask for: the latest that did not complete, else the latest."""

    def __init__(self) -> None:
        self._parts: dict[_Key, Part] = {}

    def add(self, part: Part) -> None:
        for names, any_event in _EARLIER:
            key = _key(part, names, names)
            if key is None or (any_event and part.last_event_id is None):
                continue
            known = self._parts.get(key)
            if known is None or known.outcome == "completed" or part.outcome != "completed":
                self._parts[key] = part

    def before(self, leg: Part) -> Part | None:
        """The record that a leg continues."""
        for rule in _WITHOUT_BODY if leg.request_digest is None else _WITH_BODY:
            key = _key(leg, rule.own, rule.earlier)
            found = None if key is None else self._parts.get(key)
            if found is not None and _fits(rule, leg, found):
                return found
        return None


def _key(part: Part, names: tuple[str, ...], called: tuple[str, ...]) -> _Key | None:
    """Values by which records are found, with the names that they are looked up by; None if one of them is not known."""
    values = [getattr(part, name) for name in names]
    if None in values or MASKED in values:
        return None
    return (called, part.upstream, part.credential_id, *values)


def _fits(rule: _Rule, leg: Part, found: Part) -> bool:
    """Whether nothing speaks against what a rule has found."""
    position, last = leg.resumed_from or "", found.last_event_id or ""
    if rule.unlike_others and _NUMBER.fullmatch(position):
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


def count_once(parts: Iterable[Part]) -> list[Counted]:
    """For each record that is continued or continues, what it counts for. Others count as they are.

    `parts` in order of their start, origins before legs that started at the same moment: at least every leg, and every
    record that shares a digest or an id with one.
    """
    seen = _Seen()
    first_of: dict[str, str] = {}
    streams: dict[str, list[Part]] = {}
    for part in parts:
        before = None if part.resumed_from is None else seen.before(part)
        first = part.stream_id if before is None else first_of[before.stream_id]
        first_of[part.stream_id] = first
        streams.setdefault(first, []).append(part)
        seen.add(part)
    return [line for stream in streams.values() if len(stream) > 1 for line in _counted(stream)]


def _counted(stream: list[Part]) -> list[Counted]:
    """Field by field the last present value, a final one before a partial; all of it counts for the first record."""
    first, *legs = stream
    given, made = _last(stream, "input_tokens"), _last(stream, "output_tokens")
    named = made or given
    whole = Counted(
        first.stream_id,
        usage_source=named.usage_source if named else first.usage_source,
        input_tokens=given.input_tokens if given else None,
        output_tokens=made.output_tokens if made else None,
        total_tokens=_total(stream, given, made),
    )
    return [whole, *(Counted(leg.stream_id, leg.usage_source) for leg in legs)]


def _last(stream: list[Part], name: str) -> Part | None:
    known = [part for part in stream if getattr(part, name) is not None]
    final = [part for part in known if part.usage_source == "final"]
    return next(reversed(final or known), None)


def _total(stream: list[Part], given: Part | None, made: Part | None) -> int | None:
    """The provider's own total if it is of the same record as input and output; else their sum, as in a record."""
    if given is made and made is not None and made.total_tokens is not None:
        return made.total_tokens
    if given is not None and made is not None:
        return (given.input_tokens or 0) + (made.output_tokens or 0)
    told = _last(stream, "total_tokens")
    return None if told is None else told.total_tokens
