"""The prices of one model on one day, and the cost of a record by them. Exact: whole numbers, rounded once at the end. Pure.

A record's tokens are priced in groups of one kind each. The kinds are the names of prices in `Rates`. The kind of a token
follows from its side, from the cache, and from its modality, as far as the provider reports them:

- A modality that the usage lists has its tokens. If the listed tokens are fewer than the whole, the others are text, image or
  video, but of no modality that is listed. They are audio only if the provider reports audio.
- Cached tokens are of the modalities that the usage lists for them. If it lists none, and the input holds more than text,
  it is not known which tokens were read from the cache.
- A document may be read as text or as images.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Context, Decimal
from functools import cached_property
from typing import Any, NamedTuple

from streamgauge.core.modalities import AUDIO, DOCUMENT, IMAGE, OTHER, TEXT, VIDEO
from streamgauge.ledger import Cost, LedgerRow
from streamgauge.ledger.cost import COST_DIGITS, Unpriced

_UNCACHED = {TEXT: "input", IMAGE: "input_image", VIDEO: "input_video", AUDIO: "input_audio"}
_CACHED = {
    TEXT: "input_cached", IMAGE: "input_cached_image", VIDEO: "input_cached_video", AUDIO: "input_cached_audio"
}  # fmt: skip
_OUTPUT = {TEXT: "output", IMAGE: "output_image", VIDEO: "output_video", AUDIO: "output_audio"}
_VISUAL = (IMAGE, VIDEO)
# The modalities by which tokens of these are priced.
_PRICED_AS = {DOCUMENT: (TEXT, IMAGE), OTHER: (TEXT, IMAGE, VIDEO, AUDIO)}


class Group(NamedTuple):
    """Tokens of one kind. More than one of `kinds`: it is not known which. `others`: kinds that they may have, too, if the
    model has a price for them.
    """

    tokens: int
    kinds: tuple[str, ...]
    others: tuple[str, ...] = ()


def input_groups(row: LedgerRow) -> list[Group]:
    """The groups of the input. A group without tokens is left out."""
    cached, written = row.input_cached or 0, row.input_cache_write or 0
    uncached = (row.input_uncached or 0) + (row.input_audio or 0)
    reported, in_cache, _ = row.modalities
    named = _named(reported, row.input_audio)
    unnamed = _unnamed(reported, row.input_tokens or 0)
    groups = []
    if written:
        for_an_hour = min(row.input_cache_write_1h_tokens or 0, written)
        groups = [Group(written - for_an_hour, ("cache_write",)), Group(for_an_hour, ("cache_write_1h",))]
    if named and (written or sum(in_cache.values()) < cached):
        groups += [_mixed(cached, named, unnamed, _CACHED), _mixed(uncached, named, unnamed, _UNCACHED)]
    else:
        named_cached = _named(in_cache, None)
        left = {modality: max(tokens - named_cached.get(modality, 0), 0) for modality, tokens in named.items()}
        groups += _divided(cached, named_cached, unnamed, _CACHED)
        groups += _divided(uncached, left, unnamed, _UNCACHED)
    return [group for group in groups if group.tokens]


def output_groups(row: LedgerRow) -> list[Group]:
    """The groups of the output. A group without tokens is left out."""
    answer = (row.output_text or 0) + (row.output_audio or 0)
    reported = row.modalities.output
    groups = _divided(answer, _named(reported, row.output_audio), _unnamed(reported, answer), _OUTPUT)
    return [group for group in (Group(row.reasoning or 0, ("reasoning",)), *groups) if group.tokens]


def _named(reported: Mapping[str, int], audio: int | None) -> dict[str, int]:
    """The tokens of each modality but text. `audio`: as the record reports it."""
    named = {modality: tokens for modality, tokens in reported.items() if tokens and modality != TEXT}
    if audio and audio > named.get(AUDIO, 0):
        named[AUDIO] = audio
    return named


def _unnamed(reported: Mapping[str, int], whole: int) -> tuple[str, ...]:
    """The modalities besides text that tokens may have which are in no modality of the list."""
    if not reported:
        return _VISUAL
    if sum(reported.values()) >= whole:
        return ()
    return tuple([modality for modality in _VISUAL if modality not in reported])


def _divided(tokens: int, named: Mapping[str, int], unnamed: tuple[str, ...], kinds: Mapping[str, str]) -> list[Group]:
    """So many tokens by modality: those that are named, and the rest."""
    rest = tokens - sum(named.values())
    if rest < 0:  # the counts contradict each other
        return [_mixed(tokens, named, unnamed, kinds)]
    groups = [Group(count, _kinds_of(modality, kinds)) for modality, count in named.items()]
    return [*groups, Group(rest, (kinds[TEXT],), tuple([kinds[modality] for modality in unnamed]))]


def _mixed(tokens: int, named: Mapping[str, int], unnamed: tuple[str, ...], kinds: Mapping[str, str]) -> Group:
    """So many tokens of which each may be text, or of a modality that is named."""
    possible = [kind for modality in (TEXT, *named) for kind in _kinds_of(modality, kinds)]
    return Group(tokens, tuple(dict.fromkeys(possible)), tuple([kinds[modality] for modality in unnamed]))


def _kinds_of(modality: str, kinds: Mapping[str, str]) -> tuple[str, ...]:
    return tuple([kinds[priced_as] for priced_as in _PRICED_AS.get(modality, (modality,))])


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
        """The rate for prices of a million tokens in USD, times a factor."""
        return cls(_whole(base, factor), tuple((start, _whole(price, factor)) for start, price in above))

    def scaled(self, factor: Decimal) -> "Rate":
        """The rate times a factor, to whole numbers of 10**-18 USD."""
        return Rate(_scaled(self.base, factor), tuple((start, _scaled(price, factor)) for start, price in self.above))

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


def _scaled(price: int, factor: Decimal) -> int:
    return int(_EXACT.multiply(Decimal(price), factor).to_integral_value(context=_EXACT))


def of_request(price: Decimal, factor: Decimal = Decimal(1)) -> int:
    """A price of one request in USD, as `Rates.request`."""
    return _whole(price, factor) * _MILLION


class CacheEffect(NamedTuple):
    """The effect of the prompt cache on the cost of input (10**-12 USD): `saved` by reading from it, `added` by writing."""

    saved: int
    added: int


# Kinds that the cache changes the price of -> the kind that they would be without it.
_READ = {
    "input_cached": "input",
    "input_cached_audio": "input_audio",
    "input_cached_image": "input_image",
    "input_cached_video": "input_video",
}
_WRITTEN = {"cache_write": "input", "cache_write_1h": "input"}


@dataclass(frozen=True)
class Rates:
    """The prices of a model, by the kinds of `groups.py`.

    `is_list`: they are of a list. There a kind without a price has no known price, but for these: reasoning is output to
    every seller, and images and videos that a model reads are input to it. In the operator's own prices such a kind costs
    what its side costs (`input`, `output`).
    `cache_write`: input that is written to a cache; `cache_write_1h`: kept there for an hour. `request`, `search`: the price
    of each request, and of each web search, in 10**-18 USD. `source`, `date`: as in Cost. `lacks`: what every request costs
    besides, at a price that is not known.
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
    input_image: Rate | None = None
    input_video: Rate | None = None
    input_cached_audio: Rate | None = None
    input_cached_image: Rate | None = None
    output_image: Rate | None = None
    output_video: Rate | None = None
    lacks: tuple[str, ...] = ()

    def cost_of(self, row: LedgerRow) -> Cost | Unpriced:
        """The cost of a record's reported tokens, or why it is not known: no side was reported, or a price is missing."""
        input_cost = output_cost = None
        if row.input_tokens is not None:
            input_cost = self._side(input_groups(row), row.input_tokens, self.request)
        if isinstance(input_cost, Unpriced):
            return input_cost
        if row.output_tokens is not None:
            request = self.request if input_cost is None else 0  # it is paid once
            output_cost = self._side(output_groups(row), row.input_tokens, request)
        if isinstance(output_cost, Unpriced):
            return output_cost
        if input_cost is None and output_cost is None:
            return Unpriced.NO_USAGE
        return Cost(input_cost, output_cost, self.source, self.date, lacks=self.lacks)

    def scaled(self, factor: Decimal, source: str, date: str | None) -> "Rates":
        """All prices times a factor, with another source and first day."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        rates: dict[str, Any] = {name: rate.scaled(factor) for name, rate in values.items() if isinstance(rate, Rate)}
        return replace(
            self,
            source=source,
            date=date,
            request=_scaled(self.request, factor),
            search=None if self.search is None else _scaled(self.search, factor),
            **rates,
        )

    def cost_of_searches(self, searches: int) -> int:
        """The cost of this many web searches (10**-12 USD)."""
        return searches * (self.search or 0) // _ROUNDED

    def cache_effect_of(self, row: LedgerRow) -> CacheEffect:
        """The effect of the prompt cache on the cost of a record's input. Tokens change nothing if a price is missing, or if
        it depends on their kind, which is not known.
        """
        saved = added = 0
        for group in input_groups(row):
            change = self._cache_change(group, row.input_tokens)
            if group.kinds[0] in _READ:
                saved -= group.tokens * change
            else:
                added += group.tokens * change
        return CacheEffect(max(saved, 0) // _ROUNDED, max(added, 0) // _ROUNDED)

    def _cache_change(self, group: Group, input_tokens: int | None) -> int:
        """The surcharge of the cache on a token of a group (negative if cheaper); 0 if it is not known."""
        changes = [self._change_of(kind, input_tokens) for kind in group.kinds]
        others = {self._change_of(kind, input_tokens) for kind in group.others} - {None}
        return 0 if len({*changes, *others}) > 1 else changes[0] or 0

    def _change_of(self, kind: str, input_tokens: int | None) -> int | None:
        """The surcharge of the cache on a token of a kind (negative if cheaper); None if a price is not known."""
        uncached = _READ.get(kind) or _WRITTEN.get(kind)
        if uncached is None:
            return 0
        price, without = self._price(kind, input_tokens), self._price(uncached, input_tokens)
        return None if price is None or without is None else price - without

    @cached_property
    def _rates(self) -> Mapping[str, Rate | None]:
        """The rate of each kind."""
        input_rate, output_rate = (None, None) if self.is_list else (self.input, self.output)
        write, cached = self.cache_write or input_rate, self.input_cached or input_rate
        image, video = self.input_image or self.input, self.input_video or self.input
        # In a list a modality that has its own price of input has its own price of cached input.
        cached_image, cached_video, cached_audio = (
            None if self.is_list and own is not None else cached
            for own in (self.input_image, self.input_video, self.input_audio)
        )
        return {
            "input": self.input,
            "input_image": image,
            "input_video": video,
            "input_audio": self.input_audio or input_rate,
            "input_cached": cached,
            "input_cached_image": self.input_cached_image or cached_image,
            "input_cached_video": cached_video,
            "input_cached_audio": self.input_cached_audio or cached_audio,
            "cache_write": write,
            "cache_write_1h": self.cache_write_1h or (None if self.is_list else write),
            "output": self.output,
            "output_image": self.output_image or output_rate,
            "output_video": self.output_video or output_rate,
            "output_audio": self.output_audio or output_rate,
            "reasoning": self.reasoning or self.output,
        }

    def _price(self, kind: str, input_tokens: int | None) -> int | None:
        """The price of a token of a kind; None if it is not known."""
        rate = self._rates[kind]
        return None if rate is None else rate.at(input_tokens)

    def _side(self, groups: Iterable[Group], input_tokens: int | None, request: int) -> int | Unpriced:
        """The cost of one side in 10**-12 USD, half to even, or why it is not known; a cost above _MAX_COST is not."""
        exact = request
        for group in groups:
            price = self._price_of(group, input_tokens)
            if isinstance(price, Unpriced):
                return price
            exact += group.tokens * price
        cost, rest = divmod(exact, _ROUNDED)
        if rest * 2 > _ROUNDED or (rest * 2 == _ROUNDED and cost % 2):
            cost += 1
        return cost if cost <= _MAX_COST else Unpriced.NO_KIND_PRICE

    def _price_of(self, group: Group, input_tokens: int | None) -> int | Unpriced:
        """The price of a token of a group, if all kinds that it may have cost the same; else why it is not known."""
        key = group.kinds, group.others
        known = self._known.get(key)
        if known is not None:
            return known
        first, *others = [self._price(kind, input_tokens) for kind in group.kinds]
        price: int | Unpriced
        if first is None or None in others:
            price = Unpriced.NO_KIND_PRICE
        else:
            others += [self._price(kind, input_tokens) for kind in group.others]
            price = Unpriced.NO_KINDS if set(others) - {None, first} else first
        if not self._has_levels:
            self._known[key] = price
        return price

    @cached_property
    def _has_levels(self) -> bool:
        """Whether a price depends on the number of input tokens."""
        return any(rate is not None and rate.above for rate in self._rates.values())

    @cached_property
    def _known(self) -> dict[tuple[tuple[str, ...], tuple[str, ...]], int | Unpriced]:
        """Prices that were looked up, by a group's kinds. The kinds have few combinations, so this stays small."""
        return {}
