"""Makes the result of what was reconciled, and checks its invariants before it is shown."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, plus, total_of, usd_plus, usd_text, usd_total
from streamgauge.audit.cells import Cell, Explanation
from streamgauge.audit.findings import Finding
from streamgauge.audit.period import Period
from streamgauge.audit.result import (
    CAUSES,
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
)
from streamgauge.audit.theirs import Shape

# The only cause with which an audit agrees: both sides counted the stream, on two days.
HARMLESS = "late_across_midnight"
# Decimal places of the share that taps saw.
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
) -> Result:
    """The result. Raises AssertionError if a difference is not the sum of its parts, which would be a bug."""
    for cell in cells:
        _check(cell)
    causes, unexplained, undecided = _causes(cells), Sum(), Sum()
    for cell in cells:
        unexplained.add(cell.rest if cell.shape.has_tokens else None, cell.usd_rest, cell.shape.splits)
        undecided.add(*_undecided(cell), cell.shape.splits)
    verdicts = _verdicts(cells, tolerance, scope)
    return Result(
        period=Days(period.first, period.end, period.timezone),
        agrees=_agrees(verdicts),
        tolerance=tolerance,
        coverage={provider: _coverage(provider, shapes[provider], cells) for provider in sorted(shapes)},
        causes=causes,
        lines=[_line(cell) for cell in cells],
        unexplained=unexplained.amount(),
        undecided=undecided.amount(),
        verdicts=verdicts,
        findings=[
            FindingLine(
                finding.name, finding.provider, finding.model, finding.concerned, list(finding.streams), finding.detail
            )
            for finding in findings
        ],
    )


def _check(cell: Cell) -> None:
    parts = total_of(explanation.tokens for explanation in cell.explanations)
    assert plus(parts, cell.rest) == cell.tokens, f"the parts of {cell.group} do not add up"
    if cell.usd is not None:
        money = usd_total(explanation.usd for explanation in cell.explanations)
        assert usd_plus(money, cell.usd_rest) == cell.usd, f"the money of {cell.group} does not add up"


def _agrees(cells: Sequence[Cell], causes: Sequence[CauseTotal], tolerance: Tolerance) -> bool:
    """Whether an audit agrees. Absolute amounts are added up: a surplus in one line hides no lack in another.

    Billed money that is not compared agrees with nothing.
    """
    tokens = sum(cell.rest.size for cell in cells)
    over = [abs(cell.usd_rest or ZERO_USD) - cell.theirs.slack for cell in cells]
    usd = usd_total(max(ZERO_USD, amount) for amount in over) or ZERO_USD
    lacks_cost = any(cell.lacks_cost for cell in cells)
    harmful = any(cause.cause != HARMLESS for cause in causes)
    return tokens <= tolerance.tokens and usd <= Decimal(tolerance.usd) and not harmful and not lacks_cost


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
    return LineExplanation(explanation.cause, amount.tokens, amount.usd, list(explanation.streams), rates)  # type: ignore[arg-type]


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
