"""`streamgauge audit list`, `show`, `diff` and `claim`: the results of audits that the ledger keeps."""

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from streamgauge.audit.claims import CLAIM_COLUMNS, UNDECIDED, Wanted, billed_requests, claim_of, claim_rows
from streamgauge.audit.invoices import open_invoices
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.page import Kept
from streamgauge.audit.period import Period
from streamgauge.audit.provenance import digest_of
from streamgauge.audit.result import Result
from streamgauge.audit.rows import CHANGE_COLUMNS, changes
from streamgauge.audit.runs import Inputs, Run, Runs
from streamgauge.audit.verification import differences, with_kept_names
from streamgauge.cli.audit import FILE_OPTIONS, Audit, inputs_of, mapping_in
from streamgauge.cli.audit_output import print_result
from streamgauge.cli.commands import parse
from streamgauge.cli.ledgers import ledger_of_audits, ledger_to_read
from streamgauge.cli.parser import Arguments
from streamgauge.cli.tables import MAX_WIDTH, print_csv, print_rows
from streamgauge.errors import DONE, FOUND, UsageFault
from streamgauge.settings.declarations import Settings

_RUN_COLUMNS = (
    "run", "saved_at", "from", "to", "timezone", "agrees", "preliminary", "ledger", "invoices", "tokens", "money",
)  # fmt: skip
# Characters of a digest that a table shows.
_SHOWN = 12


def run(settings: Settings, args: Arguments) -> int:
    """Runs the command. Raises UsageFault, Unavailable, or InvoiceError for an invoice that is read again and refused."""
    if args.action in ("show", "claim") and args.number is None:
        raise UsageFault("name a kept run: `streamgauge audit list` shows their numbers")
    if args.action == "diff" and len(args.numbers) != 2:
        raise UsageFault("name two runs, the earlier one first: `streamgauge audit list` shows their numbers")
    with ledger_of_audits(settings) as ledger:
        runs = Runs(ledger)
        if args.action == "claim":
            return _claim(settings, runs.get(args.number), args)
        if args.action == "show" and args.verify:
            return _verify(settings, runs.get(args.number), args)
        return {"list": _list, "show": _show, "diff": _diff}[args.action](runs, args)


def _list(runs: Runs, args: Arguments) -> int:
    rows = [
        [
            kept_run.number,
            kept_run.saved_at,
            kept_run.first,
            kept_run.end,
            kept_run.timezone,
            _said(kept_run.agrees, args.output),
            _said(kept_run.is_preliminary, args.output),
            kept_run.ledger_sha256[:_SHOWN],
            " ".join(digest[:_SHOWN] for digest in kept_run.invoices_sha256),
            *_verdicts(kept_run, args.output),
        ]
        for kept_run in runs.all()
    ]
    print_rows(_RUN_COLUMNS, rows, args.output, None)
    return DONE


def _said(is_so: bool, output: str) -> bool | str:
    """A truth value: in a table by a word."""
    return is_so if output != "table" else "yes" if is_so else "no"


def _verdicts(kept_run: Run, output: str) -> tuple[str | None, str | None]:
    verdicts = kept_run.verdicts()
    if verdicts is None:
        return None, None
    tokens, money = verdicts.tokens.verdict, verdicts.money.verdict
    return (tokens.replace("_", " "), money.replace("_", " ")) if output == "table" else (tokens, money)


def _show(runs: Runs, args: Arguments) -> int:
    for option in ("invoice", *FILE_OPTIONS):
        if getattr(args, option):
            raise UsageFault(f"--{option} is for --verify: a kept run is shown without its files")
    kept_run = runs.get(args.number)
    print_result(kept_run.decoded(), args.output, Kept(kept_run.number, kept_run.saved_at, kept_run.is_preliminary))
    return DONE


# --- making a run again ---------------------------------------------------------------------------------------------


def _verify(settings: Settings, kept_run: Run, args: Arguments) -> int:
    """Exit code 1: its bytes are not the same."""
    if args.output not in ("table", "json"):
        raise UsageFault(f"--verify prints sentences or JSON: leave out --output {args.output}")
    if kept_run.inputs is None:
        raise UsageFault(
            f"run {kept_run.number} was kept by an earlier version, without its options and the names of its files: it cannot"
            " be made again"
        )
    words = options_again(kept_run.inputs, args, kept_run.number)
    again = parse(["audit", *words])
    audit = Audit(again, datetime.fromisoformat(kept_run.saved_at))
    with ledger_to_read(settings) as ledger:
        made = audit.make(ledger)
    kept = kept_run.decoded()
    differ = differences(kept_run, kept, with_kept_names(made, kept), inputs_of(again), audit.ledger_sha256)
    if args.output == "json":
        sys.stdout.write(json.dumps({"run": kept_run.number, "same": not differ, "differs": differ}) + "\n")
    else:
        says = "other bytes" if differ else "the same bytes"
        sys.stdout.write("\n".join([f"Run {kept_run.number}, made again, has {says}.", *differ]) + "\n")
    return FOUND if differ else DONE


def options_again(inputs: Inputs, args: Arguments, number: int) -> list[str]:
    """The options of a kept run, with the files that are given now instead of its own. Raises UsageFault if a file is not
    there.
    """
    return list(_options_again(inputs, args, number))


def _options_again(inputs: Inputs, args: Arguments, number: int) -> Iterator[str]:
    for path in args.invoice or [file.path for file in inputs.invoices]:
        yield f"--invoice={_existing(path, 'invoice', number)}"
    for name in FILE_OPTIONS:
        own = inputs.files.get(name)
        path = getattr(args, name) or (None if own is None else own.path)
        if path is not None:
            yield f"--{name}={_existing(path, name, number)}"
    for name, value in inputs.options.items():
        flag = f"--{name.strip('_').replace('_', '-')}"
        if value is True:
            yield flag
        else:
            yield from (f"{flag}={one}" for one in (value if isinstance(value, list) else [value]))


def _existing(path: str, option: str, number: int) -> str:
    if not Path(path).exists():
        others = ", and all others with it" if option == "invoice" else ""
        raise UsageFault(f"{path} of run {number} is not there: name where it is by --{option}{others}")
    return path


# --- claims ---------------------------------------------------------------------------------------------------------


def _claim(settings: Settings, kept_run: Run, args: Arguments) -> int:
    """Exit code 1: the ledger has not all of the streams any more."""
    result = kept_run.decoded()
    if not args.cause:
        raise UsageFault(f"--cause is missing: run {kept_run.number} {_causes_of(result)}")
    claim = claim_of(result, Wanted(args.cause, args.provider, args.model))
    if not claim.lines and not claim.whole_lines:
        raise UsageFault(_why_no_claim(kept_run.number, result, args))
    period = Period.of(kept_run.first, kept_run.end, kept_run.timezone)
    mapping = _mapping(kept_run, args.map)
    billed = _billed(args.invoice, mapping)
    missing = set(claim.lines)
    with ledger_to_read(settings) as ledger:
        print_csv(CLAIM_COLUMNS, _without(missing, claim_rows(claim, period, ledger, mapping, billed)))
    if claim.whole_lines:
        _say("the cause names no single streams: these are all streams of the lines that it concerns")
    if missing:
        _say(f"the ledger no longer has {len(missing)} of the {len(claim.lines)} streams that the run names")
    return FOUND if missing else DONE


def _why_no_claim(number: int, result: Result, args: Arguments) -> str:
    """Why a claim for a cause has no stream."""
    occurs = any(one.cause == args.cause for line in result.lines for one in line.explanations)
    narrowed = " with this provider and model" if args.provider or args.model else ""
    if occurs and not narrowed:
        return (
            f"run {number} names no stream for --cause {args.cause}: the ledger has none of what no tap saw, and of what is"
            f" no tokens. `streamgauge audit show {number}` has its amounts, days and models"
        )
    return f"run {number} has no stream for --cause {args.cause}{narrowed}: it {_causes_of(result)}"


def _without(missing: set[str], rows: Iterable[list[object]]) -> Iterator[list[object]]:
    """The rows; takes the streams of them out of `missing`."""
    for row in rows:
        missing.discard(str(row[0]))
        yield row


def _say(sentence: str) -> None:
    sys.stderr.write(f"streamgauge audit claim: {sentence}\n")


def _causes_of(result: Result) -> str:
    """The causes for which a result names streams."""
    named = dict.fromkeys(one.cause for line in result.lines for one in line.explanations if one.streams)
    undecided = any(part.streams for line in result.lines for part in line.alternatives)
    causes = [*sorted(named), *([UNDECIDED] if undecided else [])]
    return f"names streams for {', '.join(causes)}" if causes else "names no streams"


def _mapping(kept_run: Run, path: str | None) -> Mapping:
    """The map of the run. Raises UsageFault if it is not there with the same bytes, and no other one is given."""
    own = None if kept_run.inputs is None else kept_run.inputs.files.get("map")
    if path is None and own is not None and digest_of("--map", own.path) != own.sha256:
        raise UsageFault(f"{own.path} is not the map that run {kept_run.number} was made with: give that one by --map")
    return mapping_in(path if path is not None or own is None else own.path)


def _billed(paths: list[str], mapping: Mapping) -> dict[str, Decimal]:
    files = open_invoices(map(Path, paths), mapping.meters)
    return billed_requests(line for file in files for line in file.lines())


# --- two runs -------------------------------------------------------------------------------------------------------


def _diff(runs: Runs, args: Arguments) -> int:
    """Exit code 1: the runs differ."""
    before, after = (runs.get(number) for number in args.numbers)
    if (before.first, before.end, before.timezone) != (after.first, after.end, after.timezone):
        raise UsageFault(
            f"runs {before.number} and {after.number} are for different periods: compare two runs of one period"
        )
    rows = [change.row() for change in changes(before.decoded(), after.decoded())]
    if args.output == "table":
        sys.stdout.write(_sameness("records of the ledger", before.ledger_sha256 == after.ledger_sha256))
        sys.stdout.write(_sameness("invoices", before.invoices_sha256 == after.invoices_sha256))
    if rows or args.output != "table":
        shown = [[value if value is None or isinstance(value, int) else str(value) for value in row] for row in rows]
        print_rows(CHANGE_COLUMNS, shown if args.output == "json" else rows, args.output, MAX_WIDTH)
    return FOUND if rows else DONE


def _sameness(subject: str, is_same: bool) -> str:
    return f"The {subject} are {'the same' if is_same else 'not the same'} in both runs.\n"
