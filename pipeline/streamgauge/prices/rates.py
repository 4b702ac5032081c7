"""The prices of one model on one day, and what a record costs by them. Exact: whole numbers, rounded once at the end."""

from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from typing import NamedTuple

from streamgauge.ledger import Cost, LedgerRow
from streamgauge.ledger.cost import COST_DIGITS, Unpriced

# Prices are whole numbers of 10**-18 USD for a token, which is 10**-12 USD for a million of them. A price with more digits
# is rounded to that.
_PRICE_DIGITS = 18
_PER_DIGITS = 6
_ROUNDED: int = 10 ** (_PRICE_DIGITS - COST_DIGITS)
_MILLION = 1_000_000
_EXACT = Context(prec=100)
# The largest cost of one side of a record: four million USD (10**-12 USD).
_MAX_COST = 2**62


@dataclass(frozen=True)
class Rate:
    """The price of one token of a kind, in 10**-18 USD.

    `above`: pairs of a number of input tokens and a price, in ascending order. If a request has more input tokens than the
    number, all of its tokens have this price.
    """

    base: int
    above: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, base: Decimal, above: tuple[tuple[int, Decimal], ...] = (), factor: Decimal = Decimal(1)) -> "Rate":
        """From prices of a million tokens in USD, times a factor."""
        return cls(_whole(base, factor), tuple((start, _whole(price, factor)) for start, price in above))

    def at(self, input_tokens: int | None) -> int | None:
        """The price for a request with so many input tokens; None if it depends on a number that is not known."""
        if not self.above:
            return self.base
        if input_tokens is None:
            return None
        prices = [price for start, price in self.above if input_tokens > start]
        return prices[-1] if prices else self.base


def _whole(price: Decimal, factor: Decimal) -> int:
    exact = _EXACT.multiply(price, factor).scaleb(_PRICE_DIGITS - _PER_DIGITS, _EXACT)
    return int(exact.to_integral_value(context=_EXACT))


def of_request(price: Decimal, factor: Decimal = Decimal(1)) -> int:
    """A price of one request in USD, as `Rates.request`."""
    return _whole(price, factor) * _MILLION


class CacheEffect(NamedTuple):
    """What the prompt cache changed in the cost of input, in 10**-12 USD: `saved` by reading from it, `added` by writing."""

    saved: int
    added: int


@dataclass(frozen=True)
class Rates:
    """The prices of a model.

    `is_list`: they are of a list. There a kind without a price has no known price, but for reasoning, which is output to
    every seller. In the operator's own prices such a kind costs what its side costs (`input`, `output`).
    `cache_write`: input that is written to a cache; `cache_write_1h`: kept there for an hour. `request`, `search`: the price
    of each request, and of each web search, in 10**-18 USD. `source`, `date`: as in Cost.
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
    request: int = 0
    search: int | None = None
    is_list: bool = False

    def cost_of(self, row: LedgerRow) -> Cost | Unpriced:
        """What the reported tokens of a record cost, or why that is not known: no side was reported, a price is missing."""
        prices = self._fixed or self._resolved(row.input_tokens)
        given = made = None
        if row.input_tokens is not None:
            written = row.input_cache_write or 0
            for_an_hour = min(row.input_cache_write_1h_tokens or 0, written)
            tokens = (row.input_uncached, row.input_cached, written - for_an_hour, for_an_hour, row.input_audio)
            given = _side(tokens, prices[:5], self.request)
            if given is None:
                return Unpriced.NO_KIND_PRICE
        if row.output_tokens is not None:
            request = self.request if given is None else 0  # it is paid once
            made = _side((row.output_text, row.reasoning, row.output_audio), prices[5:], request)
            if made is None:
                return Unpriced.NO_KIND_PRICE
        return Unpriced.NO_USAGE if given is None and made is None else Cost(given, made, self.source, self.date)

    def cost_of_searches(self, searches: int) -> int:
        """What so many web searches cost, in 10**-12 USD."""
        return searches * (self.search or 0) // _ROUNDED

    def cache_effect_of(self, row: LedgerRow) -> CacheEffect:
        """What the prompt cache changed in the cost of a record's input. A kind without a price changes nothing."""
        at_input, cached, write, write_1h, *_ = self._fixed or self._resolved(row.input_tokens)
        if at_input is None:
            return CacheEffect(0, 0)
        written = row.input_cache_write or 0
        for_an_hour = min(row.input_cache_write_1h_tokens or 0, written)
        saved = (row.input_cached or 0) * (at_input - (at_input if cached is None else cached))
        added = (written - for_an_hour) * ((at_input if write is None else write) - at_input)
        added += for_an_hour * ((at_input if write_1h is None else write_1h) - at_input)
        return CacheEffect(max(saved, 0) // _ROUNDED, max(added, 0) // _ROUNDED)

    @cached_property
    def _fixed(self) -> tuple[int | None, ...] | None:
        """The prices of a token of each kind; None if they depend on the number of input tokens."""
        return None if any(rate is not None and rate.above for rate in self._rates) else self._resolved(None)

    @cached_property
    def _rates(self) -> tuple[Rate | None, ...]:
        """The rate of each kind, in the order of their tokens: five of the input, three of the output."""
        given, made = (None, None) if self.is_list else (self.input, self.output)
        write = self.cache_write or given
        return (
            self.input,
            self.input_cached or given,
            write,
            self.cache_write_1h or (None if self.is_list else write),
            self.input_audio or given,
            self.output,
            self.reasoning or self.output,
            self.output_audio or made,
        )

    def _resolved(self, input_tokens: int | None) -> tuple[int | None, ...]:
        return tuple(None if rate is None else rate.at(input_tokens) for rate in self._rates)


def _side(tokens: tuple[int | None, ...], prices: tuple[int | None, ...], request: int) -> int | None:
    """The cost of one side in 10**-12 USD, half to even; None if a price is missing, or if the cost exceeds _MAX_COST."""
    exact = request
    for count, price in zip(tokens, prices, strict=True):
        if count:
            if price is None:
                return None
            exact += count * price
    cost, rest = divmod(exact, _ROUNDED)
    if rest * 2 > _ROUNDED or (rest * 2 == _ROUNDED and cost % 2):
        cost += 1
    return cost if cost <= _MAX_COST else None
