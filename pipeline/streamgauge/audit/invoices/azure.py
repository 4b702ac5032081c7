"""Azure: cost details, as exported for an Enterprise Agreement (EA), a Microsoft Customer Agreement (MCA), or pay-as-you-go.

Columns: learn.microsoft.com/azure/cost-management-billing/dataset-schema/cost-usage-details-ea and -mca. EA writes
`MeterName` and `BillingCurrencyCode`, MCA `meterName` and `billingCurrency`; dates are month/day/year.
"""

from decimal import Decimal

from streamgauge.audit.invoices.charges import charge_of
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, OtherService, Row, signs
from streamgauge.audit.invoices.meters import MICROSOFT, meter_of, metered, serves_models
from streamgauge.audit.invoices.values import (
    Values,
    american_date,
    currency,
    required_money,
    required_text,
    text,
    texts,
)

_COSTS = ("costinbillingcurrency", "cost", "pretaxcost")
_CURRENCIES = ("billingcurrencycode", "billingcurrency", "currency")
_DATES = ("date", "usagedatetime", "usagedate")
# Charge types whose rows count no usage (ChargeType).
_CREDITS = signs("refund credit")


def _first(values: Values, names: tuple[str, ...]) -> str:
    """The first of the columns that the export has."""
    for name in names:
        if name in values:
            return name
    raise BadFieldError(names[0], "the column is missing")


def _day(values: Values) -> str:
    """The day of a row: it has to lie in the billing period that the row names, so that no day stands for a month."""
    column = _first(values, _DATES)
    day = american_date(values, column)
    first, last = (
        text(values, f"billingperiod{end}date") and american_date(values, f"billingperiod{end}date")
        for end in ("start", "end")
    )
    if (first and day < first) or (last and day > last):
        raise BadFieldError(column, f"{day} is not in the row's billing period: is it day/month/year?")
    return day


def _charge_of(kind: str, label: str, usd: Decimal) -> str:
    if kind == "tax":
        return "tax"
    named = charge_of(label)
    return "credit" if kind in _CREDITS or (named == "other_charge" and usd < 0) else named


def _row(row: Row) -> InvoiceLine | OtherService:
    values = row.values
    usd = required_money(values, _first(values, _COSTS))
    code = currency(values, _first(values, _CURRENCIES))
    category, product = text(values, "metercategory"), text(values, "metersubcategory")
    kind = (text(values, "chargetype") or "Usage").lower()
    name = text(values, "metername") if kind == "usage" else text(values, "metername") or kind
    label = " ".join(filter(None, (product, name))) or required_text(values, "metername")
    given = (text(values, "metername"), text(values, "meterid"))
    mapped = meter_of(given, row.meters, "")
    if (
        mapped is None
        and category is not None
        and not serves_models(category, product, name, text(values, "productname"))
    ):
        return OtherService(category, usd, code)
    line = InvoiceLine(
        provider=MICROSOFT,
        when=_day(values),
        model=None,
        keys=texts(
            text(values, "resourceid") or text(values, "instanceid") or text(values, "instancename"),
            text(values, "resourcegroup") or text(values, "resourcegroupname"),
            text(values, "subscriptionid") or text(values, "subscriptionguid"),
            text(values, "subscriptionname"),
        ),
        usd=usd,
        currency=code,
        charge=_charge_of(kind, label, usd),
        label=label,
    )
    if kind != "usage":
        return line
    meter = mapped or meter_of(given, {}, MICROSOFT, " ".join(filter(None, (category, product))))
    return metered(values, (("quantity", "unitofmeasure"),), line, meter, "metername", label, signed=usd < 0)


FORMATS = (
    Format(
        "Azure cost details",
        is_json=False,
        signs=signs("metercategory metername unitofmeasure"),
        required=signs("quantity"),
        read=_row,
        has_tokens=True,
        has_money=True,
        splits=frozenset({"input_cached"}),
        tiers=False,
        one_currency=False,
        spelled=str.lower,
    ),
)
