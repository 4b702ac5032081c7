"""The prices of one model on one day, and what a record costs by them. Exact: decimal arithmetic, rounded once at the end."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal

from streamgauge.ledger import Cost, LedgerRow
from streamgauge.ledger.cost import COST_DIGITS

# Prices are for a million tokens.
_PER_DIGITS = 6
# More digits than a sum of products of the largest token counts and any price has.
_EXACT = Context(prec=100, rounding=ROUND_HALF_EVEN)
# The largest cost of one side of a record: four million USD (10**-12 USD).
_MAX_COST = 2**62


@dataclass(frozen=True)
class Rate:
    """The price of a million tokens of one kind, in USD.

    `above`: pairs of a number of input tokens and a price, in ascending order. If a request has more input tokens than the
    number, all of its tokens have this price.
    """

    base: Decimal
    above: tuple[tuple[int, Decimal], ...] = ()

    def at(self, input_tokens: int | None) -> Decimal | None:
        """The price for a request with so many input tokens; None if it depends on a number that is not known."""
        if not self.above:
            return self.base
        if input_tokens is None:
            return None
        prices = [price for start, price in self.above if input_tokens > start]
        return prices[-1] if prices else self.base


@dataclass(frozen=True)
class Rates:
    """The prices of a model. A kind without a price of its own costs what its side costs (`input`, `output`).

    `cache_write`: input that is written to a cache; `cache_write_1h`: kept there for an hour, else as `cache_write`.
    `request`: USD for each request. `factor`: multiplies all prices. `source`, `date`: as in Cost.
    """

    source: str
    date: str | None
    input: Rate | None = None
    output: Rate | None = None
    input_cached: Rate | None = None
    cache_write: Rate | None = None
    cache_write_1h: Rate | None = None
    input_audio: Rate | None = None
    reasoning: Rate | None = None
    output_audio: Rate | None = None
    request: Decimal = Decimal(0)
    factor: Decimal = Decimal(1)

    def cost_of(self, row: LedgerRow) -> Cost | None:
        """What the reported tokens of a record cost. None if no side was reported, or if a price for them is missing."""
        costs: list[int | None] = []
        request = self.request
        for reported, parts in ((row.input_tokens, self._input(row)), (row.output_tokens, self._output(row))):
            cost = None if reported is None else self._side(parts, row.input_tokens, request)
            if reported is not None:
                if cost is None:
                    return None
                request = Decimal(0)  # it is paid once
            costs.append(cost)
        return None if costs == [None, None] else Cost(costs[0], costs[1], self.source, self.date)

    def _input(self, row: LedgerRow) -> list[tuple[int | None, Rate | None]]:
        written = row.input_cache_write or 0
        for_an_hour = min(row.input_cache_write_1h_tokens or 0, written)
        write = self.cache_write or self.input
        return [
            (row.input_uncached, self.input),
            (row.input_cached, self.input_cached or self.input),
            (written - for_an_hour, write),
            (for_an_hour, self.cache_write_1h or write),
            (row.input_audio, self.input_audio or self.input),
        ]

    def _output(self, row: LedgerRow) -> list[tuple[int | None, Rate | None]]:
        return [
            (row.output_text, self.output),
            (row.reasoning, self.reasoning or self.output),
            (row.output_audio, self.output_audio or self.output),
        ]

    def _side(
        self, parts: list[tuple[int | None, Rate | None]], input_tokens: int | None, request: Decimal
    ) -> int | None:
        """The cost of one side in 10**-12 USD."""
        millions = _EXACT.multiply(request, Decimal(10**_PER_DIGITS))
        for tokens, rate in parts:
            if tokens:
                price = None if rate is None else rate.at(input_tokens)
                if price is None:
                    return None
                millions = _EXACT.add(millions, _EXACT.multiply(price, Decimal(tokens)))
        cost = _EXACT.multiply(millions, self.factor).scaleb(COST_DIGITS - _PER_DIGITS, _EXACT)
        whole = int(cost.to_integral_value(context=_EXACT))
        return whole if whole <= _MAX_COST else None
