"""`streamgauge ledger query`: the records, or totals of streams, tokens and cost."""

import sys
from collections.abc import Callable, Sequence

from streamgauge.cli.commands import Arguments
from streamgauge.cli.ledger_filter import filter_of
from streamgauge.cli.ledgers import MissingLedger, ledger_when_needed
from streamgauge.cli.tables import MAX_WIDTH, print_records, print_rows
from streamgauge.cli.tenants_file import read_tenants
from streamgauge.errors import DONE, UsageFault
from streamgauge.ledger import KEYS, Filter, Reader, Total
from streamgauge.ledger.row import KINDS
from streamgauge.settings.declarations import Settings

# The columns of totals after the keys: fields of Total, kinds of tokens, and the longest wait in seconds.
SUMS = (
    "streams",
    "with_usage",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "input_cached_tokens",
    "reasoning_tokens",
    "without_usage",
    "unknown_share",
    *KINDS,
    "cost_usd",
    "with_cost",
    "without_price",
    "longest_wait_s",
)


def run(settings: Settings, args: Arguments) -> int:
    """Prints records or totals of the ledger. A missing ledger is not created."""
    if args.limit is not None and args.limit < 0:
        raise UsageFault(f"--limit {args.limit} is negative: give 0 or more")
    with ledger_when_needed(settings) as ledger:
        chosen = chosen_by(settings, args, ledger)
        by = _keys(args.by, lambda name: _is_attribute(name, ledger))
        if by:
            totals = ledger().totals(by, chosen, newest_first=args.newest)[: args.limit]
            names = SUMS if args.output != "table" else _shown(totals)
            rows = [[*total.keys, *(_value(total, name) for name in names)] for total in totals]
            print_rows([*by, *names], rows, args.output, MAX_WIDTH)
            if args.output == "table" and (note := part_of(totals)):
                sys.stderr.write(f"{note}\n")
        else:
            print_records(ledger().query(args.limit, chosen, newest_first=args.newest), args.output, with_cost=True)
    return DONE


def chosen_by(settings: Settings, args: Arguments, ledger: Callable[[], Reader]) -> Filter:
    """The filter of the options that `ledger query` and `ledger export` share. `ledger`: gives the one whose attributes are
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


def _shown(totals: list[Total]) -> list[str]:
    """The columns of a table: kinds of tokens and a cost that no line has are left out."""
    optional = {*KINDS, "cost_usd", "longest_wait_s"}
    return [name for name in SUMS if name not in optional or any(_value(total, name) is not None for total in totals)]


def part_of(totals: Sequence[Total]) -> str:
    """A sentence that says of how many streams a cost is known; empty if that is all of them, or none."""
    known = sum([total.with_cost for total in totals])
    streams = known + sum([total.without_cost for total in totals])
    return f"The cost is that of {known} of {streams} streams." if 0 < known < streams else ""


def _value(total: Total, name: str) -> object:
    if name in KINDS:
        return total.kinds.get(name)
    if name == "longest_wait_s":
        return None if total.longest_wait_us is None else total.longest_wait_us / 1_000_000
    return getattr(total, name)


def _keys(given: str | None, is_known: Callable[[str], bool]) -> list[str]:
    if given is None:
        return []
    keys = [key.strip() for key in given.split(",")]
    for key in keys:
        if key not in KEYS and not is_known(key):
            raise UsageFault(
                f"--by {key} is not a key: use one or more of {', '.join(KEYS)}, and the attributes that records have"
            )
    if len(set(keys)) != len(keys):
        raise UsageFault(f"--by {given} contains a key twice: name each key once")
    return keys
