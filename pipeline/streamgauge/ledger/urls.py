"""Reads the URLs of ledgers, without SQLAlchemy: a command checks them before it opens a database. It touches no file."""

from pathlib import Path

from streamgauge.ledger.contract import UnsupportedLedgerError

SQLITE, POSTGRESQL = "sqlite", "postgresql"


def sqlite_path(rest: str) -> Path:
    """The file of a URL `sqlite://REST`: /FILE is relative, //FILE absolute. Raises UnsupportedLedgerError otherwise."""
    if not rest.startswith("/") or rest.endswith("/"):
        raise UnsupportedLedgerError("an SQLite ledger is sqlite:///FILE, or sqlite:////FILE for an absolute path")
    path = Path(rest[1:])
    if str(path) == ":memory:":  # a database of one process, which loses all records when it ends
        raise UnsupportedLedgerError("a ledger in memory keeps nothing: an SQLite ledger is sqlite:///FILE")
    return path


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite ledger's URL; None for a URL of another scheme. Raises UnsupportedLedgerError."""
    scheme, _, rest = url.partition("://")
    return sqlite_path(rest) if scheme == SQLITE else None
