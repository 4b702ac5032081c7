"""Kept runs of the audit, in the ledger.

A run is the result, with the digests of what it was made of: so another run of the same period shows whether records came
late, or the provider issued its invoice again.
"""

from typing import Protocol

import msgspec

from streamgauge.audit.parts import is_zero
from streamgauge.audit.result import Result, Verdicts
from streamgauge.audit.rows import said_verdicts
from streamgauge.errors import UsageFault


class FileUsed(msgspec.Struct):
    """A file that a run was made of. path: as it was given. sha256: the digest of its bytes."""

    path: str
    sha256: str


class Inputs(msgspec.Struct):
    """What a run was made of, besides the ledger: so it can be made again.

    version: of Streamgauge. invoices: in the order in which they were given. files: those of other options, by the option's
    name. options: the values of all other options that decide a result, without those that were not given.
    """

    version: str
    invoices: list[FileUsed]
    files: dict[str, FileUsed]
    options: dict[str, bool | int | str | list[str]]


class Run(msgspec.Struct):
    """A kept run. saved_at: UTC, RFC 3339. ledger_sha256: of the records of the period, as the ledger holds them.

    invoices_sha256: of each invoice, sorted, so that names and order do not count. result: its JSON. number: from 1; it is
    given when the run is added. inputs: None in a run that an earlier version kept.
    """

    saved_at: str
    first: str
    end: str
    timezone: str
    agrees: bool
    is_preliminary: bool
    ledger_sha256: str
    invoices_sha256: list[str]
    result: msgspec.Raw
    number: int = 0
    inputs: Inputs | None = None

    def decoded(self) -> Result:
        """The result."""
        return msgspec.json.decode(self.result, type=Result)

    def verdicts(self) -> Verdicts | None:
        """The verdicts on tokens and money, without decoding the lines; None in a run that an earlier version kept."""
        return said_verdicts(msgspec.json.decode(self.result, type=_WithVerdicts).verdicts)


class _WithVerdicts(msgspec.Struct):
    """The verdicts of a result alone."""

    verdicts: Verdicts | None = None


class Store(Protocol):
    """The part of a ledger that keeps runs."""

    def keep_audit(self, run: bytes) -> int:
        """Store a run; returns its number."""

    def audits(self, *, last: bool = False, number: int | None = None) -> list[tuple[int, bytes]]:
        """The stored runs with their numbers, oldest first. `last`: the one with the highest number; `number`: that one."""


class Runs:
    """The kept runs of a ledger. All methods raise LedgerUnavailableError if it cannot be read or written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, run: Run) -> int:
        """Keeps a run; returns its number."""
        return self._store.keep_audit(msgspec.json.encode(run))

    def all(self) -> list[Run]:
        """Every kept run, oldest first."""
        return [_run(*stored) for stored in self._store.audits()]

    def last_compared(self) -> tuple[Run, Result] | None:
        """The run that was kept last and compared something, with its result; None if there is none.

        An earlier version also kept runs in which nothing was compared.
        """
        newest = max((number for number, _ in self._store.audits(last=True)), default=0)
        for number in range(newest, 0, -1):
            for stored in self._store.audits(number=number):
                run = _run(*stored)
                if is_compared(result := run.decoded()):
                    return run, result
        return None

    def get(self, number: int) -> Run:
        """A kept run. Raises UsageFault if there is none of this number."""
        for stored in self._store.audits(number=number):
            return _run(*stored)
        raise UsageFault(f"there is no kept run {number}: `streamgauge audit list` shows the numbers")


def _run(number: int, stored: bytes) -> Run:
    return msgspec.structs.replace(msgspec.json.decode(stored, type=Run), number=number)


def is_compared(result: Result) -> bool:
    """Whether a result compared tokens or money. One of an earlier version did if both sides have any."""
    if (verdicts := said_verdicts(result.verdicts)) is not None:
        return {verdicts.tokens.verdict, verdicts.money.verdict} != {"not_compared"}
    return all(any(not is_zero(getattr(line, side)) for line in result.lines) for side in ("ours", "theirs"))
