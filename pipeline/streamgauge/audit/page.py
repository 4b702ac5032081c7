"""A result as one HTML page that can be read without Streamgauge, printed, and sent: it loads nothing from anywhere."""

import html
from collections.abc import Iterable, Sequence

from streamgauge.audit.result import Line, Result
from streamgauge.audit.rows import CAUSE_COLUMNS, LINE_COLUMNS, cause_rows, has_difference, line_rows, summary
from streamgauge.core.safe_values import escaped

# What each cause means, for a reader who does not know the program.
MEANINGS = {
    "late_across_midnight": "The request began before midnight, and is billed on the next day.",
    "time_zone_shift": "The invoice counts days in another time zone than this report.",
    "missing_from_invoice": "The provider reported this usage to us, and does not bill it.",
    "duplicate_lines": "The invoice contains the same row more than once.",
    "wrong_unit": "Amounts differ by a factor of 100: cents were written as dollars, or dollars as cents.",
    "price_changed": "The tokens agree, and the price per token is not the one that we know.",
    "cache_counted_differently": "Input that was read from or written to a cache is counted as another kind of input.",
    "reasoning_counted_differently": "Reasoning tokens are counted twice, or not at all.",
    "aborted_without_usage": "The stream ended before it reported its usage, and is billed.",
    "retries_billed_twice": "A failed attempt is billed, and so is the attempt that succeeded.",
    "tier": "The usage is billed in another service tier.",
    "coverage": "The provider bills usage that no tap has seen.",
}
# Streams that a line names: a page stays readable. JSON has all.
MAX_STREAMS = 50

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1a1a1a; margin: 2rem auto; max-width: 100rem; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.verdict { border-left: .4rem solid #b3261e; background: #fdf3f2; padding: .6rem 1rem }
.verdict.ok { border-color: #1b6e3c; background: #f1f8f4 }
table { border-collapse: collapse; width: 100%; font-size: .85rem }
caption { text-align: left; padding: .3rem 0; color: #555 }
th, td { border-bottom: 1px solid #ccc; padding: .25rem .5rem; text-align: left; vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.day { white-space: nowrap }
ul.streams { font: 11px/1.4 ui-monospace, monospace; columns: 2 }
@page { size: A4 landscape; margin: 10mm }
@media print {
  body { margin: 0; max-width: none; font-size: 9px } th, td { padding: .2rem .3rem }
  h2, h3 { break-after: avoid } tr { break-inside: avoid }
  thead { display: table-header-group }
}
"""
_TEXT_COLUMNS = frozenset(
    {"cause", "causes", "day", "provider", "model", "key", "tier", "finding", "detail", "meaning"}
)


def page(result: Result) -> str:
    """The page, as UTF-8 text."""
    title = f"Billing audit, {result.period.from_} to {result.period.to}"
    causes = [[*row, MEANINGS[str(row[0])]] for row in cause_rows(result)]
    findings = [
        [finding.finding, finding.provider, finding.model, finding.count, finding.detail] for finding in result.findings
    ]
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{escape(title)}</h1>",
        f'<div class="verdict{" ok" if result.agrees else ""}">',
        *(f"<p>{escape(sentence)}</p>" for sentence in summary(result)),
        "</div>",
        *_section("Causes", (*CAUSE_COLUMNS, "meaning"), causes, "No cause of a difference was found."),
        *_section(
            "Lines with a difference",
            LINE_COLUMNS,
            line_rows(result, all_lines=False),
            "Every line agrees.",
            "Differences are the invoice minus the ledger. Tokens are all kinds together.",
        ),
        *_explanations(result),
        *_section(
            "Findings without an invoice", ("finding", "provider", "model", "streams", "detail"), findings, "None."
        ),
        *_section("All lines", LINE_COLUMNS, line_rows(result, all_lines=True), "There are none."),
        "</body>\n</html>",
    ]
    return "\n".join(parts) + "\n"


def _section(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str, caption: str = ""
) -> Iterable[str]:
    yield f"<h2>{escape(title)}</h2>"
    if not rows:
        yield f"<p>{escape(empty)}</p>"
        return
    yield "<table>"
    if caption:
        yield f"<caption>{escape(caption)}</caption>"
    heads = "".join(f"<th{_class(name)}>{escape(_heading(name))}</th>" for name in columns)
    yield f"<thead><tr>{heads}</tr></thead>\n<tbody>"
    for row in rows:
        cells = (f"<td{_class(name)}>{_cell(value, name)}</td>" for name, value in zip(columns, row, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody>\n</table>"


def _explanations(result: Result) -> Iterable[str]:
    """For each line with a cause, the causes with their streams and prices."""
    lines = [line for line in result.lines if line.explanations and has_difference(line)]
    if lines:
        yield "<h2>Explanations</h2>"
    for line in lines:
        yield f"<h3>{escape(_name(line))}</h3>\n<ul>"
        for explanation in line.explanations:
            tokens = "" if explanation.tokens is None else f", {explanation.tokens.total} tokens"
            usd = "" if explanation.usd is None else f", {explanation.usd} USD"
            cause = escape(explanation.cause.replace("_", " "))
            yield f"<li><b>{cause}</b>{tokens}{usd}. {escape(MEANINGS[explanation.cause])}"
            for rate in explanation.rates:
                old = "an unknown price" if rate.old_usd_per_million is None else f"{rate.old_usd_per_million} USD"
                yield (
                    f"<p>{escape(rate.kind.replace('_', ' '))}: {old}, now {rate.new_usd_per_million} USD"
                    f" for a million tokens, first seen on {escape(rate.first_seen)}.</p>"
                )
            if explanation.streams:
                named = "".join(f"<li>{escape(stream)}</li>" for stream in explanation.streams[:MAX_STREAMS])
                more = len(explanation.streams) - MAX_STREAMS
                yield f'<ul class="streams">{named}</ul>' + (f"<p>and {more} more</p>" if more > 0 else "")
            yield "</li>"
        yield "</ul>"


def _name(line: Line) -> str:
    return ", ".join(part for part in (line.day, line.provider, line.model, line.key, line.tier) if part)


def _heading(name: str) -> str:
    return " ".join("USD" if word == "usd" else word for word in name.split("_"))


def _class(name: str) -> str:
    if name == "day":
        return ' class="day"'
    return "" if name in _TEXT_COLUMNS else ' class="number"'


def _cell(value: object, name: str) -> str:
    """A value as text. The digits of numbers are grouped: -12,345.678."""
    if value is None:
        return ""
    if name in _TEXT_COLUMNS:
        return escape(str(value).replace("_", " ") if name in ("cause", "causes") else str(value))
    whole, point, rest = str(value).partition(".")
    sign = "-" if whole.startswith("-") else ""
    digits = whole.removeprefix("-")
    return escape(f"{sign}{int(digits):,}{point}{rest}" if digits.isdecimal() else str(value))


def escape(text: str) -> str:
    """A text of the invoice or the ledger in HTML: no markup, and no mark that changes the order of what is shown."""
    return html.escape(escaped(text, keep="\n\t"))
