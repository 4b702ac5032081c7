"""Counts usage once for an origin and the resumed streams that continue it. Pure: rows in, numbers out.

The rules in core/resumption.py find the origin of a resumed stream. A resumed stream without a known origin counts
by itself: the origin may be in another ledger.

Decision 7 (docs/decisions/0007-resumed-streams.md) has the reasons.
"""

from collections.abc import Iterable
from typing import NamedTuple

from streamgauge.core.resumption import Key, Known, Streams


class UsagePart(NamedTuple):
    """The fields of a record that this count needs. Ledgers read these columns, in this order."""

    stream_id: str
    upstream: str | None
    credential_id: str | None
    request_digest: str | None
    response_id: str | None
    last_event_id: str | None
    resumed_from: str | None
    endpoint: str | None
    outcome: str
    usage_source: str | None
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    input_cached_tokens: int | None
    reasoning_tokens: int | None
    input_cache_write_tokens: int | None = None
    audio_input_tokens: int | None = None
    audio_output_tokens: int | None = None
    cost_input: int | None = None
    cost_output: int | None = None


class Counted(NamedTuple):
    """The usage that counts in place of a record's own: an origin has the usage of all its records, a resumed stream none."""

    stream_id: str
    usage_source: str | None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_cache_write_tokens: int | None = None
    audio_input_tokens: int | None = None
    audio_output_tokens: int | None = None
    cost_input: int | None = None
    cost_output: int | None = None


class _LookedUp(dict[Key, Known[list[UsagePart]]]):
    """Stores only keys that resumed streams look up: a million equal requests beside one resumed stream take no memory."""

    def __init__(self, keys: frozenset[Key]) -> None:
        super().__init__()
        self._keys = keys

    def __setitem__(self, key: Key, value: Known[list[UsagePart]]) -> None:
        if key in self._keys:
            super().__setitem__(key, value)


def continued_streams(parts: Iterable[UsagePart], resumed: Iterable[UsagePart]) -> list[list[UsagePart]]:
    """The streams of several records, each as its records in order.

    `parts`: at least every resumed stream, and every record that shares a digest or an id with one; in order of their
    start, origins before resumed streams that started at the same moment. `resumed`: the resumed streams among them, in any
    order.
    """
    keys = frozenset(key for record in resumed for key in Streams.keys_of(record))
    known: Streams[list[UsagePart]] = Streams(broken=_LookedUp(keys), completed=_LookedUp(keys))
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
    return continued


def counted(stream: list[UsagePart]) -> list[Counted]:
    """The usage of one continued stream: for each field the last known value, final values first.

    All of it counts for the first record. Each side costs what the record costs that reported it.
    """
    first, *resumed = stream
    with_input, with_output = sides_of(stream)
    named_by = with_output or with_input
    cost_input, cost_output = _costs(stream, with_input, with_output)
    whole = Counted(
        first.stream_id,
        usage_source=named_by.usage_source if named_by else first.usage_source,
        input_tokens=with_input.input_tokens if with_input else None,
        output_tokens=with_output.output_tokens if with_output else None,
        total_tokens=_total(stream, with_input, with_output),
        cost_input=cost_input,
        cost_output=cost_output,
        **{name: _value(_last(stream, name), name) for name in _PARTS},
    )
    return [whole, *(Counted(record.stream_id, record.usage_source) for record in resumed)]


def _costs(
    stream: list[UsagePart], with_input: UsagePart | None, with_output: UsagePart | None
) -> tuple[int | None, int | None]:
    """The costs of input and output. A cost that is not divided is in `cost_input` of the record that has it."""
    if with_input is None and with_output is None:  # a cost was reported without tokens
        with_cost = _last(stream, "cost_input")
        return _value(with_cost, "cost_input"), None
    input_cost, output_cost = _value(with_input, "cost_input"), _value(with_output, "cost_output")
    if with_output is None or with_output is with_input or output_cost is not None or with_output.cost_input is None:
        return input_cost, output_cost
    return (input_cost, with_output.cost_input) if with_output.input_tokens is None else (with_output.cost_input, None)


def sides_of(stream: list[UsagePart]) -> tuple[UsagePart | None, UsagePart | None]:
    """The records of a continued stream whose input and whose output counts; None if no record reports that side."""
    return _last(stream, "input_tokens"), _last(stream, "output_tokens")


# Parts of input and output: their last known value counts, whichever record reported the whole.
_PARTS = (
    "input_cached_tokens",
    "reasoning_tokens",
    "input_cache_write_tokens",
    "audio_input_tokens",
    "audio_output_tokens",
)


def _value(part: UsagePart | None, name: str) -> int | None:
    return None if part is None else getattr(part, name)


def _last(stream: list[UsagePart], name: str) -> UsagePart | None:
    known = [part for part in stream if getattr(part, name) is not None]
    final = [part for part in known if part.usage_source == "final"]
    return next(reversed(final or known), None)


def _total(stream: list[UsagePart], with_input: UsagePart | None, with_output: UsagePart | None) -> int | None:
    """The provider's own total if it is from the same record as input and output; else their sum, as in a record."""
    if with_input is with_output and with_output is not None and with_output.total_tokens is not None:
        return with_output.total_tokens
    if with_input is not None and with_output is not None:
        return (with_input.input_tokens or 0) + (with_output.output_tokens or 0)
    with_total = _last(stream, "total_tokens")
    return None if with_total is None else with_total.total_tokens
