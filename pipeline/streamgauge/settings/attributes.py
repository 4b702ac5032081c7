"""Attributes of requests, as `--attribute NAME=HEADER` and `--metric-attribute NAME` give them.

A name is a key of the record's `attributes`, a key of `ledger query`, and a label of metrics. So it must not be that of
another key, column or label.
"""

from dataclasses import dataclass

from streamgauge.core.limits import MAX_ATTRIBUTES
from streamgauge.core.safe_values import is_attribute_name
from streamgauge.runtime.redaction import redacted_item
from streamgauge.settings.types import HEADER, SettingType, items_of

# Names that have another meaning in the ledger or in metrics. Tests compare them with what the ledger and the metrics use.
RESERVED = frozenset(
    {
        # Keys and columns of the ledger.
        "attempt", "attributes", "audio_input_tokens", "audio_output_tokens", "cost", "cost_input", "cost_output",
        "cost_unknown", "cost_usd", "credential_id", "day", "dialect", "duration", "endpoint", "finish_reason",
        "first_started_at", "inference_geo", "input_audio", "input_cache_write", "input_cache_write_1h_tokens",
        "input_cache_write_tokens", "input_cached", "input_cached_tokens", "input_tokens", "input_uncached",
        "last_event_id", "last_started_at", "list_usd", "longest_wait_s", "model", "month", "outcome", "output_audio",
        "output_text", "output_tokens", "price_date", "price_source", "reasoning", "reasoning_tokens", "record",
        "request_digest", "request_model", "response_id", "response_model", "resumed_from", "rowid", "service_tier",
        "started_us", "status", "stream_id", "streams", "tap", "tenant", "total_tokens", "trace_id", "ttft",
        "unknown_share", "upstream", "upstream_host", "usage_source", "wait_us", "with_cost", "with_usage",
        "without_cost", "without_price", "without_usage",
        # Labels of metrics, ours, OpenTelemetry's (with underscores for dots), and those that Prometheus sets.
        "activity", "budget_key", "budget_value", "call_error", "call_method", "call_protocol", "call_tool", "cause",
        "error_class", "error_type", "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model",
        "gen_ai_token_modality", "gen_ai_token_type", "gen_ai_tool_name", "instance", "job", "kind", "label", "le",
        "mcp_method_name", "member", "partition", "phase", "process", "provider", "quantile", "reason", "result",
        "setting", "side", "source", "stage", "streaming", "version",
    }
)  # fmt: skip
# Headers that are no attribute: those with credentials, and those that the relay or the provider needs, which
# --strip-attributes must not remove.
REFUSED_HEADERS = frozenset(
    {
        "authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key", "host", "connection",
        "content-length", "content-encoding", "content-type", "transfer-encoding",
    }
)  # fmt: skip
# The record's tenant, which may be a label of metrics as attributes may.
TENANT = "tenant"
# Attributes that may be labels of metrics: with more, a few combinations of their values would use up the budget of details.
MAX_METRIC_ATTRIBUTES = 4


@dataclass(frozen=True)
class Attribute:
    """An attribute, and the lower-case request header from which its value is read."""

    name: str
    header: str


def parse_attribute(text: str, shown: str) -> Attribute:
    """NAME=HEADER. Raises ValueError, which quotes `shown`."""
    name, _, header = (part.strip() for part in text.partition("="))
    header = header.lower()
    try:
        HEADER.read(header)
    except ValueError:
        raise ValueError(f"{shown!r} is not an attribute: write NAME=HEADER, as in agent=X-Agent") from None
    if header in REFUSED_HEADERS:
        raise ValueError(f"the header {header} cannot be an attribute: it holds a credential, or the provider needs it")
    return Attribute(_checked_name(name), header)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not is_attribute_name(name):
        raise ValueError(
            "the name of an attribute may contain only a-z, 0-9 and '_', at most 32 characters, and begins with a letter"
        )
    if name in RESERVED:
        raise ValueError(f"an attribute cannot be named {name}: records, the ledger or metrics use that name")
    return name


def _attributes(value: object) -> tuple[Attribute, ...]:
    items = items_of(value)
    if not all(isinstance(item, str) for item in items):
        raise ValueError("write NAME=HEADER, or a list of these, as in ['agent=X-Agent']")
    attributes = tuple(parse_attribute(item, redacted_item(item, value)) for item in items)
    _check_all([attribute.name for attribute in attributes], MAX_ATTRIBUTES)
    return attributes


def _names(value: object) -> tuple[str, ...]:
    names = [TENANT if item == TENANT else _checked_name(item) for item in items_of(value)]
    _check_all(names, MAX_METRIC_ATTRIBUTES)
    return tuple(names)


def _check_all(names: list[str], most: int) -> None:
    if len(set(names)) != len(names):
        raise ValueError("an attribute is named twice: name each attribute once")
    if len(names) > most:
        raise ValueError(f"there are {len(names)} attributes: at most {most} are allowed")


ATTRIBUTES = SettingType("NAME=HEADER", _attributes, f"list of NAME=HEADER, at most {MAX_ATTRIBUTES}", is_list=True)
ATTRIBUTE_NAMES = SettingType(
    "NAME", _names, f"list of `{TENANT}` and names of attributes, at most {MAX_METRIC_ATTRIBUTES}", is_list=True
)
