"""Totals of a ledger as a report: a table that fits the terminal, and a page in HTML for a sheet of A4 and a phone.

Both end with the total of all lines, and say of when the first and the last record are: a month that was captured from its
middle on is no whole month. Money is rounded to cents; JSON and CSV have exact amounts.
"""

import html
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamgauge import __version__
from streamgauge.audit.shown_amounts import ROUNDING, dollars, grouped
from streamgauge.cli.shown_records import NOTHING, duration
from streamgauge.cli.tables import Column, print_fitted
from streamgauge.core.safe_values import escaped
from streamgauge.ledger import Total, sum_of
from streamgauge.ledger.row import KINDS
from streamgauge.runtime.log_time import rfc3339

# The columns of totals after the keys: fields of Total, kinds of tokens, the longest wait in seconds, and the first and last
# start (RFC 3339, UTC).
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
    "first_started_at",
    "last_started_at",
)

# The columns that people read, after the keys. A column of which no line has a number but 0 is left out, where `optional`.
COLUMNS = (
    Column("streams", right=True),
    Column("input_tokens", rank=1, right=True),
    Column("output_tokens", rank=2, right=True),
    Column("cost_usd", right=True),
    Column("without_price", rank=3, right=True, optional=True),
    Column("without_usage", rank=4, right=True, optional=True),
    Column("input_cached_tokens", rank=5, right=True, optional=True),
    Column("reasoning_tokens", rank=6, right=True, optional=True),
    Column("longest_wait", rank=7, right=True, optional=True),
)
_TOTAL = "total"
_MICROSECOND, _DAY_US = 1_000_000, 86_400_000_000


@dataclass(frozen=True)
class Report:
    """What is reported. by: the keys; totals: every line; shown: how many of them are printed; period: the start and the end
    (us since 1970, UTC; None: open); about: the period and the conditions in words; now_us: the time of the report.
    """

    by: Sequence[str]
    totals: Sequence[Total]
    shown: int
    period: tuple[int | None, int | None]
    about: Sequence[str]
    now_us: int

    @property
    def total(self) -> Total | None:
        """All lines together; None without a line."""
        return sum_of(self.totals)

    @property
    def lines(self) -> Sequence[Total]:
        """The lines that are printed."""
        return self.totals[: self.shown]


def value_of(total: Total, name: str) -> object:
    """The exact value of a column of SUMS."""
    if name in KINDS:
        return total.kinds.get(name)
    if name == "longest_wait_s":
        return None if total.longest_wait_us is None else total.longest_wait_us / _MICROSECOND
    if name in ("first_started_at", "last_started_at"):
        return _time(total.first_us if name.startswith("first") else total.last_us)
    return getattr(total, name)


def print_report(report: Report, line_width: int | None) -> list[str]:
    """Print the table and its notes. `line_width`: None cuts nothing. Returns the columns that have no place."""
    keys = [Column(key, least=16) for key in report.by]
    rows = [[*map(_key, total.keys), *_cells(total)] for total in report.lines]
    total = report.total
    last = [] if total is None else [_TOTAL, *[""] * (len(keys) - 1), *_cells(total)]
    left_out = print_fitted([*keys, *COLUMNS], rows, line_width, last)
    if total is not None:
        sys.stdout.write("\n" + "".join(f"{note}\n" for note in notes(report)))
    return left_out


def notes(report: Report) -> Iterator[str]:
    """What to know of the total, as sentences."""
    total = report.total
    if total is None:
        yield "There is no record."
        return
    first, last = total.first_us, total.last_us
    if first is not None and last is not None:
        yield f"First record {rfc3339(first / _MICROSECOND)}, last {rfc3339(last / _MICROSECOND)}."
        if gaps := list(_gaps(report, first, last)):
            yield f"No record is of the {' and the '.join(gaps)} of the period."
    priced, streams = total.with_cost, total.with_cost + total.without_cost
    if 0 < priced < streams:
        yield f"The cost is that of {grouped(priced)} of {grouped(streams)} streams."
    if total.without_usage:
        yield f"{_streams(total.without_usage)} of {grouped(total.streams)} reported no tokens."
    if len(report.lines) < len(report.totals):
        yield f"The total is that of all {grouped(len(report.totals))} lines."


def _gaps(report: Report, first_us: int, last_us: int) -> Iterator[str]:
    """Days of the period at its beginning and at its end, before the time of the report, that have no record."""
    since, until = report.period
    for text, gap in (
        ("first", None if since is None else first_us - since),
        ("last", None if until is None else min(until, report.now_us) - last_us),
    ):
        days = 0 if gap is None else gap // _DAY_US
        if days > 0:
            yield f"{text} {days} days" if days > 1 else f"{text} day"


def _streams(count: int) -> str:
    return f"{grouped(count)} stream{'' if count == 1 else 's'}"


def _time(us: int | None) -> str | None:
    """A time as records have it, with microseconds."""
    if us is None:
        return None
    seconds, rest = divmod(us, _MICROSECOND)
    return f"{rfc3339(seconds).removesuffix('Z')}.{rest:06}Z"


def _key(value: str | int | None) -> str:
    return NOTHING if value is None else str(value)


def _cells(total: Total) -> Iterator[str]:
    for column in COLUMNS:
        yield _shown(total, column)


def _shown(total: Total, column: Column) -> str:
    if column.name == "cost_usd":
        return NOTHING if total.cost_usd is None else dollars(total.cost_usd)
    if column.name == "longest_wait":
        return duration(None if total.longest_wait_us is None else total.longest_wait_us / _MICROSECOND)
    count = getattr(total, column.name)
    return NOTHING if count is None or (column.optional and not count) else grouped(count)


# --- the page ---------------------------------------------------------------------------------------------------------

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1a1a1a; margin: 1.5rem auto; max-width: 64rem; padding: 0 1rem }
h1 { font-size: 1.4rem; margin: 0 0 .3rem } p { margin: .25rem 0; color: #444 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: .9rem }
th, td { border-bottom: 1px solid #ccc; padding: .35rem .4rem; text-align: left; vertical-align: top }
td { overflow-wrap: anywhere } thead th { border-bottom: 2px solid #888; vertical-align: bottom }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums } td.number { overflow-wrap: normal }
tfoot td { border-top: 2px solid #888; font-weight: 600 }
@media screen and (max-width: 45rem) {
  body { padding: 0 .6rem } thead { display: none } table, tbody, tfoot, tr, td { display: block }
  tr { border-bottom: 1px solid #888; padding: .4rem 0 } td { border: 0; padding: .1rem 0; font-size: 1rem }
  tfoot td { border: 0 } td.number { text-align: left } td:empty { display: none }
  td[data-label]::before { content: attr(data-label) ": "; color: #555; font-weight: 400 }
}
@page { size: A4 portrait; margin: 12mm }
@media print {
  body { margin: 0; padding: 0; max-width: none; font-size: 10px } table { font-size: 8.5px }
  th, td { padding: .2rem .25rem } h1 { font-size: 16px } tr { break-inside: avoid }
  thead { display: table-header-group } tfoot { display: table-row-group }
}
"""


def report_page(report: Report) -> str:
    """The report as one page of HTML that loads nothing. Each rounded amount has the exact one as its value and title."""
    title = f"Usage by {', '.join(report.by)}"
    total = report.total
    cells = [_page_cells(line, [*map(_key, line.keys)], report) for line in report.lines]
    last = [] if total is None else [_page_cells(total, [_TOTAL, *[""] * (len(report.by) - 1)], report)]
    heads = [f'<th scope="col">{escape(key)}</th>' for key in report.by]
    heads += [f'<th scope="col" class="number">{escape(_label(column))}</th>' for column in _page_columns(report)]
    return "\n".join((
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(sentence)}</p>" for sentence in report.about),
        f"<table>\n<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>",
        *(f"<tr>{row}</tr>" for row in cells),
        "</tbody>",
        *(f"<tfoot><tr>{row}</tr></tfoot>" for row in last),
        "</table>",
        *(f"<p>{escape(note)}</p>" for note in (*notes(report), ROUNDING)),
        f"<p>Made {rfc3339(report.now_us / _MICROSECOND)} by Streamgauge {escape(__version__)}.</p>",
        "</body>\n</html>\n",
    ))  # fmt: skip


def escape(text: str) -> str:
    """A text as HTML."""
    return html.escape(escaped(text))


def _page_columns(report: Report) -> list[Column]:
    """The columns of which a line has a number, and those that are never left out."""
    return [
        column
        for column in COLUMNS
        if not column.optional or any(_shown(total, column) != NOTHING for total in report.totals)
    ]


def _label(column: Column) -> str:
    words = column.name.replace("_", " ")
    return words.replace("cost usd", "cost, USD")


def _page_cells(total: Total, keys: Sequence[str], report: Report) -> str:
    cells = [
        f'<td data-label="{escape(name)}">{escape(key)}</td>' if key else "<td></td>"
        for name, key in zip(report.by, keys, strict=True)
    ]
    for column in _page_columns(report):
        text = escape(_shown(total, column))
        if column.name == "cost_usd" and total.cost_usd is not None:
            exact = escape(total.cost_usd)
            text = f'<data value="{exact}" title="{exact} USD">{text}</data>'
        cells.append(f'<td class="number" data-label="{escape(_label(column))}">{text}</td>')
    return "".join(cells)
