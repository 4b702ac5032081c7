"""AWS: Cost and Usage Report (CUR 2.0, and the older one), for Amazon Bedrock.

Columns: docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html. The older report writes `lineItem/UsageType` for
`line_item_usage_type`. Usage is in hours of UTC. Models of others are billed as products of the Marketplace, named
"Claude Sonnet 4.5 (Amazon Bedrock Edition)". The money is the unblended cost.
"""

import json
import re

from streamgauge.audit.invoices.charges import charge_of
from streamgauge.audit.invoices.contract import Format, InvoiceLine, OtherService, Row, signs
from streamgauge.audit.invoices.meters import AWS, meter_of, metered, serves_models
from streamgauge.audit.invoices.values import Values, currency, required_money, required_text, span, text, texts

# The types of rows that count no usage (line_item_line_item_type); one that ends with Discount is a discount.
_CHARGES = {"tax": "tax", "credit": "credit", "refund": "credit"}
_USAGE = signs("usage discountedusage savingsplancoveredusage")
_QUANTITIES = (("line_item_usage_amount", "pricing_unit"),)


def spelled(name: str) -> str:
    """A column's name as CUR 2.0 writes it: lineItem/UsageType is line_item_usage_type."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("/", "_")).lower()


def _product(values: Values) -> str | None:
    """The name of the product: of a column of its own, or of the map of its attributes (CUR 2.0)."""
    attributes: object = values.get("product")
    if isinstance(attributes, str) and attributes.startswith("{"):
        try:
            attributes = json.loads(attributes)
        except (ValueError, RecursionError):
            attributes = None
    name = attributes.get("product_name") if isinstance(attributes, dict) else None
    return text(values, "product_product_name") or (name if isinstance(name, str) and name else None)


def _row(row: Row) -> InvoiceLine | OtherService | None:
    values = row.values
    usd = required_money(values, "line_item_unblended_cost")
    code = currency(values, "line_item_currency_code")
    kind = (text(values, "line_item_line_item_type") or "Usage").lower()
    service = required_text(values, "line_item_product_code")
    usage_type, product = text(values, "line_item_usage_type"), _product(values)
    description = text(values, "line_item_line_item_description")
    mapped = meter_of((usage_type,), row.meters, "")
    if mapped is None and not serves_models(service, usage_type, product, description):
        return OtherService(product or service, usd, code)
    label = " ".join(filter(None, (product, usage_type or description))) or kind
    line = InvoiceLine(
        provider=AWS,
        when=span(values, "line_item_usage_start_date", "line_item_usage_end_date", zone=False),
        model=None,
        keys=texts(text(values, "line_item_resource_id"), text(values, "line_item_usage_account_id")),
        usd=usd,
        currency=code,
        charge=_CHARGES.get(kind) or ("discount" if kind.endswith("discount") else charge_of(label)),
        label=label,
    )
    if kind not in _USAGE:
        return line if usd else None
    meter = mapped or meter_of((usage_type,), {}, AWS, " ".join(filter(None, (product, description))))
    return metered(values, _QUANTITIES, line, meter, "line_item_usage_type", label, signed=usd < 0)


FORMATS = (
    Format(
        "AWS Cost and Usage Report",
        is_json=False,
        signs=signs("line_item_usage_type line_item_product_code"),
        required=signs(
            "line_item_usage_start_date line_item_usage_end_date line_item_usage_amount line_item_unblended_cost"
            " line_item_currency_code pricing_unit"
        ),
        read=_row,
        has_tokens=True,
        has_money=True,
        tiers=False,
        one_currency=False,
        spelled=spelled,
    ),
)
