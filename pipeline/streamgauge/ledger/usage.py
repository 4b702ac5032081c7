"""What an audit reads of a ledger: sums of usage by SQL, and the few records whose JSON has to be looked at.

A stretch of time is read in steps of bounded size, each in one snapshot: so the memory does not grow with the time, and the
records of a step are those that its sums are of. Sums use columns of `COVERED` alone (`schema.py`): SQLite reads them from an
index, and no row.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, literal, literal_column, or_, select
from sqlalchemy.exc import DBAPIError

from streamgauge.core.safe_values import MASKED
from streamgauge.ledger.contract import Attempt, Costly, Filter, QuarterUsage, SameId, Selection, Usage
from streamgauge.ledger.keys import Expression, in_partitions, range_of
from streamgauge.ledger.schema import NO_START, NUMBER, is_reread, is_unusual, records, started
from streamgauge.ledger.totals import halves, joined_halves, may_be_continued

# Records of one step: a snapshot of them is short, and what is sorted of them fits into memory.
STEP_ROWS = 50_000
# Records are compared with those that began at most so long before them (microseconds, a quarter of an hour): clients give up
# an attempt after ten minutes, and two taps of one call see it within seconds.
WINDOW_US = 900 * 1_000_000
_QUARTER_US = 900 * 1_000_000
_FETCHED = 1_000

_KEYS = ("upstream", "model", "tenant", "credential_id", "service_tier", "usage_source")
_IS_REPORTED = records.c.usage_source.in_(("final", "partial"))
_CACHED = func.coalesce(records.c.input_cached_tokens, 0)
_WRITTEN = func.coalesce(records.c.input_cache_write_tokens, 0)
_INPUT = func.coalesce(records.c.input_tokens, _CACHED + _WRITTEN)
_OUTPUT = func.coalesce(records.c.output_tokens, 0)
_COST = func.coalesce(records.c.cost_input, 0) + func.coalesce(records.c.cost_output, 0)
_IS_PRICED = records.c.price_source.is_not(None)
_HAS_TOKENS = or_(_INPUT != 0, _CACHED != 0, _WRITTEN != 0, _OUTPUT != 0)
_IS_UNUSUAL = is_unusual()
_HAS_ID = and_(records.c.response_id.is_not(None), records.c.response_id != MASKED)
_HAS_NO_ID = or_(records.c.response_id.is_(None), records.c.response_id == MASKED)
_IS_FIRST = and_(records.c.resumed_from.is_(None), or_(records.c.endpoint.is_(None), ~is_reread()))


_SELECTED = {
    Selection.MISSING: and_(records.c.usage_source == "absent", records.c.outcome == "completed"),
    Selection.INCONSISTENT: and_(
        _IS_REPORTED,
        or_(
            _INPUT < _CACHED + _WRITTEN,
            and_(
                records.c.usage_source == "final",
                or_(records.c.input_tokens.is_(None), records.c.output_tokens.is_(None)),
            ),
        ),
    ),
}


class SqlStep:
    """See Step. The records that started in [since_us, until_us); `connection` is in one snapshot."""

    def __init__(self, connection: Connection, since_us: int, until_us: int) -> None:
        self.since_us, self.until_us = since_us, until_us
        self._connection = connection
        self._is_in = range_of(Filter(since_us, until_us))
        self._is_near = range_of(Filter(since_us - WINDOW_US, until_us))

    def sums(self) -> list[Usage]:
        """See Step.sums."""
        try:
            return self._sums(exact=False)
        except DBAPIError as error:
            if "integer overflow" not in str(error.orig):
                raise
        return self._sums(exact=True)

    def _sums(self, *, exact: bool) -> list[Usage]:
        """`exact`: for numbers whose sum may be beyond 63 bits, at which SQLite's own sum fails; it takes twice as long."""
        flags = {
            "priced": _IS_PRICED,
            "unpriced": and_(~_IS_PRICED, _HAS_TOKENS),
            "completed": records.c.outcome == "completed",
            "inconsistent": _SELECTED[Selection.INCONSISTENT],
            "nameless": _HAS_NO_ID,
        }
        numbers = {
            "input": _INPUT,
            "cached": _CACHED,
            "written": _WRITTEN,
            "output": _OUTPUT,
            "reasoning": func.coalesce(records.c.reasoning_tokens, 0),
            "cost": _COST,
            "starts": records.c.started_us - literal(self.since_us, NUMBER),
        }
        # With a limit, engines look at each record before they sort: else SQLite would sort whole records.
        chosen = (
            select(
                *(records.c[name] for name in (*_KEYS, "attempt")),
                *(case((condition, 1), else_=0).label(name) for name, condition in flags.items()),
                *(number.label(name) for name, number in numbers.items()),
            )
            .where(self._is_in)
            .limit(NO_START)
            .subquery("chosen")
        )
        keys, summed = [chosen.c[name] for name in _KEYS], [chosen.c[name] for name in numbers]
        counts = [
            func.count(),
            *(func.sum(chosen.c[name]) for name in flags),
            func.max(chosen.c.cost),
            func.min(chosen.c.attempt),
            func.max(chosen.c.attempt),
        ]
        columns = [half for one in summed for half in halves(one)] if exact else [func.sum(one) for one in summed]
        first = len(keys) + len(counts)
        return [
            Usage(*line[:first], *(_pairs(line[first:]) if exact else map(int, line[first:])))
            for line in self._connection.execute(select(*keys, *counts, *columns).group_by(*keys))
        ]

    def unusual(self) -> Iterator[bytes]:
        """See Step.unusual."""
        query = select(records.c.record).where(self._is_in, _IS_UNUSUAL)
        return (bytes(record) for (record,) in self._streamed(query.order_by(started, records.c.stream_id)))

    def chosen(self, selection: Selection, usage: Usage, most: int) -> list[str]:
        """See Step.chosen."""
        keys = [_equal(records.c[name], getattr(usage, name)) for name in _KEYS]
        query = select(records.c.stream_id).where(self._is_in, _SELECTED[selection], *keys)
        return list(self._connection.scalars(query.order_by(started, records.c.stream_id).limit(most)))

    def costing_more(self, cost: int, upstream: str | None, model: str | None) -> Iterator[Costly]:
        """See Step.costing_more."""
        is_chosen = and_(_equal(records.c.upstream, upstream), _equal(records.c.model, model), _IS_REPORTED, _IS_PRICED)
        is_above = literal_column(str(cost), NUMBER) < _COST
        query = select(records.c.stream_id, _COST).where(self._is_in, is_chosen, is_above)
        return map(Costly._make, self._streamed(query.order_by(started, records.c.stream_id)))

    def counts_of_equal_ids(self) -> dict[str, int]:
        """See Step.counts_of_equal_ids."""
        ids = select(records.c.response_id, func.count()).where(self._is_near, _HAS_ID, _IS_FIRST)
        several = and_(func.count() > 1, func.max(records.c.started_us) >= self.since_us)
        found = self._connection.execute(ids.group_by(records.c.response_id).having(several))
        return {name: count for name, count in found}  # noqa: C416 - its rows are no tuples

    def with_ids(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """See Step.with_ids."""
        query = select(records.c.response_id, records.c.record).where(*self._has_id(ids))
        ordered = query.order_by(records.c.response_id, started, records.c.stream_id)
        return ((name, bytes(record)) for name, record in self._streamed(ordered))

    def named_with_ids(self, ids: Sequence[str]) -> Iterator[SameId]:
        """See Step.named_with_ids."""
        query = select(*(records.c[name] for name in SameId._fields)).where(*self._has_id(ids))
        return map(SameId._make, self._streamed(query.order_by(records.c.response_id, started, records.c.stream_id)))

    def _has_id(self, ids: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
        return self._is_near, _IS_FIRST, records.c.response_id.in_(ids)

    def without_ids(self) -> Iterator[bytes]:
        """See Step.without_ids."""
        names = ("model", "input_tokens", "output_tokens", "input_cached_tokens", "input_cache_write_tokens")
        near = and_(self._is_near, _HAS_NO_ID, _IS_FIRST, _IS_REPORTED)
        alike = select(*(records.c[name].label(name) for name in names)).where(near)
        alike = alike.group_by(*(records.c[name] for name in names))
        alike = alike.having(and_(func.count() > 1, func.max(records.c.started_us) >= self.since_us))
        found = alike.subquery("alike")
        equal = and_(*(records.c[name].is_not_distinct_from(found.c[name]) for name in names))
        query = select(records.c.record).select_from(records.join(found, equal)).where(near)
        return (bytes(record) for (record,) in self._streamed(query.order_by(started, records.c.stream_id)))

    def attempts(self) -> list[Attempt]:
        """See Step.attempts."""
        known = and_(self._is_near, records.c.attempt.is_not(None), records.c.request_digest.is_not(None))
        # Where attempts have several numbers, one is not the first: that is so of few requests.
        retried = select(records.c.request_digest).where(known, _IS_REPORTED, records.c.attempt != 1)
        columns = [records.c[name] for name in Attempt._fields]
        query = select(*columns).where(known, records.c.request_digest.in_(retried))
        by_digest: dict[str, list[Attempt]] = {}
        attempts = [
            Attempt._make(line) for line in self._connection.execute(query.order_by(started, records.c.stream_id))
        ]
        for one in attempts:
            if one.is_reported:
                by_digest.setdefault(one.request_digest, []).append(one)
        several = {digest for digest, reported in by_digest.items() if self._are_several(reported)}
        return [one for one in attempts if one.request_digest in several]

    def _are_several(self, reported: Sequence[Attempt]) -> bool:
        """Whether attempts of one request, in order of their start, have several numbers, and the last is of this step."""
        return len({one.attempt for one in reported}) > 1 and reported[-1].started_us >= self.since_us

    def ids(self) -> set[str]:
        """See Step.ids."""
        return set(self._connection.scalars(select(records.c.stream_id).where(self._is_in)))

    def _streamed(self, query: Select[Any]) -> Iterator[Any]:
        """The lines of a query, some at a time."""
        yield from self._connection.execution_options(stream_results=True, max_row_buffer=_FETCHED).execute(query)


def end_of_step(connection: Connection, since_us: int, until_us: int) -> int | None:
    """Where the step that begins at `since_us` ends: so that it has about STEP_ROWS records, at most at `until_us`.

    None if no record starts in [since_us, until_us).
    """
    starts = select(started).where(range_of(Filter(since_us, until_us))).order_by(started)
    if connection.execute(starts.limit(1)).first() is None:
        return None
    end = connection.execute(starts.offset(STEP_ROWS).limit(1)).scalar()
    # Records of one moment stay together.
    return until_us if end is None else max(int(end), since_us + 1)


def usage_by_quarter(connection: Connection, since_us: int, until_us: int) -> list[QuarterUsage]:
    """The reported tokens by quarter of an hour."""
    quarter = records.c.started_us // literal_column(str(_QUARTER_US), NUMBER)
    columns = [half for one in (_INPUT, _CACHED, _WRITTEN, _OUTPUT) for half in halves(one)]
    query = select(quarter, records.c.upstream, *columns).group_by(quarter, records.c.upstream)
    found: list[QuarterUsage] = []
    # In stretches of some records, since engines sort all of a stretch; each ends with a quarter.
    while (end := end_of_step(connection, since_us, until_us)) is not None:
        end = min(-(-end // _QUARTER_US) * _QUARTER_US, until_us)
        chosen = query.where(range_of(Filter(since_us, end)), _IS_REPORTED)
        found += (
            QuarterUsage(int(number), upstream, *_pairs(counts))
            for number, upstream, *counts in connection.execute(chosen)
        )
        since_us = end
    return found


def linked_records(connection: Connection, since_us: int, until_us: int) -> Iterator[bytes]:
    """Resumed streams, and the records that they may continue, as JSON in no order."""
    query = select(records.c.record).where(range_of(Filter(since_us, until_us)), may_be_continued())
    return (bytes(record) for (record,) in connection.execute(query))


def has_resumed(connection: Connection, since_us: int, until_us: int) -> bool:
    """Whether a record of this time is a resumed stream."""
    # With a sign, so that SQLite does not take the index of the starts, which is the larger one.
    start = literal_column("+records.started_us", NUMBER)
    chosen = and_(start >= since_us, start < until_us, in_partitions(since_us, until_us))
    # Two queries, each with an index of its own.
    conditions = records.c.resumed_from.is_not(None), is_reread()
    return any(
        connection.execute(select(records.c.stream_id).where(chosen, one).limit(1)).first() is not None
        for one in conditions
    )


def sample(connection: Connection, since_us: int, until_us: int, digits: int) -> Iterator[bytes]:
    """The records that reported usage and whose ids end with so many zeros, as JSON: of ids that are random, one of
    16**digits. 0: all.
    """
    end = func.substr(records.c.stream_id, 37 - digits, digits)
    chosen = and_(range_of(Filter(since_us, until_us)), _IS_REPORTED)
    query = (
        select(records.c.record).where(chosen, end == "0" * digits)
        if digits
        else select(records.c.record).where(chosen)
    )
    streamed = connection.execution_options(stream_results=True, max_row_buffer=_FETCHED)
    return (bytes(record) for (record,) in streamed.execute(query.order_by(started, records.c.stream_id)))


def _pairs(counts: Sequence[Any]) -> Iterator[int]:
    """The sums of pairs of halves."""
    return (joined_halves(high, low) or 0 for high, low in zip(counts[::2], counts[1::2], strict=True))


def _equal(column: Expression, value: str | None) -> ColumnElement[bool]:
    return column.is_(None) if value is None else column == value
