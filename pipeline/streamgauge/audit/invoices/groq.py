"""Groq: the activity of an organization, as the usage page of the console gets it (JSON): tokens and dollars by day and key.

Source: public programs that read https://api.groq.com/platform/v1/organizations/ORGANIZATION/activity agree on its names. The
timestamp is midnight of UTC.
"""

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices.contract import BadFieldError, Format, InvoiceLine, Row, Span, signs
from streamgauge.audit.invoices.values import moment_us, required_count, required_money, required_text, text, texts

PROVIDER = "groq"
_DAY_US = 86_400_000_000


def _activity(row: Row) -> InvoiceLine:
    values = row.values
    whole = required_count(values, "n_context_tokens_total")
    uncached = required_count(values, "n_non_cached_context_tokens_total")
    if uncached > whole:
        raise BadFieldError(
            "n_non_cached_context_tokens_total", f"{uncached} is more than n_context_tokens_total, which includes it"
        )
    started = moment_us(values, "timestamp")
    return InvoiceLine(
        provider=PROVIDER,
        when=Span(started, started + _DAY_US),
        model=required_text(values, "model"),
        keys=texts(text(values, "api_key_id"), text(values, "api_key_name"), text(values, "project_id")),
        tier=text(values, "service_tier"),
        tokens=Tokens(uncached, whole - uncached, 0, required_count(values, "n_generated_tokens_total")),
        usd=required_money(values, "cost"),
        requests=required_count(values, "num_requests"),
    )


FORMATS = (
    Format(
        "Groq activity",
        is_json=True,
        signs=signs("timestamp n_context_tokens_total n_non_cached_context_tokens_total"),
        required=signs("model n_generated_tokens_total num_requests cost"),
        read=_activity,
        has_tokens=True,
        has_money=True,
        splits=frozenset({"input_cached"}),
    ),
)
