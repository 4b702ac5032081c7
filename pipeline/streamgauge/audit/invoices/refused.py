"""Files that are known and are no bill, with a sentence that says what to bring instead."""

from streamgauge.audit.invoices.contract import Format, Row, signs

_LOG = (
    "a gateway's log is our side, not the provider's: make a ledger of it with `streamgauge ledger import --format {}`"
)
_KNOWN = (
    (
        "records of a ledger",
        "schema_version stream_id outcome",
        "they are our side, not the provider's: store them with `streamgauge ledger import`, and bring the provider's export",
    ),
    ("LiteLLM's spend log", "call_type spend startTime", _LOG.format("litellm")),
    ("an export of Langfuse", "traceId startTime inputUsage", _LOG.format("langfuse")),
    ("an export of Langfuse", "trace_id start_time usage_details", _LOG.format("langfuse")),
    ("an export of Helicone", "request_created_at response_status", _LOG.format("helicone")),
    (
        "Databricks' system.billing.usage",
        "sku_name usage_quantity usage_unit",
        "it counts DBUs, not tokens, and has no money: bring a query of system.serving.endpoint_usage (tokens) with the "
        "model of system.serving.served_entities, under the columns of FOCUS",
    ),
)


def _nothing(_: Row) -> None:
    return None


FORMATS = tuple(
    Format(name, is_json, signs(names), _nothing, has_tokens=False, has_money=False, refusal=sentence)
    for name, names, sentence in _KNOWN
    for is_json in (False, True)
)
