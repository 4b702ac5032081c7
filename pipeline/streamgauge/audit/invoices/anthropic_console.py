"""Anthropic's Console: the CSV of tokens and the CSV of costs. Costs are dollars, rounded to cents a line.

The CSV of costs names models and keys as the Console shows them; the CSV of tokens has model ids.
"""

from decimal import Decimal

from streamgauge.audit.amounts import EXACT, Tokens
from streamgauge.audit.invoices.anthropic import PROVIDER, charge_of_type
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, Row, signs
from streamgauge.audit.invoices.values import (
    Values,
    date,
    required_count,
    required_money,
    required_text,
    shown,
    text,
    texts,
)

# A line is rounded to cents, however few digits of it are printed.
_HALF_CENT = EXACT.scaleb(Decimal(5), -3)
_KINDS = {
    "input_no_cache": "input_uncached",
    "input_cache_read": "input_cached",
    "input_cache_write_5m": "input_cache_write",
    "input_cache_write_1h": "input_cache_write",
    "output": "output",
}
# A usage type that names no tier of the API.
_NO_TIER = frozenset({"message", "messages"})


def _keys(values: Values) -> tuple[str, ...]:
    return texts(text(values, "api_key_id"), text(values, "api_key"), text(values, "workspace"))


def _tier(values: Values) -> str | None:
    tier = text(values, "usage_type")
    return None if tier in _NO_TIER else tier


def _tokens(row: Row) -> InvoiceLine:
    values = row.values
    names = ["usage_input_tokens_cache_write"]
    if names[0] not in values:  # until 2024 one column, later one for each time that a cache lives
        names = [f"{names[0]}_{time}" for time in ("5m", "1h")]
    written = [required_count(values, name) for name in names]
    return InvoiceLine(
        provider=PROVIDER,
        when=date(values, "usage_date_utc"),
        model=required_text(values, "model_version"),
        keys=_keys(values),
        tier=_tier(values),
        tokens=Tokens(
            required_count(values, "usage_input_tokens_no_cache"),
            required_count(values, "usage_input_tokens_cache_read"),
            sum(written),
            required_count(values, "usage_output_tokens"),
        ),
    )


def _cost(row: Row) -> InvoiceLine:
    values = row.values
    kind, usd = text(values, "token_type"), required_money(values, "cost_usd")
    if kind is not None and kind not in _KINDS:
        raise BadFieldError("token_type", f"{shown(kind)} is not one of {', '.join(_KINDS)}")
    model = text(values, "model")
    if model is None and kind is not None and usd >= 0:
        raise BadFieldError("model", "it is empty: a charge for tokens has a model")
    cost_type = text(values, "cost_type")
    charge = charge_of_type(cost_type, kind, usd)
    return InvoiceLine(
        provider=PROVIDER,
        when=date(values, "usage_date_utc"),
        model=model,
        keys=_keys(values),
        tier=_tier(values),
        usd=usd,
        kind=_KINDS[kind] if kind else None,
        half_digit=_HALF_CENT,
        charge=charge,
        label=None if charge is None else cost_type,
    )


FORMATS = (
    Format(
        "Anthropic tokens (Console)",
        is_json=False,
        signs=signs("usage_date_utc model_version"),
        required=signs("usage_input_tokens_no_cache usage_input_tokens_cache_read usage_output_tokens"),
        read=_tokens,
        has_tokens=True,
        has_money=False,
    ),
    Format(
        "Anthropic costs (Console)",
        is_json=False,
        signs=signs("usage_date_utc cost_usd"),
        required=signs("model token_type"),
        read=_cost,
        has_tokens=False,
        has_money=True,
        tiers=False,
    ),
)
