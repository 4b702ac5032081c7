"""A small export in every format, as providers write it, and the lines that it has to give."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamgauge.audit.amounts import Tokens

DAY_S = 1_772_323_200  # 2026-03-01T00:00:00Z
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Sample:
    """rows: as the export names their values. gives: of each line the model, tokens, dollars and tier. is_json: a page."""

    name: str
    rows: Rows
    gives: tuple[tuple[str | None, Tokens | None, Decimal | None, str | None], ...]
    is_json: bool = False
    is_flat: bool = False

    def text(self, rows: Rows | None = None) -> str:
        """The file, with other rows if they are given."""
        given = self.rows if rows is None else rows
        return page(given, is_flat=self.is_flat, **self.times) if self.is_json else table(given)

    @property
    def times(self) -> dict[str, Any]:
        if "Anthropic" in self.name:
            return {"starting_at": "2026-03-01T00:00:00Z", "ending_at": "2026-03-02T00:00:00Z"}
        return {"start_time": DAY_S, "end_time": DAY_S + 86_400}


def page(rows: Rows, *, is_flat: bool = False, more: Mapping[str, Any] = {}, **times: Any) -> str:
    """A JSON page of one bucket."""
    data = list(rows) if is_flat else [{"object": "bucket", **times, "results": list(rows)}]
    return json.dumps({"object": "page", "data": data, "has_more": False, "next_page": None, **more})


def table(rows: Rows, delimiter: str = ",") -> str:
    """A CSV text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_OPENAI_USAGE = {
    "object": "organization.usage.completions.result",
    "input_tokens": 1_000,
    "output_tokens": 50,
    "num_model_requests": 3,
    "input_uncached_tokens": 700,
    "input_cached_tokens": 200,
    "input_cache_write_tokens": 100,
    "input_audio_tokens": 0,
    "project_id": "proj_1",
    "user_id": None,
    "api_key_id": "key_1",
    "model": "gpt-4o-2024-08-06",
    "batch": False,
    "service_tier": "priority",
}
_OPENAI_COST = {
    "object": "organization.costs.result",
    "amount": {"value": "12.5000000000000000", "currency": "usd"},
    "line_item": "gpt-4o-2024-08-06, cached input",
    "project_id": "proj_1",
}
_DASHBOARD_TIMES = {
    "start_time": DAY_S,
    "end_time": DAY_S + 86_400,
    "start_time_iso": "2026-03-01T00:00:00+00:00",
    "end_time_iso": "2026-03-02T00:00:00+00:00",
}
_ANTHROPIC_USAGE = {
    "uncached_input_tokens": 700,
    "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
    "cache_read_input_tokens": 200,
    "output_tokens": 50,
    "server_tool_use": {"web_search_requests": 0},
    "api_key_id": "apikey_1",
    "workspace_id": None,
    "model": "claude-sonnet-4-20250514",
    "service_tier": "standard",
    "context_window": "0-200k",
    "inference_geo": "global",
}
_ANTHROPIC_COST = {
    "amount": "123.78912",
    "currency": "USD",
    "workspace_id": None,
    "description": "Claude Sonnet 4 Usage - Input Tokens",
    "cost_type": "tokens",
    "context_window": "0-200k",
    "model": "claude-sonnet-4-20250514",
    "service_tier": "standard",
    "token_type": "cache_creation.ephemeral_1h_input_tokens",
    "inference_geo": "global",
}
_CONSOLE = {"usage_date_utc": "2026-03-01", "workspace": "Default", "api_key": "river", "context_window": "\u2264 200k"}
_FOCUS = {
    "BilledCost": "0",
    "EffectiveCost": "2.4",
    "BillingCurrency": "USD",
    "ChargePeriodStart": "2026-03-01T00:00:00Z",
    "ChargePeriodEnd": "2026-03-02T00:00:00Z",
    "ChargeCategory": "Usage",
    "ChargeClass": "",
    "ServiceProviderName": "Solora AI",
    "ConsumedQuantity": "8000000.0",
    "ConsumedUnit": "Tokens",
    "PricingQuantity": "8.0",
    "PricingUnit": "1000000 Tokens",
    "SkuMeter": "Cache Read Input Tokens",
    "SkuPriceDetails": json.dumps({"ModelId": "solora-pro", "TokenDirection": "Input", "TokenCacheAction": "Read"}),
}
_PARTS = Tokens(700, 200, 100, 50)

SAMPLES = (
    Sample("OpenAI usage (API)", [_OPENAI_USAGE], (("gpt-4o-2024-08-06", _PARTS, None, "priority"),), is_json=True),
    Sample(
        "OpenAI costs (API)",
        [
            _OPENAI_COST,
            _OPENAI_COST | {"amount": {"value": 0.1, "currency": "usd"}, "line_item": "web search tool calls"},
        ],
        (("gpt-4o-2024-08-06", None, Decimal("12.5"), None), (None, None, Decimal("0.1"), None)),
        is_json=True,
    ),
    Sample(
        "OpenAI usage (dashboard)",
        [
            _DASHBOARD_TIMES | {name: value for name, value in _OPENAI_USAGE.items() if name != "object"},
            _DASHBOARD_TIMES | dict.fromkeys([name for name in _OPENAI_USAGE if name != "object"], ""),
        ],
        (("gpt-4o-2024-08-06", _PARTS, None, "priority"),),
    ),
    Sample(
        "OpenAI costs (dashboard)",
        [
            _DASHBOARD_TIMES
            | {
                "amount_value": "0.5617712500000000",
                "amount_currency": "usd",
                "line_item": "priority | o3, output",
                "project_id": "",
            },
            _DASHBOARD_TIMES | {"amount_value": "", "amount_currency": "", "line_item": "", "project_id": ""},
        ],
        (("o3", None, Decimal("0.56177125"), "priority"),),
    ),
    Sample(
        "Anthropic usage report (API)",
        [_ANTHROPIC_USAGE],
        (("claude-sonnet-4-20250514", _PARTS, None, "standard"),),
        is_json=True,
    ),
    Sample(
        "Anthropic cost report (API)",
        [_ANTHROPIC_COST],
        (("claude-sonnet-4-20250514", None, Decimal("1.2378912"), "standard"),),
        is_json=True,
    ),
    Sample(
        "Anthropic tokens (Console)",
        [
            _CONSOLE
            | {
                "model_version": "claude-haiku-4-5-20251001",
                "usage_type": "standard",
                "usage_input_tokens_no_cache": "700",
                "usage_input_tokens_cache_write_5m": "60",
                "usage_input_tokens_cache_write_1h": "40",
                "usage_input_tokens_cache_read": "200",
                "usage_output_tokens": "50",
                "web_search_count": "0",
            }
        ],
        (("claude-haiku-4-5-20251001", _PARTS, None, "standard"),),
    ),
    Sample(
        "Anthropic costs (Console)",
        [
            _CONSOLE
            | {
                "model": "Claude Haiku 4.5",
                "usage_type": "message",
                "token_type": "output",
                "cost_usd": "1,234.56",
                "cost_type": "tokens",
            }
        ],
        (("Claude Haiku 4.5", None, Decimal("1234.56"), None),),
    ),
    Sample(
        "OpenRouter activity (a row a request)",
        [
            {
                "generation_id": "gen-1",
                "created_at": "2026-03-01 18:54:30.040",
                "cost_total": "0.0123",
                "cost_web_search": "0",
                "cost_cache": "-0.001",
                "cost_file_processing": "0",
                "byok_usage_inference": "0",
                "tokens_prompt": "900",
                "tokens_completion": "50",
                "tokens_reasoning": "10",
                "tokens_cached": "200",
                "model_permaslug": "openai/gpt-4o",
                "provider_name": "OpenAI",
                "variant": "standard",
                "cancelled": "false",
                "streamed": "true",
                "user": "",
                "finish_reason_raw": "stop",
                "finish_reason_normalized": "stop",
                "generation_time_ms": "1234",
                "time_to_first_token_ms": "321",
                "api_key_disabled": "false",
                "api_key_name": "river",
                "app_name": "",
            }
        ],
        (("openai/gpt-4o", Tokens(700, 200, 0, 50), Decimal("0.0123"), None),),
    ),
    Sample(
        "OpenRouter activity (grouped)",
        [
            {
                "Date": "2026-03-01 00:00:00",
                "Slug": "openai/gpt-4o",
                "Usage": "0.5",
                "BYOK Usage": "0",
                "Requests": "3",
                "Prompt Tokens": "900",
                "Completion Tokens": "50",
                "Reasoning Tokens": "10",
            }
        ],
        (("openai/gpt-4o", Tokens(900, 0, 0, 50), Decimal("0.5"), None),),
    ),
    Sample(
        "OpenRouter activity (API)",
        [
            {
                "date": "2026-03-01",
                "model": "openai/gpt-4o",
                "model_permaslug": "openai/gpt-4o-2024-08-06",
                "endpoint_id": "e",
                "provider_name": "OpenAI",
                "usage": 0.015,
                "requests": 3,
                "prompt_tokens": 900,
                "completion_tokens": 50,
                "reasoning_tokens": 10,
            }
        ],
        (("openai/gpt-4o-2024-08-06", Tokens(900, 0, 0, 50), Decimal("0.015"), None),),
        is_json=True,
        is_flat=True,
    ),
    Sample("FOCUS", [_FOCUS], (("solora-pro", Tokens(0, 8_000_000, 0, 0), Decimal("2.4"), None),)),
)
BY_NAME = {sample.name: sample for sample in SAMPLES}
