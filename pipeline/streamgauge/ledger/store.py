"""A ledger in an SQL database, by SQLAlchemy Core. `sqlite.py` and `postgresql.py` open the databases.

A commit is durable before `insert` returns, since a record that is in the ledger is not sent again.

Records are read page by page, in order of their start. No statement is open between two pages. So a slow reader does not keep
SQLite from folding its log back into the file, and holds no connection and no snapshot of PostgreSQL.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any, NamedTuple, Self

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from streamgauge.ledger.contract import (
    ALL_RECORDS,
    KEYS,
    CostOfRecord,
    Expired,
    Filter,
    Inserted,
    LedgerUnavailableError,
    NewCost,
    Pricing,
    QuarterUsage,
    Repricing,
    Step,
    Total,
    UnknownKeyError,
)
from streamgauge.ledger.cost import Cost, Unpriced
from streamgauge.ledger.keys import Keys, condition_of, has_attribute, in_partitions, range_of
from streamgauge.ledger.migrations import bring_up_to_date
from streamgauge.ledger.row import COLUMNS, PRICE, UNPRICED, LedgerRow
from streamgauge.ledger.schema import (
    NO_START,
    NUMBER,
    SCHEMA_VERSION,
    TEXT,
    audit_runs,
    earlier_costs,
    records,
    started,
)
from streamgauge.ledger.totals import totals_of
from streamgauge.ledger.usage import SqlStep, end_of_step, has_resumed, linked_records, sample, usage_by_quarter

# Records of one page (rows): some MB of JSON.
PAGE_ROWS = 1_000
_EARLIEST = -NO_START
# Sorts after every stream id (they are hexadecimal), as an empty text sorts before every one.
_AFTER_ALL_IDS = "\U0010ffff"

Reading = Callable[[], AbstractContextManager[Connection]]


class _Span(NamedTuple):
    """Records between two positions of the index, both excluded. A position is a start and a stream id."""

    after: tuple[int, str]
    before: tuple[int, str]


def records_of(reading: Reading, chosen: Filter, limit: int | None, newest_first: bool) -> Iterator[bytes]:
    """The JSON of the chosen records, at most `limit`. The caller has checked the keys of `chosen`.

    `reading` opens a connection for one page.
    """
    with reading() as connection:
        condition = condition_of(chosen, Keys(connection, chosen).expression)
    left = limit
    for span in _spans(chosen):
        for record in _records_in(reading, span, condition, left, newest_first):
            yield record
            left = None if left is None else left - 1


def _spans(chosen: Filter) -> Iterator[_Span]:
    """The span of records with a start, then the span of records without: these are last in both orders, and in no range."""
    since = _EARLIEST if chosen.since_us is None else chosen.since_us
    until = NO_START if chosen.until_us is None else chosen.until_us
    yield _Span((since, ""), (until, ""))
    if chosen.since_us is None and chosen.until_us is None:
        yield _Span((NO_START, ""), (NO_START, _AFTER_ALL_IDS))


def _records_in(
    reading: Reading, span: _Span, condition: ColumnElement[bool], limit: int | None, newest_first: bool
) -> Iterator[bytes]:
    order = (started.desc(), records.c.stream_id.desc()) if newest_first else (started, records.c.stream_id)
    left = limit
    while left is None or left > 0:
        size = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
        page_of = (
            select(started, records.c.stream_id, records.c.record)
            .where(_between(span), condition)
            .order_by(*order)
            .limit(size)
        )
        with reading() as connection:
            page = connection.execute(page_of).all()
        yield from (bytes(record) for _, _, record in page)
        if len(page) < size:
            return
        last = (page[-1][0], page[-1][1])
        span = span._replace(before=last) if newest_first else span._replace(after=last)
        left = None if left is None else left - size


def _between(span: _Span) -> ColumnElement[bool]:
    # BETWEEN lets SQLite search the index. With comparisons of pairs alone SQLite scans the index from its beginning
    # for each page, so that the time of a query would grow with the square of the number of pages.
    position = tuple_(started, records.c.stream_id)
    return and_(
        in_partitions(span.after[0], span.before[0] + 1),
        started.between(span.after[0], span.before[0]),
        position > _position(span.after),
        position < _position(span.before),
    )


def _position(position: tuple[int, str]) -> ColumnElement[tuple[int, str]]:
    return tuple_(literal(position[0], NUMBER), literal(position[1], TEXT))


# Rows of one statement that selects by stream ids: far below the databases' limits of parameters.
_MANY = 1_000
# The largest number of an audit: an integer in every database.
_MAX_NUMBER = 2**31 - 1


class SqlLedger:
    """A ledger in the database of `engine`. Subclasses open it, and call `_prepare` once.

    `name`: the database in sentences for an operator; it must hold no password. `prices`: what new records cost; without it
    their cost is null. `_writing` and `_reading` are connections in a transaction for writes, and for one statement;
    `_snapshot` is one whose statements all read the same moment.
    """

    def __init__(self, engine: Engine, name: str, prices: Pricing | None) -> None:
        self._engine = engine
        self._name = name
        self._prices = prices
        self._lock = Lock()

    def _writing(self) -> AbstractContextManager[Connection]:
        raise NotImplementedError

    def _snapshot(self) -> AbstractContextManager[Connection]:
        raise NotImplementedError

    def _version(self, connection: Connection) -> int:
        """The version of the tables; 0 for an empty database. Raises LedgerUnavailableError if other data is there."""
        raise NotImplementedError

    def _set_version(self, connection: Connection) -> None:
        raise NotImplementedError

    def _insert_new(self, connection: Connection, rows: Mapping[str, tuple[Any, ...]]) -> set[str]:
        """Insert the rows whose stream ids are not there: values of COLUMNS by stream id. Returns the ids of these rows."""
        raise NotImplementedError

    def _cause(self, error: BaseException) -> str:
        """The end of a sentence about an error of the database."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Make or convert the tables. Raises LedgerUnavailableError if a later version made them."""
        with self._reading() as connection:
            version = self._version(connection)
        if version != SCHEMA_VERSION:
            with self._writing() as connection:
                self._bring_up_to_date(connection)

    def _bring_up_to_date(self, connection: Connection) -> None:
        version = self._version(connection)  # another process may have done it meanwhile
        if version > SCHEMA_VERSION:
            raise LedgerUnavailableError(f"a later version of Streamgauge created {self._name}")
        if 0 <= version < SCHEMA_VERSION:
            bring_up_to_date(connection, version)
            self._set_version(connection)

    def insert(self, rows: Sequence[LedgerRow]) -> Inserted:
        """See Ledger.insert."""
        first: dict[str, LedgerRow] = {}
        indexes: dict[str, int] = {}
        again: list[LedgerRow] = []
        for index, row in enumerate(rows):
            if row.stream_id in first:
                again.append(row)
            else:
                first[row.stream_id], indexes[row.stream_id] = row, index
        if not first:
            return Inserted()
        costs = {name: self._cost_of(row) for name, row in first.items()}
        # In one order, so that two writers of the same streams cannot block each other for good.
        ordered = {name: first[name].values(costs[name]) for name in sorted(first)}
        with self._lock, self._translated("written"), self._writing() as connection:
            new = self._insert_new(connection, ordered)
            known = self._stored(connection, [name for name in first if name not in new])
        compared = [row for name, row in first.items() if name not in new] + again
        # The cost is added by the ledger, and is not compared.
        same = sum(
            (known.get(row.stream_id) or first[row.stream_id].record).startswith(row.own_bytes) for row in compared
        )
        unpriced = sum(_is_missing(costs[name], first[name]) for name in new)
        return Inserted(len(new), same, len(compared) - same, unpriced, tuple(sorted(indexes[name] for name in new)))

    def _cost_of(self, row: LedgerRow) -> Cost | Unpriced | None:
        return row.cost if row.cost is not None or self._prices is None else self._prices.cost_of(row)

    @staticmethod
    def _stored(connection: Connection, names: list[str]) -> dict[str, bytes]:
        records_by_id: dict[str, bytes] = {}
        for at in range(0, len(names), _MANY):
            chosen = records.c.stream_id.in_(names[at : at + _MANY])
            lines = connection.execute(select(records.c.stream_id, records.c.record).where(chosen))
            records_by_id.update((name, bytes(record)) for name, record in lines)
        return records_by_id

    def query(
        self, limit: int | None = None, chosen: Filter = ALL_RECORDS, *, newest_first: bool = False
    ) -> Iterator[bytes]:
        """See Reader.query."""
        with self._translated("read"):
            self._check_keys(chosen, ())
            yield from records_of(self._reading, chosen, limit, newest_first)

    def totals(self, by: Sequence[str], chosen: Filter = ALL_RECORDS, *, newest_first: bool = False) -> list[Total]:
        """See Reader.totals."""
        if not by:
            raise UnknownKeyError(f"group totals by one or more of {', '.join(KEYS)}, or attributes")
        with self._translated("read"):
            self._check_keys(chosen, by)
            with self._snapshot() as connection:
                return totals_of(connection, by, chosen, newest_first)

    def minutes(self, chosen: Filter) -> list[tuple[int, str, int]]:
        """See Reader.minutes."""
        with self._translated("read"):
            self._check_keys(chosen, ())
            with self._reading() as connection:
                condition = condition_of(chosen, Keys(connection, chosen).expression)
                # Whole numbers are divided without a rest in SQLite and in PostgreSQL.
                minute = started.op("/")(literal_column("60000000")) * literal_column("60")
                counted = (
                    select(minute, records.c.outcome, func.count())
                    .where(records.c.started_us.is_not(None), range_of(chosen), condition)
                    .group_by(minute, records.c.outcome)
                    .order_by(minute, records.c.outcome)
                )
                return [(int(start_s), outcome, number) for start_s, outcome, number in connection.execute(counted)]

    def slowest(self, limit: int, chosen: Filter = ALL_RECORDS) -> list[bytes]:
        """See Reader.slowest."""
        with self._translated("read"):
            self._check_keys(chosen, ())
            with self._reading() as connection:
                condition = condition_of(chosen, Keys(connection, chosen).expression)
                order = records.c.wait_us.desc(), started, records.c.stream_id
                # The ids first, which an index has: with the JSON in one statement, engines would sort all of it.
                waited = (
                    select(records.c.stream_id)
                    .where(records.c.wait_us.is_not(None), range_of(chosen), condition)
                    .order_by(*order)
                    .limit(limit)
                )
                found = select(records.c.record).where(records.c.stream_id.in_(waited)).order_by(*order)
                return [bytes(record) for record in connection.scalars(found)]

    def with_id(self, part: str, limit: int) -> list[bytes]:
        """See Reader.with_id."""
        stream_id = records.c.stream_id
        beginning = and_(stream_id >= part, stream_id < part + _AFTER_ALL_IDS)
        with self._translated("read"), self._reading() as connection:
            for matches in (beginning, stream_id.endswith(part, autoescape=True)):
                found = select(records.c.record).where(matches).order_by(stream_id).limit(limit)
                if known := [bytes(record) for record in connection.scalars(found)]:
                    return known
        return []

    def has_attribute(self, name: str) -> bool:
        """See Reader.has_attribute."""
        with self._translated("read"), self._reading() as connection:
            return has_attribute(connection, name)

    @property
    def parts(self) -> "tuple[SqlLedger, ...]":
        """See Reader.parts."""
        return (self,)

    @contextmanager
    def usage_step(self, since_us: int, until_us: int) -> Iterator[Step | None]:
        """See Reader.usage_step."""
        with self._translated("read"), self._snapshot() as connection:
            end = end_of_step(connection, since_us, until_us)
            yield None if end is None else SqlStep(connection, since_us, end)

    def usage_by_quarter(self, since_us: int, until_us: int) -> list[QuarterUsage]:
        """See Reader.usage_by_quarter."""
        with self._translated("read"), self._snapshot() as connection:
            return usage_by_quarter(connection, since_us, until_us)

    def linked_records(self, since_us: int, until_us: int) -> Iterator[bytes]:
        """See Reader.linked_records."""
        with self._translated("read"), self._snapshot() as connection:
            if has_resumed(connection, since_us, until_us):
                yield from linked_records(connection, since_us, until_us)

    def sample(self, since_us: int, until_us: int, digits: int) -> Iterator[bytes]:
        """See Reader.sample."""
        with self._translated("read"), self._snapshot() as connection:
            yield from sample(connection, since_us, until_us, digits)

    def stored_among(self, ids: Sequence[str]) -> dict[str, bytes]:
        """See Reader.stored_among."""
        with self._translated("read"), self._reading() as connection:
            return self._stored(connection, list(ids))

    def expire(self, before_us: int, limit: int) -> Expired:
        """See Ledger.expire."""
        oldest = (
            select(records.c.stream_id)
            .where(started < before_us, records.c.started_us.is_not(None))
            .order_by(started, records.c.stream_id)
            .limit(limit)
        )
        with self._lock, self._translated("written"), self._writing() as connection:
            connection.execute(delete(earlier_costs).where(earlier_costs.c.stream_id.in_(oldest)))
            deleted = connection.execute(delete(records).where(records.c.stream_id.in_(oldest))).rowcount
        return Expired(deleted, more=deleted == limit)

    def reprice(self, costs: Sequence[NewCost], replaced_us: int, reason: str | None) -> int:
        """See Ledger.reprice."""
        by_id = {new.row.stream_id: new for new in costs}
        names = sorted(by_id)  # in one order, as in `insert`
        changed = 0
        with self._lock, self._translated("written"), self._writing() as connection:
            for at in range(0, len(names), _MANY):
                present = (
                    select(records.c.stream_id, *(records.c[name] for name in _OF_EARLIER), records.c.record)
                    .where(records.c.stream_id.in_(names[at : at + _MANY]))
                    .order_by(records.c.stream_id)
                    .with_for_update()
                )
                same = [
                    line
                    for line in connection.execute(present).mappings()
                    if bytes(line["record"]) == by_id[line["stream_id"]].stored
                ]
                if not same:
                    continue
                earlier = [_earlier_cost(line, by_id[line["stream_id"]].row) for line in same]
                kept = {"replaced_us": replaced_us, "reason": reason}
                connection.execute(insert(earlier_costs), [kept | values for values in earlier])
                connection.execute(_REPRICE, [_new_cost(by_id[line["stream_id"]]) for line in same])
                changed += len(same)
        return changed

    def costs_of(self, stream_id: str) -> list[CostOfRecord]:
        """See Ledger.costs_of."""
        earlier = earlier_costs.c
        past = select(earlier.cost, earlier[UNPRICED], earlier.replaced_us, earlier.reason)
        past = past.where(earlier.stream_id == stream_id).order_by(earlier.replaced_us)
        now = select(records.c.record, records.c[UNPRICED]).where(records.c.stream_id == stream_id)
        with self._translated("read"), self._snapshot() as connection:
            present = connection.execute(now).first()
            if present is None:
                return []
            lines = connection.execute(past).all()
        costs = [
            CostOfRecord(Cost.of_json(msgspec.json.decode(cost)), unknown, until, reason)
            for cost, unknown, until, reason in lines
        ]
        return [*costs, CostOfRecord(LedgerRow.of_stored(bytes(present[0])).cost, present[1])]

    def repricings(self) -> list[Repricing]:
        """See Ledger.repricings."""
        key = (earlier_costs.c.replaced_us, earlier_costs.c.reason)
        query = select(*key, func.count()).group_by(*key).order_by(*key)
        with self._translated("read"), self._reading() as connection:
            return [Repricing(until, reason, count) for until, reason, count in connection.execute(query)]

    def keep_audit(self, run: bytes) -> int:
        """See Ledger.keep_audit."""
        with self._lock, self._translated("written"), self._writing() as connection:
            key = connection.execute(insert(audit_runs).values(run=run)).inserted_primary_key
            return int(key[0]) if key is not None else 0

    def audits(self, *, last: bool = False, number: int | None = None) -> list[tuple[int, bytes]]:
        """See Ledger.audits."""
        if number is not None and not 0 < number <= _MAX_NUMBER:
            return []
        column = audit_runs.c.number
        query = select(column, audit_runs.c.run).order_by(column)
        if last:
            query = query.order_by(None).order_by(column.desc()).limit(1)
        if number is not None:
            query = query.where(column == number)
        with self._translated("read"), self._reading() as connection:
            lines = connection.execute(query)
            return [(run_number, bytes(run)) for run_number, run in lines]

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            yield connection

    def _check_keys(self, chosen: Filter, by: Sequence[str]) -> None:
        """Raise UnknownKeyError for a name that is neither in KEYS nor an attribute of a record: an attribute that no record
        has is a typing error.
        """
        for key in (*by, *chosen.keys):
            if key not in KEYS and key not in chosen.attributes and not self.has_attribute(key):
                raise UnknownKeyError(
                    f"{key[:64]} is not a key: use {', '.join(KEYS)}, or an attribute that records have"
                )

    @contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        # UnicodeDecodeError: SQLite quotes a damaged name in the text of an error.
        except (SQLAlchemyError, OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "orig", None) or error
            raise LedgerUnavailableError(f"{self._name} cannot be {operation}: {self._cause(cause)}") from cause


# The columns of a record that a cost decides, and those of them that an earlier cost keeps beside its JSON.
_OF_COST = (*PRICE, UNPRICED, "record")
_OF_EARLIER = ("cost_input", "cost_output", UNPRICED)
_REPRICE = (
    update(records)
    .where(records.c.stream_id == bindparam("of_stream"))
    .values({name: bindparam(f"new_{name}") for name in _OF_COST})
)


def _earlier_cost(line: Mapping[Any, Any], row: LedgerRow) -> dict[str, Any]:
    cost = bytes(line["record"])[len(row.own_bytes) : -1].decode()
    return {"stream_id": row.stream_id, "cost": cost} | {name: line[name] for name in _OF_EARLIER}


def _new_cost(new: NewCost) -> dict[str, Any]:
    values = dict(zip(COLUMNS, new.row.values(new.cost), strict=True))
    return {"of_stream": new.row.stream_id} | {f"new_{name}": values[name] for name in _OF_COST}


def _is_missing(cost: Cost | Unpriced | None, row: LedgerRow) -> bool:
    return not isinstance(cost, Cost) and (row.input_tokens is not None or row.output_tokens is not None)
