"""`streamgauge ledger query`: the records, or totals of streams and tokens."""

from collections.abc import Callable

from streamgauge.cli.commands import Arguments
from streamgauge.cli.ledger_filter import filter_of
from streamgauge.cli.ledgers import ledger_to_read
from streamgauge.cli.tables import MAX_WIDTH, print_records, print_rows
from streamgauge.config import Settings
from streamgauge.errors import DONE, Unavailable, UsageFault
from streamgauge.ledger import KEYS

# The columns of totals after the keys: fields of Total.
_SUMS = (
    "streams",
    "with_usage",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "input_cached_tokens",
    "reasoning_tokens",
)


def run(settings: Settings, args: Arguments) -> int:
    """Prints records or totals of the ledger. A missing ledger is not created."""
    if args.limit is not None and args.limit < 0:
        raise UsageFault(f"--limit {args.limit} is negative: give 0 or more")

    def is_attribute(name: str) -> bool:
        return _is_attribute(name, settings)

    by = _keys(args.by, is_attribute)
    chosen = filter_of(args.since, args.until, args.where, is_attribute)
    with ledger_to_read(settings) as ledger:
        if by:
            totals = ledger.totals(by, chosen, newest_first=args.newest)
            rows = [[*total.keys, *(getattr(total, name) for name in _SUMS)] for total in totals[: args.limit]]
            print_rows([*by, *_SUMS], rows, args.output, MAX_WIDTH)
        else:
            print_records(ledger.query(args.limit, chosen, newest_first=args.newest), args.output)
    return DONE


def _is_attribute(name: str, settings: Settings) -> bool:
    """Whether a record in the ledger has an attribute of this name. Without a ledger there is none."""
    try:
        with ledger_to_read(settings) as ledger:
            return ledger.has_attribute(name)
    except Unavailable:
        return False


def _keys(given: str | None, is_attribute: Callable[[str], bool]) -> list[str]:
    if given is None:
        return []
    keys = [key.strip() for key in given.split(",")]
    for key in keys:
        if key not in KEYS and not is_attribute(key):
            raise UsageFault(
                f"--by {key} is not a key: use one or more of {', '.join(KEYS)}, and the attributes that records have"
            )
    if len(set(keys)) != len(keys):
        raise UsageFault(f"--by {given} contains a key twice: name each key once")
    return keys
