"""A result as one HTML page that can be read without Streamgauge, printed on A4, and sent: it loads nothing from anywhere.

Verdicts and totals come first, then a line for each cause and model with what to do, what is undecided and unexplained, days,
streams, and what the result was made of. Each rounded amount has the exact one as its value and title.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from streamgauge.audit.cause_texts import ACCEPT, CAUSE_TEXTS, name_of, said_of
from streamgauge.audit.parts import (
    Part,
    explained_parts,
    is_tolerated,
    is_zero,
    time_totals,
    undecided_parts,
    unexplained_parts,
)
from streamgauge.audit.period import day_after
from streamgauge.audit.result import Amount, Provenance, ProviderTotal, Result, TokenCounts, Verdict
from streamgauge.audit.rows import (
    TOTALS,
    exchanged_kinds,
    headline,
    kinds_of,
    left_out,
    part_sentences,
    said_verdicts,
    shown_totals,
    summary,
    total_name,
    verdict_sentence,
)
from streamgauge.audit.shown_amounts import ROUNDING, counted, dollars, grouped
from streamgauge.core.safe_values import escaped

# Streams of a cause, and names of a charge, that the page lists: it stays readable. `audit claim` writes all streams.
MAX_STREAMS = 50
MAX_LABELS = 20
_UNKNOWN = '<span class="unknown" title="unknown">&ndash;</span>'
_UNITS = "Money in USD, and tokens below it."
_TOTALS = (
    "Billed is what the provider's files say. Ours is what the ledger has: the usage that Streamgauge read from the"
    " provider's responses as they passed its taps, at the prices of its list. The difference is billed minus ours, of what"
    " is compared; it is the sum of explained, undecided and unexplained. Undecided: several causes explain it equally"
    " well. In dispute: what is undecided or unexplained, and what is explained by a cause that the provider has to answer"
    " for, each without its sign, so that a surplus hides no lack."
)
_IDS = "These are the ledger's ids of responses (streams)."
_CLAIMS = "writes all of them as CSV, with times, tokens, costs, and the ids that the provider knows"

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1a1a1a; margin: 1.5rem auto; max-width: 64rem; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 1.8rem 0 .5rem } h3 { font-size: 1rem; margin: 1rem 0 .3rem }
p { margin: .4rem 0 } .note, caption, small { color: #555 } .note { font-size: .85em }
.verdict { border-left: .4rem solid #b3261e; background: #fdf3f2; padding: .5rem 1rem; margin: .5rem 0 }
.verdict.agrees { border-color: #1b6e3c; background: #f1f8f4 }
.verdict.unclear { border-color: #8a6d00; background: #fdf9ec }
.verdict b { font-size: 1.15em }
table { border-collapse: collapse; width: 100%; font-size: .85rem }
caption { text-align: left; padding: .3rem 0 }
th, td { border-bottom: 1px solid #ccc; padding: .3rem .4rem; text-align: left; vertical-align: top; overflow-wrap: anywhere }
thead th { border-bottom: 2px solid #888; vertical-align: bottom; overflow-wrap: normal }
table.parts thead th:first-child { width: 45% }
tr.group th { border-bottom: 0; padding-top: .8rem } tr.group p { font-weight: normal; margin: .15rem 0 }
td.number, th.number { text-align: right }
td.day, td.number { white-space: nowrap } td.number { font-variant-numeric: tabular-nums }
td small { display: block; white-space: nowrap }
td.name small { white-space: normal }
td.digest, ul.streams { font: 11px/1.4 ui-monospace, monospace; word-break: break-all }
ul.streams { columns: 16rem; padding: 0; list-style: none; margin: .3rem 0 }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; font-size: .85em }
dl.facts dd { margin: 0; overflow-wrap: anywhere }
@media screen and (max-width: 45rem) {
  body { padding: 0 .6rem } thead { display: none } table, tbody, tr, td, th, caption { display: block }
  tr { border-bottom: 1px solid #888; padding: .3rem 0 } td, th { border: 0; padding: .1rem 0 }
  td.number { text-align: left; white-space: normal } td small { display: inline; white-space: normal }
  td[data-label]::before { content: attr(data-label) ": "; color: #555 } td.name[data-label]::before { content: none }
  td.name { font-weight: 600 } td.name small { font-weight: normal; display: block }
  td small + small::before { content: ", " }
  dl.facts { grid-template-columns: 1fr } dl.facts dt { color: #555 }
}
@page { size: A4 portrait; margin: 12mm }
@media print {
  body { margin: 0; padding: 0; max-width: none; font-size: 9.5px } table { font-size: 8.5px }
  td.digest, ul.streams { font-size: 7.5px } ul.streams { columns: 3 }
  th, td { padding: .2rem .3rem } h1 { font-size: 16px } h2 { font-size: 12px } h3 { font-size: 10.5px }
  h2, h3, tr.group { break-after: avoid } tr, .verdict { break-inside: avoid } thead { display: table-header-group }
  .verdict { print-color-adjust: exact }
}
"""


class Kept(NamedTuple):
    """What a kept run adds to its result. saved_at: UTC, RFC 3339."""

    number: int
    saved_at: str
    is_preliminary: bool


def page(result: Result, kept: Kept | None = None) -> str:
    """The page, as UTF-8 text."""
    period = result.period
    last = day_after(period.to, -1)
    title = f"Billing audit, {period.from_}{'' if last == period.from_ else f' to {last}'} ({period.timezone})"
    explained, undecided, unexplained = explained_parts(result), undecided_parts(result), unexplained_parts(result)
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{escape(title)}</h1>",
        *_verdicts(result),
        *_totals(shown_totals(result)),
        "<h2>Causes</h2>",
        *_parts(explained, "No cause of a difference was found."),
        *([] if result.agrees or not explained else [f'<p class="note">{_with_code(ACCEPT)}</p>']),
        *(["<h2>Undecided</h2>", *_parts(undecided, "")] if undecided else []),
        *(["<h2>Unexplained</h2>", *_parts(unexplained, "", is_tolerated(result, unexplained))] if unexplained else []),
        *_days(result),
        *_streams([*explained, *undecided], kept),
        *_findings(result),
        *_provenance(result, kept),
        "</body>\n</html>",
    ]
    return "\n".join(parts) + "\n"


# --- verdicts and totals --------------------------------------------------------------------------------------------


def _verdicts(result: Result) -> Iterator[str]:
    verdicts, (_, *sentences) = said_verdicts(result.verdicts), summary(result)
    first = headline(result)
    first = f"{first[0].upper()}{first[1:]}."
    colour = "agrees" if result.agrees else "differs"
    if verdicts is not None:
        pairs: list[tuple[str, Verdict]] = [("Tokens", verdicts.tokens), ("Money", verdicts.money)]
        yield f"<p>{escape(first)}</p>"
        for subject, verdict in pairs:
            sentence = verdict_sentence(subject, verdict)
            sentences.remove(sentence)
            words, _, reason = sentence.rstrip(".").partition(": ")
            named = f": {escape(_with_names(reason))}." if reason else "."
            yield f'<div class="verdict {_COLOURS[verdict.verdict]}"><b>{escape(words)}</b>{named}</div>'
    else:
        yield f'<div class="verdict {colour}"><b>{escape(first)}</b></div>'
    if sentences:
        yield f"<ul>{''.join(f'<li>{_with_code(sentence)}</li>' for sentence in sentences)}</ul>"


def _with_names(reason: str) -> str:
    """The reason of a verdict with the plain names of the causes in it."""
    return _CAUSE.sub(lambda found: f"\u201c{name_of(found[0])}\u201d", reason)


_CAUSE = re.compile(rf"\b({'|'.join(CAUSE_TEXTS)})\b")
_COLOURS = {"agrees": "agrees", "differs": "differs", "not_compared": "unclear"}


def _totals(totals: Sequence[ProviderTotal]) -> Iterator[str]:
    yield "<h2>Totals</h2>"
    if not totals:
        yield "<p>There are none: neither the ledger nor an invoice has a line in this period.</p>"
        return
    rows = [[_name_cell("Provider", total_name(total)), *_total_cells(total, TOTALS)] for total in totals]
    yield from _table(("Provider", *TOTALS), rows, _UNITS)
    yield f'<p class="note">{escape(_TOTALS)} {escape(ROUNDING)} Point at an amount to see the exact one.</p>'


def _total_cells(total: ProviderTotal, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        amount: Amount = getattr(total, name)
        tokens = "" if amount.tokens is None else f" <small>{_count(amount.tokens)}&nbsp;tokens</small>"
        yield _cell(name, f"{_money(amount.usd)}{tokens}{_left_out(total, name)}", "number")


def _left_out(total: ProviderTotal, name: str) -> str:
    """What of a side is not compared, so that the row adds up."""
    if name not in ("billed", "ours"):
        return ""
    lacking = left_out(total, name)
    usd = [] if lacking.usd is None else [f"{_money(lacking.usd)}&nbsp;USD"]
    tokens = [] if lacking.tokens is None else [f"{_count(lacking.tokens)}&nbsp;tokens"]
    return "".join(f" <small>{one} not compared</small>" for one in (*usd, *tokens))


# --- causes ---------------------------------------------------------------------------------------------------------


def _parts(parts: Sequence[Part], empty: str, is_tolerated: bool = False) -> Iterator[str]:
    """A table of parts, those of one cause below its name, meaning and action. `is_tolerated`: as in said_of."""
    if not parts:
        yield f"<p>{escape(empty)}</p>"
        return
    rows = []
    for _, group in groupby(parts, lambda part: part.causes):
        same = list(group)
        rows.append(_group_head(same[0], is_tolerated))
        rows += [f"<tr>{''.join(_part_cells(part))}</tr>" for part in same]
    yield from _table_of(
        ("Provider and model", "Tokens", "USD", "Streams", "First day", "Last day"), rows, kind="parts"
    )


def _group_head(part: Part, is_tolerated: bool) -> str:
    said, action = said_of(part.causes, is_tolerated)
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in said)
    sentences += f"<p><b>What to do:</b> {_with_code(action)}</p>"
    return f'<tr class="group"><th colspan="6" scope="rowgroup">{escape(_names(part.causes))}{sentences}</th></tr>'


def _names(causes: Sequence[str]) -> str:
    """The plain name of a cause; of several, that it is one of them."""
    if not causes:
        return "No cause"
    names = [name_of(cause) for cause in causes]
    return names[0] if len(names) == 1 else f"One of: {', '.join(names)}"


def _with_code(sentence: str) -> str:
    """A sentence of ours as HTML, with what is between backticks as code."""
    return re.sub("`(.+?)`", r"<code>\1</code>", escape(sentence))


def _part_cells(part: Part) -> Iterator[str]:
    name = ", ".join(text for text in (part.provider, part.model) if text)
    details = part_sentences(part)
    if part.labels:
        more = len(part.labels) - MAX_LABELS
        shown = ", ".join(list(part.labels)[:MAX_LABELS])
        details.append(f"on the bill: {shown}" + (f", and {more} more" if more > 0 else ""))
    small = "".join(f" <small>{escape(detail)}</small>" for detail in details)
    amount, span = part.amount, part.span or (None, None)
    yield _cell("Provider and model", f"{escape(name)}{small}", "name")
    yield _cell("Tokens", _UNKNOWN if amount.tokens is None else _count_by_kind(amount.tokens), "number")
    yield _cell("USD", _money(amount.usd), "number")
    yield _cell("Streams", grouped(len(part.streams)) if part.streams else "", "number")
    yield _cell("First day", escape(span[0] or "whole period"), "day")
    yield _cell("Last day", escape(span[1] or ""), "day")


# --- days and streams -----------------------------------------------------------------------------------------------


def _days(result: Result) -> Iterator[str]:
    unit, spans = time_totals(result)
    yield f"<h2>{unit}s</h2>"
    rows, equal = [], 0
    for span, totals in spans:
        for total in totals:
            if all(is_zero(getattr(total, name)) for name in ("difference", "undecided", "in_dispute")):
                equal += 1
            else:
                cells = [
                    _cell(unit, escape(span or "whole period"), "day"),
                    _name_cell("Provider", total.provider or ""),
                ]
                rows.append([*cells, *_total_cells(total, TOTALS[:-1])])
    if rows:
        yield from _table((unit, "Provider", *TOTALS[:-1]), rows, f"{unit}s with a difference. {_UNITS}")
    if equal:
        more = "more " if rows else ""
        yield f"<p>No difference: {counted(equal, f'{more}{unit.lower()}')}, counted for each provider.</p>"
    if not rows and not equal:
        yield "<p>There are none.</p>"


def _streams(parts: Sequence[Part], kept: Kept | None) -> Iterator[str]:
    """The streams of each cause, MAX_STREAMS at most, and how to get all of them with the ids that the provider knows."""
    streams: dict[tuple[str, ...], dict[str, None]] = {}
    for part in parts:
        streams.setdefault(part.causes, {}).update(part.streams)
    named = {causes: list(ids) for causes, ids in streams.items() if ids}
    if named:
        yield "<h2>Streams</h2>"
    for causes, ids in named.items():
        yield f"<h3>{escape(_names(causes))} ({grouped(len(ids))})</h3>"
        yield f'<ul class="streams">{"".join(f"<li>{escape(one)}</li>" for one in ids[:MAX_STREAMS])}</ul>'
        more = len(ids) - MAX_STREAMS
        number = "RUN" if kept is None else str(kept.number)
        cause = causes[0] if len(causes) == 1 else "undecided"
        yield (
            f'<p class="note">{f"And {grouped(more)} more. " if more > 0 else ""}{_IDS}'
            f" <code>streamgauge audit claim {number} --cause {cause}</code> {_CLAIMS}"
            f"{'; RUN is the number that --save gives' if kept is None else ''}.</p>"
        )


# --- findings and provenance ----------------------------------------------------------------------------------------


def _findings(result: Result) -> Iterator[str]:
    yield "<h2>Other findings</h2>"
    if not result.findings:
        yield "<p>None.</p>"
        return
    rows = []
    for finding in result.findings:
        whose = ", ".join(text for text in (finding.provider, finding.model) if text)
        rows.append([
            _name_cell("Finding", finding.finding.replace("_", " ")),
            _name_cell("Provider and model", whose),
            _cell("Streams", grouped(finding.count), "number"),
            _cell("Detail", _with_code(finding.detail), ""),
        ])  # fmt: skip
    yield from _table(("Finding", "Provider and model", "Streams", "Detail"), rows)


def _provenance(result: Result, kept: Kept | None) -> Iterator[str]:
    provenance, period = result.provenance, result.period
    yield "<h2>What this was made of</h2>"
    facts = [("Period", f"{period.from_} to {day_after(period.to, -1)}, whole days of {period.timezone}")]
    if kept is not None:
        facts.append(("Kept as", f"run {kept.number}, {kept.saved_at}{', preliminary' if kept.is_preliminary else ''}"))
    if provenance is not None:
        facts += list(_facts(provenance))
    yield _fact_list(facts)
    if provenance is None:
        yield '<p class="note">The version that made this result did not write down its files.</p>'
        return
    rows = []
    for invoice in provenance.invoices:
        rows.append([
            _name_cell("File", invoice.name),
            _cell("Format", escape(invoice.format), ""),
            _cell("Rows", grouped(invoice.rows), "number"),
            _cell("First day", escape(invoice.first_day or ""), "day"),
            _cell("Last day", escape(invoice.last_day or ""), "day"),
            _cell("SHA-256", escape(invoice.sha256), "digest"),
        ])  # fmt: skip
    yield from _table(("File", "Format", "Rows", "First day", "Last day", "SHA-256"), rows)


def _facts(provenance: Provenance) -> Iterator[tuple[str, str]]:
    yield "Version of Streamgauge", provenance.version
    yield "Price list", provenance.price_list or "none"
    yield "Records of the ledger, SHA-256", provenance.ledger_sha256
    for name, digest in provenance.files.items():
        yield f"File of {name}, SHA-256", digest
    yield "Options", ", ".join(f"{name} {value}" for name, value in provenance.options.items()) or "none"


def _fact_list(facts: Iterable[tuple[str, str]]) -> str:
    return (
        f'<dl class="facts">{"".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)}</dl>'
    )


# --- tables ---------------------------------------------------------------------------------------------------------

_NUMBERS = frozenset({*TOTALS, "Tokens", "USD", "Streams", "Rows"})


def _table(columns: Sequence[str], rows: Iterable[Iterable[str]], caption: str = "") -> Iterator[str]:
    yield from _table_of(columns, [f"<tr>{''.join(cells)}</tr>" for cells in rows], caption)


def _table_of(columns: Sequence[str], rows: Sequence[str], caption: str = "", kind: str = "") -> Iterator[str]:
    heads = "".join(
        f'<th scope="col"{_class("number") if name in _NUMBERS else ""}>{escape(_heading(name))}</th>'
        for name in columns
    )
    about = f"<caption>{escape(caption)}</caption>\n" if caption else ""
    yield f"<table{_class(kind)}>\n{about}<thead><tr>{heads}</tr></thead>\n<tbody>"
    yield from rows
    yield "</tbody>\n</table>"


def _heading(name: str) -> str:
    return name.replace("_", " ")


def _cell(label: str, content: str, kind: str) -> str:
    """A cell; `content` is HTML. A narrow screen shows the label before it."""
    return (
        f'<td{_class(kind)} data-label="{escape(_heading(label))}">{content}</td>'
        if content
        else f"<td{_class(kind)}></td>"
    )


def _name_cell(label: str, text: str) -> str:
    return _cell(label, escape(text), "name")


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _money(usd: str | None) -> str:
    """Rounded money with the exact amount as its value and title."""
    return (
        _UNKNOWN
        if usd is None
        else f'<data value="{escape(usd)}" title="{escape(usd)} USD">{escape(dollars(usd))}</data>'
    )


def _count(tokens: TokenCounts) -> str:
    """All tokens, with the kinds as the title."""
    kinds = ", ".join(f"{kind} {grouped(count)}" for kind, count in kinds_of(tokens))
    return f'<data value="{tokens.total}" title="{kinds or 0}">{grouped(tokens.total)}</data>'


def _count_by_kind(tokens: TokenCounts) -> str:
    """All tokens; and each kind, where kinds were exchanged, so that their sum says nothing."""
    small = "".join(f"<small>{kind} {grouped(count)}</small>" for kind, count in exchanged_kinds(tokens))
    return f"{_count(tokens)} {small}" if small else _count(tokens)


def escape(text: str) -> str:
    """A text of the invoice or the ledger in HTML: no markup, and no mark that changes the order of what is shown."""
    return html.escape(escaped(text, keep="\n\t"))
