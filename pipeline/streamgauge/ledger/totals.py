"""Totals over a ledger. Usage counts once for an origin and the resumed streams that continue it.

All steps read one snapshot. Resumed streams, and the records that they may continue, are read and counted by
`resumption.py`. The usage that counts in place of their own goes to a temporary table. One query joins that table and adds
up the chosen records. The usage of an origin does not depend on the filter: it is the same if its resumed streams are not
chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    and_,
    case,
    func,
    insert,
    literal_column,
    or_,
    select,
    union_all,
)

from streamgauge.core.safe_values import MASKED
from streamgauge.core.token_kinds import REPORTED
from streamgauge.ledger.contract import ALL_RECORDS, Filter, Total, add_totals, sort_totals
from streamgauge.ledger.keys import Expression, Keys, condition_of, range_of
from streamgauge.ledger.resumption import Counted, UsagePart, continued_streams, counted
from streamgauge.ledger.row import KINDS, kinds_of
from streamgauge.ledger.schema import NUMBER, TEXT, TOKENS, is_reread, records, started

_COLUMNS = [records.c[name] for name in UsagePart._fields]
# Two conditions, each with an index: one of both would have none.
_RESUMED = (
    select(*_COLUMNS).where(records.c.resumed_from.is_not(None)),
    select(*_COLUMNS).where(is_reread(), records.c.resumed_from.is_(None)),
)

# The columns that totals have had since the first version, those that are added up besides, and all of them.
_FIRST = TOKENS[:5]
_SUMMED = (*_FIRST, *KINDS, "cost_input", "cost_output")
_COUNTED = Table(
    "counted",
    MetaData(),
    Column("stream_id", TEXT, primary_key=True),
    Column("usage_source", TEXT),
    Column("continues", NUMBER, nullable=False),  # 1 for a resumed stream whose usage counts with its origin
    *(Column(name, NUMBER) for name in _SUMMED),
    prefixes=["TEMPORARY"],
)
# SQLite's sum fails beyond 63 bits: the high and the low halves are added up separately. Literals, since PostgreSQL shifts
# by integers, and parameters would be bigints.
_HALF_BITS = 32
_SHIFT: ColumnElement[int] = literal_column(str(_HALF_BITS), NUMBER)
_LOW: ColumnElement[int] = literal_column(str(2**_HALF_BITS - 1), NUMBER)


def totals_of(
    connection: Connection, by: Sequence[str], chosen: Filter = ALL_RECORDS, newest_first: bool = False
) -> list[Total]:
    """Totals by `by`, whose keys the caller has checked. The connection is in a transaction of its own, which the caller
    rolls back: that removes the temporary table.
    """
    keys = Keys(connection, chosen)
    has_resumed = _count_resumed(connection)
    # The tenants of credentials are put in here: in SQL they would be a condition for each of thousands.
    is_mapped = "tenant" in by and bool(chosen.tenants)
    grouped = [*by, "credential_id"] if is_mapped else by
    lines = connection.execute(_query(grouped, chosen, keys, has_resumed)).all()
    totals = [_total(line, len(grouped)) for line in lines]
    if not is_mapped:
        return sort_totals(totals, newest_first=newest_first)
    return add_totals([_with_tenants(totals, by.index("tenant"), dict(chosen.tenants))], newest_first=newest_first)


def _with_tenants(totals: Sequence[Total], index: int, tenants: Mapping[str, str]) -> list[Total]:
    """Totals whose last key is the credential, without it, each under its tenant (the key at `index`)."""
    named = []
    for total in totals:
        *values, credential = total.keys
        if values[index] is None:
            values[index] = None if credential is None else tenants.get(str(credential))
        named.append(replace(total, keys=tuple(values)))
    return named


def _count_resumed(connection: Connection) -> bool:
    """Put what counts for continued streams into the temporary table. False if there are none: then there is no table."""
    resumed = [UsagePart._make(row) for chosen in _RESUMED for row in connection.execute(chosen)]
    if not resumed:
        return False
    parts = (UsagePart._make(row) for row in connection.execute(_parts()))
    lines = [
        _line(record, number)
        for stream in continued_streams(parts, resumed)
        for number, record in enumerate(counted(stream))
    ]
    _COUNTED.create(connection, checkfirst=False)
    if lines:
        connection.execute(insert(_COUNTED), lines)
    return True


def _parts() -> Any:
    """Resumed streams, and all records that they may continue, in order of their start."""
    is_resumed = or_(records.c.resumed_from.is_not(None), is_reread())
    return (
        select(*_COLUMNS)
        .where(may_be_continued())
        .order_by(started, case((is_resumed, 1), else_=0), records.c.stream_id)
    )


def may_be_continued() -> ColumnElement[bool]:
    """Whether a record is a resumed stream, or shares a request digest or a response id with one.

    An event's id links records only if the resumed stream has no request digest, and only if the id is not a number.
    """
    links = select(records.c.request_digest, records.c.response_id, records.c.resumed_from)
    resumed = union_all(
        links.where(records.c.resumed_from.is_not(None)),
        links.where(is_reread(), records.c.resumed_from.is_(None)),
    ).cte("resumed")
    # Digits are removed from both ends: text remains unless the id is a number.
    is_word = func.trim(resumed.c.resumed_from, "0123456789") != ""
    return or_(
        records.c.resumed_from.is_not(None),
        is_reread(),
        records.c.request_digest.in_(select(resumed.c.request_digest)),
        records.c.response_id.in_(select(resumed.c.response_id).where(resumed.c.response_id != MASKED)),
        records.c.last_event_id.in_(
            select(resumed.c.resumed_from).where(and_(resumed.c.request_digest.is_(None), is_word))
        ),
    )


def _line(record: Counted, number: int) -> dict[str, Any]:
    """A row of the temporary table. `place`: 0 for the first record of a stream."""
    values = record._asdict()
    reported = {key: values[name] for name, key in REPORTED.items() if values[name] is not None}
    columns = {**values, **kinds_of(reported), "continues": int(number > 0)}
    return {column.name: columns[column.name] for column in _COUNTED.columns}


def _query(by: Sequence[str], chosen: Filter, keys: Keys, has_resumed: bool) -> Any:
    def column(name: str) -> Expression:
        """The record's own value, or its value in the temporary table if the record has a row there."""
        own = records.c[name] if name in records.c and name not in ("tenant", "day") else keys.expression(name)
        if not has_resumed or name not in _COUNTED.c:
            return own
        return case((_COUNTED.c.stream_id.is_(None), own), else_=_COUNTED.c[name])

    continues: Any = func.coalesce(_COUNTED.c.continues, 0) if has_resumed else 0
    source = records.outerjoin(_COUNTED, _COUNTED.c.stream_id == records.c.stream_id) if has_resumed else records
    has_usage = or_(*(column(name).is_not(None) for name in _FIRST))
    has_price = or_(column("cost_input").is_not(None), column("cost_output").is_not(None))
    streams = (
        select(
            *(column(key).label(f"key_{number}") for number, key in enumerate(by)),
            *(column(name).label(name) for name in _SUMMED),
            case((has_usage, 1), else_=0).label("with_usage"),
            case((or_(has_usage, continues == 1), 0), else_=1).label("without_usage"),
            case((and_(has_usage, ~has_price), 1), else_=0).label("without_price"),
            case((has_price, 1), else_=0).label("with_cost"),
            case((or_(has_price, continues == 1), 0), else_=1).label("without_cost"),
            records.c.started_us,
            records.c.wait_us,
        )
        .select_from(source)
        .where(range_of(chosen), condition_of(chosen, column))
        .subquery("streams")
    )
    names = [streams.c[f"key_{number}"] for number in range(len(by))]
    return select(
        *names,
        func.count(),
        *(
            func.sum(streams.c[name])
            for name in ("with_usage", "without_usage", "without_price", "with_cost", "without_cost")
        ),
        func.max(streams.c.wait_us),
        func.max(streams.c.started_us),
        func.min(streams.c.started_us),
        *(half for name in _SUMMED for half in halves(streams.c[name])),
    ).group_by(*names)


def halves(column: ColumnElement[int]) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """The sums of the high and the low halves of whole numbers, which `joined_halves` adds up."""
    return func.sum(column.bitwise_rshift(_SHIFT)), func.sum(column.bitwise_and(_LOW))


def _total(line: Sequence[Any], keys: int) -> Total:
    streams, with_usage, without_usage, without_price, with_cost, without_cost, wait, last, first, *halves = line[keys:]
    sums = [joined_halves(high, low) for high, low in zip(halves[::2], halves[1::2], strict=True)]
    named: dict[str, Any] = dict(zip(_SUMMED, sums, strict=True))
    costs = [cost for cost in (named["cost_input"], named["cost_output"]) if cost is not None]
    return Total(
        tuple(line[:keys]),
        streams,
        int(with_usage),
        **{name: named[name] for name in _FIRST},
        without_usage=int(without_usage),
        kinds={name: named[name] for name in KINDS if named[name] is not None},
        cost=sum(costs) if costs else None,
        without_price=int(without_price),
        with_cost=int(with_cost),
        without_cost=int(without_cost),
        longest_wait_us=wait,
        last_us=last,
        first_us=first,
    )


def joined_halves(high: Any, low: Any) -> int | None:
    """The sum of whole numbers from the two sums of `halves`; None of no numbers."""
    return None if high is None or low is None else (int(high) << _HALF_BITS) + int(low)
