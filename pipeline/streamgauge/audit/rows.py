"""A result as rows for tables and CSV, as sentences, and the difference between two results of one period."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from streamgauge.audit.amounts import EXACT, KINDS, ZERO_USD, usd_text, usd_total
from streamgauge.audit.cause_texts import name_of, said_of
from streamgauge.audit.parts import Part, is_zero
from streamgauge.audit.result import Amount, Line, ProviderTotal, Result, TokenCounts, Verdict, Verdicts, not_compared
from streamgauge.audit.shown_amounts import counted, dollars, grouped
from streamgauge.audit.totals import totals_of

LINE_COLUMNS = (
    "day", "provider", "model", "key", "tier", "our_tokens", "their_tokens", "token_difference",
    "our_usd", "their_usd", "usd_difference", "causes", "unexplained_tokens", "unexplained_usd",
    "undecided_tokens", "undecided_usd", "alternatives",
)  # fmt: skip
PART_COLUMNS = ("cause", "provider", "model", "tokens", "USD", "streams", "days")
CHANGE_COLUMNS = (
    "day", "provider", "model", "key", "tier", "our_tokens_before", "our_tokens_after", "our_usd_before", "our_usd_after",
    "their_tokens_before", "their_tokens_after", "their_usd_before", "their_usd_after",
)  # fmt: skip
# The amounts of a total, in the order in which they are read.
TOTALS = ("billed", "ours", "difference", "explained", "undecided", "unexplained", "in_dispute")


class Number:
    """An exact decimal in a cell: a number, which needs no protection in a spreadsheet, with all of its digits."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def line_rows(result: Result) -> list[list[object]]:
    """A row for each line, by LINE_COLUMNS, with exact amounts."""
    return [_line_row(line) for line in result.lines]


def _line_row(line: Line) -> list[object]:
    causes = " ".join(dict.fromkeys(explanation.cause for explanation in line.explanations))
    alternatives = " ".join(dict.fromkeys("|".join(part.one_of) for part in line.alternatives))
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
        _total(line.undecided),
        _usd(line.undecided.usd),
        alternatives or None,
    ]


def part_rows(parts: Sequence[Part]) -> list[list[object]]:
    """A row for each part, by PART_COLUMNS: causes by their identifiers, which options take; money rounded to cents."""
    return [
        [
            " or ".join(part.causes) or "unexplained",
            part.provider,
            part.model if part.model is not None else ", ".join(part.labels) or None,
            shown_tokens(part.amount),
            shown_usd(part.amount),
            grouped(len(part.streams)) if part.streams else None,
            None if part.span is None else " to ".join(dict.fromkeys(part.span)),
        ]
        for part in parts
    ]


def part_details(parts: Sequence[Part]) -> Iterator[str]:
    """Sentences about parts: prices that changed, and kinds of tokens that were exchanged."""
    for part in parts:
        subject = (
            f"{' or '.join(part.causes) or 'unexplained'} of {part.provider}{f' {part.model}' if part.model else ''}"
        )
        tokens = part.amount.tokens
        kinds = [] if tokens is None else exchanged_kinds(tokens)
        sentences = [*part_sentences(part), ", ".join(f"{kind} {grouped(count)}" for kind, count in kinds)]
        yield from (f"{subject}: {sentence}" for sentence in sentences if sentence)


def what_to_do(parts: Sequence[Part], is_tolerated: bool = False) -> Iterator[str]:
    """For each group of causes that occurs, its plain name, its meaning and an action. `is_tolerated`: as in said_of."""
    for causes in dict.fromkeys(part.causes for part in parts):
        meanings, action = said_of(causes, is_tolerated)
        names = f"{' or '.join(causes) or 'unexplained'}{f' ({name_of(causes[0])})' if len(causes) == 1 else ''}"
        yield f"{names}: {' '.join([*meanings, f'What to do: {action}'])}"


def part_sentences(part: Part) -> list[str]:
    """Sentences about a part: its changed prices; and how much was moved to another line, where the sum is 0 for that."""
    return [*_rate_sentences(part), *_moved(part)]


def _moved(part: Part) -> Iterator[str]:
    tokens, size = part.amount.tokens, part.size
    if tokens is not None and size.tokens is not None and size.tokens.total and not kinds_of(tokens):
        usd = ""
        if part.amount.usd == "0" and size.usd is not None:
            usd = f", {dollars(usd_text(EXACT.divide(Decimal(size.usd), Decimal(2))))} USD"
        yield f"moved from line to line: {grouped(size.tokens.total // 2)} tokens{usd}"


def _rate_sentences(part: Part) -> list[str]:
    return [
        f"{'all tokens' if rate.kind == 'total' else rate.kind.replace('_', ' ')}:"
        f" {'an unknown price' if rate.old_usd_per_million is None else f'{rate.old_usd_per_million} USD'}"
        f" a million tokens by our costs, {rate.new_usd_per_million} USD billed, first seen {rate.first_seen}"
        for rate in part.rates.values()
    ]


def kinds_of(tokens: TokenCounts) -> list[tuple[str, int]]:
    """The kinds of tokens that are not 0, by their names for people."""
    return [(kind.replace("_", " "), count) for kind in KINDS if (count := getattr(tokens, kind))]


def exchanged_kinds(tokens: TokenCounts) -> list[tuple[str, int]]:
    """The kinds, if some are positive and some negative, so that their sum says nothing; else none."""
    kinds = kinds_of(tokens)
    signs = {count > 0 for _, count in kinds}
    return kinds if len(signs) == 2 else []


def shown_tokens(amount: Amount) -> str | None:
    """All tokens of an amount, for people."""
    return None if amount.tokens is None else grouped(amount.tokens.total)


def shown_usd(amount: Amount) -> str | None:
    """The money of an amount, for people."""
    return None if amount.usd is None else dollars(amount.usd)


def shown_totals(result: Result) -> list[ProviderTotal]:
    """The totals that a reader needs: of one provider its own, of several also those of all together."""
    totals = result.totals or totals_of(result.lines)  # a result that an earlier version kept has none
    return totals[1:] if len(totals) == 2 else totals


def total_name(total: ProviderTotal) -> str:
    """Whose total it is."""
    return total.provider or "all together"


def total_rows(totals: Sequence[ProviderTotal]) -> list[list[object]]:
    """A row for each amount of the totals, in dollars and then in tokens: its name, and a column for each total.

    Amounts that are unknown in all totals are left out.
    """
    rows: list[list[object]] = []
    for unit, shown in (("USD", shown_usd), ("tokens", shown_tokens)):
        for name in TOTALS:
            amounts = [shown(getattr(total, name)) for total in totals]
            if any(amount is not None for amount in amounts):
                rows.append([f"{name.replace('_', ' ')}, {unit}", *amounts])
            if name in ("billed", "ours"):
                lacking = [shown(left_out(total, name)) for total in totals]
                if any(amount is not None for amount in lacking):
                    rows.append([f"  not compared, {unit}", *lacking])
    return rows


def left_out(total: ProviderTotal, side: str) -> Amount:
    """What of a side is not compared though the other lines are: without it, billed minus ours would not be the difference.

    `side`: billed or ours. Nothing is known of it where no line is compared, which the verdict says.
    """
    lacking: Amount = getattr(total, f"{side}_not_compared")
    tokens, usd = lacking.tokens, lacking.usd
    has_tokens = tokens is not None and total.difference.tokens is not None and tokens.total != 0
    return Amount(tokens if has_tokens else None, usd if total.difference.usd is not None and usd != "0" else None)


def has_difference(line: Line) -> bool:
    """Whether both sides of a line differ in any way that is known."""
    return not is_zero(line.difference) or bool(line.explanations) or bool(line.alternatives)


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


def said_verdicts(verdicts: Verdicts | None) -> Verdicts | None:
    """The verdicts of a result; None if it is one of an earlier version, which has none."""
    if verdicts is None:
        return None
    is_said = any(one.verdict != "not_compared" or one.reason for one in (verdicts.tokens, verdicts.money))
    return verdicts if is_said else None


def verdict_sentence(subject: str, verdict: Verdict) -> str:
    """One of the two verdicts in words, with its reason. `subject`: Tokens or Money."""
    is_plural = subject.endswith("s")
    words = {
        "agrees": "agree" if is_plural else "agrees",
        "differs": "differ" if is_plural else "differs",
        "not_compared": "are not compared" if is_plural else "is not compared",
    }
    reason = f": {verdict.reason.rstrip('.')}" if verdict.reason else ""
    return f"{subject} {words[verdict.verdict]}{reason}."


def summary(result: Result) -> Sequence[str]:
    """Sentences about the whole period: what a person reads first."""
    period, verdicts = result.period, said_verdicts(result.verdicts)
    sentences = [f"{period.from_} to {period.to} ({period.timezone}, last day excluded): {headline(result)}."]
    if verdicts is not None:
        sentences += [verdict_sentence("Tokens", verdicts.tokens), verdict_sentence("Money", verdicts.money)]
    if is_compared(result):
        sentences += _on_what_was_compared(result)
    return [*sentences, *result.accepted, *result.notes]


def is_compared(result: Result) -> bool:
    """Whether tokens or money were compared. Results of earlier versions do not say that they were not."""
    verdicts = said_verdicts(result.verdicts)
    return verdicts is None or {verdicts.tokens.verdict, verdicts.money.verdict} != {"not_compared"}


def headline(result: Result) -> str:
    """Whether the bill agrees, in the words that a person reads first; what was not compared does not agree."""
    if not is_compared(result):
        return "nothing was compared"
    if not result.agrees:
        return "the bill does not agree with the ledger"
    verdicts = said_verdicts(result.verdicts)
    lacks_side = verdicts is not None and "not_compared" in (verdicts.tokens.verdict, verdicts.money.verdict)
    is_whole = not lacks_side and not any(result.uncovered_days.values())
    return f"the bill agrees with the ledger{'' if is_whole else ', as far as it was compared'}"


def _on_what_was_compared(result: Result) -> Iterator[str]:
    verdicts, unexplained, lines = said_verdicts(result.verdicts), result.unexplained, not_compared(result)
    if unexplained.tokens is not None:
        yield f"Unexplained tokens: {grouped(unexplained.tokens.total)} (tolerance {result.tolerance.tokens})."
    if unexplained.usd is not None:
        where = " in the lines whose money is compared" if lines else ""
        yield f"Unexplained money{where}: {dollars(unexplained.usd)} USD (tolerance {result.tolerance.usd} USD)."
    elif not lines and verdicts is None:
        yield "Money is not compared: prices or billed amounts are unknown."
    if lines and (verdicts is None or verdicts.money.verdict != "not_compared"):  # else the verdict has said it
        billed = usd_text(usd_total(Decimal(line.theirs.usd or 0) for line in lines) or ZERO_USD)
        yield (
            f"Money of {counted(len(lines), 'line')} ({dollars(billed)} USD billed) is not compared, since streams have no"
            " cost: `streamgauge ledger price` gives them one."
        )
    surplus = _providers_with_surplus(result)
    for provider, ratio in result.coverage.items():
        if ratio is not None:
            share = EXACT.multiply(Decimal(ratio), Decimal(100))
            at_most = " at most" if provider in surplus else ""
            yield f"The ledger has records of{at_most} {share:.2f} % of the tokens that {provider} billed."


def _providers_with_surplus(result: Result) -> set[str]:
    """The providers that bill tokens which are undecided or unexplained: a tap may have seen them or not."""
    return {
        line.provider
        for line in result.lines
        for part in (line.undecided, line.unexplained)
        if part.tokens is not None and part.tokens.total > 0
    }
