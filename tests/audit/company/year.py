"""The company's calls, bills, map, rates, scope and prices, and what the audit of them has to find.

It pays OpenAI (10 % less from March on), Anthropic (output of a model costs a fifth more from a noon in June on), OpenRouter,
DeepSeek (in yuan), Azure (in euros) and AWS. In August a key of OpenAI is billed to another project for a week. In October
the tap of Anthropic's upstream is down for some hours. The first day of 2026 is a Thursday; the year is one of UTC.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from streamgauge.ledger import LedgerRow
from tests.audit.world.bill import Bill, BillRow, make_bill
from tests.audit.world.exports import (
    KEYS,
    anthropic_cost,
    anthropic_usage,
    openai_costs,
    openai_usage,
    openrouter_requests,
)
from tests.audit.world.records import row as record_row
from tests.audit.world.traffic import PRICES, TENANTS, Call, World, later, make_world

FIRST, DAYS = "2026-01-01", 365
PRICE_FROM, MOVED, DOWN = "2026-06-10T12:00", ("2026-08-03", "2026-08-10"), ("2026-10-12", "2026-10-13")
DISCOUNT_FROM, DISCOUNT = "2026-03-01", Decimal("0.9")
RISEN, RISE = "claude-sonnet-4-20250514", Decimal("1.2")
AZURE, NOVA, DEEPSEEK = "gpt-4o-mini-2024-07-18", "amazon.nova-pro-v1:0", "deepseek-chat"
# Dollars for a million tokens; for models of exports.py those of traffic.py.
MORE_PRICES = {
    AZURE: ("0.15", "0.075", "0.15", "0.6"),
    NOVA: ("0.8", "0.2", "0.8", "3.2"),
    DEEPSEEK: ("0.28", "0.028", "0.28", "0.42"),
}
MODELS: Mapping[str, tuple[str, ...]] = {
    "openai": ("gpt-4o-2024-08-06", "o3-2025-04-16"),
    "anthropic": ("claude-sonnet-4-20250514", "claude-haiku-4-5-20251001"),
    "openrouter": ("openai/gpt-4o",),
    "deepseek": (DEEPSEEK,),
    "azure-prod": (AZURE,),
    "bedrock": (NOVA,),
}
# Dollars for a euro and a yuan, by month: with two digits after the point an amount in them stays a decimal.
EUR = {month: Decimal("1.05") + Decimal(month) / 100 for month in range(1, 13)}
CNY = Decimal("0.14")
MAP = """
[upstreams]
azure-prod = "microsoft"
bedrock = "aws"
[tenants]
river = ["key_r1", "proj_r", "river-production"]
delta = ["key_d1", "proj_d", "delta-production"]
[meters]
USE1-NovaPro-input-tokens = {model = "amazon.nova-pro-v1:0", kind = "input_uncached"}
USE1-NovaPro-cache-read-input-token-count = {model = "amazon.nova-pro-v1:0", kind = "input_cached"}
USE1-NovaPro-output-tokens = {model = "amazon.nova-pro-v1:0", kind = "output"}
"""
SCOPE = """
[[known]]
cause = "tax"
provider = "microsoft"
usd = "500"
until = 2026-12-31
reason = "VAT of the subscription"
"""


@dataclass
class Year:
    """The files of a year by name, the records of its ledger, and the causes that the audit has to name, with their days."""

    records: Sequence[LedgerRow]
    files: Mapping[str, str]
    causes: dict[str, set[str]] = field(default_factory=dict)

    def write(self, folder: Path) -> list[str]:
        """Write everything into a folder; returns the names of the invoices."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "records.jsonl").open("wb") as lines:
            for row in self.records:  # without their costs: the ledger computes them by the prices
                lines.write(row.record.rpartition(b',"cost":')[0] + b"}\n")
        for name, content in self.files.items():
            (folder / name).write_text(content)
        return [name for name in self.files if not name.endswith(".toml")]


def make_year(days: int = DAYS, calls: int = 2, seed: int = 7) -> Year:
    """A year, or its first days. `calls`: for each day, model and tenant."""
    PRICES.update(MORE_PRICES)
    year = Year([], {})
    files: dict[str, str] = {"map.toml": MAP, "scope.toml": SCOPE, "rates.toml": _rates(), "prices.toml": _prices()}
    records: list[LedgerRow] = []
    for number, (upstream, models) in enumerate(MODELS.items()):
        world = make_world(upstream, models, FIRST, days, seed + number, calls=calls)
        world.calls = [_plain(call, random.Random(call.id)) for call in world.calls if FIRST <= call.day < world.end]
        bill = make_bill(world, each_call=upstream == "openrouter")
        seen = world.calls
        if upstream == "openai":
            bill = _moved(_discounted(bill), year)
        elif upstream == "anthropic":
            bill = _risen(bill, world, year)
            seen = _without_the_outage(world, year)
        files |= _WRITERS[upstream](bill)
        records += [record_row(call) for call in seen]
    year.records, year.files = sorted(records, key=lambda row: (row.started_us or 0, row.stream_id)), files
    return year


def _plain(call: Call, rng: random.Random) -> Call:
    """Without cache writes, which two of the exports do not tell apart, and without a stream across midnight."""
    uncached, cached, written, output = call.parts
    return replace(
        call,
        start=call.start.replace(hour=rng.randrange(1, 23)),
        seconds=min(call.seconds, 60.0),
        parts=(uncached + written, cached, 0, output),
    )


def _discounted(bill: Bill) -> Bill:
    return Bill([
        replace(row, costs=tuple(cost * DISCOUNT for cost in row.costs)) if row.day >= DISCOUNT_FROM else row
        for row in bill.rows
    ])  # fmt: skip


def _moved(bill: Bill, year: Year) -> Bill:
    """For a week the traffic of river is billed to the project and key of delta."""
    rows: dict[tuple[str, str, str], BillRow] = {}
    for row in bill.rows:
        is_moved = MOVED[0] <= row.day < MOVED[1] and row.tenant == TENANTS[0]
        if is_moved:
            year.causes.setdefault("other_key", set()).add(row.day)
        billed = replace(row, tenant=TENANTS[1]) if is_moved else row
        known = rows.get((billed.day, billed.model, billed.tenant))
        rows[billed.day, billed.model, billed.tenant] = billed if known is None else _sum(known, billed)
    return Bill(list(rows.values()))


def _sum(row: BillRow, other: BillRow) -> BillRow:
    return replace(
        row,
        parts=tuple(map(sum, zip(row.parts, other.parts, strict=True))),
        costs=tuple(first + second for first, second in zip(row.costs, other.costs, strict=True)),
        requests=row.requests + other.requests,
        calls=(*row.calls, *other.calls),
    )


def _risen(bill: Bill, world: World, year: Year) -> Bill:
    rows = []
    for row in bill.rows:
        risen = [call for call in row.calls if row.model == RISEN and f"{call.start:%Y-%m-%dT%H:%M}" >= PRICE_FROM]
        if risen:
            year.causes.setdefault("price_changed", set()).add(row.day)
        more = sum((call.costs()[3] for call in risen), Decimal(0)) * (RISE - 1)
        rows.append(replace(row, costs=(*row.costs[:3], row.costs[3] + more)))
    return Bill(rows)


def _without_the_outage(world: World, year: Year) -> list[Call]:
    seen = [call for call in world.calls if not (DOWN[0] <= call.day < DOWN[1] and 9 <= call.start.hour < 16)]
    if len(seen) < len(world.calls):
        year.causes["coverage"] = {DOWN[0]}
    return seen


def _csv(columns: str, rows: Iterable[Sequence[object]]) -> str:
    return "\n".join([columns, *(",".join(map(str, row)) for row in rows)]) + "\n"


def _openai(bill: Bill) -> dict[str, str]:
    return {"openai-usage.json": openai_usage(bill), "openai-costs.json": openai_costs(bill)}


def _anthropic(bill: Bill) -> dict[str, str]:
    return {"anthropic-usage.json": anthropic_usage(bill), "anthropic-cost.json": anthropic_cost(bill)}


def _openrouter(bill: Bill) -> dict[str, str]:
    return {"openrouter.csv": openrouter_requests(bill)}


def _deepseek(bill: Bill) -> dict[str, str]:
    """Its usage page's two files, of UTC days; costs in yuan."""
    amounts, costs = [], []
    for row in bill.rows:
        span = f"{row.day}T00:00:00+00:00", f"{later(row.day, 1)}T00:00:00+00:00"
        counts = {
            "input_cache_miss_tokens": row.parts[0], "input_cache_hit_tokens": row.parts[1], "output_tokens": row.parts[3],
            "request_count": row.requests,
        }  # fmt: skip
        amounts += [
            ("u1", *span, row.model, KEYS[row.tenant][2], "sk-5****", kind, "", count) for kind, count in counts.items()
        ]
        costs.append(("u1", *span, row.model, "Paid", f"{_rounded(sum(row.costs) / CNY):f}", "CNY"))
    return {
        "deepseek-amount.csv": _csv(
            "user_id,start_time_iso,end_time_iso,model,api_key_name,api_key,type,price,amount", amounts
        ),
        "deepseek-cost.csv": _csv("user_id,start_time_iso,end_time_iso,model,wallet_type,cost,currency", costs),
    }


def _azure(bill: Bill) -> dict[str, str]:
    """Cost details of an Enterprise Agreement, in euros, with VAT at the end of each month."""
    names = {
        0: "gpt 4o mini 0718 Inp glbl Tokens",
        1: "gpt 4o mini 0718 cached Inp glbl Tokens",
        3: "gpt 4o mini 0718 Outp glbl Tokens",
    }
    rows: list[Sequence[object]] = []
    vat = dict.fromkeys(range(1, 13), Decimal(0))

    def add(date: str, product: str, name: str, quantity: Decimal, unit: str, cost: Decimal, kind: str) -> None:
        amounts = (f"{quantity:f}", unit, "", f"{_rounded(cost):f}", "EUR")
        rows.append(("x", 1, "rg", date, "Cognitive Services", product, name, *amounts, "/r/1", kind))

    for row in bill.rows:
        year, month, day = row.day.split("-")
        for index, name in names.items():
            if row.parts[index]:
                cost = row.costs[index] / EUR[int(month)]
                vat[int(month)] += cost * Decimal("0.19")
                add(
                    f"{month}/{day}/{year}", "Azure OpenAI", name, Decimal(row.parts[index]) / 1000, "1K", cost, "Usage"
                )
    for number, amount in vat.items():
        if amount:
            add(f"{number:02}/01/2026", "", "VAT", Decimal(1), "1", amount, "Tax")
    return {"azure-cost-details.csv": _csv(
        "InvoiceSectionName,SubscriptionId,ResourceGroup,Date,MeterCategory,MeterSubCategory,MeterName,Quantity,UnitOfMeasure,"
        "EffectivePrice,CostInBillingCurrency,BillingCurrencyCode,ResourceId,ChargeType", rows,
    )}  # fmt: skip


def _aws(bill: Bill) -> dict[str, str]:
    names = {0: "input-tokens", 1: "cache-read-input-token-count", 3: "output-tokens"}
    rows = [
        (f"{row.day}T00:00:00Z", f"{row.day}T01:00:00Z", "AmazonBedrock", f"USE1-NovaPro-{name}", "InvokeModelStreaming",
         f"{Decimal(row.parts[index]) / 1000:f}", "USD", f"{row.costs[index]:f}", "Usage", "1K tokens", "us-east-1", 1234)
        for row in bill.rows
        for index, name in names.items()
        if row.parts[index]
    ]  # fmt: skip
    return {"aws-cur2.csv": _csv(
        "line_item_usage_start_date,line_item_usage_end_date,line_item_product_code,line_item_usage_type,line_item_operation,"
        "line_item_usage_amount,line_item_currency_code,line_item_unblended_cost,line_item_line_item_type,pricing_unit,"
        "product_region_code,line_item_usage_account_id", rows,
    )}  # fmt: skip


_WRITERS = {
    "openai": _openai, "anthropic": _anthropic, "openrouter": _openrouter, "deepseek": _deepseek, "azure-prod": _azure,
    "bedrock": _aws,
}  # fmt: skip


def _rounded(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("1E-12"), ROUND_HALF_UP)


def _rates() -> str:
    lines = []
    for month, rate in EUR.items():
        end = f"2026-{month + 1:02}-01" if month < 12 else "2027-01-01"
        lines.append(f'[[rate]]\ncurrency = "EUR"\nfrom = 2026-{month:02}-01\nuntil = {end}\nusd = "{rate}"\n')
    return "\n".join([*lines, f'[[rate]]\ncurrency = "CNY"\nfrom = 2026-01-01\nuntil = 2027-01-01\nusd = "{CNY}"\n'])


def _prices() -> str:
    """What the contracts say: OpenAI's list less a discount, and the prices of the others."""
    lines = [f'[[discount]]\nprovider = "openai"\nfrom = {DISCOUNT_FROM}\npercent = {100 * (1 - DISCOUNT):f}\n']
    for upstream, models in MODELS.items():
        for model in models if upstream != "openai" else ():
            uncached, cached, written, output = PRICES[model]
            lines.append(
                f"[[price]]\nmodel = {json.dumps(model)}\nupstream = {json.dumps(upstream)}\nfrom = 2025-01-01\n"
                f"input = {uncached}\ninput_cached = {cached}\ncache_write = {written}\noutput = {output}\n"
            )
    return "\n".join(lines)
