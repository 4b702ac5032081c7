"""A company's traffic: hundreds or thousands of calls a day over several models, keys and days, and what goes wrong in it.

In each day some calls are refused (429, one half retried), left by their client, broken (and retried), completed without
usage, of the Batch API, or open at midnight. What a provider bills of aborted streams, and whether it counts them as
requests, is a habit of the provider.
"""

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tests.audit.world.exports import Export
from tests.audit.world.traffic import TENANTS, Call, World

MODELS = {
    "openai": ("gpt-4o-2024-08-06", "o3-2025-04-16", "gpt-4.1-2025-04-14"),
    "anthropic": ("claude-sonnet-4-20250514", "claude-haiku-4-5-20251001", "claude-opus-4-1-20250805"),
    "openrouter": ("openai/gpt-4o", "meta-llama/llama-3.3-70b-instruct", "mistralai/mistral-large"),
    "solora ai": ("solora-pro", "solora-atlas-5.5", "solora-mini"),
}
# Of all calls.
REFUSED, ABORTED, TRUNCATED, BROKEN, LATE = 0.03, 0.02, 0.005, 0.01, 0.01
# Of the calls of one key and one model, whose application does not ask for usage; in every other world.
UNREPORTED = 0.03
BATCH_A_DAY = 6
# Of Anthropic's complete calls: with a step (compaction) that its usage reports apart.
STEPS = 0.02


@dataclass(frozen=True)
class Habits:
    """What a provider does with streams that end before their usage: does it bill what they generated, and if not, does it
    count them as requests? has_careless: whether an application of the company does not ask for usage.
    """

    bills_aborted: bool
    counts_aborted: bool
    has_careless: bool


def company(export: Export, first: str, days: int, per_day: int, seed: int) -> World:
    """A world: `per_day` calls a day, also on the day either side of the period."""
    rng = random.Random(f"{export.name} {per_day} {seed}")
    habits = Habits(seed % 3 == 0, seed % 2 == 0, seed % 4 < 2 and export.provider != "anthropic")
    world = World(export.provider, first, days)
    maker = _Maker(export, habits, rng, seed)
    begin = datetime.strptime(first, "%Y-%m-%d").replace(tzinfo=UTC)
    for offset in range(-1, days + 1):
        midnight = begin + timedelta(days=offset)
        for _ in range(per_day):
            world.calls += maker.request(midnight)
        if export.provider in ("openai", "anthropic"):
            world.calls += [maker.batch(midnight) for _ in range(BATCH_A_DAY)]
    return world


class _Maker:
    def __init__(self, export: Export, habits: Habits, rng: random.Random, seed: int) -> None:
        self._export = export
        self._habits = habits
        self._rng = rng
        self._number = seed * 10**7
        self._models = MODELS[export.provider]
        self._careless = (self._models[0], TENANTS[0]) if habits.has_careless else None

    def request(self, midnight: datetime) -> list[Call]:
        """The attempts of a request."""
        rng = self._rng
        model = rng.choices(self._models, (5, 3, 2))[0]
        tenant = rng.choices(TENANTS, (3, 2))[0]
        tier = rng.choices(("standard", "priority"), (9, 1))[0] if self._export.has_tiers else "standard"
        kind = rng.random()
        seconds = rng.uniform(0.5, 60)
        start = midnight + timedelta(seconds=rng.uniform(100, 86_000))
        if kind > 1 - LATE:
            start = midnight + timedelta(days=1, seconds=-rng.uniform(1, 30))
            seconds = rng.uniform(31, 90)
        call = self._call(start, seconds, model, tenant, tier)
        if kind < REFUSED:
            refused = replace(self._copy(call), usage="absent", outcome="http_error", status=429, billed=False)
            refused = replace(refused, has_token=False, seconds=0.3, parts=(*call.parts[:3], 0))
            return [refused] if rng.random() < 0.5 else [refused, replace(call, attempt=2)]
        if kind < REFUSED + ABORTED:
            return [self.aborted(call, "client_abort")]
        if kind < REFUSED + ABORTED + TRUNCATED:
            return [self.aborted(call, "truncated")]
        if kind < REFUSED + ABORTED + TRUNCATED + BROKEN:
            return self.retried(call)
        if self._careless == (model, tenant) and rng.random() < UNREPORTED:
            return [replace(plain(call), usage="absent", cause="usage_not_reported")]
        if self._export.provider == "anthropic" and rng.random() < STEPS:
            return [replace(call, apart=(call.parts[0] // 3, 0, 0, call.parts[3] // 4))]
        return [call]

    def batch(self, midnight: datetime) -> Call:
        """A call of the Batch API: no stream."""
        start = midnight + timedelta(seconds=self._rng.uniform(100, 80_000))
        call = self._call(start, 60, self._models[0], TENANTS[1], "batch")
        return replace(plain(call), seen=False, cause="batch")

    def aborted(self, call: Call, outcome: str) -> Call:
        """The call, left or broken before its end. Anthropic has told its input by then."""
        call = plain(call)
        made = self._rng.randrange(1, call.parts[3] + 1)
        usage = "partial" if self._export.provider == "anthropic" else "absent"
        call = replace(call, usage=usage, outcome=outcome, parts=(*call.parts[:3], made))
        if self._habits.bills_aborted:
            return replace(call, cause="aborted_without_usage")
        return unbilled(call, self._habits)

    def retried(self, call: Call) -> list[Call]:
        """A connection that broke before the first token, and the call again."""
        call = replace(plain(call), attempt=2)
        first = replace(
            self._copy(call), attempt=1, seconds=3.0, usage="absent", outcome="upstream_reset", billed=False
        )
        return [replace(first, start=call.start - timedelta(seconds=20), has_token=False), call]

    def _copy(self, call: Call) -> Call:
        return replace(call, id=str(UUID(int=UUID(call.id).int ^ 1 << 40)))

    def _call(self, start: datetime, seconds: float, model: str, tenant: str, tier: str) -> Call:
        rng = self._rng
        self._number += 1
        start = start.replace(microsecond=start.microsecond // 1000 * 1000)
        output = int(rng.lognormvariate(5.5, 0.9)) + 5
        uncached = int(rng.lognormvariate(7, 1)) + 20
        has_cache, has_written = rng.random() < 0.5, rng.random() < 0.3
        written = rng.randrange(1_000) if has_written and self._export.provider in ("anthropic", "solora ai") else 0
        return Call(
            id=str(UUID(int=(int(start.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62) | self._number)),
            start=start,
            seconds=round(seconds, 3),
            provider=self._export.provider,
            model=model,
            tenant=tenant,
            tier=tier,
            parts=(uncached, rng.randrange(5_000) if has_cache else 0, written, output),
            reasoning=rng.randrange(output) if model == self._models[1] else 0,
            digest=f"{rng.getrandbits(128):032x}",
        )


def plain(call: Call) -> Call:
    """The call without cache and reasoning: what no record has, no audit can tell apart."""
    uncached, cached, written, output = call.parts
    return replace(call, parts=(uncached + cached + written, 0, 0, output), reasoning=0)


def unbilled(call: Call, habits: Habits) -> Call:
    """An aborted call of which nothing is billed but what it told: it may still be counted as a request."""
    if call.usage == "partial":
        return replace(call, billed_parts=(*call.parts[:3], 0))
    return replace(call, billed=habits.counts_aborted, billed_parts=(0, 0, 0, 0))
