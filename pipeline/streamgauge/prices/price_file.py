"""The operator's own prices (--prices FILE): TOML, each price with the day from which it holds.

    [upstreams]
    azure-prod = "azure"        # genai-prices' name of the seller whose list prices hold for this upstream
    vllm = "none"               # no list price holds there

    [[price]]
    model = "gpt-4o*"           # a model's name, or its beginning and *
    upstream = "azure-prod"     # optional, as are service_tier, region and speed: without them the price holds for all
    from = 2026-11-01           # the first day
    until = 2027-01-01          # optional: the day on which it no longer holds
    hours = "16:30-00:30"       # optional, as are the next two: these hours belong to the day on which they begin
    weekdays = ["mon", "fri"]
    timezone = "Asia/Shanghai"  # of days and hours; UTC without it
    input = 2.5                 # USD for a million tokens; as are output, input_cached, cache_write, cache_write_1h,
    output = 10                 # reasoning, and of other modalities input_audio, input_image, input_video, output_audio,
                                # output_image, output_video, input_cached_audio, input_cached_image.
                                # request: USD for each request
    above = [{ input_tokens = 200000, input = 5, output = 15 }]

    [[discount]]                # on list prices
    provider = "openai"         # genai-prices' name of the seller; or upstream, or both
    model = "gpt-5*"            # optional, as is service_tier
    from = 2026-03-01           # and until, hours, weekdays, timezone
    percent = 12.5

Of several prices that match a record the one with the latest `from` holds; of equal ones the last in the file. So it is with
discounts: one of them holds, and none for a price of the file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.errors import UsageFault
from streamgauge.prices.catalogue import Offer, is_provider, provider_id, seller_id
from streamgauge.prices.price_times import TIME_KEYS, PriceTimes, times_of
from streamgauge.prices.rates import Rate, Rates, of_request

# The word for an upstream whose models have no list price.
NONE = "none"
_KINDS = (
    "input", "output", "input_cached", "cache_write", "cache_write_1h", "input_audio", "reasoning", "output_audio",
    "input_image", "input_video", "input_cached_audio", "input_cached_image", "output_image", "output_video",
)  # fmt: skip
_CHOICES = ("model", "upstream", "service_tier", "region", "speed")
_KEYS = {*_KINDS, *_CHOICES, *TIME_KEYS, "request", "above"}
_DISCOUNT_CHOICES = ("provider", "upstream", "model", "service_tier")
_DISCOUNT_KEYS = {*_DISCOUNT_CHOICES, *TIME_KEYS, "percent"}
# A larger price is a typing error (USD for a million tokens, or for a request).
_MAX_PRICE = Decimal(1_000_000)
_HUNDRED = Decimal(100)
# Digits of a percentage after the point: with them its factor is exact.
_MAX_PLACES = 18


@dataclass(frozen=True)
class OwnPrice:
    """A price of the file."""

    model: str
    upstream: str | None
    service_tier: str | None
    region: str | None
    times: PriceTimes
    rates: Rates
    speed: str | None = None

    def holds(self, offer: Offer, moment: datetime) -> bool:
        """Whether it is a price for this offer at this moment."""
        return (
            _is_named(self.model, offer.model)
            and self.upstream in (None, offer.upstream)
            and self.service_tier in (None, offer.service_tier)
            and self.region in (None, offer.region)
            and self.speed in (None, offer.speed)
            and self.times.has(moment)
        )


@dataclass(frozen=True)
class Discount:
    """A discount on list prices. provider: the id of the seller in the list. factor: what the prices are multiplied by.
    source: what it adds to the source of a price.
    """

    provider: str | None
    upstream: str | None
    model: str
    service_tier: str | None
    times: PriceTimes
    factor: Decimal
    source: str

    def holds(self, offer: Offer, moment: datetime, provider: str | None) -> bool:
        """Whether it holds for this offer, by this seller, at this moment."""
        return (
            _is_named(self.model, offer.model)
            and self.provider in (None, provider)
            and self.upstream in (None, offer.upstream)
            and self.service_tier in (None, offer.service_tier)
            and self.times.has(moment)
        )


def _is_named(pattern: str, model: str | None) -> bool:
    """Whether a model has this name, or the beginning before a `*`."""
    if model is None:
        return False
    return model.startswith(pattern[:-1]) if pattern.endswith("*") else model == pattern


@dataclass(frozen=True)
class PriceFile:
    """The content of a price file. `entries`, `discounts`: by their first day, the latest first."""

    upstreams: Mapping[str, str] = field(default_factory=dict)
    entries: tuple[OwnPrice, ...] = ()
    discounts: tuple[Discount, ...] = ()

    def rates_of(self, offer: Offer, moment: datetime) -> Rates | None:
        """The rates of the price that holds at a moment with a time zone; None if none does."""
        return next((price.rates for price in self.entries if price.holds(offer, moment)), None)

    def discounted(self, listed: Rates, offer: Offer, moment: datetime) -> Rates:
        """The list prices of an offer, with the discount that holds at a moment, if there is one."""
        if not self.discounts:
            return listed
        provider = seller_id(offer)
        found = next((one for one in self.discounts if one.holds(offer, moment, provider)), None)
        if found is None:
            return listed
        return listed.scaled(
            found.factor, f"{listed.source}; {found.source}", max(found.times.first, listed.date or "")
        )

    def provider_of(self, upstream: str | None) -> str | None:
        """The provider that the file names for an upstream."""
        return None if upstream is None else self.upstreams.get(upstream)

    def has_no_price(self, upstream: str | None) -> bool:
        """Whether no list price holds for an upstream, by the file."""
        return self.provider_of(upstream) == NONE


NO_PRICES = PriceFile()


def load_prices(path: Path, content: bytes | None = None) -> PriceFile:
    """Reads a price file, or its earlier `content`. Raises UsageFault, with a sentence that names the price and the key."""
    try:
        known = parse_toml(path.read_bytes() if content is None else content, Decimal)
    except OSError as error:
        raise UsageFault(f"the price file {path} cannot be read: {error.strerror}") from None
    except NotTomlError as error:
        raise UsageFault(f"the price file {path} is not valid TOML: {error}") from None
    if unknown := known.keys() - {"upstreams", "price", "discount"}:
        raise UsageFault(
            f"the price file {path}: {min(unknown)} is not known: it holds [upstreams], [[price]] and [[discount]]"
        )
    try:
        return PriceFile(
            _upstreams(known.get("upstreams", {})),
            _list(known, "price", lambda where, entry: _price(path.name, where, entry)),
            _list(known, "discount", lambda where, entry: _discount(path.name, where, entry)),
        )
    except ValueError as error:
        raise UsageFault(f"the price file {path}: {error}") from None


_Entry = TypeVar("_Entry", OwnPrice, Discount)


def _list(known: Mapping[str, Any], name: str, read: Callable[[str, dict[str, Any]], _Entry]) -> tuple[_Entry, ...]:
    """The entries of a list of the file, the latest first day first, of equal ones the last of the file first."""
    entries = known.get(name, [])
    if not isinstance(entries, list):
        raise ValueError(f"{name} must be a list: write [[{name}]]")
    numbered: list[tuple[str, int, _Entry]] = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise ValueError(f"{name} {number} is not a table")
        one = read(f"{name} {number}", entry)
        numbered.append((one.times.first, number, one))
    return tuple(one for *_, one in sorted(numbered, key=lambda item: item[:2], reverse=True))


def _upstreams(providers: object) -> dict[str, str]:
    if not isinstance(providers, dict) or not all(isinstance(name, str) for name in providers.values()):
        raise ValueError('[upstreams] has lines of the form upstream = "provider"')
    for upstream, provider in providers.items():
        if provider != NONE and not is_provider(provider):
            raise ValueError(
                f"upstreams: {upstream}: genai-prices knows no provider {provider!r}; {NONE!r} is none of them"
            )
    return providers


def _price(file: str, where: str, entry: dict[str, Any]) -> OwnPrice:
    _check(where, entry, _KEYS, _CHOICES)
    if "model" not in entry:
        raise ValueError(f"{where}: model must be text")
    times = times_of(where, entry)
    kinds: dict[str, Any] = {kind: _rate(where, entry, kind) for kind in _KINDS}
    rates = Rates(
        source=f"{file}: {entry['model']}",
        date=times.first,
        request=of_request(_number(where, entry, "request") or Decimal(0)),
        **kinds,
    )
    if rates.input is None or rates.output is None:
        raise ValueError(f"{where}: input and output are required (0 for what costs nothing)")
    return OwnPrice(
        entry["model"],
        entry.get("upstream"),
        entry.get("service_tier"),
        entry.get("region"),
        times,
        rates,
        entry.get("speed"),
    )


def _discount(file: str, where: str, entry: dict[str, Any]) -> Discount:
    _check(where, entry, _DISCOUNT_KEYS, _DISCOUNT_CHOICES)
    provider = entry.get("provider")
    if provider is None and entry.get("upstream") is None:
        raise ValueError(f"{where}: provider or upstream is missing: whose list prices it is on")
    if provider is not None and provider_id(provider) is None:
        raise ValueError(f"{where}: genai-prices knows no provider {provider!r}")
    percent = _decimal(entry.get("percent"))
    if percent is None or not 0 < percent <= _HUNDRED or int(percent.as_tuple().exponent) < -_MAX_PLACES:
        raise ValueError(f"{where}: percent must be a number above 0, at most 100, as in percent = 12.5")
    return Discount(
        None if provider is None else provider_id(provider),
        entry.get("upstream"),
        entry.get("model", "*"),
        entry.get("service_tier"),
        times_of(where, entry),
        (_HUNDRED - percent) / _HUNDRED,
        f"{file}: {percent.normalize():f} % off",
    )


def _check(where: str, entry: Mapping[str, Any], keys: set[str], choices: Sequence[str]) -> None:
    if unknown := entry.keys() - keys:
        raise ValueError(f"{where}: {min(unknown)} is not known: use {', '.join(sorted(keys))}")
    for name in choices:
        if name in entry and not (isinstance(entry[name], str) and entry[name]):
            raise ValueError(f"{where}: {name} must be text")


def _rate(where: str, entry: Mapping[str, object], kind: str) -> Rate | None:
    base = _number(where, entry, kind)
    tiers = entry.get("above", [])
    if not isinstance(tiers, list) or not all(isinstance(tier, dict) for tier in tiers):
        raise ValueError(f"{where}: above must be a list of tables")
    above: list[tuple[int, Decimal]] = []
    for tier in tiers:
        if tier.keys() - {*_KINDS, "input_tokens"}:
            raise ValueError(f"{where}: above has input_tokens and prices")
        start = tier.get("input_tokens")
        if not isinstance(start, int) or isinstance(start, bool) or start < 0:
            raise ValueError(f"{where}: above: input_tokens must be a whole number")
        price = _number(f"{where}: above", tier, kind)
        if price is not None:
            above.append((start, price))
    if base is None and above:
        raise ValueError(f"{where}: {kind} has a price above a number of tokens, and none below")
    return None if base is None else Rate.of(base, tuple(sorted(above)))


def _number(where: str, entry: Mapping[str, object], name: str) -> Decimal | None:
    value = entry.get(name)
    if value is None:
        return None
    number = _decimal(value)
    if number is None or not 0 <= number <= _MAX_PRICE:
        raise ValueError(f"{where}: {name} must be a number of USD from 0 to {_MAX_PRICE}")
    return number


def _decimal(value: object) -> Decimal | None:
    """A number of the file, as it is written; None for anything else."""
    try:
        number = Decimal(value) if isinstance(value, str | int | Decimal) and not isinstance(value, bool) else None
    except InvalidOperation:
        return None
    return None if number is None or not number.is_finite() else number
