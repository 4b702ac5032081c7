"""`streamgauge audit`: holds the ledger against invoices."""

import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec

from streamgauge import __version__
from streamgauge.audit.amounts import usd_text
from streamgauge.audit.conclude import conclude, nothing_compared
from streamgauge.audit.findings import Finding
from streamgauge.audit.gateway_logs import note_of_imports
from streamgauge.audit.invoices import open_invoices
from streamgauge.audit.mapping import Mapping, mapping_of
from streamgauge.audit.ours import Ours
from streamgauge.audit.period import Period, day_after
from streamgauge.audit.provenance import digest_of, provenance
from streamgauge.audit.rates_file import NO_RATES, load_rates
from streamgauge.audit.reconcile import reconcile
from streamgauge.audit.recounts import Recounts, reported_outside
from streamgauge.audit.result import InvoiceUsed, Provenance, Result, Tolerance, encode
from streamgauge.audit.runs import FileUsed, Inputs, Run, Runs
from streamgauge.audit.scope import accept, load_scope
from streamgauge.audit.theirs import Theirs
from streamgauge.cli.audit_output import print_result
from streamgauge.cli.ledgers import ledger_of_audits, ledger_to_read
from streamgauge.cli.parser import Arguments
from streamgauge.errors import DONE, FOUND, USAGE, UsageFault
from streamgauge.ledger import Reader
from streamgauge.ledger.zones import zone_of
from streamgauge.prices.catalogue import list_version
from streamgauge.settings.declarations import Settings
from streamgauge.spool.response_counters import LOST, NotCaptured, seen_and_not_captured

# Options that do not decide a result; all others do.
_NOT_DECIDING = frozenset({"command", "action", "serves", "module", "loads", "config", "settings", "output", "save"})
# Options with a file that decides a result, besides the invoices. Such an option is left out if it is not given.
FILE_OPTIONS = ("map", "recounts", "scope", "rates")


def run(settings: Settings, args: Arguments) -> int:
    """Runs the command. Raises InvoiceError (an invoice was refused), UsageFault or Unavailable."""
    audit = Audit(args, datetime.now(UTC))
    with ledger_to_read(settings) as ledger, ledger_of_audits(settings) if args.save else nullcontext() as store:
        result = audit.make(ledger)
        why_nothing = nothing_compared(result)
        if store is not None and why_nothing is None:
            _save(Runs(store), audit, result)
    print_result(result, args.output)
    if _may_lack_records(result):
        sys.stderr.write(_not_captured(settings.data_dir / "counters"))
    if why_nothing is not None:
        kept = " The result was not kept." if args.save else ""
        sys.stderr.write(f"streamgauge audit: nothing was compared: {why_nothing}.{kept}\n")
        return USAGE
    return DONE if result.agrees else FOUND


def _may_lack_records(result: Result) -> bool:
    """Whether requests without a record explain a difference, or may explain it."""
    certain = any(total.cause == "coverage" for total in result.causes)
    return certain or any("coverage" in part.one_of for line in result.lines for part in line.alternatives)


def _not_captured(counters: Path) -> str:
    """What the taps of this data directory did not capture, which may be billed; empty if that is nothing."""
    try:
        seen, without = seen_and_not_captured(counters)
    except OSError:  # the directory belongs to another user: `doctor` says so
        return ""
    lost = {reason: without[reason] for reason in NotCaptured if reason in LOST and without[reason]}
    if not lost:
        return ""
    reasons = ", ".join(f"{count} {reason}" for reason, count in lost.items())
    return (
        f"streamgauge audit: of {seen} responses that the taps of this data directory have seen, {sum(lost.values())} have no"
        f" record ({reasons}): some of `coverage` may be theirs\n"
    )


class Audit:
    """An audit as the options name it, made at a moment.

    `args`: the options. `ledger_sha256`, `invoices_sha256`: digests, after it was made. Raises UsageFault for an option that
    is wrong or missing.
    """

    def __init__(self, args: Arguments, moment: datetime) -> None:
        for option, value in (("--invoice FILE", args.invoice), ("--from DATE", args.from_), ("--to DATE", args.to)):
            if not value:
                raise UsageFault(f"{option} is missing")
        self.period = Period.of(args.from_, args.to, args.timezone)
        self.ledger_sha256 = ""
        self.invoices_sha256: list[str] = []
        self.args = args
        self._tolerance = _tolerance(args.tolerance_tokens, args.tolerance_usd)
        self._mapping = mapping_in(args.map)
        self._rates = NO_RATES if args.rates is None else load_rates(Path(args.rates))
        self._scope = (*(load_scope(Path(args.scope)) if args.scope else ()), *accept(args.accept or ()))
        self._recounts = Recounts() if args.recounts is None else reported_outside(Path(args.recounts))
        self._invoices = open_invoices(map(Path, args.invoice), self._mapping.meters, args.cost)
        self.is_preliminary = _is_preliminary(self.period, args.settle_days, moment)

    def make(self, ledger: Reader) -> Result:
        """The result. Raises InvoiceError or Unavailable."""
        period, tolerance, ours = self.period, self._tolerance, Ours(ledger, self.period, self._mapping)
        theirs = Theirs(self._invoices, period, self._mapping, self._rates)
        reconciled = reconcile(ours, theirs, period, Decimal(tolerance.usd), self._recounts.outside)
        if self.is_preliminary:
            reconciled.findings.add(_preliminary(period, self.args.settle_days))
        findings = reconciled.findings.all(reconciled.unmapped)
        self.ledger_sha256 = reconciled.ledger_sha256
        self.invoices_sha256 = sorted(file.sha256 for file in reconciled.invoices)
        result = conclude(reconciled.cells, reconciled.shapes, findings, period, tolerance, self._scope)
        result.notes += [*reconciled.notes, *theirs.unconverted, *self._recounts.notes]
        if note := note_of_imports(ledger, self.period):
            result.notes.append(note)
        result.uncovered_days = theirs.uncovered_days
        result.provenance = _provenance(self.args, reconciled.ledger_sha256, reconciled.invoices)
        return result


def inputs_of(args: Arguments) -> Inputs:
    """What an audit with these options is made of besides the ledger. Raises UsageFault for a file that cannot be read."""
    deciding = {name: value for name, value in vars(args).items() if name not in _NOT_DECIDING}
    paths = {name: deciding.pop(name) for name in FILE_OPTIONS}
    invoices = [FileUsed(path, digest_of("--invoice", path)) for path in deciding.pop("invoice")]
    files = {name: FileUsed(path, digest_of(f"--{name}", path)) for name, path in paths.items() if path is not None}
    options = {
        name: value for name, value in deciding.items() if value is not None and value is not False and value != []
    }
    return Inputs(__version__, invoices, files, options)


def _provenance(args: Arguments, ledger_sha256: str, used: list[InvoiceUsed]) -> Provenance:
    options = {
        "--timezone": args.timezone,
        "--tolerance-tokens": args.tolerance_tokens,
        "--tolerance-usd": args.tolerance_usd,
        "--accept": " ".join(sorted(args.accept or ())) or None,
        "--cost": args.cost,
    }
    paths = {f"--{name}": getattr(args, name) for name in FILE_OPTIONS}
    return provenance(f"genai-prices {list_version()}", ledger_sha256, used, options, paths)


def _tolerance(tokens: int, usd: str) -> Tolerance:
    if tokens < 0:
        raise UsageFault(f"--tolerance-tokens {tokens} is negative: give 0 or more")
    try:
        amount = Decimal(usd)
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0 or len(usd) > 30:
        raise UsageFault("--tolerance-usd is not an amount of dollars: give 0 or more, such as 0.01")
    return Tolerance(tokens, usd_text(amount))


def mapping_in(path: str | None) -> Mapping:
    """The map in a file; one that maps nothing for no file. Raises UsageFault if it cannot be read."""
    if path is None:
        return Mapping()
    try:
        return mapping_of(Path(path).read_text(encoding="utf-8"), path)
    except OSError as error:
        raise UsageFault(f"--map {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageFault(f"--map {path} is not UTF-8 text") from None


def _is_preliminary(period: Period, settle_days: int | None, moment: datetime) -> bool:
    if settle_days is None:
        return False
    if not 0 <= settle_days <= 366:
        raise UsageFault(f"--settle-days {settle_days} is not allowed: give 0 to 366")
    return moment.astimezone(zone_of(period.timezone)).strftime("%Y-%m-%d") < day_after(period.end, settle_days)


def _preliminary(period: Period, settle_days: int) -> Finding:
    closes = day_after(period.end, settle_days)
    sys.stderr.write(f"streamgauge audit: this result is preliminary: the period may be closed from {closes} on\n")
    return Finding("preliminary", None, None, 0, (), f"the period may be closed from {closes} on")


def _save(runs: Runs, audit: Audit, result: Result) -> None:
    period = audit.period
    number = runs.add(
        Run(
            saved_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            first=period.first,
            end=period.end,
            timezone=period.timezone,
            agrees=result.agrees,
            is_preliminary=audit.is_preliminary,
            ledger_sha256=audit.ledger_sha256,
            invoices_sha256=audit.invoices_sha256,
            result=msgspec.Raw(encode(result)),
            inputs=inputs_of(audit.args),
        )
    )
    sys.stderr.write(f"streamgauge audit: kept as run {number}\n")
