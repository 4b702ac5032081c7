"""The ledger: it opens, this version can use its tables, and records can be stored."""

import os
from collections.abc import Sequence
from pathlib import Path

from streamgauge.doctor.contract import Finding, Installation, fail, in_thread, ok, warn
from streamgauge.errors import MissingExtra
from streamgauge.ledger import LedgerUnavailableError, UnsupportedLedgerError, sqlite_file
from streamgauge.ledger.inspection import LedgerState, inspect_ledger
from streamgauge.runtime.redaction import redacted_text
from streamgauge.settings.declarations import Settings


async def check_ledger(installation: Installation) -> Sequence[Finding]:
    """A finding of the ledger, and one of its connection if that is not safe."""
    settings = installation.settings
    if len(settings.ledger) > 1:
        return [fail("--ledger is given more than once: records are stored in one ledger", "give it once")]
    try:
        return await in_thread(_of, settings)
    except ModuleNotFoundError:
        raise MissingExtra("the ledger", installation.command) from None


def _of(settings: Settings) -> list[Finding]:
    url = settings.ledger_url
    try:
        state = inspect_ledger(url)
        path = sqlite_file(url)
    except UnsupportedLedgerError as error:
        return [fail(str(error), "write sqlite:///FILE, or the URL of a database that begins with postgresql://")]
    except LedgerUnavailableError as error:
        return [fail(redacted_text(str(error)), "check the database, its rights, and the URL of --ledger")]
    findings = [_of_state(settings, state, path)]
    if state is not None and state.tls_warning:
        findings.append(warn(state.tls_warning, "write sslmode=verify-full and sslrootcert=FILE into the ledger's URL"))
    return findings


def _of_state(settings: Settings, state: LedgerState | None, path: Path | None) -> Finding:
    from streamgauge.ledger.schema import SCHEMA_VERSION  # the doctor of a tap needs no library for databases

    if state is None:
        assert path is not None
        above = path.absolute().parent
        if above.exists() and not os.access(above, os.W_OK | os.X_OK):
            return fail(f"the ledger {path} cannot be created in {above}", "check the directory's owner and mode")
        if not above.exists() and settings.ledger:  # the first start makes the data directory, and no other one
            return fail(f"the directory of the ledger {path} does not exist", "create it")
        return ok(f"there is no ledger {path} yet: the first start creates it")
    where = f"the ledger {path}" if path is not None else "the ledger in PostgreSQL"
    if state.version > SCHEMA_VERSION:
        return fail(
            f"{where} has tables of version {state.version}, this program knows up to {SCHEMA_VERSION}",
            "run the later version of Streamgauge that created it",
        )
    if not state.writable:
        return fail(
            f"{where} opens, but records cannot be stored", "check its owner and mode, or the rights of the user"
        )
    if 0 < state.version < SCHEMA_VERSION:
        return warn(
            f"{where} has tables of version {state.version}: the next start converts them to {SCHEMA_VERSION}",
            "make a backup first; earlier versions of Streamgauge cannot use it afterwards",
        )
    return ok(f"{where} opens, can be written, and has tables of version {state.version or SCHEMA_VERSION}")
