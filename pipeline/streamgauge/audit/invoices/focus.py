"""FOCUS 1.0 and later, as CSV. From the draft of 1.5 on, SkuPriceDetails names the model and the kind of token.

Before that, no column names them: the operator's table ([meters] of --map) does, by SkuMeter, SkuId or SkuPriceId.
Money is EffectiveCost: that of usage which a prepayment covers is in no BilledCost.
"""

import re
from decimal import Decimal

import msgspec

from streamgauge.audit.amounts import EXACT, Tokens
from streamgauge.audit.invoices.charges import charge_of
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, Meter, Row, signs
from streamgauge.audit.invoices.values import (
    MAX_COUNT,
    Values,
    currency,
    money,
    required_money,
    required_text,
    shown,
    span,
    text,
    texts,
)

_NO_TOKENS = Tokens()
# "Tokens", or a multiple of them: "1000 Tokens", "1K Tokens", "1000000 Tokens", "1M Tokens".
_UNIT = re.compile(r"(?:(\d{1,9})([KM]?) )?tokens?", re.IGNORECASE)
_MULTIPLES = {"": 1, "K": 1_000, "M": 1_000_000}
_ACTIONS = {"read": "input_cached", "write": "input_cache_write", "uncached": "input_uncached"}
_PROVIDERS = ("ServiceProviderName", "ProviderName", "PublisherName")
_METER_COLUMNS = ("SkuMeter", "SkuId", "SkuPriceId")


def _provider(values: Values) -> str:
    for name in _PROVIDERS:
        if name_text := text(values, name):
            return name_text.lower()
    raise BadFieldError(_PROVIDERS[0], "no column names the provider")


def _details(values: Values) -> dict[str, object]:
    content = text(values, "SkuPriceDetails")
    if content is None or content.lower() == "null":
        return {}
    try:
        details = msgspec.json.decode(content.encode())
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        details = None
    if not isinstance(details, dict):
        raise BadFieldError("SkuPriceDetails", "it is not a JSON object")
    return details


def _meter(row: Row, details: dict[str, object]) -> tuple[Meter, bool]:
    """The model and kind of a row for tokens, and whether its input is told apart by cache."""
    direction, action = text(details, "TokenDirection"), text(details, "TokenCacheAction")
    model = text(details, "ModelId")
    if model is not None and direction is not None:
        if direction.lower() == "output":
            return Meter(model, "output"), True
        if direction.lower() != "input":
            raise BadFieldError("SkuPriceDetails", f"TokenDirection {shown(direction)} is neither Input nor Output")
        if action is not None and action.lower() not in _ACTIONS:
            raise BadFieldError("SkuPriceDetails", f"TokenCacheAction {shown(action)} is not Read, Write or Uncached")
        return Meter(model, _ACTIONS[(action or "Uncached").lower()]), action is not None
    for name in _METER_COLUMNS:
        meter = row.meters.get(text(row.values, name) or "")
        if meter is not None:
            return meter, True
    fault = "it names no ModelId and TokenDirection: name model and kind of this meter in [meters] of --map"
    raise BadFieldError("SkuPriceDetails", f"{fault}; its SkuMeter is {shown(row.values.get('SkuMeter') or '')}")


def _quantity(values: Values, is_correction: bool) -> int | None:
    """The tokens of a row; None if it is not for tokens."""
    for quantity, unit in (("ConsumedQuantity", "ConsumedUnit"), ("PricingQuantity", "PricingUnit")):
        match, amount = _UNIT.fullmatch(text(values, unit) or ""), money(values, quantity)
        if match is None or amount is None:
            continue
        tokens = EXACT.multiply(amount, Decimal(int(match[1] or 1) * _MULTIPLES[(match[2] or "").upper()]))
        if tokens != tokens.to_integral_value():
            raise BadFieldError(quantity, f"{shown(values.get(quantity))} {unit} is a fraction of a token")
        if tokens < 0 and not is_correction:
            raise BadFieldError(quantity, f"{shown(values.get(quantity))} is negative, and the row is no correction")
        if abs(tokens) > MAX_COUNT:
            raise BadFieldError(quantity, f"{shown(values.get(quantity))} is too large for a count")
        return int(tokens)
    return None


def _charge_of(category: str, label: str, usd: Decimal) -> str:
    """The charge of a row that is not for tokens."""
    if category in ("tax", "credit"):
        return category
    named = charge_of(label)
    return "credit" if named == "other_charge" and category == "usage" and usd < 0 else named


def _charge(row: Row) -> InvoiceLine | None:
    values = row.values
    usd = required_money(values, "EffectiveCost")
    category = required_text(values, "ChargeCategory")
    is_usage = category.lower() == "usage"
    label = text(values, "ChargeDescription") or text(values, "SkuMeter") or category
    line = InvoiceLine(
        provider=_provider(values),
        when=span(values, "ChargePeriodStart", "ChargePeriodEnd"),
        model=None,
        keys=texts(text(values, "SubAccountId"), text(values, "SubAccountName")),
        usd=usd,
        currency=currency(values, "BillingCurrency"),
        charge=_charge_of(category.lower(), label, usd),
        label=label,
    )
    if not is_usage:
        return line if usd else None
    tokens = _quantity(values, text(values, "ChargeClass") == "Correction")
    if tokens is None:
        return line
    meter, splits = _meter(row, _details(values))
    counts = _NO_TOKENS._replace(**{str(meter.kind): tokens})
    return line._replace(model=meter.model, kind=meter.kind, tokens=counts, splits=splits, charge=None, label=None)


FORMATS = (
    Format(
        "FOCUS",
        is_json=False,
        signs=signs("ChargePeriodStart ChargeCategory"),
        required=signs("ChargePeriodEnd BillingCurrency EffectiveCost ConsumedQuantity ConsumedUnit"),
        read=_charge,
        has_tokens=True,
        has_money=True,
        tiers=False,
    ),
)
