"""FOCUS 1.0 and later. From the draft of 1.5 on, SkuPriceDetails names the model and the kind of token.

Before that, no column names them: the operator's table ([meters] of --map) does, or the structure of the meter's name
(meters.py). Money is BilledCost, which is what an invoice adds up to, or EffectiveCost, which spreads prepayments over the
usage that they cover. Columns: FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec; Azure's are in learn.microsoft.com/azure/
cost-management-billing/dataset-schema/cost-usage-details-focus (x_SkuMeterName, x_SkuMeterSubcategory,
x_PricingUnitDescription).
"""

from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

import msgspec

from streamgauge.audit.invoices.charges import charge_of
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, Meter, OtherService, Row, signs
from streamgauge.audit.invoices.meters import CLOUDS, meter_of, metered, serves_models
from streamgauge.audit.invoices.values import (
    Values,
    currency,
    required_money,
    required_text,
    shown,
    span,
    text,
    texts,
)

_ACTIONS = {"read": "input_cached", "write": "input_cache_write", "uncached": "input_uncached"}
_PROVIDERS = ("ServiceProviderName", "ProviderName", "PublisherName")
_METER_COLUMNS = ("SkuMeter", "x_SkuMeterName", "SkuId", "SkuPriceId", "x_SkuDescription", "ChargeDescription")
_WHOLE_CLOUDS = frozenset(CLOUDS.values())
_PRODUCT_COLUMNS = (
    "ServiceName",
    "x_SkuMeterCategory",
    "x_SkuMeterSubcategory",
    "ChargeDescription",
    "x_SkuDescription",
)
_DESCRIBING = tuple(dict.fromkeys((*_METER_COLUMNS, *_PRODUCT_COLUMNS, "SkuPriceDetails")))
# Azure's ConsumedUnit and PricingUnit are "Units"; x_PricingUnitDescription has the unit of a price, such as 1K.
_QUANTITIES = (
    ("ConsumedQuantity", "ConsumedUnit"),
    ("PricingQuantity", "x_PricingUnitDescription"),
    ("PricingQuantity", "PricingUnit"),
)


def _provider(values: Values) -> str:
    for name in _PROVIDERS:
        if name_text := text(values, name):
            return CLOUDS.get(name_text.lower(), name_text.lower())
    raise BadFieldError(_PROVIDERS[0], "no column names the provider")


class _Described(NamedTuple):
    """What a row says of its meter. names: its ids and names; about: its product. label: as people call it. column: the first
    column with a name. is_for_models: whether it may be for a model. detailed: the model and kind of SkuPriceDetails, and
    whether its input is told apart by cache.
    """

    names: tuple[str, ...]
    about: str
    label: str | None
    column: str
    is_for_models: bool
    detailed: tuple[Meter, bool] | None


def _described(values: Values) -> _Described:
    raw = tuple([values.get(name) for name in _DESCRIBING])
    try:
        return _described_by(raw)
    except TypeError:  # an object of JSON
        return _described_by.__wrapped__(raw)


# A bill has some meters, and a row of each for every hour.
@lru_cache(maxsize=4_096)
def _described_by(raw: tuple[object, ...]) -> _Described:
    values = dict(zip(_DESCRIBING, raw, strict=True))
    names = [(column, name) for column in _METER_COLUMNS if (name := text(values, column)) is not None]
    products = [name for column in _PRODUCT_COLUMNS if (name := text(values, column)) is not None]
    given = tuple(name for _, name in names)
    return _Described(
        given,
        " ".join(products),
        text(values, "ChargeDescription") or text(values, "SkuMeter") or text(values, "x_SkuMeterName"),
        names[0][0] if names else _METER_COLUMNS[0],
        serves_models(*given, *products),
        _meter_of_details(_details(values)),
    )


def _details(values: Values) -> dict[str, object]:
    details: object = values.get("SkuPriceDetails")
    if not isinstance(details, dict):
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


def _meter_of_details(details: dict[str, object]) -> tuple[Meter, bool] | None:
    """The model and kind that SkuPriceDetails names, and whether its input is told apart by cache."""
    direction, action = text(details, "TokenDirection"), text(details, "TokenCacheAction")
    model = text(details, "ModelId")
    if model is None or direction is None:
        return None
    if direction.lower() == "output":
        return Meter(model, "output"), True
    if direction.lower() != "input":
        raise BadFieldError("SkuPriceDetails", f"TokenDirection {shown(direction)} is neither Input nor Output")
    if action is not None and action.lower() not in _ACTIONS:
        raise BadFieldError("SkuPriceDetails", f"TokenCacheAction {shown(action)} is not Read, Write or Uncached")
    return Meter(model, _ACTIONS[(action or "Uncached").lower()]), action is not None


def _charge(row: Row) -> InvoiceLine | OtherService | None:
    values = row.values
    usd = required_money(values, "BilledCost" if row.cost == "billed" else "EffectiveCost")
    category = required_text(values, "ChargeCategory")
    provider, code = _provider(values), currency(values, "BillingCurrency")
    described = _described(values)
    mapped = meter_of(described.names, row.meters, "") if row.meters else None
    if provider in _WHOLE_CLOUDS and mapped is None and not described.is_for_models:
        service = text(values, "ServiceName")
        if service is not None:
            return OtherService(service, usd, code)
    is_usage = category.lower() == "usage"
    if not is_usage and not usd:
        return None
    label = described.label or category
    line = InvoiceLine(
        provider=provider,
        when=span(values, "ChargePeriodStart", "ChargePeriodEnd"),
        model=None,
        keys=texts(text(values, "SubAccountId"), text(values, "SubAccountName")),
        usd=usd,
        currency=code,
        charge=_charge_of(category.lower(), label, usd),
        label=label,
    )
    if not is_usage:
        return line
    detailed = described.detailed if mapped is None else None
    meter = mapped or (
        detailed[0] if detailed is not None else meter_of(described.names, {}, provider, described.about)
    )
    is_correction = text(values, "ChargeClass") == "Correction"
    counted = metered(values, _QUANTITIES, line, meter, described.column, label, signed=is_correction)
    if detailed is None or detailed[1] or counted.tokens is None:
        return counted
    return counted._replace(splits=False)


def _charge_of(category: str, label: str, usd: Decimal) -> str:
    """The charge of a row that is not for tokens."""
    if category in ("tax", "credit"):
        return category
    named = charge_of(label)
    return "credit" if named == "other_charge" and category == "usage" and usd < 0 else named


_SIGNS = signs("ChargePeriodStart ChargeCategory")
_REQUIRED = signs("ChargePeriodEnd BillingCurrency BilledCost EffectiveCost ConsumedQuantity ConsumedUnit")
FORMATS = tuple(
    Format(
        name,
        is_json,
        _SIGNS,
        _charge,
        has_tokens=True,
        has_money=True,
        required=_REQUIRED,
        tiers=False,
        one_currency=False,
    )
    for name, is_json in (("FOCUS", False), ("FOCUS (JSON)", True))
)
