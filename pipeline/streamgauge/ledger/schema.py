"""The tables of a ledger, for SQLite and PostgreSQL.

Version 2 added the columns that link a resumed stream to its origin, and the retries of one request to each other.
Version 3 added the tap, and the tokens that are part of input or output. Version 4 added the attributes. Version 5
added costs, disjoint kinds of tokens, the trace id, the region and the wait, and the table of kept audits. Version 6
partitions the table of PostgreSQL by day (`partitions.py`). Version 7 added the upstream's host, and why
there is no cost. Version 8 added the table of earlier costs. Version 9 added columns to the index of the starts, and the
index of unusual records. `migrations.py` converts earlier versions.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ColumnElement,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    literal_column,
    or_,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn
from sqlalchemy.sql.functions import GenericFunction

from streamgauge.core.resumption import STORED_ENDPOINTS
from streamgauge.ledger.row import KINDS, PRICE, UNPRICED

SCHEMA_VERSION = 9

# Stands for a missing start: it sorts after every start.
NO_START = 2**63 - 1

# Text is ordered by its code points in both databases.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
NUMBER = Integer().with_variant(BigInteger(), "postgresql")
# The text is JSON already, so the engines (sqlite.py, postgresql.py) neither encode nor decode it.
_JSON_TEXT = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

# The numbers that a provider reports.
TOKENS = (
    "input_tokens", "output_tokens", "total_tokens", "input_cached_tokens", "reasoning_tokens",
    "input_cache_write_tokens", "input_cache_write_1h_tokens", "audio_input_tokens", "audio_output_tokens",
)  # fmt: skip

# The columns that each version added to the records (versions 6, 8 and 9: none). A ledger of an earlier version gets them
# from the records' own JSON; its records have no values for the columns of version 7.
ADDED: Mapping[int, tuple[str, ...]] = {
    2: ("request_digest", "response_id", "last_event_id", "attempt"),
    3: ("tap", "input_cached_tokens", "reasoning_tokens"),
    4: ("attributes",),
    5: ("trace_id", "inference_geo", "wait_us", *TOKENS[5:], *KINDS, *PRICE),
    7: ("upstream_host", UNPRICED),
}

metadata = MetaData()
records = Table(
    "records",
    metadata,
    Column("stream_id", TEXT, nullable=False, unique=True),
    Column("started_us", NUMBER),
    *(
        Column(name, TEXT, nullable=name != "outcome")
        for name in (
            "day", "model", "request_model", "response_model", "tap", "upstream", "dialect", "endpoint", "outcome",
            "finish_reason", "tenant", "credential_id", "service_tier", "usage_source", "request_digest", "response_id",
            "last_event_id", "resumed_from",
        )
    ),
    Column("attempt", NUMBER),
    Column("attributes", _JSON_TEXT),
    *(Column(name, NUMBER) for name in TOKENS[:5]),
    Column("trace_id", TEXT),
    Column("inference_geo", TEXT),
    Column("wait_us", NUMBER),
    *(Column(name, NUMBER) for name in (*TOKENS[5:], *KINDS)),
    Column("upstream_host", TEXT),
    Column("cost_input", NUMBER),
    Column("cost_output", NUMBER),
    Column("price_source", TEXT),
    Column("price_date", TEXT),
    Column(UNPRICED, TEXT),
    Column("record", LargeBinary, nullable=False),
    postgresql_partition_by="RANGE (stream_id)",
)  # fmt: skip

# Results of audits that were kept, as the JSON of `audit/runs.py`, by their numbers from 1 on.
audit_runs = Table(
    "audit_runs",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("run", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)

# The costs that records had before they got another one: of a stream, until a time (us since 1970, UTC). `reason`: why it was
# replaced, as the operator says; null for a record that had no cost. `cost`: the JSON of the record's `cost`.
earlier_costs = Table(
    "earlier_costs",
    metadata,
    Column("stream_id", TEXT, primary_key=True),
    Column("replaced_us", NUMBER, primary_key=True, autoincrement=False),
    Column("reason", TEXT),
    Column("cost_input", NUMBER),
    Column("cost_output", NUMBER),
    Column(UNPRICED, TEXT),
    Column("cost", TEXT, nullable=False),
)

# When a record started; records without a start come last. A query uses the index only by exactly this expression.
started: ColumnElement[int] = literal_column(f"coalesce(records.started_us, {NO_START})", NUMBER)


def is_reread() -> ColumnElement[bool]:
    """Whether a record is a stored response that was read again. A query uses its index only by exactly this expression."""
    conditions: list[ColumnElement[bool]] = [
        records.c.endpoint == literal_column(f"'{endpoint}'", TEXT) for endpoint in STORED_ENDPOINTS
    ]
    return or_(*conditions)


# The members of a usage without parts and without faults in its counts, around its source: `core/record.py` encodes them in
# this order. A record of another form is looked at. They begin with a letter, of which a record has fewer than quotation
# marks: SQLite compares at each place with the first byte.
_USUAL = b'parts":[],"source":"', b'","identity_failed":null,"bad_values":0'


class UsualPlace(GenericFunction[int]):
    """Where a record's JSON has the members of a usage without parts and faults: 0 if nowhere, null if none is reported."""

    type = NUMBER
    inherit_cache = True


def is_unusual() -> ColumnElement[bool]:
    """Whether a record reported usage with parts, or with faults in its counts. A query uses its index only by exactly this
    expression.
    """
    return UsualPlace(records.c.usage_source, records.c.record) == literal_column("0", NUMBER)


def _usual_place(element: UsualPlace, compiler: Any, place: str, options: Mapping[str, Any]) -> str:
    """`place`: the SQL of the place of some bytes in a record, both of which it names."""
    source, record = (compiler.process(clause, **options) for clause in element.clauses)
    places = (
        f"WHEN '{name}' THEN {place.format(usual=name.encode().join(_USUAL).hex(), record=record)}"
        for name in ("final", "partial")
    )
    return f"CASE {source} {' '.join(places)} END"


@compiles(UsualPlace, "sqlite")
def _sqlite_place(element: UsualPlace, compiler: Any, **options: Any) -> str:
    return _usual_place(element, compiler, "instr({record}, x'{usual}')", options)


@compiles(UsualPlace, "postgresql")
def _postgresql_place(element: UsualPlace, compiler: Any, **options: Any) -> str:
    return _usual_place(element, compiler, "position('\\x{usual}'::bytea IN {record})", options)


# In SQLite a record of some kilobytes lies in its row, so that each row is a page of the file. The index of the starts has
# copies of all columns by which audits and totals add up, and lists are sorted: these read no row. The columns in which
# nearly all records have nothing cost a byte.
COVERED = (
    "started_us", "upstream", "model", "tenant", "credential_id", "service_tier", "usage_source", "outcome", "endpoint",
    "attempt", "request_digest", "response_id", "resumed_from", "last_event_id", "wait_us", "price_source", "cost_input",
    "cost_output", *TOKENS[:6], *KINDS, "day",
)  # fmt: skip
_START: ColumnElement[int] = literal_column(f"coalesce(started_us, {NO_START})")
# PostgreSQL stores large values outside of the rows, and refuses an entry of an index that is longer than a third of a page.
BY_START = (
    Index("records_by_start", _START, records.c.stream_id, *(records.c[name] for name in COVERED)).ddl_if("sqlite"),
    Index("records_by_start", _START, records.c.stream_id, postgresql_include=["wait_us"]).ddl_if("postgresql"),
)
# Few records are stored responses that were read again.
REREAD = Index("records_reread", records.c.response_id, sqlite_where=is_reread(), postgresql_where=is_reread())
# Few records have parts in their usage, or faults.
UNUSUAL = Index(
    "records_unusual", _START, records.c.stream_id, sqlite_where=is_unusual(), postgresql_where=is_unusual()
)
INDEXES = (
    *BY_START,
    UNUSUAL,
    # Partial indexes: few records are resumed streams, so the first is small, and shows at once whether there are any. Its
    # name is from version 2, which called resumed streams legs.
    Index(
        "records_legs",
        records.c.resumed_from,
        sqlite_where=records.c.resumed_from.is_not(None),
        postgresql_where=records.c.resumed_from.is_not(None),
    ),
    REREAD,
    Index(
        "records_by_trace",
        records.c.trace_id,
        sqlite_where=records.c.trace_id.is_not(None),
        postgresql_where=records.c.trace_id.is_not(None),
    ),
)


def add_column(name: str, dialect: Dialect) -> str:
    """The statement that adds a column to the table of an earlier version."""
    return f"ALTER TABLE records ADD COLUMN {CreateColumn(records.c[name]).compile(dialect=dialect)}"
