"""Opens the ledger that the settings name, and explains what to do if it is unavailable."""

import contextlib
from collections.abc import Iterator

from streamgauge.config import Settings
from streamgauge.errors import Unavailable
from streamgauge.ledger import Ledger, LedgerUnavailableError, SqliteLedger, open_ledger
from streamgauge.runtime.data_directory import make_data_dir
from streamgauge.spool import Failure, failure_of

_SQLITE = "sqlite://"


@contextlib.contextmanager
def opened_ledger(settings: Settings) -> Iterator[Ledger]:
    """The ledger, created if it is missing. Raises UnsupportedLedgerError, or Unavailable if it cannot be opened."""
    if settings.ledger is None:
        make_data_dir(settings.data_dir)
    try:
        ledger = open_ledger(settings.ledger_url)
    except LedgerUnavailableError as error:
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError):
            cure = "create its directory"  # the directory is not created: a typing error in the path would go unnoticed
        elif isinstance(cause, Exception) and failure_of(cause) is Failure.DISK_FULL:
            cure = "free space on its disk"
        else:
            cure = "move the file away"
        raise Unavailable(f"{error}: {cure}, or choose another with --ledger") from None
    with ledger:
        yield ledger


@contextlib.contextmanager
def ledger_to_read(settings: Settings) -> Iterator[Ledger]:
    """The existing ledger. Raises UnsupportedLedgerError, or Unavailable if it is missing or cannot be opened or read."""
    if settings.ledger_url.startswith(_SQLITE):
        path = SqliteLedger.path_of(settings.ledger_url.removeprefix(_SQLITE))
        if not path.exists():
            raise Unavailable(
                f"there is no ledger {path}: give its location with --data-dir or --ledger, or capture streams first"
            )
    try:
        with open_ledger(settings.ledger_url, create=False) as ledger:
            yield ledger
    except LedgerUnavailableError as error:
        raise Unavailable(
            f"{error}: check that it is a ledger, or name another one with --data-dir or --ledger"
        ) from None
