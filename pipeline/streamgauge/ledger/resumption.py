"""Counts usage once for an origin and the resumed streams that continue it. Pure: rows in, numbers out.

The rules in core/assembly/resumption.py find the origin of a resumed stream. A resumed stream without a known origin counts
by itself: the origin may be in another ledger.

Decision 7 (docs/decisions/0007-resumed-streams.md) has the reasons.
"""

from collections.abc import Iterable
from typing import NamedTuple

from streamgauge.core.assembly.resumption import Key, Known, Streams


class UsagePart(NamedTuple):
    """The fields of a record that this count needs. Ledgers read these columns, in this order."""

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
    input_cached_tokens: int | None
    reasoning_tokens: int | None


class Counted(NamedTuple):
    """The usage that counts in place of a record's own: an origin has that of all its records, a resumed stream none."""

    stream_id: str
    usage_source: str | None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Asked(dict[Key, Known[list[UsagePart]]]):
    """Stores only keys that resumed streams look up: a million equal requests beside one resumed stream take no memory."""

    def __init__(self, keys: frozenset[Key]) -> None:
        super().__init__()
        self._keys = keys

    def __setitem__(self, key: Key, value: Known[list[UsagePart]]) -> None:
        if key in self._keys:
            super().__setitem__(key, value)


def count_once(parts: Iterable[UsagePart], legs: Iterable[UsagePart]) -> list[Counted]:
    """The usage that counts for each record that continues a stream or is continued. Other records keep their own usage.

    `parts`: at least every resumed stream, and every record that shares a digest or an id with one; in order of their
    start, origins before resumed streams that started at the same moment. `legs`: the resumed streams among them, in any
    order.
    """
    keys = frozenset(key for leg in legs for key in Streams.keys_of(leg))
    known: Streams[list[UsagePart]] = Streams(broken=_Asked(keys), completed=_Asked(keys))
    continued: list[list[UsagePart]] = []
    for part in parts:
        stream = known.continued_by(part)
        if stream is None:
            stream = [part]
        else:
            if len(stream) == 1:
                continued.append(stream)
            stream.append(part)
        known.add(part, stream)
    return [line for stream in continued for line in _counted(stream)]


def _counted(stream: list[UsagePart]) -> list[Counted]:
    """The usage of one continued stream: for each field the last known value, final values first.

    All of it counts for the first record.
    """
    first, *legs = stream
    given, made = _last(stream, "input_tokens"), _last(stream, "output_tokens")
    cached, reasoned = _last(stream, "input_cached_tokens"), _last(stream, "reasoning_tokens")
    named = made or given
    whole = Counted(
        first.stream_id,
        usage_source=named.usage_source if named else first.usage_source,
        input_tokens=given.input_tokens if given else None,
        output_tokens=made.output_tokens if made else None,
        total_tokens=_total(stream, given, made),
        input_cached_tokens=cached.input_cached_tokens if cached else None,
        reasoning_tokens=reasoned.reasoning_tokens if reasoned else None,
    )
    return [whole, *(Counted(leg.stream_id, leg.usage_source) for leg in legs)]


def _last(stream: list[UsagePart], name: str) -> UsagePart | None:
    known = [part for part in stream if getattr(part, name) is not None]
    final = [part for part in known if part.usage_source == "final"]
    return next(reversed(final or known), None)


def _total(stream: list[UsagePart], given: UsagePart | None, made: UsagePart | None) -> int | None:
    """The provider's own total if it is from the same record as input and output; else their sum, as in a record."""
    if given is made and made is not None and made.total_tokens is not None:
        return made.total_tokens
    if given is not None and made is not None:
        return (given.input_tokens or 0) + (made.output_tokens or 0)
    told = _last(stream, "total_tokens")
    return None if told is None else told.total_tokens
