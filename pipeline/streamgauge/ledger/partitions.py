"""The partitions of a ledger in PostgreSQL: one for each UTC day of the streams' ids, and one for all other ids.

A stream id begins with the stream's start in milliseconds (UUIDv7), so a day's streams are a range of ids, and an id is
unique in the whole table. The partition of 27 November 2026 is `records_20261127`; `records_default` holds ids of other
times and other forms.

Two functions in the database make and drop partitions with the rights of the table's owner, so that a writer needs no
right to change a table: `streamgauge_make_day` and `streamgauge_expire`. Decision 47 (docs/decisions) has the reasons.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from streamgauge.ledger.contract import Expired
from streamgauge.ledger.schema import NO_START, metadata, records

_LOG = logging.getLogger("streamgauge.ledger")

# Ids of these days have partitions of their own. Times before and after are no times of streams: a recording without
# times has an id of 1970, for example.
FIRST_DAY, LAST_DAY = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND_US = 1_000
# Sorts after every id (they are hexadecimal), as an empty text sorts before every one.
AFTER_ALL_IDS = "~"

# Processes that make tables or partitions do so one after the other: the key of the lock (any number of ours).
PREPARING = 0x5367_6C65_6467_6572
# How long the functions wait for statements that use the table; new statements wait behind them. A report that takes
# longer does not stop the writers: their records go to `records_default`, and a later attempt moves them.
_LOCK_TIMEOUT = "2s"
# The pause after an attempt that failed (seconds).
AGAIN_S = 60.0
# SQLSTATE of lock_not_available, and of duplicate_table: a table that is no partition has the partition's name.
_TIMED_OUT, _NAME_TAKEN = "55P03", "42P07"

# Of the days of new records, and the day after today: those that have no partition and may have one.
_MISSING = text("""
WITH now AS (SELECT (now() AT TIME ZONE 'UTC')::date AS today),
wanted AS (
    SELECT day FROM unnest(CAST(:days AS date[])) AS day, now WHERE day <= today + 1
    UNION SELECT today + 1 FROM now WHERE today = ANY(CAST(:days AS date[]))
)
SELECT CAST(day AS text) FROM wanted WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_inherits
    WHERE inhparent = to_regclass('records') AND inhrelid = to_regclass('records_' || to_char(day, 'YYYYMMDD'))
) ORDER BY day
""")
_MAKE = text("SELECT streamgauge_make_day(CAST(:day AS date))")
_EXPIRE = text("SELECT day, deleted FROM streamgauge_expire(:before_us, :most)")

# Deletes the earlier costs of the records that it removes, too.
_EXPIRE_FUNCTION = """
CREATE OR REPLACE FUNCTION streamgauge_expire(before_us bigint, most integer, OUT day text, OUT deleted integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = SCHEMA, pg_temp SET lock_timeout = 'TIMEOUT' AS $$
DECLARE
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(PREPARING);
    deleted := 0;
    SELECT relname INTO name FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'records'::regclass AND relname ~ '^records_[0-9]{8}$'
        AND extract(epoch FROM to_date(substr(relname, 9), 'YYYYMMDD') + 1) * 1000000 <= before_us
    ORDER BY relname LIMIT 1;
    IF name IS NOT NULL THEN
        EXECUTE format(
            'DELETE FROM earlier_costs WHERE EXISTS (SELECT FROM %I AS old WHERE old.stream_id = earlier_costs.stream_id)',
            name);
        EXECUTE format('DROP TABLE %I', name);
        day := to_char(to_date(substr(name, 9), 'YYYYMMDD'), 'YYYY-MM-DD');
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM records_default WHERE stream_id IN (
            SELECT stream_id FROM records_default WHERE coalesce(started_us, NO_START) < before_us
            ORDER BY coalesce(started_us, NO_START), stream_id LIMIT most
        ) RETURNING stream_id
    ), costs AS (
        DELETE FROM earlier_costs WHERE stream_id IN (SELECT stream_id FROM gone)
    )
    SELECT count(*) INTO deleted FROM gone;
END $$
"""
# What a partitioned ledger has besides its tables. Names in capitals are replaced.
_FURNITURE = (
    "CREATE TABLE records_default PARTITION OF records DEFAULT",
    """
CREATE FUNCTION streamgauge_make_day(day date) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = SCHEMA, pg_temp SET lock_timeout = 'TIMEOUT' AS $$
DECLARE
    name text := 'records_' || to_char(day, 'YYYYMMDD');
    from_ms bigint := extract(epoch FROM day::timestamp) * 1000;
    digits text := lpad(to_hex(from_ms), 12, '0');
    next_digits text := lpad(to_hex(from_ms + 86400000), 12, '0');
    lowest text := left(digits, 8) || '-' || right(digits, 4);
    next_lowest text := left(next_digits, 8) || '-' || right(next_digits, 4);
BEGIN
    IF day < 'FIRST'::date OR day > (now() AT TIME ZONE 'UTC')::date + 1 THEN
        RAISE EXCEPTION 'a ledger has no partition for %', day;
    END IF;
    PERFORM pg_advisory_xact_lock(PREPARING);
    IF EXISTS (
        SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'records'::regclass AND relname = name
    ) THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE records INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    LOCK TABLE records_default IN ACCESS EXCLUSIVE MODE;
    EXECUTE format(
        'WITH moved AS (DELETE FROM records_default WHERE stream_id >= %L AND stream_id < %L RETURNING *) '
        'INSERT INTO %I SELECT * FROM moved', lowest, next_lowest, name);
    EXECUTE format('ALTER TABLE records ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, lowest, next_lowest);
END $$
""",
    _EXPIRE_FUNCTION,
    "REVOKE ALL ON FUNCTION streamgauge_make_day(date), streamgauge_expire(bigint, integer) FROM PUBLIC",
)

_UNIQUE_OF_OLD = """
SELECT quote_ident(conname) FROM pg_constraint WHERE conrelid = 'records_unpartitioned'::regclass AND contype = 'u'
"""
_OWNER = "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = 'records'::regclass"
_OWNER_OF_OLD = _OWNER.replace("'records'", "'records_unpartitioned'")
# The days of the ids of a table that is not partitioned, up to tomorrow.
_DAYS_OF_OLD = """
SELECT DISTINCT day::text FROM (
    SELECT date '1970-01-01' + (
        ('x' || substr(stream_id, 1, 8) || substr(stream_id, 10, 4))::bit(48)::bigint / 86400000
    )::integer AS day
    FROM records_unpartitioned
    WHERE CASE WHEN stream_id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-' THEN stream_id >= 'LOWEST' AND stream_id < 'HIGHEST' END
) AS days WHERE day <= (now() AT TIME ZONE 'UTC')::date + 1 ORDER BY 1
"""
# Statements that give the rights on the old table on the new one and its functions: a writer's and a deleter's, too.
_GRANTS_OF_OLD = """
WITH rights AS (
    SELECT privilege_type AS kind, is_grantable,
        CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END AS role
    FROM pg_class, aclexplode(relacl)
    WHERE pg_class.oid = 'records_unpartitioned'::regclass AND grantee <> relowner
)
SELECT format('GRANT %s ON records TO %s', kind, role) || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
FROM rights
UNION SELECT 'GRANT EXECUTE ON FUNCTION streamgauge_make_day(date) TO ' || role FROM rights WHERE kind = 'INSERT'
UNION SELECT 'GRANT EXECUTE ON FUNCTION streamgauge_expire(bigint, integer) TO ' || role FROM rights WHERE kind = 'DELETE'
"""


def lowest_id(moment: datetime) -> str:
    """A text that sorts before all stream ids from this time on, and after all earlier ones."""
    return _lowest(moment_us(moment) // _MILLISECOND_US)


def moment_us(moment: datetime) -> int:
    """Microseconds since 1970, UTC."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _lowest(milliseconds: int) -> str:
    digits = f"{milliseconds:012x}"
    return f"{digits[:8]}-{digits[8:]}"


LOWEST, HIGHEST = lowest_id(FIRST_DAY), lowest_id(LAST_DAY)


def ids_between(since_us: int | None, until_us: int | None) -> tuple[str, str]:
    """The range of ids of streams that started in [since_us, until_us) (us since 1970, UTC), as texts; None: no limit.

    Only ids from LOWEST to HIGHEST hold the start of their stream. Times outside of these days give an open range.
    """
    first, last = moment_us(FIRST_DAY), moment_us(LAST_DAY)
    low = "" if since_us is None or not first < since_us < last else _lowest(since_us // _MILLISECOND_US)
    has_end = until_us is not None and first < until_us < last
    return low, _lowest(-(-until_us // _MILLISECOND_US)) if until_us is not None and has_end else AFTER_ALL_IDS


def days_of(ids: Iterable[str]) -> list[str]:
    """The days (YYYY-MM-DD) of ids that hold the start of their stream, each once, in order."""
    dated = {stream_id[:8] + stream_id[9:13] for stream_id in ids if LOWEST <= stream_id < HIGHEST}
    return sorted({(_EPOCH + timedelta(milliseconds=int(digits, 16))).date().isoformat() for digits in dated})


def names_another_time(stream_id: str, started_us: int | None) -> bool:
    """Whether an id lies in a day, but not at the stream's start: a query of a time range does not look for it there."""
    if started_us is None or not LOWEST <= stream_id < HIGHEST:
        return False
    low, high = ids_between(started_us, started_us + 1)
    return not low <= stream_id < high or low == ""


class Partitions:
    """Makes partitions before records are stored, and drops old ones. `name`: the ledger in sentences for an operator."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._not_before: dict[str, float] = {}

    def make(self, connection: Connection, starts: Mapping[str, int | None]) -> None:
        """Create missing day partitions and tomorrow's, one transaction each.

        `starts`: the start of each stream by its id (us since 1970, UTC). A sentence is logged if they differ from the ids.

        A partition that cannot be made now is tried again after a minute. Its records are stored in `records_default` until
        then. Raises DBAPIError for any other fault, such as a missing right.
        """
        if others := sum(names_another_time(*start) for start in starts.items()):
            _LOG.warning(
                "%d of %d records have ids of another time than their start: they are stored in %s, but queries of a time "
                "range do not find them",
                others,
                len(starts),
                self._name,
            )
        if not (days := days_of(starts)):
            return
        for day in connection.scalars(_MISSING, {"days": days}).all():
            if time.monotonic() >= self._not_before.get(day, 0.0):
                self._make(day)

    def _make(self, day: str) -> None:
        # Another connection: the caller's transaction sees the partition, and holds no lock that this one waits for.
        try:
            with self._engine.begin() as connection:
                connection.execute(_MAKE, {"day": day})
            self._not_before.pop(day, None)
        except DBAPIError as error:
            state = getattr(error.orig, "sqlstate", None)
            if state not in (_TIMED_OUT, _NAME_TAKEN):
                raise
            self._not_before[day] = time.monotonic() + AGAIN_S
            table = f"records_{day.replace('-', '')}"
            _LOG.warning(
                "%s has no partition for %s yet, so its records are stored in records_default: %s",
                self._name,
                day,
                "long statements use the table; the partition is made once they have ended"
                if state == _TIMED_OUT
                else f"the table {table} is no partition; rename it",
            )

    def expire(self, before_us: int, most: int) -> Expired:
        """Drop the oldest day that ended before a time; without one, delete at most `most` records of `records_default`."""
        with self._engine.begin() as connection:
            day, deleted = connection.execute(_EXPIRE, {"before_us": before_us, "most": most}).one()
        return Expired(deleted, () if day is None else (day,), more=day is not None or deleted == most)


def furnish(connection: Connection) -> None:
    """Make the default partition and the functions of a new table. The names resolve in the current schema."""
    for statement in _FURNITURE:
        connection.execute(text(_of_schema(connection, statement)))


def furnish_costs(connection: Connection) -> None:
    """Give the table of earlier costs, which a conversion made, to the owner of the records, and make the function again that
    deletes from it. Its rights stay.
    """
    owner = connection.scalar(text(_OWNER))
    connection.exec_driver_sql(f"ALTER TABLE earlier_costs OWNER TO {owner}")
    connection.execute(text(_of_schema(connection, _EXPIRE_FUNCTION)))


def _of_schema(connection: Connection, statement: str) -> str:
    schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
    named = {
        "TIMEOUT": _LOCK_TIMEOUT, "FIRST": FIRST_DAY.date(), "PREPARING": PREPARING, "NO_START": NO_START, "SCHEMA": schema,
    }  # fmt: skip
    return _named(statement, named)


def partition(connection: Connection) -> None:
    """Replace the table of an earlier version by a partitioned one with the same rows and rights. Its indexes must be gone.

    Each row is copied once, so the database needs as much free space again until the transaction ends.
    """
    connection.exec_driver_sql("ALTER TABLE records RENAME TO records_unpartitioned")
    for name in connection.scalars(text(_UNIQUE_OF_OLD)).all():  # its index has the name that the new one gets
        connection.exec_driver_sql(f"ALTER TABLE records_unpartitioned DROP CONSTRAINT {name}")
    connection.exec_driver_sql(f"SET LOCAL ROLE {connection.scalar(text(_OWNER_OF_OLD))}")
    metadata.create_all(connection, [records], checkfirst=False)
    furnish(connection)
    for day in connection.scalars(text(_named(_DAYS_OF_OLD, {"LOWEST": LOWEST, "HIGHEST": HIGHEST}))).all():
        connection.execute(_MAKE, {"day": day})
    columns = ", ".join(records.c.keys())
    connection.exec_driver_sql(f"INSERT INTO records ({columns}) SELECT {columns} FROM records_unpartitioned")  # noqa: S608
    for grant in connection.scalars(text(_GRANTS_OF_OLD)).all():
        connection.exec_driver_sql(grant)
    connection.exec_driver_sql("DROP TABLE records_unpartitioned")
    connection.exec_driver_sql("RESET ROLE")


def _named(statement: str, named: dict[str, object]) -> str:
    for name, value in named.items():
        statement = statement.replace(name, str(value))
    return statement
