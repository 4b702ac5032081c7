"""The totals of an audit: what is billed, what we saw, and how far the difference is explained; together and by provider."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Protocol

from streamgauge.audit.amounts import EXACT, KINDS, ZERO, ZERO_USD, Tokens, plus, usd_text
from streamgauge.audit.result import Amount, Line, LineExplanation, ProviderTotal, TokenCounts

# The causes that a provider has to answer for: what they explain is in dispute.
DISPUTED = frozenset({
    "duplicate_lines", "wrong_unit", "price_changed", "cache_counted_differently", "reasoning_counted_differently",
    "retries_billed_twice", "tier",
})  # fmt: skip


class _Part(Protocol):
    """An amount, an explanation or a part with alternatives."""

    @property
    def tokens(self) -> TokenCounts | None: ...
    @property
    def usd(self) -> str | None: ...


class AmountSum:
    """An exact sum of amounts. Amounts that are unknown add nothing; if none is known, the sum is unknown."""

    def __init__(self) -> None:
        self._tokens: Tokens | None = None
        self._splits: set[str] = set()
        self._usd: Decimal | None = None

    def add(self, part: _Part, *, absolute: bool = False) -> None:
        """Add an amount. `absolute`: each count and the money without its sign."""
        if part.tokens is not None:
            counts = {kind: getattr(part.tokens, kind) for kind in KINDS}
            self._splits.update(kind for kind, count in counts.items() if count is not None)
            tokens = Tokens(*(count or 0 for count in counts.values()))
            self._tokens = plus(self._tokens or ZERO, Tokens(*map(abs, tokens)) if absolute else tokens)
        if part.usd is not None:
            usd = Decimal(part.usd)
            self._usd = EXACT.add(self._usd or ZERO_USD, EXACT.abs(usd) if absolute else usd)

    def add_zero(self, like: Amount) -> None:
        """Add no tokens and no money, as far as the tokens and the money of another amount are known."""
        if like.tokens is not None:
            self._splits.update(kind for kind in KINDS if getattr(like.tokens, kind) is not None)
            self._tokens = self._tokens or ZERO
        if like.usd is not None:
            self._usd = self._usd or ZERO_USD

    def amount(self) -> Amount:
        """The sum. A kind of input that no amount counts apart is null."""
        counts = None
        if self._tokens is not None:
            kinds = {kind: count if kind in self._splits else None for kind, count in self._tokens._asdict().items()}
            counts = TokenCounts(**kinds, total=self._tokens.total)  # type: ignore[arg-type]
        return Amount(counts, None if self._usd is None else usd_text(self._usd))


class _Sums:
    """The sums of the lines of a provider, or of all of them."""

    def __init__(self) -> None:
        self._billed, self._ours, self._difference = AmountSum(), AmountSum(), AmountSum()
        self._explained, self._undecided, self._unexplained = AmountSum(), AmountSum(), AmountSum()
        self._in_dispute = AmountSum()
        self._billed_not_compared, self._ours_not_compared = AmountSum(), AmountSum()

    def add(self, line: Line) -> None:
        self._billed.add(line.theirs)
        self._ours.add(line.ours)
        self._difference.add(line.difference)
        self._unexplained.add(line.unexplained)
        self._billed_not_compared.add(_not_compared(line.theirs, line.difference))
        self._ours_not_compared.add(_not_compared(line.ours, line.difference))
        for known_with in (self._explained, self._undecided, self._in_dispute):
            known_with.add_zero(line.difference)
        self._undecided.add(line.undecided)
        for explanation in line.explanations:
            self._explained.add(explanation)
        disputed: tuple[_Part, ...] = (line.unexplained, *line.alternatives, *_disputed(line.explanations))
        for part in disputed:
            self._in_dispute.add(part, absolute=True)

    def total(self, provider: str | None) -> ProviderTotal:
        return ProviderTotal(
            provider,
            self._billed.amount(),
            self._ours.amount(),
            self._difference.amount(),
            self._explained.amount(),
            self._undecided.amount(),
            self._unexplained.amount(),
            self._in_dispute.amount(),
            self._billed_not_compared.amount(),
            self._ours_not_compared.amount(),
        )


def _not_compared(side: Amount, difference: Amount) -> Amount:
    """What of a side is in no difference."""
    return Amount(
        side.tokens if difference.tokens is None else None,
        side.usd if difference.usd is None else None,
    )


def _disputed(explanations: Iterable[LineExplanation]) -> Iterable[LineExplanation]:
    return (explanation for explanation in explanations if explanation.cause in DISPUTED)


def totals_of(lines: Sequence[Line]) -> list[ProviderTotal]:
    """The totals of all lines together, then those of each provider by its name. There are none without a line.

    `difference` is the sum of the lines where both sides are known: `billed` without `billed_not_compared`, minus `ours`
    without `ours_not_compared`. It is always the sum of `explained`, `undecided` and `unexplained`. In `in_dispute`
    each unexplained, undecided and disputed part of a line counts without its sign, so that a surplus hides no lack.
    """
    together = _Sums()
    by_provider: dict[str, _Sums] = {}
    for line in lines:
        together.add(line)
        by_provider.setdefault(line.provider, _Sums()).add(line)
    named = [by_provider[provider].total(provider) for provider in sorted(by_provider)]
    return [together.total(None), *named] if named else []
