"""Finds prices in genai-prices: by seller, model, service tier, region and time. It never fetches newer ones.

A price that the list does not know is no price: a tier, a speed, a region or a kind of tokens without a price of its own is
not charged at the standard price.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from streamgauge.ledger.cost import Unpriced
from streamgauge.prices.rates import Rate, Rates, of_request
from streamgauge.prices.sellers import BEDROCK_REGIONS, Seller, provider_named, seller_named, seller_of

# Tiers that are charged at the standard price. ON_DEMAND is Vertex AI's, which may come as the number 1 (TrafficType in
# google/cloud/aiplatform/v1/prediction_service.proto).
_STANDARD = frozenset({None, "default", "standard", "standard_only", "auto", "on_demand", "ON_DEMAND", "1"})
# Speeds that are charged at the standard price. Anthropic's fast mode has prices of its own.
_USUAL = frozenset({None, "standard"})
# What a region adds: Anthropic charges 1.1 times all token prices for inference in the US only
# (platform.claude.com/docs/en/about-claude/pricing, "Data residency pricing"), prices of fast mode included. Other regions
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
    "input_image": "input_image_mtok",
    "input_video": "input_video_mtok",
    "input_cached_audio": "cache_audio_read_mtok",
    "input_cached_image": "cache_image_read_mtok",
    "output_image": "output_image_mtok",
    "output_video": "output_video_mtok",
}
# A correction of the list, which has DeepSeek's peak hours on every day, and also before there were any. They hold from 17
# August 2026 on, Monday to Friday, not on public holidays of China (api-docs.deepseek.com/quick_start/pricing). The hours
# lie within one day both in UTC and in China. The list's older night prices (deepseek-chat, deepseek-reasoner) held daily.
_DAILY = ("deepseek-chat", "deepseek-reasoner")
_FIRST_PEAK = date(2026, 8, 17)
_SATURDAY = 5
# Weekdays that are public holidays of China, of 2026 (General Office of the State Council, 4 November 2025), and New Year's
# Day of 2027, whose date is fixed by law. Others are not known here: their peak hours have the price of a weekday.
_HOLIDAYS = frozenset({date(2026, 9, 25), *(date(2026, 10, day) for day in (1, 2, 5, 6, 7)), date(2027, 1, 1)})
_OFF_PEAK_HOUR = 12
# Perplexity's fee of a request depends on how much was searched, and the list has the highest one.
_REQUEST_FEE = "request_fee"
# Looked-up models and prices that are kept: clients choose models' names, so this is bounded.
_KEPT = 4_096


class Offer(NamedTuple):
    """The use to be priced.

    `upstream`: its name; `host`: of the upstream; `provider`: the provider that the operator names for it. `is_named`: the
    host is not known, so that the name counts in its place if it is a host or a seller's. `model`: the model that answered;
    `asked`: the requested model.
    """

    upstream: str | None
    host: str | None
    provider: str | None
    model: str | None
    service_tier: str | None
    region: str | None
    speed: str | None = None
    asked: str | None = None
    is_named: bool = False


@lru_cache(_KEPT)
def rates_of(offer: Offer, started: datetime | None) -> Rates | Unpriced:
    """The list prices, or why there are none. Prices change at whole minutes at most: give `started` without seconds."""
    seller = _seller_of(offer)
    if seller is None:
        return Unpriced.NO_SELLER
    if started is None:
        return Unpriced.NO_START
    provider, model = seller.provider, _model_of(seller, offer)
    if isinstance(model, Unpriced):
        return model
    factor = seller.factor(model.id)
    of_region = Decimal(1) if offer.region in _ANYWHERE else _REGIONS.get((provider.id, offer.region))
    if isinstance(factor, Unpriced):
        return factor
    if of_region is None:
        return Unpriced.NO_REGION_PRICE
    factor *= of_region
    at = _hour_of(provider.id, model.id, started)
    context = _context(offer)
    special = _context(offer, is_special=True)
    is_own = any(model is listed for listed in provider.models)
    if special and not (is_own and _has_variant(model, at, special, context)):
        return Unpriced.NO_TIER_PRICE
    prices = model.get_prices(at, context if is_own else None)
    rates: dict[str, Any] = {name: _rate(getattr(prices, key), factor) for name, key in _NAMES.items()}
    searches = prices.web_searches_kcount
    return Rates(
        source=f"genai-prices {list_version()}: {provider.id}/{model.id}",
        date=_date(model, at),
        search=of_request(searches / 1000) if isinstance(searches, Decimal) and not _has_searches(model) else None,
        is_list=True,
        lacks=() if prices.requests_kcount is None else (_REQUEST_FEE,),
        **rates,
    )


def _seller_of(offer: Offer) -> Seller | None:
    if offer.provider is None and offer.is_named and offer.upstream is not None:
        return seller_named(offer.upstream)
    return seller_of(offer.host, offer.provider)


def _model_of(seller: Seller, offer: Offer) -> Any | Unpriced:
    """The model in the seller's list, or why there is none.

    A request to Bedrock names the region of a model, its response does not. An application inference profile, which the
    request may name instead, has a region that only its owner can look up.
    """
    if seller.provider.id != "aws":
        return _found(seller, offer.model) or Unpriced.NO_MODEL
    requested = _found(seller, offer.asked)
    if requested is not None:
        return requested
    model = _found(seller, offer.model)
    if model is None:
        return Unpriced.NO_MODEL
    return Unpriced.NO_DEPLOYMENT if model.id.startswith(BEDROCK_REGIONS) else model


def _found(seller: Seller, name: str | None) -> Any | None:
    from genai_prices.data_snapshot import get_snapshot

    return seller.provider.find_model(name, all_providers=get_snapshot().providers) if name else None


def is_provider(name: str) -> bool:
    """Whether the list has a provider of this name."""
    return provider_named(name) is not None


def provider_id(name: str) -> str | None:
    """The id of the provider that an operator means by a name; None if the list has none."""
    provider = provider_named(name)
    return None if provider is None else str(provider.id)


def seller_id(offer: Offer) -> str | None:
    """The id of the provider whose list prices hold for an offer; None if none is known."""
    seller = _seller_of(offer)
    return None if seller is None else str(seller.provider.id)


def _hour_of(provider: str, model: str, started: datetime) -> datetime:
    """The time by which the list is asked: an hour off peak where the list has peak hours that did not hold."""
    if provider != "deepseek" or model in _DAILY:
        return started
    day = started.astimezone(UTC).date()
    if day >= _FIRST_PEAK and day.weekday() < _SATURDAY and day not in _HOLIDAYS:
        return started
    return started.replace(hour=_OFF_PEAK_HOUR, minute=0)


def _context(offer: Offer, *, is_special: bool = False) -> dict[str, str]:
    """The tier and the speed, by the list's names. `is_special`: only what is not charged at the standard price."""
    tier, speed = offer.service_tier, offer.speed
    context: dict[str, str] = {}
    if tier is not None and not (is_special and tier in _STANDARD):
        context["processing" if tier == "batch" else "service_tier"] = tier
    if speed is not None and not (is_special and speed in _USUAL):
        context["speed"] = speed
    return context


def _has_variant(model: Any, started: datetime, special: Mapping[str, str], context: Mapping[str, str]) -> bool:
    """Whether a single variant covers everything special: two variants give no price for a request that is both."""
    return any(
        (variant.constraint is None or variant.constraint.active(started))
        and special.items() <= variant.when.items() <= context.items()
        for variant in model.price_variants or ()
    )


def _has_searches(model: Any) -> bool:
    """Whether there are several prices of a web search (Perplexity): usage does not show which kind of search it was."""
    return any("search_type" in variant.when for variant in model.price_variants or ())


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
    for price in reversed(model.prices):
        if price.constraint is None or price.constraint.active(started):
            begin = getattr(price.constraint, "start_date", None)
            return None if begin is None else str(begin.isoformat())
    return None


@lru_cache(1)
def list_version() -> str:
    """The version of the installed list of prices."""
    import genai_prices

    return str(genai_prices.__version__)
