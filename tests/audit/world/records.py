"""The ledger of a world: the records that taps would have made of its calls, with their costs."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from streamgauge.core.record import Request
from streamgauge.ledger import Cost, LedgerRow, SqliteLedger, row_of
from tests.audit.world.traffic import Call
from tests.metrics.records import make_counts, make_record, make_timing, make_usage

# Characters that a token of output has here.
CHARS = 4


def row(call: Call) -> LedgerRow:
    """The row of a call in the ledger."""
    uncached, cached, written, output = (whole - one for whole, one in zip(call.parts, call.apart, strict=True))
    usage = make_usage(None, None, source="absent")
    if call.usage != "absent":
        usage = make_usage(
            uncached + cached + written,
            None if call.usage == "partial" else output,
            input_cached_tokens=cached,
            input_cache_write_tokens=written,
            reasoning_tokens=None if call.usage == "partial" else call.reasoning,
            source=call.usage,
            parts=[_step(call)] if any(call.apart) else [],
        )
    made = row_of(
        make_record(
            stream_id=call.id,
            upstream=call.provider,
            started_at=f"{call.start:%Y-%m-%dT%H:%M:%S.%f}Z",
            request=Request(stream=True, max_tokens=8_000, body_bytes=6 * sum(call.parts[:3])),
            request_model=call.model,
            response_model=call.model if call.has_token else None,
            service_tier=call.tier,
            response_id=call.response_id if call.has_token else None,
            tenant=call.tenant,
            request_digest=call.digest,
            attempt=call.attempt,
            status_code=call.status or (200 if call.has_token else None),
            outcome=call.outcome,
            timing=make_timing(first_token_s=0.2 if call.has_token else None, end_s=call.seconds),
            usage=usage,
            counts=make_counts(text_chars=CHARS * output),
        )
    )
    if call.usage == "absent":
        return made
    *given, output_cost = (int(cost.scaleb(12)) for cost in call.costs())
    return replace(made, cost=Cost(sum(given), None if call.usage == "partial" else output_cost, "list", None))


def _step(call: Call) -> dict[str, object]:
    """A step with tokens of its own, which the top level of the usage does not count."""
    return {"type": "compaction", "input_tokens": call.apart[0], "output_tokens": call.apart[3]}


def write_ledger(path: Path, calls: Iterable[Call]) -> None:
    """A ledger with the records of the calls that taps saw."""
    with SqliteLedger(path) as ledger:
        ledger.insert([row(call) for call in calls if call.seen])
