"""A result as rows for tables and CSV, and the difference between two results of one period."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from streamgauge.audit.amounts import ZERO_USD, usd_text, usd_total
from streamgauge.audit.result import Amount, Line, Result, not_compared

CAUSE_COLUMNS = ("cause", "input_uncached", "input_cached", "input_cache_write", "output", "total", "usd", "streams")
LINE_COLUMNS = (
    "day", "provider", "model", "key", "tier", "our_tokens", "their_tokens", "token_difference",
    "our_usd", "their_usd", "usd_difference", "causes", "unexplained_tokens", "unexplained_usd",
)  # fmt: skip
CHANGE_COLUMNS = (
    "day", "provider", "model", "key", "tier", "our_tokens_before", "our_tokens_after", "our_usd_before", "our_usd_after",
    "their_tokens_before", "their_tokens_after", "their_usd_before", "their_usd_after",
)  # fmt: skip


class Number:
    """An exact decimal in a cell: a number, which needs no protection in a spreadsheet, with all of its digits."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def cause_rows(result: Result) -> list[list[object]]:
    """A row for each cause, by CAUSE_COLUMNS."""
    rows: list[list[object]] = []
    for total in result.causes:
        tokens = total.tokens
        counts = [None] * 5 if tokens is None else [getattr(tokens, name) for name in CAUSE_COLUMNS[1:6]]
        rows.append([total.cause, *counts, _usd(total.usd), total.streams])
    return rows


def line_rows(result: Result, *, all_lines: bool) -> list[list[object]]:
    """A row for each line, by LINE_COLUMNS; unless `all_lines`, only for those with a difference."""
    return [_line_row(line) for line in result.lines if all_lines or has_difference(line)]


def has_difference(line: Line) -> bool:
    """Whether both sides of a line differ in any way that is known."""
    tokens = line.difference.tokens
    differs = tokens is not None and any(
        (tokens.input_uncached, tokens.input_cached, tokens.input_cache_write, tokens.output)
    )
    return differs or line.difference.usd not in (None, "0") or bool(line.explanations)


def _line_row(line: Line) -> list[object]:
    causes = " ".join(dict.fromkeys(explanation.cause for explanation in line.explanations))
    return [
        *_group(line),
        _total(line.ours),
        _total(line.theirs),
        _total(line.difference),
        _usd(line.ours.usd),
        _usd(line.theirs.usd),
        _usd(line.difference.usd),
        causes or None,
        _total(line.unexplained),
        _usd(line.unexplained.usd),
    ]


class Change(NamedTuple):
    """A line of two results that is not the same in both; None where a result has no such line."""

    group: tuple[str | None, ...]
    before: Line | None
    after: Line | None

    def row(self) -> list[object]:
        """Its row, by CHANGE_COLUMNS."""
        values: list[object] = list(self.group)
        for side in ("ours", "theirs"):
            amounts = [None if line is None else getattr(line, side) for line in (self.before, self.after)]
            values += [None if amount is None else _total(amount) for amount in amounts]
            values += [None if amount is None else _usd(amount.usd) for amount in amounts]
        return values


def changes(before: Result, after: Result) -> Iterator[Change]:
    """The lines that differ between two results: ours if records came late, theirs if the invoice was issued again."""
    earlier = {_group(line): line for line in before.lines}
    later = {_group(line): line for line in after.lines}
    for group in sorted(earlier.keys() | later.keys(), key=lambda group: tuple(part or "" for part in group)):
        old, new = earlier.get(group), later.get(group)
        if old is None or new is None or (old.ours, old.theirs) != (new.ours, new.theirs):
            yield Change(group, old, new)


def _group(line: Line) -> tuple[str | None, ...]:
    return line.day, line.provider, line.model, line.key, line.tier


def _total(amount: Amount) -> int | None:
    return None if amount.tokens is None else amount.tokens.total


def _usd(text: str | None) -> Number | None:
    return None if text is None else Number(text)


def summary(result: Result) -> Sequence[str]:
    """Sentences about the whole period: what a person reads first."""
    period = result.period
    verdict = "agrees" if result.agrees else "does not agree"
    sentences = [
        f"{period.from_} to {period.to} ({period.timezone}, last day excluded): the bill {verdict} with the ledger."
    ]
    unexplained, left_out = result.unexplained, not_compared(result)
    if unexplained.tokens is not None:
        sentences.append(f"Unexplained tokens: {unexplained.tokens.total} (tolerance {result.tolerance.tokens}).")
    if unexplained.usd is not None:
        where = " in the lines whose money is compared" if left_out else ""
        sentences.append(f"Unexplained money{where}: {unexplained.usd} USD (tolerance {result.tolerance.usd}).")
    elif not left_out:
        sentences.append("Money is not compared: prices or billed amounts are unknown.")
    if left_out:
        billed = usd_text(usd_total(Decimal(line.theirs.usd or 0) for line in left_out) or ZERO_USD)
        sentences.append(
            f"Money of {len(left_out)} lines ({billed} USD billed) is not compared: streams of these lines have no cost."
        )
    for provider, ratio in result.coverage.items():
        if ratio is not None:
            sentences.append(f"Seen by taps, of the tokens that {provider} billed: {ratio}.")
    return sentences
