"""Fireworks: the CSV of billing metrics (`firectl billing export-metrics`): tokens without money, a row for each usage event.

Columns: docs.fireworks.ai/accounts/exporting-billing-metrics. Times are UTC. Prompt tokens include cached ones.
"""

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices.contract import Format, InvoiceLine, Row, Span, signs
from streamgauge.audit.invoices.values import count, moment_us, required_text

PROVIDER = "fireworks"


def _event(row: Row) -> InvoiceLine | None:
    values = row.values
    prompt, output = count(values, "prompt_tokens"), count(values, "completion_tokens")
    if not prompt and not output:
        return None  # seconds of an accelerator
    start, end = (moment_us(values, name, zone=False) for name in ("start_time", "end_time"))
    return InvoiceLine(
        provider=PROVIDER,
        when=Span(start, max(end, start + 1)),
        model=required_text(values, "base_model_name").rpartition("/")[2],
        tokens=Tokens(prompt or 0, 0, 0, output or 0),
    )


FORMATS = (
    Format(
        "Fireworks billing metrics",
        is_json=False,
        signs=signs("base_model_name prompt_tokens completion_tokens"),
        required=signs("start_time end_time"),
        read=_event,
        has_tokens=True,
        has_money=False,
        splits=frozenset(),
        tiers=False,
    ),
)
