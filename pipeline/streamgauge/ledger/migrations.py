"""Makes the tables of a ledger, and converts tables of an earlier version in place, in one transaction.

A step adds the columns of the later versions, and fills them from the records' own JSON. Records of earlier versions keep a
cost of null until `ledger price` gives them one. In PostgreSQL the rows are then copied into a table with
partitions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Index, bindparam, select, text, update

from streamgauge.core.formats.json_text import parse
from streamgauge.core.token_kinds import REPORTED
from streamgauge.ledger import partitions
from streamgauge.ledger.row import (
    MAX_ATTEMPT,
    MAX_TOKENS,
    PRICE,
    UNPRICED,
    attributes_column,
    kinds_of,
    region_of,
    wait_of,
)
from streamgauge.ledger.schema import (
    ADDED,
    BY_START,
    INDEXES,
    REREAD,
    SCHEMA_VERSION,
    TOKENS,
    UNUSUAL,
    add_column,
    audit_runs,
    earlier_costs,
    metadata,
    records,
)

# Records that are converted at a time (rows): about 2 MB, so that memory does not grow with the ledger.
PAGE_ROWS = 1_000
# The first version with partitions in PostgreSQL, and the first one with the table of earlier costs.
_PARTITIONED, _WITH_COSTS = 6, 8
# The first version that has these indexes as they are now: a table of an earlier version gets them again.
_INDEXES: Mapping[int, Sequence[Index]] = {
    _PARTITIONED: [index for index in INDEXES if index not in (*BY_START, REREAD, UNUSUAL)],
    7: [REREAD],
    9: [*BY_START, UNUSUAL],
}
# Columns for which records of earlier versions have nothing.
_NOT_FILLED = frozenset(ADDED[7])


def bring_up_to_date(connection: Connection, version: int) -> None:
    """Make the tables of an empty database (version 0), or convert the tables of `version`; leave others unchanged."""
    if version == 0:
        metadata.create_all(connection, checkfirst=False)
        if _has_partitions(connection):
            partitions.furnish(connection)
    elif 0 < version < SCHEMA_VERSION:
        _convert(connection, version)


def _convert(connection: Connection, version: int) -> None:
    added = [name for later in ADDED if later > version for name in ADDED[later]]
    for name in added:
        connection.execute(text(add_column(name, connection.dialect)))
    if filled := [name for name in added if name not in _NOT_FILLED]:
        _fill(connection, filled)
    made = [index for since, indexes in _INDEXES.items() if since > version for index in indexes]
    for index in made:
        connection.execute(text(f"DROP INDEX IF EXISTS {index.name}"))
    if version < _PARTITIONED and _has_partitions(connection):
        partitions.partition(connection)  # makes the indexes, too
    else:
        for index in made:
            index.create(connection, checkfirst=False)
    audit_runs.create(connection, checkfirst=True)
    if version < _WITH_COSTS:
        earlier_costs.create(connection, checkfirst=False)
        if _has_partitions(connection):
            partitions.furnish_costs(connection)


def _has_partitions(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def _fill(connection: Connection, added: Sequence[str]) -> None:
    page_of = select(records.c.stream_id, records.c.record).order_by(records.c.stream_id).limit(PAGE_ROWS)
    fill = (
        update(records)
        .where(records.c.stream_id == bindparam("of_stream"))
        .values({name: bindparam(name) for name in added})
    )
    last = ""
    while rows := connection.execute(page_of.where(records.c.stream_id > last)).all():
        last = rows[-1].stream_id
        connection.execute(fill, [{"of_stream": row.stream_id, **_values(row.record, added)} for row in rows])


def _values(record: bytes, columns: Sequence[str]) -> dict[str, Any]:
    """The values of the added columns, from a stored record.

    A value of another type becomes None: earlier versions did not check it.
    """
    known = _object(parse(record))
    usage = _object(known.get("usage"))
    tokens = {name: _whole(usage.get(name), MAX_TOKENS) for name in TOKENS}
    timing = _object(known.get("timing"))
    reported = {REPORTED[name]: count for name, count in tokens.items() if name in REPORTED and count is not None}
    derived: dict[str, Any] = {
        **dict.fromkeys((*PRICE, UNPRICED)),
        **tokens,
        **kinds_of(reported),
        "attempt": _whole(known.get("attempt"), MAX_ATTEMPT),
        "attributes": _attributes(known.get("attributes")),
        "inference_geo": region_of(_object(usage.get("raw"))),
        "wait_us": wait_of(_seconds(timing.get("first_token_s")), _seconds(timing.get("end_s"))),
    }
    return {name: derived[name] if name in derived else _text(known.get(name)) for name in columns}


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _attributes(value: object) -> str | None:
    return attributes_column({name: text for name, text in _object(value).items() if isinstance(text, str)})


def _whole(value: object, largest: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest else None


def _seconds(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None
