"""Writes a bill as each provider exports it. It follows the providers' documents, and shares no code with the readers."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.audit.world.bill import Bill, BillRow
from tests.audit.world.traffic import later

# Ids of a tenant at its provider: key, project or workspace, and the name of the key.
KEYS = {"river": ("key_r1", "proj_r", "river-production"), "delta": ("key_d1", "proj_d", "delta-production")}
DISPLAY = {"claude-sonnet-4-20250514": "Claude Sonnet 4", "claude-haiku-4-5-20251001": "Claude Haiku 4.5"}
MAP = """
[tenants]
river = ["key_r1", "proj_r", "river-production"]
delta = ["key_d1", "proj_d", "delta-production"]
[meters]
""" + "".join(
    f'"{model} {part}" = {{model = "{model}", kind = "{kind}"}}\n'
    for model in ("solora-pro", "solora-atlas-5.5")
    for part, kind in zip(
        ("in", "cache read", "cache write", "out"),
        ("input_uncached", "input_cached", "input_cache_write", "output"),
        strict=True,
    )
)


def _times(day: str) -> tuple[int, int]:
    start = int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    return start, start + 86_400


def _by_day(rows: Iterable[BillRow]) -> dict[str, list[BillRow]]:
    days: dict[str, list[BillRow]] = {}
    for row in rows:
        days.setdefault(row.day, []).append(row)
    return days


def _page(buckets: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"object": "page", "data": list(buckets), "has_more": False, "next_page": None})


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# --- OpenAI ---------------------------------------------------------------------------------------------------------


def _openai_usage_row(row: BillRow) -> dict[str, Any]:
    key, project, _ = KEYS[row.tenant]
    uncached, cached, written, output = row.parts
    return {
        "input_tokens": uncached + cached + written,
        "output_tokens": output,
        "num_model_requests": row.requests,
        "input_uncached_tokens": uncached,
        "input_cached_tokens": cached,
        "input_cache_write_tokens": written,
        "project_id": project,
        "user_id": None,
        "api_key_id": key,
        "model": row.model,
        "batch": row.tier == "batch",
        "service_tier": row.tier if row.tier == "priority" else "default",
    }


def _openai_items(row: BillRow) -> Iterable[tuple[str, Decimal]]:
    names = ("input", "cached input", "cache writes", "output")
    prefix = "" if row.tier == "standard" else f"{row.tier} | "
    for name, cost, count in zip(names, row.costs, row.parts, strict=True):
        if count or cost:
            yield f"{prefix}{row.model}, {name}", cost


def openai_usage(bill: Bill) -> str:
    kind = {"object": "organization.usage.completions.result"}
    return _page(
        [
            dict(zip(("start_time", "end_time"), _times(day), strict=True))
            | {"object": "bucket", "results": [kind | _openai_usage_row(row) for row in rows]}
            for day, rows in _by_day(bill.rows).items()
        ]
    )


def openai_costs(bill: Bill) -> str:
    return _page(
        [
            {
                "object": "bucket",
                "start_time": _times(day)[0],
                "end_time": _times(day)[1],
                "results": [
                    {
                        "object": "organization.costs.result",
                        "amount": {"value": f"{cost:f}", "currency": "usd"},
                        "line_item": item,
                        "project_id": KEYS[row.tenant][1],
                    }
                    for row in rows
                    for item, cost in _openai_items(row)
                ],
            }
            for day, rows in _by_day(bill.rows).items()
        ]
    )


def _dashboard_times(day: str) -> dict[str, Any]:
    start, end = _times(day)
    return {"start_time": start, "end_time": end, "start_time_iso": f"{day}T00:00:00+00:00", "end_time_iso": "x"}


def openai_dashboard_usage(bill: Bill) -> str:
    return _csv([_dashboard_times(row.day) | _openai_usage_row(row) for row in bill.rows])


def openai_dashboard_costs(bill: Bill) -> str:
    return _csv(
        [
            _dashboard_times(row.day)
            | {
                "amount_value": f"{cost:.16f}",
                "amount_currency": "usd",
                "line_item": item,
                "project_id": KEYS[row.tenant][1],
            }
            for row in bill.rows
            for item, cost in _openai_items(row)
        ]
    )


# --- Anthropic ------------------------------------------------------------------------------------------------------

_TOKEN_TYPES = (
    "uncached_input_tokens",
    "cache_read_input_tokens",
    "cache_creation.ephemeral_5m_input_tokens",
    "output_tokens",
)


def _anthropic_bucket(day: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {"starting_at": f"{day}T00:00:00Z", "ending_at": f"{later(day, 1)}T00:00:00Z", "results": results}


def _anthropic(bill: Bill, row_of: Callable[[BillRow], Iterable[dict[str, Any]]]) -> str:
    days = _by_day(bill.rows).items()
    return _page([_anthropic_bucket(day, [one for row in rows for one in row_of(row)]) for day, rows in days])


def _anthropic_usage_row(row: BillRow) -> dict[str, Any]:
    uncached, cached, written, output = row.parts
    return {
        "uncached_input_tokens": uncached,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written // 2,
            "ephemeral_1h_input_tokens": written - written // 2,
        },
        "cache_read_input_tokens": cached,
        "output_tokens": output,
        "server_tool_use": {"web_search_requests": 0},
        "api_key_id": KEYS[row.tenant][0],
        "workspace_id": KEYS[row.tenant][1],
        "model": row.model,
        "service_tier": row.tier,
        "context_window": "0-200k",
        "inference_geo": "global",
    }


def _anthropic_cost_rows(row: BillRow) -> Iterable[dict[str, Any]]:
    for kind, cost, count in zip(_TOKEN_TYPES, row.costs, row.parts, strict=True):
        if count or cost:
            yield {
                "amount": f"{cost * 100:f}",
                "currency": "USD",
                "workspace_id": KEYS[row.tenant][1],
                "description": f"{row.model} Usage",
                "cost_type": "tokens",
                "context_window": "0-200k",
                "model": row.model,
                "service_tier": row.tier,
                "token_type": kind,
                "inference_geo": "global",
            }


def anthropic_usage(bill: Bill) -> str:
    return _anthropic(bill, lambda row: [_anthropic_usage_row(row)])


def anthropic_cost(bill: Bill) -> str:
    return _anthropic(bill, _anthropic_cost_rows)


def analytics_usage(bill: Bill) -> str:
    return _anthropic(
        bill, lambda row: [_anthropic_usage_row(row) | {"requests": row.requests, "total_tokens": sum(row.parts)}]
    )


def analytics_cost(bill: Bill) -> str:
    return _anthropic(
        bill,
        lambda row: (
            one | {"api_key_id": KEYS[row.tenant][0], "list_amount": "0", "requests": None}
            for one in _anthropic_cost_rows(row)
        ),
    )


def console_tokens(bill: Bill) -> str:
    return _csv(
        [
            {
                "usage_date_utc": row.day,
                "model_version": row.model,
                "api_key": KEYS[row.tenant][2],
                "workspace": "Default",
                "usage_type": row.tier,
                "context_window": "\u2264 200k",
                "usage_input_tokens_no_cache": row.parts[0],
                "usage_input_tokens_cache_write_5m": row.parts[2],
                "usage_input_tokens_cache_write_1h": 0,
                "usage_input_tokens_cache_read": row.parts[1],
                "usage_output_tokens": row.parts[3],
                "web_search_count": 0,
                "inference_geo": "global",
                "speed": "",
            }
            for row in bill.rows
        ]
    )


def console_cost(bill: Bill) -> str:
    names = ("input_no_cache", "input_cache_read", "input_cache_write_5m", "output")
    return _csv(
        [
            {
                "usage_date_utc": row.day,
                "model": DISPLAY[row.model],
                "workspace": "Default",
                "api_key": KEYS[row.tenant][2],
                "usage_type": "message",
                "context_window": "\u2264 200k",
                "token_type": name,
                "cost_usd": f"{cost:.2f}",
                "list_price_usd": f"{cost:.2f}",
                "cost_type": "tokens",
                "inference_geo": "global",
                "speed": "",
            }
            for row in bill.rows
            for name, cost, count in zip(names, row.costs, row.parts, strict=True)
            if count or cost
        ]
    )


# --- OpenRouter -----------------------------------------------------------------------------------------------------


def openrouter_requests(bill: Bill) -> str:
    rows = []
    for row in bill.rows:
        (call,) = row.calls
        uncached, cached, written, output = row.parts
        at = call.start if row.day == call.day else datetime.strptime(row.day, "%Y-%m-%d").replace(tzinfo=UTC)
        rows.append(
            {
                "generation_id": call.response_id,
                "created_at": f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}",
                "cost_total": f"{sum(row.costs):f}",
                "cost_web_search": "0",
                "cost_cache": "-0.0001",
                "tokens_prompt": uncached + cached + written,
                "tokens_completion": output,
                "tokens_reasoning": call.reasoning,
                "tokens_cached": cached,
                "model_permaslug": row.model,
                "provider_name": "OpenAI",
                "cancelled": "false",
                "api_key_name": KEYS[row.tenant][2],
            }
        )
    return _csv(rows)


def _grouped(bill: Bill) -> dict[tuple[str, str], tuple[int, int, int, Decimal]]:
    sums: dict[tuple[str, str], tuple[int, int, int, Decimal]] = {}
    for row in bill.rows:
        prompt, completion, requests, usd = sums.get((row.day, row.model), (0, 0, 0, Decimal(0)))
        sums[row.day, row.model] = (
            prompt + sum(row.parts[:3]), completion + row.parts[3], requests + row.requests, usd + sum(row.costs)
        )  # fmt: skip
    return sums


def openrouter_grouped(bill: Bill) -> str:
    return _csv(
        [
            {
                "Date": f"{day} 00:00:00",
                "Slug": model,
                "Usage": f"{usd:f}",
                "BYOK Usage": "0",
                "Requests": requests,
                "Prompt Tokens": prompt,
                "Completion Tokens": completion,
                "Reasoning Tokens": 0,
            }
            for (day, model), (prompt, completion, requests, usd) in _grouped(bill).items()
        ]
    )


def openrouter_api(bill: Bill) -> str:
    rows = [
        {
            "date": day,
            "model": model,
            "model_permaslug": model,
            "endpoint_id": "e1",
            "provider_name": "OpenAI",
            "usage": f"{usd:f}",
            "byok_usage_inference": 0,
            "requests": requests,
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "reasoning_tokens": 0,
        }
        for (day, model), (prompt, completion, requests, usd) in _grouped(bill).items()
    ]
    return json.dumps({"data": rows})


# --- FOCUS ----------------------------------------------------------------------------------------------------------


def _focus(bill: Bill, *, with_model: bool) -> str:
    details = (("Input", "Uncached"), ("Input", "Read"), ("Input", "Write"), ("Output", None))
    meters = ("in", "cache read", "cache write", "out")
    return _csv(
        [
            {
                "BilledCost": f"{cost:f}",
                "EffectiveCost": f"{cost:f}",
                "BillingCurrency": "USD",
                "ChargePeriodStart": f"{row.day}T00:00:00Z" if with_model else f"{row.day}T00:00Z",
                "ChargePeriodEnd": f"{later(row.day, 1)}T00:00:00Z",
                "ChargeCategory": "Usage",
                "ChargeClass": "",
                "ProviderName": "Solora AI",
                "SubAccountId": KEYS[row.tenant][1],
                "SubAccountName": row.tenant,
                "ConsumedQuantity": f"{count}.0",
                "ConsumedUnit": "Tokens",
                "PricingQuantity": f"{Decimal(count) / 10**6:f}",
                "PricingUnit": "1000000 Tokens",
                "SkuMeter": f"{row.model} {meter}",
                "SkuPriceDetails": json.dumps(
                    {"ModelId": row.model, "TokenDirection": direction}
                    | ({"TokenCacheAction": action} if action else {})
                )
                if with_model
                else "",
            }
            for row in bill.rows
            for count, cost, (direction, action), meter in zip(row.parts, row.costs, details, meters, strict=True)
            if count or cost
        ]
    )


def focus(bill: Bill) -> str:
    return _focus(bill, with_model=True)


def focus_1_0(bill: Bill) -> str:
    return _focus(bill, with_model=False)


@dataclass(frozen=True)
class Export:
    """The files that together are an invoice. has_keys, has_tiers, splits, has_requests: what both of them have.

    rounds: whether money is rounded to cents a row. each_call: a row for each call.
    """

    name: str
    provider: str
    models: tuple[str, ...]
    writers: tuple[Callable[[Bill], str], ...]
    has_keys: bool = True
    has_tiers: bool = False
    splits: frozenset[str] = frozenset({"cached", "written"})
    has_requests: bool = False
    rounds: bool = False
    each_call: bool = False


_OPENAI = ("gpt-4o-2024-08-06", "o3-2025-04-16")
_ANTHROPIC = ("claude-sonnet-4-20250514", "claude-haiku-4-5-20251001")
_OPENROUTER = ("openai/gpt-4o", "meta-llama/llama-3.3-70b-instruct")
_SOLORA = ("solora-pro", "solora-atlas-5.5")
_NONE: frozenset[str] = frozenset()
EXPORTS = (
    Export("OpenAI API", "openai", _OPENAI, (openai_usage, openai_costs), has_requests=True),
    Export("OpenAI dashboard", "openai", _OPENAI, (openai_dashboard_usage, openai_dashboard_costs), has_requests=True),
    Export("OpenAI usage alone", "openai", _OPENAI, (openai_usage,), has_tiers=True, has_requests=True),
    Export("Anthropic API", "anthropic", _ANTHROPIC, (anthropic_usage, anthropic_cost), has_tiers=True),
    Export(
        "Anthropic analytics", "anthropic", _ANTHROPIC, (analytics_usage, analytics_cost), has_tiers=True, has_requests=True
    ),
    Export("Anthropic Console", "anthropic", _ANTHROPIC, (console_tokens, console_cost), rounds=True),
    Export(
        "OpenRouter activity", "openrouter", _OPENROUTER, (openrouter_requests,), splits=frozenset({"cached"}),
        has_requests=True, each_call=True,
    ),
    Export("OpenRouter grouped", "openrouter", _OPENROUTER, (openrouter_grouped,), False, splits=_NONE, has_requests=True),
    Export("OpenRouter API", "openrouter", _OPENROUTER, (openrouter_api,), has_keys=False, splits=_NONE, has_requests=True),
    Export("FOCUS", "solora ai", _SOLORA, (focus,)),
    Export("FOCUS 1.0", "solora ai", _SOLORA, (focus_1_0,)),
)  # fmt: skip
