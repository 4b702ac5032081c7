"""Opens the ledgers that the settings name, and explains what to do if one is unavailable."""

import contextlib
import functools
import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from streamgauge.errors import Unavailable, UsageFault
from streamgauge.ledger import Ledger, LedgerUnavailableError, Pricing, Reader, SeveralLedgers, open_ledger, sqlite_file
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Sample
from streamgauge.runtime.data_directory import make_data_dir
from streamgauge.settings.declarations import Settings
from streamgauge.spool import Failure, failure_of

_LOG = logging.getLogger("streamgauge.ledger")

# How often records that are too old are deleted, how many at a time, so that other writers get their turn, and the pause
# after each time (seconds).
_EXPIRE_EVERY_S = 3_600.0
_EXPIRE_ROWS = 1_000
_EXPIRE_PAUSE_S = 0.1


# Without --ledger-bytes the ledger leaves this much of its disk free, or this part of it, if that is less.
_FREE_BYTES, _FREE_PART = 1024**3, 10


class MissingLedger(Unavailable):
    """There is no file of the ledger yet."""


@contextlib.contextmanager
def opened_ledger(settings: Settings, prices: Pricing) -> Iterator[Ledger]:
    """The ledger to write to, created if it is missing; records that are older than --ledger-age are deleted meanwhile.

    `prices`: what new records cost. Raises UsageFault, or Unavailable if it cannot be opened.
    """
    if len(settings.ledger) > 1:
        raise UsageFault("--ledger is given more than once: records are stored in one ledger")
    if not settings.ledger:
        make_data_dir(settings.data_dir)
    _check_place(settings.ledger_url)
    try:
        ledger = open_ledger(settings.ledger_url, prices=prices, most_bytes=most_bytes(settings))
    except LedgerUnavailableError as error:
        raise Unavailable(f"{error}: {_cure(settings, error.__cause__)}, or choose another with --ledger") from None
    with ledger, _expiring(ledger, settings.ledger_age):
        yield ledger


def _check_place(url: str) -> None:
    """Rejects a relative path that is probably meant as an absolute one: sqlite:///var/lib/x, where the root has a `var` and
    the working directory has none. Raises UsageFault.
    """
    path = sqlite_file(url)
    if path is None or path.is_absolute() or len(path.parts) < 2 or path.parts[0] in (".", ".."):
        return
    if (Path("/") / path.parts[0]).is_dir() and not Path(path.parts[0]).exists():
        raise UsageFault(
            f"sqlite:///{path} is a path below the working directory: write sqlite:////{path} for /{path}, or"
            f" sqlite:///{path.absolute()} for {path.absolute()}"
        )


def most_bytes(settings: Settings) -> int | None:
    """The largest size of the ledger's file: --ledger-bytes, else what leaves a part of its disk free. None: no file."""
    path = sqlite_file(settings.ledger_url)
    if path is None or settings.ledger_bytes is not None:
        return settings.ledger_bytes
    try:
        disk = shutil.disk_usage(path.parent)
    except OSError:
        return None  # the ledger cannot be opened either, and its error says more
    own = path.stat().st_size if path.exists() else 0
    return own + disk.free - min(_FREE_BYTES, disk.total // _FREE_PART, disk.free // 2)


def ledger_size(settings: Settings) -> Callable[[], Iterator[Sample]]:
    """A source of metrics: the bytes that a SQLite ledger uses, without its free pages, and its largest size."""
    path, most = sqlite_file(settings.ledger_url), most_bytes(settings)

    def read() -> Iterator[Sample]:
        if path is None or most is None:
            return
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            page, pages, free = (
                database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_size", "page_count", "freelist_count")
            )
        yield Sample(table.LEDGER_BYTES.name, (pages - free) * page, {})
        yield Sample(table.LEDGER_LIMIT.name, most, {})

    return read


def _cure(settings: Settings, cause: BaseException | None) -> str:
    if sqlite_file(settings.ledger_url) is None:
        return "check the database and the URL"
    if isinstance(cause, FileNotFoundError):
        return "create its directory"  # the directory is not created: a typing error in the path would go unnoticed
    if isinstance(cause, Exception) and failure_of(cause) is Failure.DISK_FULL:
        return "free space on its disk"
    return "move the file away"


@contextlib.contextmanager
def _expiring(ledger: Ledger, age_s: float | None) -> Iterator[None]:
    """Deletes records that started longer ago than `age_s`, at once and then every hour, while the block runs."""
    if age_s is None:
        yield
        return
    stopping = threading.Event()

    def work() -> None:
        while not stopping.is_set():
            try:
                before_us = int((time.time() - age_s) * 1_000_000)
                more = True
                while more and not stopping.is_set():
                    expired = ledger.expire(before_us, _EXPIRE_ROWS)
                    if expired.days:
                        _LOG.info("the ledger dropped the records of %s (--ledger-age)", ", ".join(expired.days))
                    more = expired.more and not stopping.wait(_EXPIRE_PAUSE_S)
            except LedgerUnavailableError as error:
                _LOG.warning("old records cannot be deleted now, trying again in an hour: %s", error)
            stopping.wait(_EXPIRE_EVERY_S)

    thread = threading.Thread(target=work, name="ledger-age")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@contextlib.contextmanager
def ledger_to_read(settings: Settings) -> Iterator[Reader]:
    """The existing ledger, or several as one. Raises UsageFault, or Unavailable if one is missing or cannot be read."""
    with _existing(settings.ledger or (settings.ledger_url,)) as ledgers:
        yield ledgers[0] if len(ledgers) == 1 else SeveralLedgers(ledgers)


@contextlib.contextmanager
def ledger_when_needed(settings: Settings) -> Iterator[Callable[[], Reader]]:
    """As `ledger_to_read`, which the first call of the function opens: a fault of an option needs no database."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(ledger_to_read(settings)))


@contextlib.contextmanager
def ledger_of_audits(settings: Settings) -> Iterator[Ledger]:
    """The existing ledger in which audits are kept. Raises UsageFault, also for several; Unavailable as `ledger_to_read`."""
    with ledger_to_change(settings, "audits are kept in one ledger") as ledger:
        yield ledger


@contextlib.contextmanager
def ledger_to_change(settings: Settings, why: str) -> Iterator[Ledger]:
    """The existing ledger. Raises UsageFault for several, which says `why` only one is possible; Unavailable as
    `ledger_to_read`.
    """
    if len(settings.ledger) > 1:
        raise UsageFault(f"--ledger is given more than once: {why}")
    with _existing((settings.ledger_url,)) as (ledger,):
        yield ledger


@contextlib.contextmanager
def _existing(urls: Sequence[str]) -> Iterator[list[Ledger]]:
    for url in urls:
        _check_place(url)
        path = sqlite_file(url)
        if path is not None and not path.exists():
            raise MissingLedger(
                f"there is no ledger {path.absolute()}: give its location with --data-dir or --ledger, or capture"
                " streams first"
            )
    try:
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(open_ledger(url, create=False)) for url in urls]
    except LedgerUnavailableError as error:
        raise Unavailable(
            f"{error}: check that it is a ledger, or name another one with --data-dir or --ledger"
        ) from None
