"""`streamgauge ledger query|export|import|budgets`: records, totals of streams, tokens and cost, and what budgets have spent.

JSON lines of an export are the records as the ledger stores them, with their cost; an import reads these, and those that
`replay` and a records topic give. CSV and Parquet have the ledger's columns.
"""

import codecs
import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

from streamgauge.audit.gateway_logs import IMPORTED, LOGS, Unreadable, records_of
from streamgauge.cli.ledgers import MissingLedger, ledger_to_read, ledger_when_needed, opened_ledger
from streamgauge.cli.parser import HTML, TABLE, Arguments
from streamgauge.cli.shown_records import table_of
from streamgauge.cli.stream_costs import prices_of
from streamgauge.cli.tables import MAX_WIDTH, line_width, print_csv, print_fitted, print_records, print_rows
from streamgauge.cli.tenants_file import read_tenants
from streamgauge.cli.totals_report import SUMS, Report, print_report, report_page, value_of
from streamgauge.cli.whole_file import whole_file
from streamgauge.core.dialects import BY_NAME, OTHER
from streamgauge.core.outcome import Outcome
from streamgauge.errors import DONE, FOUND, MissingExtra, Unavailable, UsageFault
from streamgauge.ledger import (
    KEYS,
    MEASURES,
    NUMBER_KEYS,
    Comparison,
    Filter,
    Inserted,
    Ledger,
    LedgerRow,
    LedgerUnavailableError,
    Reader,
    Sign,
    Total,
    UnreadableRecordError,
)
from streamgauge.ledger.budgets import BudgetState, budget_states, load_budgets
from streamgauge.ledger.cost import COST_DIGITS, usd
from streamgauge.ledger.row import KINDS, MAX_ATTEMPT, microseconds_of, row_of
from streamgauge.ledger.zones import month_of, zone_of
from streamgauge.recorder.stream_id import derived_stream_id
from streamgauge.runtime.nearest import nearest
from streamgauge.settings.declarations import Settings
from streamgauge.taps import TAPS


def run(settings: Settings, args: Arguments) -> int:
    """Prints, exports or imports records, or prints budgets."""
    return {"query": _query, "export": _export, "import": _import, "budgets": _budgets}[args.action](settings, args)


# The most records of --slowest: they are sorted in memory.
MAX_SLOWEST = 1_000

# --- query ----------------------------------------------------------------------------------------------------------


def _query(settings: Settings, args: Arguments) -> int:
    """Prints records or totals of the ledger. A missing ledger is not created."""
    if args.limit is not None and args.limit < 0:
        raise UsageFault(f"--limit {args.limit} is negative: give 0 or more")
    if args.slowest is not None:
        _check_slowest(args)
    with ledger_when_needed(settings) as ledger:
        chosen = chosen_by(settings, args, ledger)
        by = _keys(args.by, lambda name: _is_attribute(name, ledger))
        if by:
            _print_totals(ledger().totals(by, chosen, newest_first=args.newest), by, args, chosen)
        elif args.output == HTML:
            raise UsageFault("--output html is a report of totals: say by which keys, as in --by tenant")
        else:
            _print_chosen(ledger(), args, chosen)
    return DONE


def _print_totals(totals: Sequence[Total], by: Sequence[str], args: Arguments, chosen: Filter) -> None:
    limit = len(totals) if args.limit is None else args.limit
    if args.output not in (TABLE, HTML):
        rows = [[*total.keys, *(value_of(total, name) for name in SUMS)] for total in totals[:limit]]
        print_rows([*by, *SUMS], rows, args.output, None)
        return
    period = chosen.since_us, chosen.until_us
    report = Report(by, totals, limit, period, list(_about(args)), time.time_ns() // 1_000)
    if args.output == HTML:
        sys.stdout.write(report_page(report))
        return
    width = line_width()
    say_left_out(print_report(report, width), width)


def _about(args: Arguments) -> Iterator[str]:
    """The period and the conditions of a report, in words."""
    if args.month:
        yield f"Month {args.month}, time zone {args.timezone}."
    elif args.since or args.until:
        parts = [f"from {args.since}"] if args.since else []
        parts += [f"before {args.until}"] if args.until else []
        yield f"Records that started {' and '.join(parts)}, time zone {args.timezone}."
    else:
        yield f"All records, time zone {args.timezone}."
    if args.where:
        yield f"Only {', '.join(args.where)}."


def _check_slowest(args: Arguments) -> None:
    if not 0 < args.slowest <= MAX_SLOWEST:
        raise UsageFault(f"--slowest {args.slowest} is out of range: give 1 to {MAX_SLOWEST}")
    if args.by or args.newest or args.limit is not None:
        raise UsageFault("--slowest excludes --by, --newest and --limit: it prints N records, the slowest first")


def _print_chosen(ledger: Reader, args: Arguments, chosen: Filter) -> None:
    if args.slowest is None:
        records = ledger.query(args.limit, chosen, newest_first=args.newest)
    else:
        records = iter(ledger.slowest(args.slowest, chosen))
    if args.output != TABLE:
        print_records(records, args.output, with_cost=True)
        return
    width = line_width()
    columns, rows = table_of(records, dict(chosen.tenants), whole=width is None)
    say_left_out(print_fitted(columns, rows, width), width)


def say_left_out(names: Sequence[str], width: int | None) -> None:
    """Says which columns the lines of a table had no place for."""
    if names:
        _say(f"Not shown in {width} columns: {', '.join(names)}. A wider terminal or --output json shows them.")


def chosen_by(settings: Settings, args: Arguments, ledger: Callable[[], Reader]) -> Filter:
    """The filter of the options that `ledger query`, `export` and `price` share. `ledger`: gives the one whose attributes are
    keys, too; it is called for a name that is no other key. Raises UsageFault, and what opening a ledger raises.
    """
    return filter_of(
        args.since,
        args.until,
        args.where,
        lambda name: _is_attribute(name, ledger),
        month=args.month,
        timezone=args.timezone,
        tenants=read_tenants(settings.tenants),
    )


def _is_attribute(name: str, ledger: Callable[[], Reader]) -> bool:
    """Whether a record has an attribute of this name. Without a ledger there is none; one that is away is an error."""
    try:
        return ledger().has_attribute(name)
    except MissingLedger:
        return False


def _keys(text: str | None, is_known: Callable[[str], bool]) -> list[str]:
    if text is None:
        return []
    keys = [key.strip() for key in text.split(",")]
    for key in keys:
        if key not in KEYS and not is_known(key):
            raise UsageFault(
                f"--by {key or repr(key)} is not a key: use one or more of {', '.join(KEYS)}, and the attributes that"
                " records have"
            )
    if len(set(keys)) != len(keys):
        raise UsageFault(f"--by {text} contains a key twice: name each key once")
    return keys


# --- the options that choose records ---------------------------------------------------------------------------------


# Limit of --where options in one command: more than are written by hand, and far below SQLite's limit of nested
# expressions (1,000).
MAX_CONDITIONS = 100
# Limit of credential ids in the file of --tenants: far below the databases' limits of parameters.
MAX_TENANTS = 10_000

# A date alone, or a time as RFC 3339 section 5.6 writes it: with seconds and a zone.
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?P<time>[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?", re.ASCII)


# The keys whose values are of a closed set, as records have them; text of other keys is not checked.
VALUES: dict[str, tuple[str, ...]] = {
    "outcome": get_args(Outcome),
    "finish_reason": ("stop", "length", "tool_calls", "content_filter", "error", "paused"),
    "usage_source": ("final", "partial", "estimated", "absent"),
    "dialect": (*BY_NAME, OTHER),
    "tap": (*(tap.name for tap in TAPS), IMPORTED),
}
_FORMS = {
    "stream_id": (
        re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII),
        "a whole id (`ledger show` finds a stream by a part of its id)",
    ),
    "day": (re.compile(r"\d{4}-\d\d-\d\d", re.ASCII), "a day such as 2026-11-01"),
    "month": (re.compile(r"\d{4}-\d\d", re.ASCII), "a month such as 2026-11"),
}

# A condition: a key, the first sign after it, and a value.
_CONDITION = re.compile(r"(?P<key>[^=!<>]*)(?P<sign>!=|<=|>=|=|<|>)(?P<value>.*)", re.DOTALL)
# What the value of each measure is, and an example.
_UNITS = {
    "ttft": ("seconds", "2"),
    "duration": ("seconds", "30"),
    "cost": ("US dollars", "0.5"),
    "status": ("an HTTP status", "499"),
}
_POSITIVE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,12})?", re.ASCII)


def _no_attribute(_: str) -> bool:
    return False


def filter_of(
    since: str | None,
    until: str | None,
    where: Sequence[str] | None,
    is_attribute: Callable[[str], bool] = _no_attribute,
    *,
    month: str | None = None,
    timezone: str = "UTC",
    tenants: Mapping[str, str] | None = None,
) -> Filter:
    """The filter that the options describe. `is_attribute`: whether a name that is no key is that of an attribute.
    `tenants`: tenants by credential_id. Raises UsageFault, which names the allowed values.
    """
    zone = zone_of(timezone)
    since_us, until_us = _moment("--since", since, zone), _moment("--until", until, zone)
    if month is not None:
        if since is not None or until is not None:
            raise UsageFault(f"--month {month} excludes --since and --until")
        since_us, until_us = month_of(month, zone)
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise UsageFault(f"--until {until} must be later than --since {since}: the range excludes the time of --until")
    if len(where or ()) > MAX_CONDITIONS:
        raise UsageFault(f"--where is given {len(where or ())} times: at most {MAX_CONDITIONS} are allowed")
    if len(tenants or ()) > MAX_TENANTS:
        raise UsageFault(f"--tenants holds {len(tenants or ())} credential ids: at most {MAX_TENANTS} are allowed")
    conditions = [_condition(condition, is_attribute) for condition in where or ()]
    return Filter(
        since_us,
        until_us,
        tuple((one.key, _value_of_key(one)) for one in conditions if not _is_comparison(one)),
        timezone=timezone,
        tenants=tuple((tenants or {}).items()),
        compared=tuple(one for one in conditions if _is_comparison(one)),
    )


def _is_comparison(condition: Comparison) -> bool:
    return condition.sign != "=" or condition.key in MEASURES


def _value_of_key(condition: Comparison) -> str | int | None:
    return int(condition.value) if isinstance(condition.value, float) else condition.value


def _moment(option: str, value: str | None, zone: tzinfo) -> int | None:
    if value is None:
        return None
    text = value.strip().upper()
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(text)
        return microseconds_of(moment if match["time"] else moment.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        raise UsageFault(
            f"{option} {value} is not a time: write a date of --timezone such as 2026-11-01, or an RFC 3339 time such as "
            "2026-11-01T09:30:00Z"
        ) from None


def _condition(condition: str, is_attribute: Callable[[str], bool]) -> Comparison:
    """A condition of --where; an empty value means null. Errors do not repeat the value, since it may be anything."""
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise UsageFault(
            f"--where {condition.strip()} has no value: write KEY=VALUE, or KEY= for null; keys are {', '.join(KEYS)}"
        )
    key, sign, value = match["key"].strip(), cast(Sign, match["sign"]), match["value"]
    if key in MEASURES:
        return Comparison(key, sign, _measure(key, sign, value))
    if key not in KEYS and not is_attribute(key):
        raise UsageFault(
            f"--where {key}{sign}...: {key} is not a key: use one of {', '.join((*KEYS, *MEASURES))}, or an attribute that"
            " records have"
        )
    if sign not in ("=", "!="):
        raise UsageFault(
            f"--where {key}{sign}...: only {', '.join(MEASURES)} are compared by {sign}: write {key}=VALUE"
        )
    if not value:
        return Comparison(key, sign, None)
    if key in NUMBER_KEYS:
        return Comparison(key, sign, _number(key, value))
    if (allowed := VALUES.get(key)) is not None and value not in allowed:
        raise UsageFault(
            f"--where {key}{sign}...: the value must be one of {', '.join(allowed)}, or empty for null"
            f"{nearest(value, allowed)}"
        )
    if (form := _FORMS.get(key)) is not None and not form[0].fullmatch(value):
        raise UsageFault(f"--where {key}{sign}...: the value must be {form[1]}, or empty for null")
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes of the command line that are not UTF-8
        raise UsageFault(f"--where {key}{sign}...: the value must be UTF-8 text") from None
    return Comparison(key, sign, value)


def _measure(key: str, sign: Sign, value: str) -> float | None:
    """The value of a measure in the unit that the filter has; None for an empty one."""
    unit, example = _UNITS[key]
    if not value and sign in ("=", "!="):
        return None
    if not _POSITIVE.fullmatch(value):
        raise UsageFault(f"--where {key}{sign}...: the value must be {unit}, as in '{key}>{example}'")
    return int(Decimal(value).scaleb(COST_DIGITS)) if key == "cost" else float(value)


def _number(key: str, value: str) -> int:
    # The length comes first: Python refuses to convert a very long number.
    if not re.fullmatch("[0-9]{1,10}", value) or int(value) > MAX_ATTEMPT:
        raise UsageFault(
            f"--where {key}=...: the value must be a whole number from 0 to {MAX_ATTEMPT}, or empty for null"
        )
    return int(value)


# --- export ----------------------------------------------------------------------------------------------------------


_TEXT = (
    "day", "upstream", "dialect", "endpoint", "model", "request_model", "response_model", "outcome", "finish_reason",
    "tenant", "credential_id", "tap", "service_tier", "inference_geo", "trace_id", "request_digest", "response_id",
    "last_event_id", "resumed_from", "usage_source", "upstream_host",
)  # fmt: skip
_NUMBERS = (
    "attempt", "wait_us", "input_tokens", "output_tokens", "total_tokens", "input_cached_tokens",
    "input_cache_write_tokens", "input_cache_write_1h_tokens", "reasoning_tokens", "audio_input_tokens",
    "audio_output_tokens",
)  # fmt: skip

# `started_us`: microseconds since 1970, UTC. `attributes`: a JSON object. `cost_usd`, `list_usd`: decimal strings.
_COST = ("cost_usd", "price_source", "price_date", "list_usd")
EXPORT_COLUMNS = ("stream_id", "started_us", *_TEXT, "attributes", *_NUMBERS, *KINDS, *_COST)
# The columns that hold whole numbers; all others are text.
EXPORT_NUMBERS = frozenset({"started_us", *_NUMBERS, *KINDS})


def _values_of(record: bytes, tenants: Mapping[str, str]) -> list[str | int | None]:
    """The values of a stored record. `tenants`: by credential_id, for a record without a tenant of its own."""
    row = LedgerRow.of_stored(record)
    values = vars(row) | {
        "tenant": row.tenant or tenants.get(row.credential_id or ""),
        "cost_usd": None if row.cost is None else usd(row.cost.total),
        "price_source": None if row.cost is None else row.cost.source,
        "price_date": None if row.cost is None else row.cost.date,
        "list_usd": None if row.cost is None else row.cost.list_usd,
    }
    return [values[name] for name in EXPORT_COLUMNS]


Write = Callable[[BinaryIO, Iterable[bytes], Mapping[str, str]], None]


def _export(settings: Settings, args: Arguments) -> int:
    """Writes the chosen records, oldest first. A file appears when it is whole."""
    to_stdout = str(args.file) in ("-", "")
    if to_stdout and args.output == "parquet":
        raise UsageFault("Parquet is written into a file: give its name")
    if not to_stdout and Path(args.file).is_dir():
        raise UsageFault(f"{args.file} is a directory: give the name of a file in it")
    write = _writer(args.output)
    with ledger_when_needed(settings) as ledger:
        chosen = chosen_by(settings, args, ledger)
        if to_stdout:
            write(sys.stdout.buffer, ledger().query(None, chosen), dict(chosen.tenants))
            return DONE
        with whole_file(Path(args.file)) as file:
            write(file, ledger().query(None, chosen), dict(chosen.tenants))
    return DONE


def _writer(output: str) -> Write:
    if output != "parquet":
        return {"jsonl": _write_lines, "csv": _write_csv}[output]
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise MissingExtra("Parquet", "parquet") from None
    except ImportError as error:
        raise Unavailable(f"pyarrow cannot be loaded ({error})") from None
    return partial(_write_parquet, pyarrow)


def _write_lines(file: BinaryIO, records: Iterable[bytes], _: Mapping[str, str]) -> None:
    file.writelines(b"%b\n" % record for record in records)


def _write_csv(file: BinaryIO, records: Iterable[bytes], tenants: Mapping[str, str]) -> None:
    # Unlike io.TextIOWrapper, it does not close the file if the reader of stdout leaves: the command flushes it at its end.
    text = codecs.getwriter("utf-8")(file)
    print_csv(EXPORT_COLUMNS, (_values_of(record, tenants) for record in records), text)


# Records of one row group: some 30 MB of JSON in memory.
_GROUP_ROWS = 10_000


def _write_parquet(pyarrow: Any, file: BinaryIO, records: Iterable[bytes], tenants: Mapping[str, str]) -> None:
    """Writes the columns of an export, and `record`, the JSON. Money stays text, so that no reader makes a float of it."""
    types = {name: pyarrow.int64() if name in EXPORT_NUMBERS else pyarrow.string() for name in EXPORT_COLUMNS}
    schema = pyarrow.schema([*types.items(), ("record", pyarrow.string())])
    rest = iter(records)
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(rest, _GROUP_ROWS)):
            rows = [_values_of(record, tenants) for record in group]
            columns = [list(column) for column in zip(*rows, strict=True)]
            arrays = [*columns, [record.decode() for record in group]]
            arrays = [pyarrow.array(values, field.type) for values, field in zip(arrays, schema, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


# --- import ----------------------------------------------------------------------------------------------------------


# Records of one transaction, as the worker's sink has it.
_BATCH = 500
# The format of files that hold records, of `ledger import`.
RECORDS = "records"
# A longer line is no record (bytes): a record has some KiB.
_MAX_LINE = 16 * 1024 * 1024
# Unreadable lines of a file that are reported one by one; the others are only counted.
_REPORTED = 10


class _Imported:
    """What became of the lines of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.new = self.same = self.different = self.unpriced = self.unreadable = self.left_out = 0

    def add(self, inserted: Inserted) -> None:
        """Counts one transaction."""
        self.new += inserted.new
        self.same += inserted.same
        self.different += inserted.different
        self.unpriced += inserted.unpriced

    def refuse(self, line: int, error: UnreadableRecordError | str) -> None:
        """Counts a line that holds no record, and says why."""
        self.unreadable += 1
        if self.unreadable <= _REPORTED:
            _say(f"{self.file}: line {line}: {error}")

    @property
    def has_no_record(self) -> bool:
        """Whether the file has lines, and none of them is a record."""
        return self.unreadable > 0 and not self.new + self.same + self.different

    @property
    def sentence(self) -> str:
        """All counts."""
        left_out = (
            f", {self.left_out} left out: answered by the gateway, or no call of a model" if self.left_out else ""
        )
        return (
            f"{self.file}: {self.new} new record{_s(self.new)} ({self.unpriced} without a price), {self.same} known, "
            f"{self.different} different from the known one, {self.unreadable} unreadable line{_s(self.unreadable)}{left_out}"
        )


def _import(settings: Settings, args: Arguments) -> int:
    """Stores the records of all files. Returns FOUND if a line holds no record, or a record other than the known one."""
    if not args.paths:
        raise UsageFault("give one or more files, or - for stdin")
    has_findings = False
    with opened_ledger(settings, prices_of(settings)) as ledger:
        for path in args.paths:
            if args.format == RECORDS:
                with _opened(path) as file:
                    name = "stdin" if str(path) == "-" else str(path)
                    imported = _Imported(name)
                    _store(ledger, _rows_of(_lines_of(file), imported), imported)
            else:
                imported = _Imported(str(path))
                _store(ledger, _rows_of_log(path, args, imported), imported)
            _say(imported.sentence)
            if args.format == RECORDS and imported.has_no_record:
                _say(f"{imported.file}: no line is a record: `streamgauge replay` makes records of recordings")
            has_findings = has_findings or imported.unreadable > 0 or imported.different > 0
    return FOUND if has_findings else DONE


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageFault(f"{path} cannot be read: {error.strerror}") from None
    with file:
        yield file


def _store(ledger: Ledger, rows: Iterator[LedgerRow], imported: _Imported) -> None:
    while batch := list(islice(rows, _BATCH)):
        try:
            imported.add(ledger.insert(batch))
        except LedgerUnavailableError as error:
            again = f"import {imported.file} again: records that are stored are not stored twice"
            raise Unavailable(f"{error}; {again}") from None


def _rows_of(lines: Iterable[tuple[int, bytes]], imported: _Imported) -> Iterator[LedgerRow]:
    for number, line in lines:
        try:
            yield LedgerRow.of_line(line)
        except UnreadableRecordError as why:
            imported.refuse(number, why)


def _rows_of_log(path: Path, args: Arguments, imported: _Imported) -> Iterator[LedgerRow]:
    """The rows of a gateway's log. Raises UsageFault, also (as InvoiceError) for a file that is no such log."""
    if str(path) == "-":
        raise UsageFault(f"--format {args.format} reads files: give a file instead of -")
    if not LOGS[args.format].names_provider and not args.provider:
        raise UsageFault(f"--format {args.format} names no provider: give it, as in --provider openai")
    for number, record in enumerate(records_of(path, args.format, args.provider, derived_stream_id), 1):
        if record is None:
            imported.left_out += 1
        elif isinstance(record, Unreadable):
            imported.refuse(record.line, record.fault)
        else:
            try:
                yield row_of(record)
            except UnreadableRecordError as why:
                imported.refuse(number, why)


def _lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers; only the beginning of a line that is too long."""
    number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        part = line
        while len(part) == _MAX_LINE and not part.endswith(b"\n"):
            part = file.readline(_MAX_LINE)
        if text := line.strip():
            yield number, text


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


# --- budgets ---------------------------------------------------------------------------------------------------------


_BUDGET_COLUMNS = (
    "key", "value", "month", "budget_usd", "spent_usd", "forecast_usd", "reached_percent", "streams", "without_price",
    "without_usage",
)  # fmt: skip


def _budgets(settings: Settings, args: Arguments) -> int:
    """Prints every budget of the file. Returns FOUND if one is spent."""
    budgets = load_budgets(Path(args.file))
    timezone = args.timezone or budgets.timezone
    zone = zone_of(timezone)
    now_us = time.time_ns() // 1_000
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now_us)
    name = args.month or f"{now.astimezone(zone):%Y-%m}"
    month = month_of(name, zone)
    chosen = filter_of(None, None, None, timezone=timezone, tenants=read_tenants(settings.tenants))
    with ledger_to_read(settings) as ledger:
        states = budget_states(ledger, budgets.budgets, month, now_us, chosen)
    print_rows(_BUDGET_COLUMNS, [_budget_row(state, name) for state in states], args.output, MAX_WIDTH)
    return FOUND if any(state.reached >= 100 for state in states) else DONE


def _budget_row(state: BudgetState, month: str) -> list[object]:
    budget = state.budget
    return [
        budget.key,
        budget.value,
        month,
        usd(budget.limit),
        state.spent_usd,
        state.forecast_usd,
        state.reached,
        state.streams,
        state.without_price,
        state.without_usage,
    ]
