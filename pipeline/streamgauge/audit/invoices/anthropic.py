"""Anthropic: usage and cost reports of the Admin API, and the newer pair of analytics reports.

The four input parts of usage exclude each other. Amounts are decimal strings in cents.
"""

from decimal import Decimal

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices.charges import charge_of
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, Row, signs
from streamgauge.audit.invoices.values import (
    Values,
    cents,
    count,
    currency,
    required_count,
    required_money,
    required_text,
    shown,
    span,
    text,
    texts,
)

PROVIDER = "anthropic"
# The kinds of tokens by the API's names, and by those of the Console.
KINDS = {
    "uncached_input_tokens": "input_uncached",
    "cache_read_input_tokens": "input_cached",
    "cache_creation.ephemeral_5m_input_tokens": "input_cache_write",
    "cache_creation.ephemeral_1h_input_tokens": "input_cache_write",
    "output_tokens": "output",
}


def charge_of_type(cost_type: str | None, token_type: str | None, usd: Decimal) -> str | None:
    """What a row of costs bills beside tokens; None if it bills tokens. A negative amount is a credit.

    The API calls tokens `tokens`, the Console `token`; a row that names a kind of token is for tokens in any case.
    """
    if usd < 0:
        return "credit"
    return None if token_type is not None or cost_type in (None, "token", "tokens") else charge_of(cost_type)


def _keys(values: Values) -> tuple[str, ...]:
    return texts(text(values, "api_key_id"), text(values, "workspace_id"))


def _written(values: Values) -> int:
    parts = values.get("cache_creation")
    if parts is None:
        return 0
    if not isinstance(parts, dict):
        raise BadFieldError("cache_creation", f"{shown(parts)} is not an object")
    try:
        return sum(count(parts, name) or 0 for name in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"))
    except BadFieldError as error:
        raise BadFieldError(f"cache_creation.{error.field}", str(error)) from None


def _no_overlap(values: Values) -> None:
    if text(values, "rbac_group_id") is not None:
        raise BadFieldError("rbac_group_id", "rows of groups overlap: export it without grouping by rbac_group_id")


def _usage(row: Row) -> InvoiceLine:
    values = row.values
    _no_overlap(values)
    return InvoiceLine(
        provider=PROVIDER,
        when=span(row.bucket, "starting_at", "ending_at"),
        model=required_text(values, "model", "it is empty: export it grouped by model"),
        keys=_keys(values),
        tier=text(values, "service_tier"),
        tokens=Tokens(
            required_count(values, "uncached_input_tokens"),
            required_count(values, "cache_read_input_tokens"),
            _written(values),
            required_count(values, "output_tokens"),
        ),
        requests=count(values, "requests"),
    )


def _cost(row: Row) -> InvoiceLine:
    values = row.values
    _no_overlap(values)
    usd = cents(required_money(values, "amount"))
    model, cost_type, kind = text(values, "model"), text(values, "cost_type"), text(values, "token_type")
    if model is None and cost_type in (None, "tokens") and usd >= 0:
        group = "model" if "list_amount" in values else "description"
        raise BadFieldError("model", f"it is empty: export the costs grouped by {group}")
    if kind is not None and kind not in KINDS:
        raise BadFieldError("token_type", f"{shown(kind)} is not one of {', '.join(KINDS)}")
    charge = charge_of_type(cost_type, kind, usd)
    return InvoiceLine(
        provider=PROVIDER,
        when=span(row.bucket, "starting_at", "ending_at"),
        model=model,
        keys=_keys(values),
        tier=text(values, "service_tier"),
        usd=usd,
        currency=currency(values, "currency"),
        kind=KINDS[kind] if kind else None,
        requests=count(values, "requests"),
        charge=charge,
        label=None if charge is None else text(values, "description") or cost_type,
    )


# The analytics reports have the same keys as the older ones, and further ones.
FORMATS = (
    Format(
        "Anthropic usage report (API)",
        is_json=True,
        signs=signs("uncached_input_tokens cache_read_input_tokens"),
        required=signs("model output_tokens"),
        read=_usage,
        has_tokens=True,
        has_money=False,
        lists_empty_days=True,
    ),
    Format(
        "Anthropic cost report (API)",
        is_json=True,
        signs=signs("amount currency"),
        required=frozenset({"model"}),
        read=_cost,
        has_tokens=False,
        has_money=True,
        lists_empty_days=True,
    ),
)
