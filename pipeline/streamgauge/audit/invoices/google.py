"""Google Cloud: the billing export to BigQuery, as JSON rows or CSV, for the Gemini API and Vertex AI.

Columns: cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/standard-usage. A row's cost is without its credits:
these are a list of negative amounts beside it. The model is named in the description of the SKU alone. Thinking has no SKU of
its own: it is inside output. CSV names a member of a record `service.description` or `service_description`.
"""

import json
from collections.abc import Mapping
from decimal import Decimal

from streamgauge.audit.amounts import EXACT, ZERO_USD
from streamgauge.audit.invoices.charges import charge_of
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, OtherService, Read, Row, signs
from streamgauge.audit.invoices.meters import GOOGLE, meter_of, metered, serves_models
from streamgauge.audit.invoices.values import Values, currency, required_money, span, text, texts

_QUANTITIES = (("usage_amount", "usage_unit"),)


def spelled(name: str) -> str:
    """A column's name with `_` between a record and its member."""
    return name.replace(".", "_")


def _flat(values: Values) -> dict[str, object]:
    """The values with the members of records beside them: service.description is service_description."""
    flat: dict[str, object] = dict(values)
    for record in ("service", "sku", "usage", "project"):
        members = values.get(record)
        if isinstance(members, Mapping):
            flat |= {f"{record}_{name}": value for name, value in members.items()}
    return flat


def _credits(values: Values) -> Decimal:
    """The sum of a row's credits, which is negative."""
    credits: object = values.get("credits")
    if isinstance(credits, str) and credits.strip():
        try:
            credits = json.loads(credits, parse_float=Decimal)
        except (ValueError, RecursionError):
            credits = 0
    total = ZERO_USD
    if credits in (None, "", []):
        return total
    if not isinstance(credits, list) or not all(isinstance(one, Mapping) for one in credits):
        raise BadFieldError("credits", "it is not a list of credits with amounts")
    for one in credits:
        try:
            total = EXACT.add(total, required_money(one, "amount"))
        except BadFieldError as error:
            raise BadFieldError("credits", f"amount: {error}") from None
    return total


def _row(row: Row) -> Read:
    values = _flat(row.values)
    usd, code = required_money(values, "cost"), currency(values, "currency")
    service, sku = text(values, "service_description"), text(values, "sku_description")
    kind = (text(values, "cost_type") or "regular").lower()
    names = (sku, text(values, "sku_id"))
    mapped = meter_of(names, row.meters, "")
    if mapped is None and service is not None and not serves_models(service, sku):
        return OtherService(service, EXACT.add(usd, _credits(values)), code)
    label = sku or kind
    line = InvoiceLine(
        provider=GOOGLE,
        when=span(values, "usage_start_time", "usage_end_time", zone=False),
        model=None,
        keys=texts(text(values, "project_id"), text(values, "project_name")),
        usd=usd,
        currency=code,
        charge="tax" if kind == "tax" else charge_of(label),
        label=label,
    )
    if kind == "regular":
        meter = mapped or meter_of((sku,), {}, GOOGLE)
        line = metered(values, _QUANTITIES, line, meter, "sku_description", signed=usd < 0)
    credits = _credits(values)
    if not credits:
        return line
    return [
        line,
        line._replace(model=None, tier=None, tokens=None, kind=None, usd=credits, charge="credit", label=label),
    ]


FORMATS = (
    Format(
        "Google Cloud billing export (JSON)",
        is_json=True,
        signs=signs("sku usage cost usage_start_time"),
        required=signs("service currency usage_end_time"),
        read=_row,
        has_tokens=True,
        has_money=True,
        splits=frozenset({"input_cached"}),
        tiers=False,
        one_currency=False,
    ),
    Format(
        "Google Cloud billing export (CSV)",
        is_json=False,
        signs=signs("sku_description usage_amount cost"),
        required=signs("service_description usage_unit currency usage_start_time usage_end_time"),
        read=_row,
        has_tokens=True,
        has_money=True,
        splits=frozenset({"input_cached"}),
        tiers=False,
        one_currency=False,
        spelled=spelled,
    ),
)
