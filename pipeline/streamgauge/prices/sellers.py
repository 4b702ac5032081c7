"""The seller of a record's tokens: the company whose list prices hold, and the factor by which a host's prices differ.

A seller is known by the upstream's host: that host is the company's own, as genai-prices knows it, or a regional host of
it. The operator may name the seller of any upstream (`[upstreams]` of --prices). Any other upstream has no list price,
whatever its models are called: an own server, a gateway, another company that serves the same models. So has a host at
which several prices hold, if it does not show which (Azure's deployments).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from streamgauge.ledger.cost import Unpriced

# Parts of paths that genai-prices has in the patterns of hosts that belong to one company alone.
_PATHS = ("/", "/serving-endpoints/", "/client/v4/accounts/-/ai/")
_ONCE, _TENTH_MORE = Decimal(1), Decimal("1.1")
_NOT_KNOWN = Unpriced.NO_REGION_PRICE
# How the ids of models begin that the list has for Bedrock by region.
BEDROCK_REGIONS = ("regional.", "global.")
# By the id of a model in the list: what its list price is multiplied by, or why its price is not known.
Factor = Callable[[str], Decimal | Unpriced]


@dataclass(frozen=True)
class Region:
    """A host of a provider whose prices differ from the list."""

    host: re.Pattern[str]
    provider: str
    factor: Factor


def _openai(model: str) -> Decimal | Unpriced:
    """The factor of regions: a tenth more for models released on or after 5 March 2026: gpt-5.4 and later.

    developers.openai.com/api/docs/guides/data-residency. The list has no days of release, so a model whose name does not
    show its generation has no known price.
    """
    if re.match(r"o[134]\b|gpt-[34]\b|gpt-3\.5|gpt-4[.o]|chatgpt-4o|codex-mini|text-embedding-(3|ada)", model):
        return _ONCE
    version = re.match(r"gpt-(\d+)(?:\.(\d+))?(?:-|\Z)", model)
    if version is None or "image" in model:
        return _NOT_KNOWN
    return _TENTH_MORE if (int(version[1]), int(version[2] or 0)) >= (5, 4) else _ONCE


def _vertex(model: str) -> Decimal | Unpriced:
    """The factor of regions: a tenth more for Anthropic's models since Sonnet 4.5; not known for Google's models.

    platform.claude.com/docs/en/about-claude/pricing, "Third-party platform pricing".
    """
    if not model.startswith("claude-"):
        return _NOT_KNOWN
    return _ONCE if re.match(r"claude-(3|4-opus|4-sonnet)", model) else _TENTH_MORE


def _list_price(model: str) -> Decimal | Unpriced:
    return _ONCE


def _bedrock(model: str) -> Decimal | Unpriced:
    """The factor of regions: 1 for models that the list has by region; else not known, since other prices are for the US."""
    return _ONCE if model.startswith(BEDROCK_REGIONS) else _NOT_KNOWN


def _tenth_more(model: str) -> Decimal | Unpriced:
    """docs.x.ai/developers/advanced-api-usage/regions; docs.mistral.ai/inference/regional-inference."""
    return _TENTH_MORE


def _not_known(model: str) -> Decimal | Unpriced:
    """Other regions of xAI, and hosts for China: their prices are in yuan, and the list has those for other countries."""
    return _NOT_KNOWN


def _by_deployment(model: str) -> Decimal | Unpriced:
    """The list has the prices of Azure's global deployments, and of Databricks in some regions. The host shows neither.

    learn.microsoft.com/azure/ai-services/openai/how-to/deployment-types;
    databricks.com/product/pricing/foundation-model-serving.
    """
    return Unpriced.NO_DEPLOYMENT


def _host(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern + r"\Z")


# The first that matches counts.
_REGIONS = (
    Region(_host(r"[a-z0-9-]+\.api\.openai\.com"), "openai", _openai),
    Region(_host(r"us\.api\.x\.ai"), "x-ai", _tenth_more),
    Region(_host(r"[a-z0-9-]+\.api\.x\.ai"), "x-ai", _not_known),
    Region(_host(r"api\.(eu|us)\.mistral\.ai"), "mistral", _tenth_more),
    Region(_host(r"[a-z0-9-]+-aiplatform(\.[a-z0-9-]+)*\.googleapis\.com"), "google", _vertex),
    Region(_host(r"aiplatform\.[a-z0-9.-]+\.googleapis\.com"), "google", _vertex),
    Region(_host(r"bedrock-[a-z]+\.us-(east|west)-[12]\.(amazonaws\.com|api\.aws)"), "aws", _list_price),
    Region(_host(r"bedrock-[a-z]+\.[a-z0-9-]+\.(amazonaws\.com|api\.aws)"), "aws", _bedrock),
    # The list's pattern of Moonshot ends before the top-level domain.
    Region(_host(r"api\.moonshot\.ai"), "moonshotai", _list_price),
    Region(_host(r"api\.moonshot\.cn"), "moonshotai", _not_known),
    Region(_host(r"api\.minimaxi\.com"), "minimax", _not_known),
)
# Providers whose price is known only where the operator names them: the list price holds there.
_BY_DEPLOYMENT = frozenset({"azure", "databricks"})
# Hosts that genai-prices gives to a company, and at which its customers run what they like.
_OF_CUSTOMERS = _host(r".*\.(azure-api\.net|modal\.(run|direct))")


@dataclass(frozen=True)
class Seller:
    """A provider of genai-prices, and what its list prices are multiplied by here."""

    provider: Any
    factor: Factor = _list_price


@lru_cache(4_096)  # clients of a tap may choose hosts
def seller_of(host: str | None, named: str | None) -> Seller | None:
    """The seller; None if none is known. `named`: the provider that the operator names; it comes before the host's."""
    host = None if host is None else host.lower()
    region = next((known for known in _REGIONS if host is not None and known.host.match(host)), None)
    if named is not None:
        provider = provider_named(named)
        is_its_own = provider is not None and region is not None and provider.id == region.provider
        return None if provider is None else Seller(provider, region.factor if region and is_its_own else _list_price)
    if region is not None:
        provider = provider_named(region.provider)
        return None if provider is None else Seller(provider, region.factor)
    return None if host is None else _unnamed(_of_host(host))


def seller_named(name: str) -> Seller | None:
    """The seller that has exactly this id in the list, or this host."""
    provider = next((known for known in _snapshot().providers if known.id == name), None)
    return seller_of(name, None) if provider is None else _unnamed(provider)


def _unnamed(provider: Any | None) -> Seller | None:
    """The seller where the operator does not name it."""
    if provider is None:
        return None
    return Seller(provider, _by_deployment if provider.id in _BY_DEPLOYMENT else _list_price)


def provider_named(name: str) -> Any | None:
    """The provider of genai-prices that an operator means by a name."""
    try:
        return _snapshot().find_provider(None, name, None)
    except LookupError:
        return None


def _of_host(host: str) -> Any | None:
    """The provider whose own host it is: its pattern matches the whole host, not only how it begins."""
    if _OF_CUSTOMERS.match(host):
        return None
    origin = f"https://{host}"
    for provider in _snapshot().providers:
        for path in _PATHS:
            match = re.match(provider.api_pattern, origin + path)
            if match is not None and match.end() >= len(origin):
                return provider
    return None


@lru_cache(1)
def _snapshot() -> Any:
    from genai_prices.data_snapshot import get_snapshot  # a fifth of a second of CPU

    return get_snapshot()
