"""The SQL of keys and filters: what totals are grouped by, and which records are chosen.

A day in another time zone than UTC is computed from the start: the zone's offsets in the range of starts become a CASE
expression, so that both databases agree with Python's zone data.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Float,
    and_,
    case,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from streamgauge.core.safe_values import is_attribute_name
from streamgauge.ledger.contract import KEYS, MEASURES, NUMBER_KEYS, Comparison, Filter, Sign
from streamgauge.ledger.partitions import HIGHEST, LOWEST, ids_between
from streamgauge.ledger.schema import NO_START, NUMBER, TEXT, records, started
from streamgauge.ledger.zones import zone_of

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
# Limits of Python's dates, a day inside of them, since zones shift them (us).
_FIRST = -62_135_510_400 * _SECOND
_LAST = 253_402_214_400 * _SECOND

Expression = ColumnElement[Any]


class UtcDate(GenericFunction[str]):
    """The UTC date of a time in whole seconds since 1970, as YYYY-MM-DD."""

    type = TEXT
    inherit_cache = True


@compiles(UtcDate, "sqlite")
def _sqlite_date(element: UtcDate, compiler: Any, **options: Any) -> str:
    return f"date({compiler.process(element.clauses, **options)}, 'unixepoch')"


@compiles(UtcDate, "postgresql")
def _postgresql_date(element: UtcDate, compiler: Any, **options: Any) -> str:
    return f"to_char(to_timestamp({compiler.process(element.clauses, **options)}) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"


class InPartitions(GenericFunction[bool]):
    """Whether an id lies between two texts, or names no time: with it PostgreSQL reads only the partitions of these days.

    It is added to a condition on the start, which alone chooses. SQLite has no partitions: there it is always true.
    """

    type = Boolean()
    inherit_cache = True


@compiles(InPartitions, "sqlite")
def _sqlite_partitions(*_: Any, **__: Any) -> str:
    return "1"


@compiles(InPartitions, "postgresql")
def _postgresql_partitions(element: InPartitions, compiler: Any, **options: Any) -> str:
    stream_id, low, high = (compiler.process(clause, **options) for clause in element.clauses)
    own = f"{stream_id} >= {low} AND {stream_id} < {high}"
    return f"({own} OR {stream_id} < '{LOWEST}' OR {stream_id} >= '{HIGHEST}')"


def in_partitions(since_us: int | None, until_us: int | None) -> ColumnElement[bool]:
    """The condition that limits a query of starts in [since_us, until_us) to the partitions that hold them."""
    return InPartitions(records.c.stream_id, *(literal(bound, TEXT) for bound in ids_between(since_us, until_us)))


class InRecord(GenericFunction[float]):
    """A number in the JSON of the column `record`. Its second argument is the path, with dots: timing.end_s."""

    type = Float()
    inherit_cache = True


@compiles(InRecord, "sqlite")
def _sqlite_number(element: InRecord, compiler: Any, **options: Any) -> str:
    record, path = (compiler.process(clause, **options) for clause in element.clauses)
    return f"json_extract(CAST({record} AS TEXT), '$.' || {path})"  # a blob would be read as SQLite's binary JSON


@compiles(InRecord, "postgresql")
def _postgresql_number(element: InRecord, compiler: Any, **options: Any) -> str:
    record, path = (compiler.process(clause, **options) for clause in element.clauses)
    return f"(convert_from({record}, 'UTF8')::json #>> string_to_array({path}, '.'))::double precision"


# Where the record has the numbers that are no columns.
_PATHS = {"ttft": "timing.first_token_s", "duration": "timing.end_s", "status": "status_code"}
_SIGNS: Mapping[Sign, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Keys:
    """The SQL of each key for one filter. The caller has checked the keys' names."""

    def __init__(self, connection: Connection, chosen: Filter) -> None:
        self._chosen = chosen
        self._day = records.c.day if chosen.timezone == "UTC" else _local_day(connection, chosen)

    def expression(self, key: str) -> Expression:
        """The SQL of a key on the table `records`: its column, else the attribute of this name.

        For `tenant` it is the record's own tenant: `condition_of` and totals look at the filter's tenants.
        """
        if key == "day":
            return self._day
        if key == "month":
            return func.substr(self._day, 1, 7, type_=TEXT)
        return records.c[key] if key in KEYS else attribute(key)


def attribute(name: str) -> Expression:
    """The value of an attribute."""
    value: Expression = records.c.attributes[name].as_string()
    return value


def has_attribute(connection: Connection, name: str) -> bool:
    """Whether a record has this attribute. False for any text that cannot be the name of one."""
    if name in records.c or name in KEYS or not is_attribute_name(name):
        return False
    return connection.execute(select(literal(1)).where(attribute(name).is_not(None)).limit(1)).first() is not None


def condition_of(chosen: Filter, expression: Callable[[str], Expression]) -> ColumnElement[bool]:
    """The condition of a filter's `where`. `expression`: gives the SQL of a key."""
    by_key: dict[str, list[str | int | None]] = {}
    for key, value in chosen.where:
        by_key.setdefault(key, []).append(value)
    named = by_key.pop("tenant", []) if chosen.tenants else []
    conditions = [_any_of(expression(key), values) for key, values in by_key.items()]
    compared = [_compared(chosen, condition, expression) for condition in chosen.compared]
    return and_(true(), *conditions, *([_has_tenant(chosen, named)] if named else []), *compared)


def _compared(chosen: Filter, condition: Comparison, expression: Callable[[str], Expression]) -> ColumnElement[bool]:
    key, sign, value = condition
    if sign == "!=" and key not in MEASURES:
        text = None if value is None else str(value) if key not in NUMBER_KEYS else int(value)
        is_mapped = key == "tenant" and chosen.tenants
        equal = _has_tenant(chosen, [text]) if is_mapped else _any_of(expression(key), [text])
        return case((equal, 0), else_=1) == literal_column("1", NUMBER)  # null is different from every value
    measured = _measure(key)
    if sign in ("=", "!="):
        equal = measured.is_(None) if value is None else measured == value
        return equal if sign == "=" else case((equal, 0), else_=1) == literal_column("1", NUMBER)
    holds: ColumnElement[bool] = _SIGNS[sign](measured, value)
    if key == "ttft" and value is not None:
        # The wait is the time to the first token where there is one. The database compares it without reading the record.
        return and_(_SIGNS[sign](records.c.wait_us, round(float(value) * _SECOND)), holds)
    return holds


def _measure(key: str) -> Expression:
    """The SQL of one of MEASURES."""
    if key == "cost":
        sides = records.c.cost_input, records.c.cost_output
        return case(
            (and_(*(side.is_(None) for side in sides)), None),
            else_=func.coalesce(sides[0], 0) + func.coalesce(sides[1], 0),
        )
    return InRecord(records.c.record, literal(_PATHS[key], TEXT))


def _has_tenant(chosen: Filter, values: list[str | int | None]) -> ColumnElement[bool]:
    """Whether a record's tenant, its own or its credential's, is among `values`."""
    ids = [credential for credential, tenant in chosen.tenants if tenant in values]
    by_credential: ColumnElement[bool] = records.c.credential_id.in_(ids)
    if None in values:
        others = records.c.credential_id.not_in([credential for credential, _ in chosen.tenants])
        by_credential = or_(by_credential, records.c.credential_id.is_(None), others)
    own = records.c.tenant.in_([value for value in values if value is not None])
    return or_(own, and_(records.c.tenant.is_(None), by_credential))


def _any_of(expression: Expression, values: list[str | int | None]) -> ColumnElement[bool]:
    known = [value for value in values if value is not None]
    conditions = [expression.in_(known)] if known else []
    if len(known) < len(values):
        conditions.append(expression.is_(None))
    return or_(*conditions)


def range_of(chosen: Filter) -> ColumnElement[bool]:
    """The condition of a filter's time range. A record without a start is in no range."""
    conditions: list[ColumnElement[bool]] = []
    if chosen.since_us is not None:
        conditions.append(started >= chosen.since_us)
    if chosen.until_us is not None:
        conditions.append(started < chosen.until_us)
    if conditions:
        conditions.append(records.c.started_us.is_not(None))
        conditions.append(in_partitions(chosen.since_us, chosen.until_us))
    return and_(true(), *conditions)


def _local_day(connection: Connection, chosen: Filter) -> Expression:
    begin, end = _starts(connection, chosen)
    if begin > end:
        return records.c.day  # no chosen record has a start
    offsets = list(_offsets(zone_of(chosen.timezone), begin, end))
    *earlier, (_, newest) = offsets
    until = [offset_begin for offset_begin, _ in offsets[1:]]
    shift: Any = (
        case(
            *((records.c.started_us < time, offset) for time, (_, offset) in zip(until, earlier, strict=True)),
            else_=newest,
        )
        if earlier
        else newest
    )
    shifted = records.c.started_us + shift
    # A division rounds towards zero; times before 1970 must round down.
    return UtcDate((shifted - ((shifted % _SECOND) + _SECOND) % _SECOND) // literal_column(str(_SECOND), NUMBER))


def _starts(connection: Connection, chosen: Filter) -> tuple[int, int]:
    """A range that holds the starts of all chosen records (us), read by the index; empty if no record has a start."""
    dated = select(started).select_from(records).where(started < NO_START).limit(1)
    first = connection.execute(dated.order_by(started, records.c.stream_id)).scalar()
    last = connection.execute(dated.order_by(started.desc(), records.c.stream_id.desc())).scalar()
    if first is None or last is None:
        return 1, 0
    begin = first if chosen.since_us is None else max(first, chosen.since_us)
    end = last if chosen.until_us is None else min(last, chosen.until_us)
    return max(begin, _FIRST), min(end, _LAST)


def _offsets(zone: tzinfo, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The offsets from UTC (us) that a zone has between two times, each with the time (us) from which it holds."""
    at, offset = first, _offset(zone, first)
    yield at, offset
    while at < last:
        following = min(at + _DAY, last)
        if _offset(zone, following) != offset:
            low, high = at, following  # the first second with another offset
            while high - low > _SECOND:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            change = high - high % _SECOND
            offset = _offset(zone, high)
            yield change, offset
        at = following


def _offset(zone: tzinfo, time_us: int) -> int:
    offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).astimezone(zone).utcoffset()
    return 0 if offset is None else offset // timedelta(microseconds=1)
