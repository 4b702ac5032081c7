"""Finds prices in genai-prices: by provider, model, service tier, region and time. It never fetches newer ones.

A price that the list does not know is no price: a tier or a speed without a price of its own is not charged as the standard
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from streamgauge.prices.rates import Rate, Rates, of_request

# The company whose list price counts for a dialect, if the upstream's name is that of no provider. Other providers serve
# these dialects, too; under other models' names, which are not in the company's list.
_MAKERS: Mapping[str, str] = {
    "openai-chat": "openai",
    "openai-completions": "openai",
    "openai-responses": "openai",
    "anthropic-messages": "anthropic",
    "anthropic-completions": "anthropic",
    "gemini": "google",
    "gemini-interactions": "google",
    "cohere-v2": "cohere",
}
# Tiers that are charged at the standard price.
_STANDARD = frozenset({None, "default", "standard", "standard_only", "auto", "on_demand"})
# Speeds that are charged at the standard price. Anthropic's fast mode has prices of its own.
_USUAL = frozenset({None, "standard"})
# What a region adds: Anthropic charges 1.1 times all token prices for inference in the US only
# (platform.claude.com/docs/en/about-claude/pricing, "Data residency pricing"), those of fast mode included. Other regions
# have no known price.
_ANYWHERE = frozenset({None, "global", "not_available"})
_REGIONS: Mapping[tuple[str, str | None], Decimal] = {("anthropic", "us"): Decimal("1.1")}
# Prices by our names -> names in the list.
_NAMES: Mapping[str, str] = {
    "input": "input_mtok",
    "output": "output_mtok",
    "input_cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "input_audio": "input_audio_mtok",
    "reasoning": "output_reasoning_mtok",
    "output_audio": "output_audio_mtok",
}
# Looked-up models and prices that are kept: clients choose models' names, so this is bounded.
_KEPT = 4_096


@dataclass(frozen=True)
class Offer:
    """What was used. `upstream`: its name; `provider`: the provider that the operator names for it, if any."""

    upstream: str | None
    provider: str | None
    dialect: str | None
    model: str
    service_tier: str | None
    region: str | None
    speed: str | None = None


@lru_cache(_KEPT)
def rates_of(offer: Offer, started: datetime) -> Rates | None:
    """The list prices; None if the list has none. Prices change at whole minutes at most: give `started` without seconds."""
    found = _model_of(offer.upstream, offer.provider, offer.dialect, offer.model)
    if found is None:
        return None
    provider, model = found
    factor = Decimal(1) if offer.region in _ANYWHERE else _REGIONS.get((provider.id, offer.region))
    context = _context(offer)
    special = _context(offer, is_special=True)
    is_own = any(model is one for one in provider.models)
    if factor is None or (special and not (is_own and _has_variant(model, started, special, context))):
        return None
    prices = model.get_prices(started, context if is_own else None)
    rates: dict[str, Any] = {name: _rate(getattr(prices, key), factor) for name, key in _NAMES.items()}
    thousand = prices.requests_kcount
    return Rates(
        source=f"genai-prices {_version()}: {provider.id}/{model.id}",
        date=_date(model, started),
        request=of_request(thousand / 1000, factor) if isinstance(thousand, Decimal) else 0,
        **rates,
    )


@lru_cache(_KEPT)
def _model_of(upstream: str | None, provider: str | None, dialect: str | None, name: str) -> tuple[Any, Any] | None:
    from genai_prices.data_snapshot import get_snapshot  # a fifth of a second of CPU

    snapshot = get_snapshot()
    seller = _provider_of(snapshot, upstream, provider, dialect)
    model = None if seller is None else seller.find_model(name, all_providers=snapshot.providers)
    return None if model is None else (seller, model)


def _provider_of(snapshot: Any, upstream: str | None, provider: str | None, dialect: str | None) -> Any | None:
    """The provider: as the operator says, else by the upstream's name or host, else the maker of the dialect."""
    if provider is not None:
        return _found(snapshot, provider, None)
    if upstream is not None:
        named = _found(snapshot, upstream, None) or _found(snapshot, None, f"https://{upstream}/")
        if named is not None:
            return named
    maker = _MAKERS.get(dialect or "")
    return None if maker is None else _found(snapshot, maker, None)


def _found(snapshot: Any, provider: str | None, url: str | None) -> Any | None:
    try:
        return snapshot.find_provider(None, provider, url)
    except LookupError:
        return None


def is_provider(name: str) -> bool:
    """Whether the list has a provider of this name."""
    from genai_prices.data_snapshot import get_snapshot

    return _found(get_snapshot(), name, None) is not None


def _context(offer: Offer, *, is_special: bool = False) -> dict[str, str]:
    """The tier and the speed, by the list's names. `is_special`: only what is not charged at the standard price."""
    tier, speed = offer.service_tier, offer.speed
    found: dict[str, str] = {}
    if tier is not None and not (is_special and tier in _STANDARD):
        found["processing" if tier == "batch" else "service_tier"] = tier
    if speed is not None and not (is_special and speed in _USUAL):
        found["speed"] = speed
    return found


def _has_variant(model: Any, started: datetime, special: Mapping[str, str], context: Mapping[str, str]) -> bool:
    """Whether one variant is for all that is special: two variants say nothing about a request that is both."""
    return any(
        (variant.constraint is None or variant.constraint.active(started))
        and special.items() <= variant.when.items() <= context.items()
        for variant in model.price_variants or ()
    )


def _rate(price: Any, factor: Decimal) -> Rate | None:
    if price is None:
        return None
    if isinstance(price, Decimal):
        return Rate.of(price, factor=factor)
    return Rate.of(price.base, tuple((tier.start, tier.price) for tier in price.tiers), factor)


def _date(model: Any, started: datetime) -> str | None:
    """The day from which the price holds; None if the list gives none, as for the first price of a model."""
    if not isinstance(model.prices, list):
        return None
    for one in reversed(model.prices):
        if one.constraint is None or one.constraint.active(started):
            begin = getattr(one.constraint, "start_date", None)
            return None if begin is None else str(begin.isoformat())
    return None


@lru_cache(1)
def _version() -> str:
    import genai_prices

    return str(genai_prices.__version__)
