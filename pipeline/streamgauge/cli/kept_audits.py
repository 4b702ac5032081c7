"""`streamgauge audit list`, `show` and `diff`: the results of audits that the ledger keeps."""

import sys

import msgspec

from streamgauge.audit.page import Kept
from streamgauge.audit.result import Result
from streamgauge.audit.rows import CHANGE_COLUMNS, changes
from streamgauge.audit.runs import Run, Runs
from streamgauge.cli.audit_output import print_result
from streamgauge.cli.ledgers import ledger_of_audits
from streamgauge.cli.parser import Arguments
from streamgauge.cli.tables import MAX_WIDTH, print_rows
from streamgauge.errors import DONE, FOUND, UsageFault
from streamgauge.settings.declarations import Settings

_RUN_COLUMNS = ("run", "saved_at", "from", "to", "timezone", "agrees", "preliminary", "ledger", "invoices")
# Characters of a digest that a table shows.
_SHOWN = 12


def run(settings: Settings, args: Arguments) -> int:
    """Runs the command. Raises UsageFault or Unavailable."""
    if args.action == "show" and args.number is None:
        raise UsageFault("name a kept run: `streamgauge audit list` shows their numbers")
    if args.action == "diff" and len(args.numbers) != 2:
        raise UsageFault("name two runs, the earlier one first: `streamgauge audit list` shows their numbers")
    with ledger_of_audits(settings) as ledger:
        return {"list": _list, "show": _show, "diff": _diff}[args.action](Runs(ledger), args)


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
    kept_run = runs.get(args.number)
    print_result(_result(kept_run), args.output, Kept(kept_run.number, kept_run.saved_at, kept_run.is_preliminary))
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
