"""What the lines of a result add up to for a reader: by cause and model, by what is undecided, and by day."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from streamgauge.audit.result import (
    CAUSES,
    Alternatives,
    Amount,
    Line,
    LineExplanation,
    ProviderTotal,
    RateChange,
    Result,
)
from streamgauge.audit.totals import AmountSum, totals_of

# Days that are shown one by one: two months, and what lies outside of days.
MAX_DAYS = 63


@dataclass
class Part:
    """The parts of all lines of one provider and model that have the same causes.

    causes: one that is named; several of which one is the cause (undecided); none (unexplained). streams: the ids that the
    parts name, each once, in the order of the lines. days: those of the lines. labels: the names of charges on the bill.
    rates: each changed price once, with the first moment at which it was seen.
    """

    causes: tuple[str, ...]
    provider: str
    model: str | None
    amounts: AmountSum = field(default_factory=AmountSum)
    sizes: AmountSum = field(default_factory=AmountSum)
    streams: dict[str, None] = field(default_factory=dict)
    days: set[str] = field(default_factory=set)
    labels: dict[str, None] = field(default_factory=dict)
    rates: dict[tuple[str, str | None, str], RateChange] = field(default_factory=dict)

    @property
    def amount(self) -> Amount:
        """The exact sum."""
        return self.amounts.amount()

    @property
    def size(self) -> Amount:
        """The exact sum of the absolute amounts."""
        return self.sizes.amount()

    @property
    def span(self) -> tuple[str, str] | None:
        """The first and the last day; None if the lines have no days."""
        return (min(self.days), max(self.days)) if self.days else None

    def add(self, line: Line, part: LineExplanation | Alternatives | Amount) -> None:
        """Add a part of a line."""
        self.amounts.add(part)
        self.sizes.add(part, absolute=True)
        if line.day is not None:
            self.days.add(line.day)
        if not isinstance(part, Amount):
            self.streams |= dict.fromkeys(part.streams)
        if isinstance(part, LineExplanation):
            self.labels |= dict.fromkeys(part.labels)
            for rate in part.rates:
                key = (rate.kind, rate.old_usd_per_million, rate.new_usd_per_million)
                known = self.rates.get(key)
                if known is None or rate.first_seen < known.first_seen:
                    self.rates[key] = rate


def explained_parts(result: Result) -> list[Part]:
    """What is explained: in the order of CAUSES, then by provider and model."""
    return _parts(result.lines, lambda line: (((one.cause,), one) for one in line.explanations))


def undecided_parts(result: Result) -> list[Part]:
    """What several causes explain equally well: by these causes, then by provider and model."""
    return _parts(result.lines, lambda line: ((tuple(one.one_of), one) for one in line.alternatives))


def unexplained_parts(result: Result) -> list[Part]:
    """What nothing explains, by provider and model."""
    return _parts(result.lines, lambda line: [((), line.unexplained)] if not is_zero(line.unexplained) else [])


def is_tolerated(result: Result, unexplained: Iterable[Part]) -> bool:
    """Whether what is unexplained is within the tolerance: the sum of the absolute amounts, as for the verdicts."""
    sizes = AmountSum()
    for part in unexplained:
        sizes.add(part.size)
    size, tolerance = sizes.amount(), result.tolerance
    tokens = 0 if size.tokens is None else size.tokens.total
    return result.agrees or (tokens <= tolerance.tokens and Decimal(size.usd or 0) <= Decimal(tolerance.usd or 0))


def _parts(
    lines: Iterable[Line],
    parts_of: Callable[[Line], Iterable[tuple[tuple[str, ...], LineExplanation | Alternatives | Amount]]],
) -> list[Part]:
    found: dict[tuple[tuple[str, ...], str, str | None], Part] = {}
    for line in lines:
        for causes, part in parts_of(line):
            key = (causes, line.provider, line.model)
            found.setdefault(key, Part(*key)).add(line, part)
    return sorted(
        found.values(),
        key=lambda part: ([CAUSES.index(cause) for cause in part.causes], part.provider, part.model or ""),
    )


def is_zero(amount: Amount) -> bool:
    """Whether an amount has neither tokens nor money, as far as both are known."""
    tokens = amount.tokens
    has_tokens = tokens is not None and any(
        (tokens.input_uncached, tokens.input_cached, tokens.input_cache_write, tokens.output)
    )
    return not has_tokens and amount.usd in (None, "0")


def time_totals(result: Result) -> tuple[str, list[tuple[str | None, list[ProviderTotal]]]]:
    """`Day` or `Month`; and each of them with its totals by provider, in order. A period of more than MAX_DAYS has months.

    A day is None if the invoices have rows of several days.
    """
    unit, length = ("Day", 10) if len({line.day for line in result.lines}) <= MAX_DAYS else ("Month", 7)
    spans: dict[str | None, list[Line]] = {}
    for line in result.lines:
        spans.setdefault(None if line.day is None else line.day[:length], []).append(line)
    return unit, [(span, totals_of(spans[span])[1:]) for span in sorted(spans, key=lambda span: span or "")]
