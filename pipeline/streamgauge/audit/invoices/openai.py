"""OpenAI: usage and costs of the organization API, the dashboard's exports of both, and its activity export of 2023 and 2024.

Sources: openai/openai-openapi openapi.yaml (UsageCompletionsResult, UsageEmbeddingsResult, CostsResult); for the dashboard's
CSV, public copies of exports.

`input_tokens` includes cached and cache-write tokens. Costs name model, tier and kind of token in `line_item`, or a charge
that is no tokens; amounts are a number or a string.
"""

import re

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices.charges import charge_of
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, Row, Span, signs
from streamgauge.audit.invoices.values import (
    Values,
    count,
    currency,
    moment_us,
    money,
    required_count,
    required_money,
    required_text,
    shown,
    span,
    text,
    texts,
)

PROVIDER = "openai"
# A tier stands before the model ("priority | o3, output") or before the kind ("gpt-5-2025-08-07, batch input").
_TIERS = "batch|flex|priority"
_LINE_ITEM = re.compile(
    rf"(?:({_TIERS}) \| )?(.+?), (?:({_TIERS}) )?(input|output|cached input|cache writes)(?:, long context)?"
)
# A suffix of the model in a line item: the modality, which is no part of its name.
_MODALITY = re.compile(r" (text|audio|image)$")
# Endpoints whose usage has input alone.
_INPUT_ALONE = frozenset({"embeddings", "moderations"})
_KINDS = {
    "input": "input_uncached",
    "cached input": "input_cached",
    "cache writes": "input_cache_write",
    "output": "output",
}


def _keys(values: Values) -> tuple[str, ...]:
    return texts(text(values, "api_key_id"), text(values, "project_id"))


def _tier(values: Values) -> str | None:
    batch = values.get("batch")
    if batch not in (None, "", True, False) and str(batch).lower() not in ("true", "false"):
        raise BadFieldError("batch", f"{shown(batch)} is neither true nor false")
    if str(batch).lower() == "true":
        return "batch"
    return text(values, "service_tier")


def _usage_api(row: Row) -> InvoiceLine | None:
    """A row of the usage of completions, of another endpoint that counts tokens, or of one that does not (None)."""
    name = str(row.values.get("object")).split(".")[-2]
    if name != "completions" and "input_tokens" not in row.values:
        return None  # images, seconds, characters, calls: the costs have their money
    return _usage(row, without_output=name in _INPUT_ALONE)._replace(endpoint=name)


def _usage_csv(row: Row) -> InvoiceLine | None:
    if not text(row.values, "input_tokens") and not text(row.values, "num_model_requests"):
        return None  # a day without usage
    return _usage(row)


def _usage(row: Row, *, without_output: bool = False) -> InvoiceLine:
    values = row.values
    when = span(row.bucket or values, "start_time", "end_time")
    whole = required_count(values, "input_tokens")
    cached = count(values, "input_cached_tokens") or 0
    written, uncached = count(values, "input_cache_write_tokens"), count(values, "input_uncached_tokens")
    if written is None:  # older exports leave it out; the three parts are the whole
        written = 0 if uncached is None else whole - cached - uncached
    if uncached is None:
        uncached = whole - cached - written
    if min(uncached, written) < 0 or uncached + cached + written != whole:
        parts = f"{uncached} uncached, {cached} cached and {written} cache writes"
        raise BadFieldError("input_tokens", f"{whole} is not the sum of its parts: {parts}")
    return InvoiceLine(
        provider=PROVIDER,
        when=when,
        model=required_text(values, "model", "it is empty: export it grouped by model"),
        keys=_keys(values),
        tier=_tier(values),
        tokens=Tokens(uncached, cached, written, 0 if without_output else required_count(values, "output_tokens")),
        requests=required_count(values, "num_model_requests"),
    )


def _activity(row: Row) -> InvoiceLine | None:
    """A row of the activity export: a model and an API key, on the day of its timestamp (UTC)."""
    values = row.values
    prompt = count(values, "n_context_tokens_total")
    output = count(values, "n_generated_tokens_total")
    if prompt is None and output is None:
        return None  # images, speech and transcription have no tokens
    cached = count(values, "n_cached_context_tokens_total") or 0
    if cached > (prompt or 0):
        raise BadFieldError("n_cached_context_tokens_total", f"{cached} is more than the context, which includes it")
    started = moment_us(values, "timestamp")
    return InvoiceLine(
        provider=PROVIDER,
        when=Span(started, started + 1),
        model=required_text(values, "model"),
        keys=texts(text(values, "api_key_id"), text(values, "api_key_name"), text(values, "project_id")),
        tokens=Tokens((prompt or 0) - cached, cached, 0, output or 0),
        requests=required_count(values, "n_requests"),
        splits="n_cached_context_tokens_total" in values,
    )


def _costs(row: Row) -> InvoiceLine | None:
    amount = row.values.get("amount")
    if not isinstance(amount, dict):
        raise BadFieldError("amount", "it is not an object with value and currency")
    try:
        code = currency(amount, "currency")
        usd = required_money(amount, "value")
    except BadFieldError as error:
        raise BadFieldError(f"amount.{error.field}", str(error)) from None
    when = span(row.bucket, "start_time", "end_time")
    return _cost_line(row.values)._replace(when=when, usd=usd, currency=code)


def _costs_csv(row: Row) -> InvoiceLine | None:
    when = span(row.values, "start_time", "end_time")
    usd = money(row.values, "amount_value")
    if usd is None and not text(row.values, "amount_currency"):
        return None  # a day without costs
    code = currency(row.values, "amount_currency")
    return _cost_line(row.values)._replace(when=when, usd=required_money(row.values, "amount_value"), currency=code)


def _cost_line(values: Values) -> InvoiceLine:
    item = text(values, "line_item")
    amount = values.get("amount")
    value = amount.get("value") if isinstance(amount, dict) else values.get("amount_value")
    if item is None and not str(value).startswith("-"):  # a credit belongs to no line item
        raise BadFieldError("line_item", "it is empty: export the costs grouped by line item")
    match = _LINE_ITEM.fullmatch(item or "")
    return InvoiceLine(
        provider=PROVIDER,
        when="",
        model=_MODALITY.sub("", match[2]) if match else None,
        keys=_keys(values),
        tier=match[1] or match[3] if match else None,
        kind=_KINDS[match[4]] if match else None,
        charge=None if match else charge_of(item) if item else "credit",
        label=None if match else item,
    )


# The costs do not always tell batch and flex from the standard tier: a line item may name a tier, or not.
FORMATS = (
    Format(
        "OpenAI usage (API)",
        is_json=True,
        signs=frozenset({"object"}),
        object_name=r"organization\.usage\.[a-z_]+\.result",
        read=_usage_api,
        has_tokens=True,
        has_money=False,
        lists_empty_days=True,
    ),
    Format(
        "OpenAI costs (API)",
        is_json=True,
        signs=frozenset({"object"}),
        object_name=r"organization\.costs\.result",
        required=signs("amount line_item"),
        read=_costs,
        has_tokens=False,
        has_money=True,
        tiers=False,
        lists_empty_days=True,
    ),
    Format(
        "OpenAI costs (dashboard)",
        is_json=False,
        signs=signs("start_time amount_value"),
        required=signs("end_time amount_currency line_item"),
        read=_costs_csv,
        has_tokens=False,
        has_money=True,
        tiers=False,
    ),
    Format(
        "OpenAI usage (dashboard)",
        is_json=False,
        signs=signs("start_time num_model_requests"),
        required=signs("end_time model input_tokens output_tokens"),
        read=_usage_csv,
        has_tokens=True,
        has_money=False,
    ),
    Format(
        "OpenAI activity (dashboard)",
        is_json=False,
        signs=signs("timestamp n_context_tokens_total"),
        required=signs("model n_requests n_generated_tokens_total"),
        read=_activity,
        has_tokens=True,
        has_money=False,
        tiers=False,
    ),
)
