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
    "BilledCost": "2.4",
    "EffectiveCost": "2.1",
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
_ACTIVITY = {
    "organization_id": "org-1",
    "usage_type": "text",
    "timestamp": DAY_S,
    "timestamp_iso": "2026-03-01T00:00:00",
    "n_requests": 3,
    "operation": "completion",
    "model": "gpt-4o-mini-2024-07-18",
    "n_context_tokens_total": 900,
    "n_generated_tokens_total": 50,
    "api_key_id": "key_1",
    "api_key_name": "river",
}
_DEEPSEEK = {
    "user_id": "user-1",
    "start_time_iso": "2026-03-01T00:00:00+08:00",
    "end_time_iso": "2026-03-02T00:00:00+08:00",
    "model": "deepseek-chat",
}
_DEEPSEEK_KEY = {"api_key_name": "river", "api_key": "sk-5****"}
_FIREWORKS = {
    "email": "a@b.example",
    "start_time": "2026-03-01 17:16:48 UTC",
    "end_time": "2026-03-01 17:16:48 UTC",
    "usage_type": "TEXT_COMPLETION_INFERENCE_USAGE",
    "accelerator_type": "",
    "accelerator_seconds": "",
    "base_model_name": "accounts/fireworks/models/llama-v3p1-70b-instruct",
    "model_bucket": "Llama 3.1 70B",
    "parameter_count": "70",
    "prompt_tokens": "900",
    "completion_tokens": "50",
}
_AZURE = {
    "InvoiceSectionName": "x",
    "SubscriptionId": "sub-1",
    "ResourceGroup": "rg",
    "Date": "03/01/2026",
    "BillingPeriodStartDate": "03/01/2026",
    "BillingPeriodEndDate": "03/31/2026",
    "MeterCategory": "Foundry Models",
    "MeterSubCategory": "Azure OpenAI",
    "MeterName": "gpt 4o 1120 cached Inp glbl Tokens",
    "Quantity": "1.5",
    "UnitOfMeasure": "1K",
    "EffectivePrice": "0.0018",
    "CostInBillingCurrency": "0.0027",
    "BillingCurrencyCode": "USD",
    "ResourceId": "/r/1",
    "ChargeType": "Usage",
}
_AWS = {
    "line_item_usage_start_date": "2026-03-01T09:00:00.000Z",
    "line_item_usage_end_date": "2026-03-01T10:00:00.000Z",
    "line_item_product_code": "AmazonBedrock",
    "line_item_usage_type": "USE1-NovaPro-cache-read-input-token-count",
    "line_item_operation": "InvokeModelStreaming",
    "line_item_usage_amount": "1.5",
    "line_item_currency_code": "USD",
    "line_item_unblended_cost": "0.0045",
    "line_item_line_item_type": "Usage",
    "line_item_line_item_description": "$0.003 per 1K tokens",
    "line_item_usage_account_id": "1234",
    "pricing_unit": "1K tokens",
    "product": "{}",
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
                "cost_type": "token",
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
    Sample(
        "OpenAI activity (dashboard)",
        [
            _ACTIVITY | {"n_cached_context_tokens_total": 200},
            _ACTIVITY | {"usage_type": "tts", "n_context_tokens_total": "", "n_generated_tokens_total": ""},
        ],
        (("gpt-4o-mini-2024-07-18", Tokens(700, 200, 0, 50), None, None),),
    ),
    Sample(
        "OpenRouter generations (API)",
        [
            {
                "id": "gen-1",
                "total_cost": 0.0123,
                "created_at": "2026-03-01T18:54:30.040Z",
                "model": "openai/gpt-4o",
                "tokens_prompt": 880,
                "tokens_completion": 45,
                "native_tokens_prompt": 900,
                "native_tokens_completion": 50,
                "native_tokens_reasoning": 10,
                "native_tokens_cached": 200,
                "usage": 0.0123,
                "is_byok": False,
            }
        ],
        (("openai/gpt-4o", Tokens(700, 200, 0, 50), Decimal("0.0123"), None),),
        is_json=True,
        is_flat=True,
    ),
    Sample(
        "DeepSeek amounts",
        [
            _DEEPSEEK | _DEEPSEEK_KEY | {"type": "input_cache_miss_tokens", "price": "0.0000003", "amount": 700},
            _DEEPSEEK | _DEEPSEEK_KEY | {"type": "input_cache_hit_tokens", "price": "0.00000003", "amount": 200},
            _DEEPSEEK | _DEEPSEEK_KEY | {"type": "output_tokens", "price": "0.0000011", "amount": 50},
            _DEEPSEEK | _DEEPSEEK_KEY | {"type": "request_count", "price": "", "amount": 3},
        ],
        (
            ("deepseek-chat", Tokens(700, 0, 0, 0), None, None),
            ("deepseek-chat", Tokens(0, 200, 0, 0), None, None),
            ("deepseek-chat", Tokens(0, 0, 0, 50), None, None),
            ("deepseek-chat", Tokens(), None, None),
        ),
    ),
    Sample(
        "DeepSeek costs",
        [_DEEPSEEK | {"wallet_type": "Paid", "cost": "0.5800000000000000", "currency": "USD"}],
        (("deepseek-chat", None, Decimal("0.58"), None),),
    ),
    Sample(
        "Fireworks billing metrics",
        [_FIREWORKS, _FIREWORKS | {"accelerator_seconds": "60", "prompt_tokens": "0", "completion_tokens": "0"}],
        (("llama-v3p1-70b-instruct", Tokens(900, 0, 0, 50), None, None),),
    ),
    Sample(
        "Groq activity",
        [
            {
                "organization_id": "org_1",
                "n_context_tokens_total": 900,
                "n_non_cached_context_tokens_total": 700,
                "n_generated_tokens_total": 50,
                "project_id": "project_1",
                "api_key_id": "key_1",
                "api_key_name": "river",
                "model": "openai/gpt-oss-120b",
                "timestamp": DAY_S,
                "num_requests": 3,
                "service_tier": "on_demand",
                "cost": 0.000175,
            }
        ],
        (("openai/gpt-oss-120b", Tokens(700, 200, 0, 50), Decimal("0.000175"), "on_demand"),),
        is_json=True,
        is_flat=True,
    ),
    Sample(
        "Azure cost details",
        [_AZURE, _AZURE | {"MeterName": "gpt 4o 1120 Batch Outp glbl Tokens"}],
        (
            ("gpt-4o-1120", Tokens(0, 1_500, 0, 0), Decimal("0.0027"), None),
            ("gpt-4o-1120", Tokens(0, 0, 0, 1_500), Decimal("0.0027"), "batch"),
        ),
    ),
    Sample(
        "AWS Cost and Usage Report",
        [
            _AWS,
            _AWS
            | {
                "line_item_product_code": "3yd2jk3",
                "line_item_usage_type": "USE1-MP:USE1_OutputTokenCount_Batch-Units",
                "line_item_line_item_description": "AWS Marketplace software usage|us-east-1|Million Response Tokens",
                "product": json.dumps({"product_name": "Claude Sonnet 4.5 (Amazon Bedrock Edition)"}),
                "pricing_unit": "Units",
                "line_item_usage_amount": "0.0015",
            },
        ],
        (
            ("nova-pro", Tokens(0, 1_500, 0, 0), Decimal("0.0045"), None),
            ("Claude Sonnet 4.5", Tokens(0, 0, 0, 1_500), Decimal("0.0045"), "batch"),
        ),
    ),
    Sample(
        "Google Cloud billing export (JSON)",
        [
            {
                "service": {"id": "AEFD", "description": "Gemini API"},
                "sku": {
                    "id": "13B8",
                    "description": "Generate content cached input token count gemini 2.5 flash short input text",
                },
                "usage_start_time": "2026-03-01 09:00:00 UTC",
                "usage_end_time": "2026-03-01 10:00:00 UTC",
                "project": {"id": "river-1", "name": "river"},
                "cost": 0.0045,
                "currency": "USD",
                "usage": {"amount": 1500.0, "unit": "count", "amount_in_pricing_units": 0.0015},
                "credits": [{"name": "Promotion", "amount": -0.001}],
                "cost_type": "regular",
            }
        ],
        (
            ("gemini-2.5-flash", Tokens(0, 1_500, 0, 0), Decimal("0.0045"), None),
            (None, None, Decimal("-0.001"), None),
        ),
        is_json=True,
        is_flat=True,
    ),
    Sample(
        "Google Cloud billing export (CSV)",
        [
            {
                "service.description": "Vertex AI",
                "sku.description": "Gemini 2.5 Pro Thinking Text Output - Predictions",
                "usage_start_time": "2026-03-01 09:00:00 UTC",
                "usage_end_time": "2026-03-01 10:00:00 UTC",
                "project.id": "river-1",
                "cost": "0.0045",
                "currency": "USD",
                "usage.amount": "1500",
                "usage.unit": "count",
                "credits": "[]",
                "cost_type": "regular",
            }
        ],
        (("gemini-2.5-pro", Tokens(0, 0, 0, 1_500), Decimal("0.0045"), None),),
    ),
    Sample("FOCUS", [_FOCUS], (("solora-pro", Tokens(0, 8_000_000, 0, 0), Decimal("2.4"), None),)),
    Sample(
        "FOCUS (JSON)",
        [_FOCUS | {"SkuPriceDetails": json.loads(str(_FOCUS["SkuPriceDetails"])), "BilledCost": 2.4}],
        (("solora-pro", Tokens(0, 8_000_000, 0, 0), Decimal("2.4"), None),),
        is_json=True,
        is_flat=True,
    ),
)
BY_NAME = {sample.name: sample for sample in SAMPLES}
