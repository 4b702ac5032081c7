"""Totals over a ledger's file. Usage counts once for an origin and the resumed streams that continue it.

All steps read one snapshot. Resumed streams, and the records that they may continue, are read and counted by
`resumption.py`. The usage that counts in place of their own goes to a temporary table. One query joins that table and adds
up the chosen records. The usage of an origin does not depend on the filter: it is the same if its resumed streams are not
chosen.
"""

from collections.abc import Sequence

from streamgauge.ledger.contract import ALL_RECORDS, Filter, Total
from streamgauge.ledger.resumption import Counted, UsagePart, count_once
from streamgauge.ledger.sqlite_query import condition_of, expression_of, range_of
from streamgauge.ledger.sqlite_schema import NO_START, Database

_RESUMED = f"SELECT {', '.join(UsagePart._fields)} FROM records WHERE resumed_from IS NOT NULL"
# Resumed streams, and all records that share a request digest or a response id with one. An event's id links records
# only if the resumed stream has no request digest, and only if the id is not a number.
_PARTS = f"""
    WITH resumed AS (SELECT request_digest, response_id, resumed_from FROM records WHERE resumed_from IS NOT NULL)
    SELECT {", ".join(UsagePart._fields)} FROM records
    WHERE resumed_from IS NOT NULL
       OR request_digest IN (SELECT request_digest FROM resumed)
       OR response_id IN (SELECT response_id FROM resumed)
       OR last_event_id IN (SELECT resumed_from FROM resumed WHERE request_digest IS NULL AND resumed_from GLOB '*[^0-9]*')
    ORDER BY coalesce(started_us, {NO_START}), CASE WHEN resumed_from IS NULL THEN 0 ELSE 1 END, stream_id
"""
_COUNTED = """
    CREATE TEMPORARY TABLE counted (
        stream_id TEXT NOT NULL PRIMARY KEY, usage_source TEXT,
        input_tokens INTEGER, output_tokens INTEGER, total_tokens INTEGER,
        input_cached_tokens INTEGER, reasoning_tokens INTEGER
    )
"""
_COUNT = f"INSERT INTO counted ({', '.join(Counted._fields)}) VALUES ({', '.join('?' * len(Counted._fields))})"

_SUMMED = ("input_tokens", "output_tokens", "total_tokens", "input_cached_tokens", "reasoning_tokens")
# SQLite's sum fails beyond 63 bits: the high and the low halves are added up separately.
_HALF_BITS = 32
_LOW = 2**_HALF_BITS - 1


def totals_of(
    database: Database, by: Sequence[str], chosen: Filter = ALL_RECORDS, newest_first: bool = False
) -> list[Total]:
    """Totals by `by`, whose keys the caller has checked. Needs a connection of its own that is not in a transaction."""
    database.execute("PRAGMA temp_store = MEMORY")
    database.execute(_COUNTED)
    database.execute("BEGIN")
    resumed = [UsagePart._make(row) for row in database.execute(_RESUMED)]
    if resumed:
        parts = (UsagePart._make(row) for row in database.execute(_PARTS))
        database.executemany(_COUNT, count_once(parts, resumed))
    query, values = _query(by, chosen, newest_first)
    lines = database.execute(query, values).fetchall()
    database.execute("COMMIT")
    return [_total(line, len(by)) for line in lines]


def _query(by: Sequence[str], chosen: Filter, newest_first: bool) -> tuple[str, list[str | int | None]]:
    keys = ", ".join(map(_quoted, by))
    compared = (key for key, _ in chosen.where)
    columns = ", ".join(_column(name) for name in dict.fromkeys((*by, *_SUMMED, *compared, "started_us")))
    halves = ", ".join(f"sum({name} >> {_HALF_BITS}), sum({name} & {_LOW})" for name in _SUMMED)
    order = ", ".join(f"{_quoted(key)} NULLS LAST" for key in by)
    if newest_first:
        order = f"max(started_us) DESC NULLS LAST, {order}"
    (in_range, bounds), (condition, values) = range_of(chosen), condition_of(chosen, _quoted)
    query = f"""
        SELECT {keys}, count(*), count(coalesce({", ".join(_SUMMED)})), {halves}
        FROM (
            SELECT {columns} FROM records LEFT JOIN counted ON counted.stream_id = records.stream_id WHERE {in_range}
        ) AS streams
        WHERE {condition} GROUP BY {keys} ORDER BY {order}
    """
    return query, [*bounds, *values]


def _column(name: str) -> str:
    """The SQL of a column: the record's own value, or the one in `counted` if the record has a row there."""
    if name not in Counted._fields:
        return f"{'records.started_us' if name == 'started_us' else expression_of(name)} AS {_quoted(name)}"
    return f"CASE WHEN counted.stream_id IS NULL THEN records.{name} ELSE counted.{name} END AS {name}"


def _quoted(name: str) -> str:
    """The name of a column; the name of an attribute may be a word of SQL."""
    return f'"{name}"'


def _total(line: Sequence[object], keys: int) -> Total:
    names, streams, with_usage, *halves = line[:keys], line[keys], line[keys + 1], *line[keys + 2 :]
    sums = [_joined(high, low) for high, low in zip(halves[::2], halves[1::2], strict=True)]
    return Total(tuple(map(_value, names)), int(str(streams)), int(str(with_usage)), *sums)


def _value(key: object) -> str | int | None:
    return key if key is None or isinstance(key, int) else str(key)


def _joined(high: object, low: object) -> int | None:
    if not isinstance(high, int) or not isinstance(low, int):
        return None
    return (high << _HALF_BITS) + low
