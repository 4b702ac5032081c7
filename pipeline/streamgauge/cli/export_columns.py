"""The columns of `ledger export` as CSV and Parquet, and their values for one record. Pure."""

from collections.abc import Mapping

from streamgauge.ledger import LedgerRow
from streamgauge.ledger.cost import usd
from streamgauge.ledger.row import KINDS

_TEXT = (
    "day", "upstream", "dialect", "endpoint", "model", "request_model", "response_model", "outcome", "finish_reason",
    "tenant", "credential_id", "tap", "service_tier", "inference_geo", "trace_id", "request_digest", "response_id",
    "last_event_id", "resumed_from", "usage_source", "upstream_host",
)  # fmt: skip
_NUMBERS = (
    "attempt", "wait_us", "input_tokens", "output_tokens", "total_tokens", "input_cached_tokens",
    "input_cache_write_tokens", "input_cache_write_1h_tokens", "reasoning_tokens", "audio_input_tokens",
    "audio_output_tokens",
)  # fmt: skip

# `started_us`: microseconds since 1970, UTC. `attributes`: a JSON object. `cost_usd`, `list_usd`: decimal strings.
_COST = ("cost_usd", "price_source", "price_date", "list_usd")
COLUMNS = ("stream_id", "started_us", *_TEXT, "attributes", *_NUMBERS, *KINDS, *_COST)
# The columns that hold whole numbers; all others are text.
NUMBERS = frozenset({"started_us", *_NUMBERS, *KINDS})


def values_of(record: bytes, tenants: Mapping[str, str]) -> list[str | int | None]:
    """The values of a stored record. `tenants`: by credential_id, for a record without a tenant of its own."""
    row = LedgerRow.of_stored(record)
    known = vars(row) | {
        "tenant": row.tenant or tenants.get(row.credential_id or ""),
        "cost_usd": None if row.cost is None else usd(row.cost.total),
        "price_source": None if row.cost is None else row.cost.source,
        "price_date": None if row.cost is None else row.cost.date,
        "list_usd": None if row.cost is None else row.cost.list_usd,
    }
    return [known[name] for name in COLUMNS]
