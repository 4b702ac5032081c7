"""The operator's own prices (--prices FILE): TOML, each price with the day from which it holds.

    [upstreams]
    azure-prod = "azure"        # genai-prices' name of the seller whose list prices hold for this upstream
    vllm = "none"               # no list price holds there

    [[price]]
    model = "gpt-4o*"           # a model's name, or its beginning and *
    upstream = "azure-prod"     # optional, as are service_tier, region and speed: without them the price holds for all
    from = 2026-11-01           # the first day (UTC)
    until = 2027-01-01          # optional: the day on which it no longer holds
    input = 2.5                 # USD for a million tokens; as are output, input_cached, cache_write, cache_write_1h,
    output = 10                 # reasoning, and of other modalities input_audio, input_image, input_video, output_audio,
                                # output_image, output_video, input_cached_audio, input_cached_image.
                                # request: USD for each request
    above = [{ input_tokens = 200000, input = 5, output = 15 }]

Of several prices that match a record the one with the latest `from` holds; of equal ones the last in the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.errors import UsageFault
from streamgauge.prices.catalogue import Offer, is_provider
from streamgauge.prices.rates import Rate, Rates, of_request

# The word for an upstream whose models have no list price.
NONE = "none"
_KINDS = (
    "input", "output", "input_cached", "cache_write", "cache_write_1h", "input_audio", "reasoning", "output_audio",
    "input_image", "input_video", "input_cached_audio", "input_cached_image", "output_image", "output_video",
)  # fmt: skip
_CHOICES = ("model", "upstream", "service_tier", "region", "speed")
_KEYS = {*_KINDS, *_CHOICES, "from", "until", "request", "above"}
# A larger price is a typing error (USD for a million tokens, or for a request).
_MAX_PRICE = Decimal(1_000_000)


@dataclass(frozen=True)
class OwnPrice:
    """A price of the file. `first`, `end`: days as text, the end excluded."""

    model: str
    upstream: str | None
    service_tier: str | None
    region: str | None
    first: str
    end: str | None
    rates: Rates
    speed: str | None = None

    def holds(self, offer: Offer, day: str) -> bool:
        """Whether it is a price for this offer on this day."""
        if offer.model is None:
            return False
        begins = self.model.endswith("*") and offer.model.startswith(self.model[:-1])
        return (
            (begins or offer.model == self.model)
            and self.upstream in (None, offer.upstream)
            and self.service_tier in (None, offer.service_tier)
            and self.region in (None, offer.region)
            and self.speed in (None, offer.speed)
            and self.first <= day
            and (self.end is None or day < self.end)
        )


@dataclass(frozen=True)
class PriceFile:
    """The content of a price file. `entries`: by their first day, the latest first."""

    upstreams: Mapping[str, str] = field(default_factory=dict)
    entries: tuple[OwnPrice, ...] = ()

    def rates_of(self, offer: Offer, day: str) -> Rates | None:
        """The rates of the price that holds; None if none does."""
        return next((price.rates for price in self.entries if price.holds(offer, day)), None)

    def provider_of(self, upstream: str | None) -> str | None:
        """The provider that the file names for an upstream."""
        return None if upstream is None else self.upstreams.get(upstream)

    def has_no_price(self, upstream: str | None) -> bool:
        """Whether no list price holds for an upstream, by the file."""
        return self.provider_of(upstream) == NONE


NO_PRICES = PriceFile()


def load_prices(path: Path) -> PriceFile:
    """Reads a price file. Raises UsageFault, with a sentence that names the price and the key."""
    try:
        known = parse_toml(path.read_bytes(), Decimal)
    except OSError as error:
        raise UsageFault(f"the price file {path} cannot be read: {error.strerror}") from None
    except NotTomlError as error:
        raise UsageFault(f"the price file {path} is not valid TOML: {error}") from None
    if unknown := known.keys() - {"upstreams", "price"}:
        raise UsageFault(f"the price file {path}: {min(unknown)} is not known: it holds [upstreams] and [[price]]")
    try:
        upstreams = _upstreams(known.get("upstreams", {}))
        entries = known.get("price", [])
        if not isinstance(entries, list):
            raise ValueError("price must be a list: write [[price]]")
        prices = [_price(path.name, number, entry) for number, entry in enumerate(entries, 1)]
    except ValueError as error:
        raise UsageFault(f"the price file {path}: {error}") from None
    ordered = sorted(enumerate(prices), key=lambda numbered: (numbered[1].first, numbered[0]), reverse=True)
    return PriceFile(upstreams, tuple(price for _, price in ordered))


def _upstreams(providers: object) -> dict[str, str]:
    if not isinstance(providers, dict) or not all(isinstance(name, str) for name in providers.values()):
        raise ValueError('[upstreams] has lines of the form upstream = "provider"')
    for upstream, provider in providers.items():
        if provider != NONE and not is_provider(provider):
            raise ValueError(
                f"upstreams: {upstream}: genai-prices knows no provider {provider!r}; {NONE!r} is none of them"
            )
    return providers


def _price(file: str, number: int, entry: Any) -> OwnPrice:
    where = f"price {number}"
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is not a table")
    if unknown := entry.keys() - _KEYS:
        raise ValueError(f"{where}: {min(unknown)} is not known: use {', '.join(sorted(_KEYS))}")
    for name in _CHOICES:
        if not isinstance(entry.get(name, ""), str) or (name == "model" and not entry.get(name)):
            raise ValueError(f"{where}: {name} must be text")
    first, end = _day(where, entry, "from"), _day(where, entry, "until")
    if first is None:
        raise ValueError(f"{where}: from is missing: the day from which the price holds")
    if end is not None and end <= first:
        raise ValueError(f"{where}: until must be later than from")
    kinds: dict[str, Any] = {kind: _rate(where, entry, kind) for kind in _KINDS}
    rates = Rates(
        source=f"{file}: {entry['model']}",
        date=first,
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
        first,
        end,
        rates,
        entry.get("speed"),
    )


def _day(where: str, entry: Mapping[str, object], name: str) -> str | None:
    value = entry.get(name)
    if value is None:
        return None
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError(f"{where}: {name} must be a date, as in {name} = 2026-11-01")
    return value.isoformat()


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
    try:
        number = Decimal(value) if isinstance(value, str | int | Decimal) and not isinstance(value, bool) else None
    except InvalidOperation:
        number = None
    if number is None or not number.is_finite() or not 0 <= number <= _MAX_PRICE:
        raise ValueError(f"{where}: {name} must be a number of USD from 0 to {_MAX_PRICE}")
    return number
