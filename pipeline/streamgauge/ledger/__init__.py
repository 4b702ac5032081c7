"""Stores records. A new kind of ledger needs a module here and an entry in LEDGERS.

A ledger keeps one record for each stream id: the first one stays, also if a different one arrives later. It stores the
record's JSON with `cost` as its last member.
"""

from collections.abc import Callable, Mapping

from streamgauge.ledger.contract import (
    ALL_RECORDS,
    KEYS,
    NUMBER_KEYS,
    Filter,
    Inserted,
    Ledger,
    LedgerUnavailableError,
    Total,
    UnknownKeyError,
    UnsupportedLedgerError,
)
from streamgauge.ledger.row import LedgerRow, UnreadableRecordError, row_of
from streamgauge.ledger.sqlite import SqliteLedger


def _open_sqlite(rest: str, create: bool) -> Ledger:
    return SqliteLedger(SqliteLedger.path_of(rest), create=create)


# Functions that open a ledger, by the URL's scheme. They take what follows `scheme://`, and whether to make the ledger.
LEDGERS: Mapping[str, Callable[[str, bool], Ledger]] = {"sqlite": _open_sqlite}


def open_ledger(url: str, *, create: bool = True) -> Ledger:
    """The ledger at `url`: sqlite:///FILE for a relative path, sqlite:////FILE for an absolute one.

    Raises UnsupportedLedgerError for any other URL, LedgerUnavailableError if it cannot be opened (or is missing and
    `create` is false). Neither error repeats the URL, which may hold a password.
    """
    scheme, found, rest = url.partition("://")
    if not found or scheme not in LEDGERS:
        raise UnsupportedLedgerError(f"this ledger URL is not supported: write {_supported()}")
    return LEDGERS[scheme](rest, create)


def _supported() -> str:
    return " or ".join(f"{scheme}:///FILE" if scheme == "sqlite" else f"{scheme}://..." for scheme in LEDGERS)


__all__ = [
    "ALL_RECORDS",
    "KEYS",
    "LEDGERS",
    "NUMBER_KEYS",
    "Filter",
    "Inserted",
    "Ledger",
    "LedgerRow",
    "LedgerUnavailableError",
    "SqliteLedger",
    "Total",
    "UnknownKeyError",
    "UnreadableRecordError",
    "UnsupportedLedgerError",
    "open_ledger",
    "row_of",
]
