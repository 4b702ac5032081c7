"""Stores records. A new kind of ledger needs a module here and an entry in LEDGERS.

A ledger keeps one record for each stream id: the first one stays, also if a different one arrives later. It stores the
record's JSON with `cost` as its last member.

SQLAlchemy takes a quarter of a second to import, so only the functions that open a ledger import it.

contract.py     the interface of every ledger, and its errors
urls.py         URLs of ledgers, checked before a database is opened
store.py        a ledger in an SQL database, by SQLAlchemy Core
sqlite.py       one file; postgresql.py: a database for several hosts; postgresql_tls.py: its connection's TLS
schema.py       the tables; migrations.py: makes and converts them; partitions.py: PostgreSQL's partitions by day
row.py          a record as a row
cost.py         the cost that a row gets when it is stored
keys.py         what records are filtered and grouped by; zones.py: days in a time zone
totals.py       totals; resumption.py: counts the usage of resumed streams once
usage.py        what an audit reads
several.py      several ledgers as one
budgets.py      what budgets have spent this month, and a forecast
inspection.py   looks at a ledger without changing it
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamgauge.errors import MissingExtra
from streamgauge.ledger.contract import (
    ALL_RECORDS,
    KEYS,
    MEASURES,
    NUMBER_KEYS,
    Comparison,
    CostOfRecord,
    Expired,
    Filter,
    Inserted,
    Ledger,
    LedgerUnavailableError,
    NewCost,
    Part,
    Pricing,
    Reader,
    Sign,
    Total,
    UnknownKeyError,
    UnsupportedLedgerError,
    sum_of,
)
from streamgauge.ledger.cost import Cost
from streamgauge.ledger.row import LedgerRow, UnreadableRecordError, row_of, unstored_row_of
from streamgauge.ledger.several import SeveralLedgers
from streamgauge.ledger.urls import POSTGRESQL, SQLITE, sqlite_file, sqlite_path

if TYPE_CHECKING:
    from streamgauge.ledger.sqlite import SqliteLedger


def _open_sqlite(rest: str, create: bool, prices: Pricing | None, most_bytes: int | None) -> Ledger:
    try:
        from streamgauge.ledger.sqlite import SqliteLedger
    except ModuleNotFoundError:
        raise MissingExtra("a ledger", "ledger") from None
    return SqliteLedger(sqlite_path(rest), create=create, prices=prices, most_bytes=most_bytes)


def _open_postgresql(rest: str, create: bool, prices: Pricing | None, _: int | None) -> Ledger:
    try:
        from streamgauge.ledger.postgresql import PostgresqlLedger
    except ModuleNotFoundError:
        raise MissingExtra("a ledger in PostgreSQL", "postgres") from None
    except ImportError as error:
        raise LedgerUnavailableError(f"PostgreSQL's driver cannot be loaded ({error})") from None
    return PostgresqlLedger(f"{POSTGRESQL}://{rest}", create=create, prices=prices)


# Functions that open a ledger, by the URL's scheme. They take what follows `scheme://`, whether to make the ledger, what new
# records cost, and the largest size of its file (bytes), if it is one.
LEDGERS: Mapping[str, Callable[[str, bool, Pricing | None, int | None], Ledger]] = {
    SQLITE: _open_sqlite,
    POSTGRESQL: _open_postgresql,
}


def open_ledger(
    url: str, *, create: bool = True, prices: Pricing | None = None, most_bytes: int | None = None
) -> Ledger:
    """The ledger at `url`: sqlite:///FILE for a relative path, sqlite:////FILE for an absolute one, or postgresql://...

    `prices`: what new records cost; without it their cost is null. `most_bytes`: the largest size of a SQLite file; a full
    one refuses records, as a full disk does. For PostgreSQL it has no meaning.

    Raises UnsupportedLedgerError for any other URL, LedgerUnavailableError if it cannot be opened (or is missing and
    `create` is false), MissingExtra without the packages for it. None of them repeats the URL, which may hold a password.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in LEDGERS:
        raise UnsupportedLedgerError(f"this ledger URL is not supported: write {_supported()}")
    return LEDGERS[scheme](rest, create, prices, most_bytes)


def _supported() -> str:
    return " or ".join(f"{scheme}:///FILE" if scheme == SQLITE else f"{scheme}://HOST/DATABASE" for scheme in LEDGERS)


def __getattr__(name: str) -> Any:
    if name == "SqliteLedger":
        from streamgauge.ledger.sqlite import SqliteLedger

        return SqliteLedger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ALL_RECORDS",
    "KEYS",
    "LEDGERS",
    "MEASURES",
    "NUMBER_KEYS",
    "Comparison",
    "Cost",
    "CostOfRecord",
    "Expired",
    "Filter",
    "Inserted",
    "Ledger",
    "LedgerRow",
    "LedgerUnavailableError",
    "NewCost",
    "Part",
    "Pricing",
    "Reader",
    "SeveralLedgers",
    "Sign",
    "SqliteLedger",
    "Total",
    "UnknownKeyError",
    "UnreadableRecordError",
    "UnsupportedLedgerError",
    "open_ledger",
    "row_of",
    "sqlite_file",
    "sum_of",
    "unstored_row_of",
]
