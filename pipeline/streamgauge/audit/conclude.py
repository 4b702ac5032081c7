"""Makes the result of what was reconciled, and checks its invariants before it is shown."""

from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal
from fractions import Fraction

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, plus, total_of, usd_plus, usd_text, usd_total
from streamgauge.audit.cells import Cell, Explanation, Undecided
from streamgauge.audit.findings import Finding
from streamgauge.audit.period import Period, day_after
from streamgauge.audit.result import (
    CAUSES,
    Alternatives,
    Amount,
    CauseTotal,
    Days,
    FindingLine,
    Line,
    LineExplanation,
    RateChange,
    Result,
    TokenCounts,
    Tolerance,
    Verdict,
    Verdicts,
)
from streamgauge.audit.scope import Accepted, Known, accepted
from streamgauge.audit.shown_amounts import counted, dollars
from streamgauge.audit.theirs import Shape
from streamgauge.audit.totals import totals_of

# The only cause with which an audit agrees: both sides counted the stream, on two days.
HARMLESS = "late_across_midnight"
# Decimal places of the share that the ledger has records of.
_PLACES = 4


class Sum:
    """A sum of the amounts that are known; each may have no tokens or no money. If none is known, the sum is unknown."""

    def __init__(self) -> None:
        self.tokens: Tokens | None = None
        self.usd: Decimal | None = None
        self.splits: frozenset[str] = frozenset()

    def add(self, tokens: Tokens | None, usd: Decimal | None, splits: frozenset[str]) -> None:
        """Add an amount; `splits`: the kinds of input that it counts apart."""
        if tokens is not None:
            self.tokens = plus(self.tokens or ZERO, tokens)
            self.splits |= splits
        if usd is not None:
            self.usd = usd_plus(self.usd or ZERO_USD, usd)

    def amount(self) -> Amount:
        """The sum, as the result has it."""
        return _amount(self.tokens, self.usd, self.splits)


def conclude(
    cells: Sequence[Cell],
    shapes: Mapping[str, Shape],
    findings: Iterable[Finding],
    period: Period,
    tolerance: Tolerance,
    scope: Sequence[Known] = (),
) -> Result:
    """The result. `scope`: what the operator knows beforehand.

    Raises AssertionError if a difference is not the sum of its parts, which would be a bug.
    """
    for cell in cells:
        _check(cell)
    causes, unexplained, undecided = _causes(cells), Sum(), Sum()
    for cell in cells:
        unexplained.add(cell.rest if cell.shape.has_tokens else None, cell.usd_rest, cell.shape.splits)
        undecided.add(*_undecided(cell), cell.shape.splits)
    known = accepted(cells, scope, day_after(period.end, -1))
    verdicts = Verdicts(
        _not_compared(cells, None if any(shape.has_tokens for shape in shapes.values()) else "no invoice has tokens")
        or _on_tokens(cells, tolerance, known),
        _not_compared(cells, _why_no_money(shapes.values())) or _on_money(cells, tolerance, known),
    )
    lines = [_line(cell) for cell in cells]
    return Result(
        period=Days(period.first, period.end, period.timezone),
        agrees=_agrees(verdicts) and not any(cell.lacks_cost for cell in cells),
        tolerance=tolerance,
        coverage={provider: _coverage(provider, shapes[provider], cells) for provider in sorted(shapes)},
        causes=causes,
        lines=lines,
        unexplained=unexplained.amount(),
        undecided=undecided.amount(),
        verdicts=verdicts,
        totals=totals_of(lines),
        accepted=list(known.sentences),
        findings=[
            FindingLine(
                finding.name, finding.provider, finding.model, finding.concerned, list(finding.streams), finding.detail
            )
            for finding in findings
        ],
        notes=[*_lacking(shapes, "tokens"), *_lacking(shapes, "money")],
    )


def _lacking(shapes: Mapping[str, Shape], subject: str) -> list[str]:
    """A sentence for each provider whose invoices lack the subject, if those of others have it."""
    has = {provider: getattr(shape, f"has_{subject}") for provider, shape in shapes.items()}
    lacking = sorted(provider for provider, has_it in has.items() if not has_it)
    if len(lacking) == len(has):
        return []
    if subject == "money":  # of money without a rate, another sentence tells
        lacking = [provider for provider in lacking if not shapes[provider].lacks_rate]
    verb = "are" if subject == "tokens" else "is"
    return [f"No invoice of {provider} has {subject}, so its {subject} {verb} not compared." for provider in lacking]


def _check(cell: Cell) -> None:
    parts = cell.parts
    assert plus(total_of(part.tokens for part in parts), cell.rest) == cell.tokens, f"{cell.group} does not add up"
    if cell.usd is not None:
        money = usd_total(part.usd for part in parts)
        assert usd_plus(money, cell.usd_rest) == cell.usd, f"the money of {cell.group} does not add up"


def _undecided(cell: Cell) -> tuple[Tokens | None, Decimal | None]:
    tokens = total_of(part.tokens for part in cell.undecided) if cell.shape.has_tokens else None
    return tokens, None if cell.usd is None else usd_total(part.usd for part in cell.undecided)


def _agrees(verdicts: Verdicts) -> bool:
    both = {verdicts.tokens.verdict, verdicts.money.verdict}
    return "differs" not in both and "agrees" in both


def nothing_compared(result: Result) -> str | None:
    """Why neither tokens nor money were compared; None if one of them was."""
    tokens, money = result.verdicts.tokens, result.verdicts.money
    if {tokens.verdict, money.verdict} != {"not_compared"}:
        return None
    reasons = dict.fromkeys(reason for reason in (tokens.reason, money.reason) if reason)
    return "; ".join(reasons)


def _on_tokens(cells: Sequence[Cell], tolerance: Tolerance, known: Accepted) -> Verdict:
    """The verdict on tokens. Absolute amounts are added up: a surplus in one line hides no lack in another."""
    compared = [cell for cell in cells if cell.shape.has_tokens]
    harmful = {
        explanation.cause
        for cell in compared
        for explanation in cell.explanations
        if explanation.tokens != ZERO and explanation.cause != HARMLESS and not known.has(explanation)
    }
    undecided = sum(part.tokens.size for cell in compared for part in cell.undecided if not known.has(part))
    unexplained = sum(cell.rest.size for cell in compared)
    return _verdict(harmful, _tokens(undecided), _tokens(unexplained) if unexplained > tolerance.tokens else "")


def _tokens(count: int) -> str:
    return counted(count, "token") if count else ""


def _on_money(cells: Sequence[Cell], tolerance: Tolerance, known: Accepted) -> Verdict:
    """The verdict on money, of the lines whose streams all have a cost."""
    billed = [cell for cell in cells if cell.shape.has_money]
    compared = [cell for cell in billed if cell.usd is not None]
    lacking = [cell for cell in billed if cell.lacks_cost]
    harmful = {
        explanation.cause
        for cell in compared
        for explanation in cell.explanations
        if explanation.usd and explanation.cause != HARMLESS and not known.has(explanation)
    }
    undecided = usd_total(
        abs(part.usd or ZERO_USD) for cell in compared for part in cell.undecided if not known.has(part)
    )
    over = usd_total(max(ZERO_USD, abs(cell.usd_rest or ZERO_USD) - cell.theirs.slack) for cell in compared) or ZERO_USD
    verdict = _verdict(harmful, _usd(undecided), _usd(over) if over > Decimal(tolerance.usd) else "")
    if verdict.verdict == "agrees" and lacking:
        amount = _usd(usd_total(cell.theirs.usd for cell in lacking)) or "0.00 USD"
        return Verdict(
            "not_compared", f"{amount} are billed for {counted(len(lacking), 'line')} with streams that have no cost"
        )
    return verdict


def _why_no_money(shapes: Iterable[Shape]) -> str | None:
    """Why the money of no invoice can be compared; None if that of an invoice can."""
    shapes = list(shapes)
    if any(shape.has_money for shape in shapes):
        return None
    if any(shape.lacks_rate for shape in shapes):
        return "the money of the invoices is in other currencies than USD, and days have no rate of exchange (--rates)"
    return "no invoice has money"


def _usd(amount: Decimal | None) -> str:
    return f"{dollars(usd_text(amount))} USD" if amount else ""


def _not_compared(cells: Sequence[Cell], why_none: str | None) -> Verdict | None:
    """The verdict if there is nothing to compare. `why_none`: why no invoice has any of it; None if one has."""
    if why_none is not None:
        return Verdict("not_compared", why_none)
    if not any(cell.theirs.token_rows or cell.theirs.money_rows for cell in cells):
        return Verdict("not_compared", "the invoices have no row in the period")
    if not any(cell.ours.streams for cell in cells):
        return Verdict("not_compared", "the ledger has no stream of these providers in the period")
    return None


def _verdict(harmful: Set[str], undecided: str, unexplained: str) -> Verdict:
    reasons = [
        *([f"{unexplained} unexplained"] if unexplained else []),
        *([f"{undecided} undecided"] if undecided else []),
        *([", ".join(cause for cause in CAUSES if cause in harmful)] if harmful else []),
    ]
    return Verdict("differs", "; ".join(reasons)) if reasons else Verdict("agrees", None)


def _causes(cells: Sequence[Cell]) -> list[CauseTotal]:
    sums: dict[str, Sum] = {}
    streams: dict[str, set[str]] = {}
    for cell in cells:
        for explanation in cell.explanations:
            tokens = explanation.tokens if cell.shape.has_tokens else None
            sums.setdefault(explanation.cause, Sum()).add(tokens, explanation.usd, cell.shape.splits)
            streams.setdefault(explanation.cause, set()).update(explanation.streams)
    totals = []
    for cause in CAUSES:
        if cause in sums:
            amount = sums[cause].amount()
            totals.append(CauseTotal(cause, amount.tokens, amount.usd, len(streams[cause])))  # type: ignore[arg-type]
    return totals


def _coverage(provider: str, shape: Shape, cells: Sequence[Cell]) -> str | None:
    if not shape.has_tokens:
        return None
    own = [cell for cell in cells if cell.group.provider == provider]
    billed = total_of(cell.theirs.tokens for cell in own).total
    if billed > 0 and not any(cell.ours.streams for cell in own):
        return f"{0:.{_PLACES}f}"
    unseen = sum(
        explanation.tokens.total for cell in own for explanation in cell.explanations if explanation.cause == "coverage"
    )
    if billed <= 0:
        return None
    parts = int(Fraction(billed - unseen, billed) * 10**_PLACES)
    return f"{parts // 10**_PLACES}.{parts % 10**_PLACES:0{_PLACES}}"


def _line(cell: Cell) -> Line:
    splits, has_tokens = cell.shape.splits, cell.shape.has_tokens
    group = cell.group
    return Line(
        day=group.day or None,
        provider=group.provider,
        model=group.model,
        key=group.key,
        tier=group.tier,
        ours=_amount(cell.ours.tokens, cell.our_usd, splits),
        theirs=_amount(cell.theirs.tokens if has_tokens else None, cell.their_usd, splits),
        difference=_amount(cell.tokens if has_tokens else None, cell.usd, splits),
        explanations=[
            _explanation(explanation, splits if has_tokens else None)
            for explanation in sorted(cell.explanations, key=_order)
        ],
        unexplained=_amount(cell.rest if has_tokens else None, cell.usd_rest, splits),
        undecided=_amount(*_undecided(cell), splits),
        alternatives=[_alternatives(part, splits if has_tokens else None) for part in cell.undecided],
    )


def _order(explanation: Explanation) -> tuple[int, tuple[str, ...], Tokens]:
    return CAUSES.index(explanation.cause), explanation.streams, explanation.tokens


def _explanation(explanation: Explanation, splits: frozenset[str] | None) -> LineExplanation:
    rates = [
        RateChange(rate.kind, None if rate.old is None else usd_text(rate.old), usd_text(rate.new), rate.first_seen)
        for rate in explanation.rates
    ]
    amount = _amount(None if splits is None else explanation.tokens, explanation.usd, splits or frozenset())
    return LineExplanation(
        explanation.cause,  # type: ignore[arg-type]
        amount.tokens,
        amount.usd,
        list(explanation.streams),
        rates,
        list(explanation.labels),
    )


def _alternatives(part: Undecided, splits: frozenset[str] | None) -> Alternatives:
    amount = _amount(None if splits is None else part.tokens, part.usd, splits or frozenset())
    one_of = [cause for cause in CAUSES if cause in part.one_of]
    return Alternatives(one_of, amount.tokens, amount.usd, list(part.streams))  # type: ignore[arg-type]


def _amount(tokens: Tokens | None, usd: Decimal | None, splits: frozenset[str]) -> Amount:
    return Amount(_counts(tokens, splits), None if usd is None else usd_text(usd))


def _counts(tokens: Tokens | None, splits: frozenset[str]) -> TokenCounts | None:
    if tokens is None:
        return None
    return TokenCounts(
        input_uncached=tokens.input_uncached,
        input_cached=tokens.input_cached if "input_cached" in splits else None,
        input_cache_write=tokens.input_cache_write if "input_cache_write" in splits else None,
        output=tokens.output,
        total=tokens.total,
    )
