"""Who sold what a record used: the company whose list price holds, and what its region adds to that price.

A seller is known by the upstream's host: that host is the company's own, as genai-prices knows it, or a regional host of
it. The operator may name the seller of any upstream (`[upstreams]` of --prices). Any other upstream has no list price,
whatever its models are called: an own server, a gateway, another company that serves the same models.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

# Parts of paths that genai-prices has in the patterns of hosts that belong to one company alone.
_PATHS = ("/", "/serving-endpoints/", "/client/v4/accounts/-/ai/")
_ONCE, _TENTH_MORE = Decimal(1), Decimal("1.1")


@dataclass(frozen=True)
class Region:
    """A regional host: `provider`, and `factor`, which gives what the list price of a model is multiplied by.

    The factor is None for a model whose price there is not known. `model`: the id in the list.
    """

    host: re.Pattern[str]
    provider: str
    factor: Callable[[str], Decimal | None]


def _openai(model: str) -> Decimal | None:
    """A tenth more for models released on or after 5 March 2026: gpt-5.4 and later.

    developers.openai.com/api/docs/guides/data-residency. The list has no days of release, so a model whose name does not
    say its generation has no known price.
    """
    if re.match(r"o[134]\b|gpt-[34]\b|gpt-3\.5|gpt-4[.o]|chatgpt-4o|codex-mini|text-embedding-(3|ada)", model):
        return _ONCE
    found = re.match(r"gpt-(\d+)(?:\.(\d+))?(?:-|\Z)", model)
    if found is None or "image" in model:
        return None
    return _TENTH_MORE if (int(found[1]), int(found[2] or 0)) >= (5, 4) else _ONCE


def _vertex(model: str) -> Decimal | None:
    """Of Anthropic's models a tenth more since Sonnet 4.5; of Google's no price for regions is known.

    platform.claude.com/docs/en/about-claude/pricing, "Third-party platform pricing".
    """
    if not model.startswith("claude-"):
        return None
    return _ONCE if re.match(r"claude-(3|4-opus|4-sonnet)", model) else _TENTH_MORE


def _bedrock_us(model: str) -> Decimal | None:
    return _ONCE


def _bedrock(model: str) -> Decimal | None:
    """The list has entries of their own for some models in regions and everywhere; its other prices are those of the US."""
    return _ONCE if model.startswith(("regional.", "global.")) else None


def _xai(model: str) -> Decimal | None:
    """docs.x.ai/developers/advanced-api-usage/regions."""
    return _TENTH_MORE


def _host(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern + r"\Z")


# The first that matches counts.
_REGIONS = (
    Region(_host(r"[a-z0-9-]+\.api\.openai\.com"), "openai", _openai),
    Region(_host(r"us\.api\.x\.ai"), "x-ai", _xai),
    Region(_host(r"[a-z0-9-]+-aiplatform(\.[a-z0-9-]+)*\.googleapis\.com"), "google", _vertex),
    Region(_host(r"aiplatform\.[a-z0-9.-]+\.googleapis\.com"), "google", _vertex),
    Region(_host(r"bedrock-[a-z]+\.us-(east|west)-[12]\.(amazonaws\.com|api\.aws)"), "aws", _bedrock_us),
    Region(_host(r"bedrock-[a-z]+\.[a-z0-9-]+\.(amazonaws\.com|api\.aws)"), "aws", _bedrock),
)


@dataclass(frozen=True)
class Seller:
    """A provider of genai-prices, and the region of its host, if that has prices of its own."""

    provider: Any
    region: Region | None = None

    def factor_of(self, model: str) -> Decimal | None:
        """What the list price of a model is multiplied by here; None if that is not known."""
        return _ONCE if self.region is None else self.region.factor(model)


@lru_cache(4_096)  # clients of a tap may choose hosts
def seller_of(host: str | None, named: str | None) -> Seller | None:
    """The seller; None if none is known. `named`: the provider that the operator names; it comes before the host's."""
    region = next((one for one in _REGIONS if host is not None and one.host.match(host.lower())), None)
    if named is not None:
        provider = provider_named(named)
        own_region = region if provider is not None and region is not None and provider.id == region.provider else None
        return None if provider is None else Seller(provider, own_region)
    if region is not None:
        provider = provider_named(region.provider)
        return None if provider is None else Seller(provider, region)
    provider = None if host is None else _of_host(host.lower())
    return None if provider is None else Seller(provider)


def seller_named(name: str) -> Seller | None:
    """The seller that has exactly this id in the list, or this host."""
    provider = next((one for one in _snapshot().providers if one.id == name), None)
    return seller_of(name, None) if provider is None else Seller(provider)


def provider_named(name: str) -> Any | None:
    """The provider of genai-prices that an operator means by a name."""
    try:
        return _snapshot().find_provider(None, name, None)
    except LookupError:
        return None


def _of_host(host: str) -> Any | None:
    """The provider whose own host it is. A host that only begins as one is another company's."""
    for provider in _snapshot().providers:
        for path in _PATHS:
            url = f"https://{host}{path}"
            found = re.match(provider.api_pattern, url)
            # Moonshot's pattern ends before the top-level domain.
            if found is not None and re.match(r"[a-z]*(/|\Z)", url[found.end() :]) and _ends(found, url):
                return provider
    return None


def _ends(found: re.Match[str], url: str) -> bool:
    """Whether a pattern has matched the whole host, or all of it but a top-level domain."""
    rest = url[found.end() :]
    return rest.startswith("/") or not rest or url[found.end() - 1] in "./"


@lru_cache(1)
def _snapshot() -> Any:
    from genai_prices.data_snapshot import get_snapshot  # a fifth of a second of CPU

    return get_snapshot()
