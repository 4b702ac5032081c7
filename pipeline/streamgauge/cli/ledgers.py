"""Opens the ledger that the settings name, and explains what to do if it is unavailable."""

import contextlib
from collections.abc import Iterator

import msgspec

from streamgauge.config import Settings
from streamgauge.errors import Unavailable
from streamgauge.ledger import Ledger, LedgerUnavailableError, SqliteLedger, open_ledger
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.data_directory import make_data_dir
from streamgauge.spool import Failure, failure_of

_SQLITE = "sqlite://"
# The records in which `start_known_upstreams` looks for upstreams: they are read in some 10 ms.
NEWEST = 1_000


class _Upstream(msgspec.Struct):
    upstream: str | None


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


def start_known_upstreams(metrics: Metrics, ledger: Ledger) -> None:
    """Lets counters of the upstreams in the newest records begin at 0, so that a burst right after a restart shows as growth.

    Raises LedgerUnavailableError.
    """
    newest = ledger.query(NEWEST, newest_first=True)
    names = {msgspec.json.decode(record, type=_Upstream).upstream for record in newest}
    for name in sorted(name for name in names if name is not None):
        metrics.start_upstream(name)


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
