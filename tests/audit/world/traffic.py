"""The truth: calls of one provider, with what each used and cost. It shares no code with the audit."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

PARTS = ("uncached", "cached", "written", "output")
TENANTS = ("river", "delta")
# Dollars for a million tokens, in the order of PARTS.
PRICES = {
    "gpt-4o-2024-08-06": ("2.5", "1.25", "2.5", "10"),
    "o3-2025-04-16": ("2", "0.5", "2", "8"),
    "claude-sonnet-4-20250514": ("3", "0.3", "3.75", "15"),
    "claude-haiku-4-5-20251001": ("1", "0.1", "1.25", "5"),
    "gpt-4.1-2025-04-14": ("2", "0.5", "2", "8"),
    "claude-opus-4-1-20250805": ("15", "1.5", "18.75", "75"),
    "openai/gpt-4o": ("2.5", "1.25", "2.5", "10"),
    "meta-llama/llama-3.3-70b-instruct": ("0.12", "0.06", "0.12", "0.3"),
    "solora-pro": ("3", "0.3", "3.75", "15"),
    "solora-atlas-5.5": ("5", "0.5", "6.25", "25"),
    "mistralai/mistral-large": ("2", "0.2", "2", "6"),
    "solora-mini": ("0.25", "0.025", "0.3", "2"),
}
TIER_FACTORS = {"standard": Decimal(1), "priority": Decimal(2), "batch": Decimal("0.5")}


@dataclass(frozen=True)
class Call:
    """One request. usage: what its stream reported. seen, billed: whether the ledger and the invoice have it.

    billed_on: the day of the invoice, if not that of its start. billed_tier, billed_tenant: likewise. billed_parts: what is
    billed, if not what it used. status: of the response; None: 200 if a token came, else none. cause: why its bill is not
    what the ledger has of it.
    """

    id: str
    start: datetime
    seconds: float
    provider: str
    model: str
    tenant: str
    tier: str
    parts: tuple[int, int, int, int]
    reasoning: int
    digest: str
    attempt: int = 1
    usage: str = "final"
    outcome: str = "completed"
    has_token: bool = True
    seen: bool = True
    billed: bool = True
    billed_on: str | None = None
    billed_tier: str | None = None
    billed_parts: tuple[int, int, int, int] | None = None
    billed_tenant: str | None = None
    status: int | None = None
    cause: str | None = None
    apart: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def day(self) -> str:
        """The UTC day of its start."""
        return self.start.strftime("%Y-%m-%d")

    @property
    def response_id(self) -> str:
        """The provider's id."""
        return f"gen-{self.id[-12:]}"

    def costs(self) -> tuple[Decimal, ...]:
        """What each part costs, by the list."""
        return costs_of(self.model, self.tier, self.parts)

    @property
    def usd(self) -> Decimal:
        """What it costs, by the list."""
        return sum(self.costs(), Decimal(0))


def costs_of(model: str, tier: str, parts: tuple[int, ...]) -> tuple[Decimal, ...]:
    """Dollars for tokens, part by part."""
    factor = TIER_FACTORS[tier]
    return tuple(
        Decimal(count) * Decimal(price) * factor / 10**6 for count, price in zip(parts, PRICES[model], strict=True)
    )


@dataclass
class World:
    """The calls of a provider in a period, and on the day either side of it."""

    provider: str
    first: str
    days: int
    calls: list[Call] = field(default_factory=list)

    @property
    def end(self) -> str:
        """The day after the last one."""
        return later(self.first, self.days)

    def change(self, call: Call, **changes: object) -> Call:
        """Replace a call by a changed one."""
        changed = replace(call, **changes)  # type: ignore[arg-type]
        self.calls[self.calls.index(call)] = changed
        return changed


def later(day: str, days: int) -> str:
    """Another day."""
    return (datetime.strptime(day, "%Y-%m-%d") + timedelta(days=days)).strftime("%Y-%m-%d")


def make_world(
    provider: str,
    models: tuple[str, ...],
    first: str,
    days: int,
    seed: int,
    tiers: tuple[str, ...] = ("standard",),
    calls: int = 5,
) -> World:
    """`calls` calls for each day, model, tenant and tier: usual ones, and one of a day that runs across midnight."""
    rng = random.Random(seed)
    world = World(provider, first, days)
    number = 0
    begin = datetime.strptime(first, "%Y-%m-%d").replace(tzinfo=UTC)
    for offset in range(-1, days + 1):
        for model in models:
            for tenant in TENANTS:
                for tier in tiers:
                    for place in range(calls):
                        number += 1
                        at = begin + timedelta(days=offset, seconds=rng.uniform(100, 82_000))
                        seconds = rng.uniform(0.5, 60)
                        if place == 0:
                            at = begin + timedelta(days=offset + 1, seconds=-rng.uniform(1, 30))
                            seconds = rng.uniform(31, 90)
                        world.calls.append(
                            _call(rng, number + seed * 10**7, at, seconds, provider, model, tenant, tier)
                        )
    return world


def _call(
    rng: random.Random, number: int, at: datetime, seconds: float, provider: str, model: str, tenant: str, tier: str
) -> Call:
    at = at.replace(microsecond=at.microsecond // 1000 * 1000)
    output = rng.randrange(20, 4_000)
    written = rng.randrange(1_000) if rng.random() < 0.3 and provider in ("anthropic", "solora ai") else 0
    return Call(
        id=str(UUID(int=(int(at.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62) | number)),
        start=at,
        seconds=round(seconds, 3),
        provider=provider,
        model=model,
        tenant=tenant,
        tier=tier,
        parts=(rng.randrange(50, 20_000), rng.randrange(5_000) if rng.random() < 0.5 else 0, written, output),
        reasoning=rng.randrange(output) if rng.random() < 0.4 else 0,
        digest=f"{rng.getrandbits(128):032x}",
    )


def in_cell(world: World, day: str, model: str, tenant: str, tier: str) -> list[Call]:
    """The calls of a cell, by start."""
    found = [one for one in world.calls if (one.day, one.model, one.tenant, one.tier) == (day, model, tenant, tier)]
    return sorted(found, key=lambda one: (one.start, one.id))


def ids(calls: Iterator[Call] | list[Call]) -> frozenset[str]:
    """The ids of calls."""
    return frozenset(one.id for one in calls)
