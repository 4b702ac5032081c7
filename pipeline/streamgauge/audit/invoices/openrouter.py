"""OpenRouter: the activity export with a row a request, the grouped export, the activity API, and answers of /generation.
Amounts are dollars.

Prompt tokens include cached ones, completion tokens include reasoning. Times without a zone are UTC.
An answer of /generation (openrouter.ai/docs/api-reference/get-a-generation) counts in native tokens, which the provider
reports in the stream, and in normalized ones (tokens_prompt), which it does not.
"""

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, Row, Span, signs
from streamgauge.audit.invoices.values import (
    count,
    date,
    moment_us,
    required_count,
    required_money,
    required_text,
    text,
    texts,
)

PROVIDER = "openrouter"


def _request(row: Row) -> InvoiceLine:
    values = row.values
    prompt, cached = required_count(values, "tokens_prompt"), count(values, "tokens_cached") or 0
    if cached > prompt:
        raise BadFieldError("tokens_cached", f"{cached} is more than tokens_prompt, which includes it: {prompt}")
    started = moment_us(values, "created_at", zone=False)
    return InvoiceLine(
        provider=PROVIDER,
        when=Span(started, started + 1),
        model=required_text(values, "model_permaslug"),
        keys=texts(text(values, "api_key_name"), text(values, "app_name")),
        tokens=Tokens(prompt - cached, cached, 0, required_count(values, "tokens_completion")),
        usd=required_money(values, "cost_total"),
        requests=1,
        request_id=required_text(values, "generation_id"),
    )


def _grouped(row: Row) -> InvoiceLine:
    values = row.values
    return InvoiceLine(
        provider=PROVIDER,
        when=date(values, "Date"),
        model=required_text(values, "Slug"),
        tokens=Tokens(required_count(values, "Prompt Tokens"), 0, 0, required_count(values, "Completion Tokens")),
        usd=required_money(values, "Usage"),
        requests=required_count(values, "Requests"),
    )


def _activity(row: Row) -> InvoiceLine:
    values = row.values
    return InvoiceLine(
        provider=PROVIDER,
        when=date(values, "date"),
        model=text(values, "model_permaslug") or required_text(values, "model"),
        tokens=Tokens(required_count(values, "prompt_tokens"), 0, 0, required_count(values, "completion_tokens")),
        usd=required_money(values, "usage"),
        requests=required_count(values, "requests"),
    )


def _generation(row: Row) -> InvoiceLine:
    values = row.values
    prompt, cached = required_count(values, "native_tokens_prompt"), count(values, "native_tokens_cached") or 0
    if cached > prompt:
        raise BadFieldError("native_tokens_cached", f"{cached} is more than native_tokens_prompt, which includes it")
    started = moment_us(values, "created_at", zone=False)
    return InvoiceLine(
        provider=PROVIDER,
        when=Span(started, started + 1),
        model=required_text(values, "model"),
        tokens=Tokens(prompt - cached, cached, 0, required_count(values, "native_tokens_completion")),
        usd=required_money(values, "total_cost"),
        requests=1,
        request_id=required_text(values, "id"),
    )


FORMATS = (
    Format(
        "OpenRouter activity (a row a request)",
        is_json=False,
        signs=signs("generation_id"),
        required=signs("created_at cost_total tokens_prompt tokens_completion tokens_cached model_permaslug"),
        read=_request,
        has_tokens=True,
        has_money=True,
        splits=frozenset({"input_cached"}),
        tiers=False,
    ),
    Format(
        "OpenRouter activity (grouped)",
        is_json=False,
        signs=signs("Slug"),
        required=frozenset({"Date", "Usage", "Requests", "Prompt Tokens", "Completion Tokens"}),
        read=_grouped,
        has_tokens=True,
        has_money=True,
        splits=frozenset(),
        tiers=False,
    ),
    Format(
        "OpenRouter generations (API)",
        is_json=True,
        signs=signs("native_tokens_prompt total_cost"),
        required=signs("id created_at model native_tokens_completion"),
        read=_generation,
        has_tokens=True,
        has_money=True,
        splits=frozenset({"input_cached"}),
        tiers=False,
    ),
    Format(
        "OpenRouter activity (API)",
        is_json=True,
        signs=signs("endpoint_id prompt_tokens"),
        required=signs("date model usage requests completion_tokens"),
        read=_activity,
        has_tokens=True,
        has_money=True,
        splits=frozenset(),
        tiers=False,
    ),
)
