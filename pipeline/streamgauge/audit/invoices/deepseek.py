"""DeepSeek: the export of the usage page, a ZIP with one CSV of amounts and one of costs.

Amounts have a row for each day, model, key and type; costs have dollars or yuan for each day and model. Days are those of the
browser's time zone, which the times name; older exports have `utc_date`. Source: public programs that read the export agree
on both headers and on the types, and on the sums of the page.
"""

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, Row, Span, signs
from streamgauge.audit.invoices.values import (
    Values,
    currency,
    date,
    required_count,
    required_money,
    required_text,
    shown,
    span,
    text,
    texts,
)

PROVIDER = "deepseek"
# The kind of token by type. `input_tokens` of early exports does not tell cached input apart.
_KINDS = {
    "input_cache_miss_tokens": "input_uncached",
    "input_cache_hit_tokens": "input_cached",
    "input_tokens": "input_uncached",
    "output_tokens": "output",
}
_REQUESTS = "request_count"


def _when(values: Values) -> Span | str:
    if "utc_date" in values:
        return date(values, "utc_date")
    return span(values, "start_time_iso", "end_time_iso")


def _amount(row: Row) -> InvoiceLine:
    values = row.values
    name, amount = required_text(values, "type"), required_count(values, "amount")
    line = InvoiceLine(
        provider=PROVIDER,
        when=_when(values),
        model=required_text(values, "model"),
        keys=texts(text(values, "api_key_name")),
        tokens=Tokens(),
        requests=0,
    )
    if name == _REQUESTS:
        return line._replace(requests=amount)
    if name not in _KINDS:
        raise BadFieldError("type", f"{shown(name)} is not one of {_REQUESTS}, {', '.join(_KINDS)}")
    kind = _KINDS[name]
    return line._replace(tokens=Tokens()._replace(**{kind: amount}), kind=kind, splits=name != "input_tokens")


def _cost(row: Row) -> InvoiceLine:
    values = row.values
    return InvoiceLine(
        provider=PROVIDER,
        when=_when(values),
        model=required_text(values, "model"),
        usd=required_money(values, "cost"),
        currency=currency(values, "currency"),
    )


FORMATS = (
    Format(
        "DeepSeek amounts",
        is_json=False,
        signs=signs("user_id model api_key_name type amount"),
        read=_amount,
        has_tokens=True,
        has_money=False,
        splits=frozenset({"input_cached"}),
        tiers=False,
    ),
    Format(
        "DeepSeek costs",
        is_json=False,
        signs=signs("user_id model wallet_type cost currency"),
        read=_cost,
        has_tokens=False,
        has_money=True,
        tiers=False,
    ),
)
