"""`streamgauge audit`: holds the ledger against invoices; and lists, shows and compares runs that were kept."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec

from streamgauge.audit.amounts import usd_text
from streamgauge.audit.conclude import conclude, nothing_compared
from streamgauge.audit.findings import Finding
from streamgauge.audit.invoices import InvoiceFile, open_invoices
from streamgauge.audit.mapping import Mapping, mapping_of
from streamgauge.audit.ours import Ours
from streamgauge.audit.page import page
from streamgauge.audit.period import Period, day_after
from streamgauge.audit.provenance import provenance
from streamgauge.audit.rates_file import NO_RATES, load_rates
from streamgauge.audit.reconcile import reconcile
from streamgauge.audit.recounts import reported_outside
from streamgauge.audit.result import InvoiceUsed, Provenance, Result, Tolerance, encode
from streamgauge.audit.rows import (
    CAUSE_COLUMNS,
    CHANGE_COLUMNS,
    LINE_COLUMNS,
    cause_rows,
    changes,
    line_rows,
    summary,
)
from streamgauge.audit.runs import Run, Runs
from streamgauge.audit.scope import accept, load_scope
from streamgauge.audit.theirs import Theirs
from streamgauge.cli.ledgers import ledger_of_audits, ledger_to_read
from streamgauge.cli.parser import Arguments
from streamgauge.cli.tables import MAX_WIDTH, print_csv, print_rows, print_table
from streamgauge.errors import DONE, FOUND, USAGE, UsageFault
from streamgauge.ledger.zones import zone_of
from streamgauge.settings.declarations import Settings

_RUN_COLUMNS = ("run", "saved_at", "from", "to", "timezone", "agrees", "preliminary", "ledger", "invoices")
# Characters of a digest that a table shows.
_SHOWN = 12


def run(settings: Settings, args: Arguments) -> int:
    """Runs `audit`, or one of its second words. Raises InvoiceError (an invoice was refused), UsageFault, Unavailable."""
    if args.command == "audit":
        return _audit(settings, args)
    if args.action == "show" and args.number is None:
        raise UsageFault("name a kept run: `streamgauge audit list` shows their numbers")
    if args.action == "diff" and len(args.numbers) != 2:
        raise UsageFault("name two runs, the earlier one first: `streamgauge audit list` shows their numbers")
    with ledger_of_audits(settings) as ledger:
        return {"list": _list, "show": _show, "diff": _diff}[args.action](Runs(ledger), args)


def _audit(settings: Settings, args: Arguments) -> int:
    for option, value in (("--invoice FILE", args.invoice), ("--from DATE", args.from_), ("--to DATE", args.to)):
        if not value:
            raise UsageFault(f"{option} is missing")
    period = Period.of(args.from_, args.to, args.timezone)
    tolerance = _tolerance(args.tolerance_tokens, args.tolerance_usd)
    mapping = _mapping(args.map)
    rates = NO_RATES if args.rates is None else load_rates(Path(args.rates))
    scope = (*(load_scope(Path(args.scope)) if args.scope else ()), *accept(args.accept or ()))
    miscounted = frozenset() if args.recounts is None else reported_outside(Path(args.recounts))
    files = open_invoices(map(Path, args.invoice), mapping.meters)
    is_preliminary = _is_preliminary(period, args.settle_days)
    with ledger_to_read(settings) as ledger, ledger_of_audits(settings) if args.save else nullcontext() as store:
        ours = Ours(ledger, period, mapping)
        reconciled = reconcile(ours, Theirs(files, period, mapping, rates), period, Decimal(tolerance.usd), miscounted)
        if is_preliminary:
            reconciled.findings.add(_preliminary(period, args.settle_days))
        findings = reconciled.findings.all(reconciled.unmapped)
        result = conclude(reconciled.cells, reconciled.shapes, findings, period, tolerance, scope)
        result.provenance = _provenance(args, ours.sha256, files)
        why_nothing = nothing_compared(result)
        if store is not None and why_nothing is None:
            _save(Runs(store), period, result, is_preliminary, ours.sha256, [file.sha256 for file in files])
    _print(result, args.output)
    if why_nothing is not None:
        kept = " The result was not kept." if args.save else ""
        sys.stderr.write(f"streamgauge audit: nothing was compared: {why_nothing}.{kept}\n")
        return USAGE
    return DONE if result.agrees else FOUND


def _provenance(args: Arguments, ledger_sha256: str, files: Sequence[InvoiceFile]) -> Provenance:
    used = [
        InvoiceUsed(file.path.name, file.sha256, "" if file.format is None else file.format.name, file.rows, None, None)
        for file in files
    ]
    options = {
        "--timezone": args.timezone,
        "--tolerance-tokens": args.tolerance_tokens,
        "--tolerance-usd": args.tolerance_usd,
        "--accept": " ".join(sorted(args.accept or ())) or None,
        "--cost": getattr(args, "cost", None),
    }
    paths = {"--map": args.map, "--scope": args.scope, "--rates": args.rates, "--recounts": args.recounts}
    return provenance(ledger_sha256, used, options, paths)


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


def _mapping(path: str | None) -> Mapping:
    if path is None:
        return Mapping()
    try:
        return mapping_of(Path(path).read_text(encoding="utf-8"), path)
    except OSError as error:
        raise UsageFault(f"--map {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageFault(f"--map {path} is not UTF-8 text") from None


def _is_preliminary(period: Period, settle_days: int | None) -> bool:
    if settle_days is None:
        return False
    if not 0 <= settle_days <= 366:
        raise UsageFault(f"--settle-days {settle_days} is not allowed: give 0 to 366")
    today = datetime.now(zone_of(period.timezone)).strftime("%Y-%m-%d")
    return today < day_after(period.end, settle_days)


def _preliminary(period: Period, settle_days: int) -> Finding:
    closes = day_after(period.end, settle_days)
    sys.stderr.write(f"streamgauge audit: this result is preliminary: the period may be closed from {closes} on\n")
    return Finding("preliminary", None, None, 0, (), f"the period may be closed from {closes} on")


def _save(
    runs: Runs, period: Period, result: Result, is_preliminary: bool, ledger: str, invoices: Sequence[str]
) -> None:
    number = runs.add(
        Run(
            saved_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            first=period.first,
            end=period.end,
            timezone=period.timezone,
            agrees=result.agrees,
            is_preliminary=is_preliminary,
            ledger_sha256=ledger,
            invoices_sha256=sorted(invoices),
            result=msgspec.Raw(encode(result)),
        )
    )
    sys.stderr.write(f"streamgauge audit: kept as run {number}\n")


def _print(result: Result, output: str) -> None:
    if output == "json":
        sys.stdout.write(encode(result).decode() + "\n")
    elif output == "html":
        sys.stdout.write(page(result))
    elif output == "csv":
        print_csv(LINE_COLUMNS, line_rows(result, all_lines=True))
    else:
        _print_tables(result)


def _print_tables(result: Result) -> None:
    sys.stdout.write("\n".join(summary(result)) + "\n")
    if result.causes:
        sys.stdout.write("\n")
        print_table(CAUSE_COLUMNS, cause_rows(result), MAX_WIDTH)
    if lines := line_rows(result, all_lines=False):
        sys.stdout.write("\n")
        print_table(LINE_COLUMNS, lines, MAX_WIDTH)
    if result.findings:
        sys.stdout.write("\n")
        rows = [
            [finding.finding, finding.provider, finding.model, finding.count, finding.detail]
            for finding in result.findings
        ]
        print_table(("finding", "provider", "model", "streams", "detail"), rows, None)


def _list(runs: Runs, args: Arguments) -> int:
    rows = [
        [
            kept_run.number,
            kept_run.saved_at,
            kept_run.first,
            kept_run.end,
            kept_run.timezone,
            kept_run.agrees,
            kept_run.is_preliminary,
            kept_run.ledger_sha256[:_SHOWN],
            " ".join(digest[:_SHOWN] for digest in kept_run.invoices_sha256),
        ]
        for kept_run in runs.all()
    ]
    print_rows(_RUN_COLUMNS, rows, args.output, None)
    return DONE


def _show(runs: Runs, args: Arguments) -> int:
    _print(_result(runs.get(args.number)), args.output)
    return DONE


def _diff(runs: Runs, args: Arguments) -> int:
    """Exit code 1: the runs differ."""
    before, after = (runs.get(number) for number in args.numbers)
    if (before.first, before.end, before.timezone) != (after.first, after.end, after.timezone):
        raise UsageFault(
            f"runs {before.number} and {after.number} are for different periods: compare two runs of one period"
        )
    rows = [change.row() for change in changes(_result(before), _result(after))]
    if args.output == "table":
        sys.stdout.write(_sameness("records of the ledger", before.ledger_sha256 == after.ledger_sha256))
        sys.stdout.write(_sameness("invoices", before.invoices_sha256 == after.invoices_sha256))
    if rows or args.output != "table":
        shown = [[value if value is None or isinstance(value, int) else str(value) for value in row] for row in rows]
        print_rows(CHANGE_COLUMNS, shown if args.output == "json" else rows, args.output, MAX_WIDTH)
    return FOUND if rows else DONE


def _sameness(subject: str, is_same: bool) -> str:
    return f"The {subject} are {'the same' if is_same else 'not the same'} in both runs.\n"


def _result(kept_run: Run) -> Result:
    return msgspec.json.decode(kept_run.result, type=Result)
