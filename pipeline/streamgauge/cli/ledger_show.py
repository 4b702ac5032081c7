"""`streamgauge ledger show`: one record as a person reads it, with the other attempts of the same request."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from streamgauge.cli.ledgers import ledger_to_read
from streamgauge.cli.parser import JSON, Arguments
from streamgauge.cli.shown_records import NOTHING, duration, model_of, table_of, tokens_a_second
from streamgauge.cli.tables import error_word, line_width, member, print_fitted
from streamgauge.cli.tenants_file import read_tenants
from streamgauge.core.safe_values import escaped
from streamgauge.errors import DONE, FOUND, UsageFault
from streamgauge.ledger import Filter, LedgerRow, Reader
from streamgauge.settings.declarations import Settings

Json = Mapping[str, Any]

# Attempts of one request are this close to each other (microseconds): clients give up after minutes, and a prompt that
# comes every hour is another request.
_NEAR_US = 15 * 60 * 1_000_000
# Attempts and matching ids that are listed.
_MOST = 10
# Where the hyphens of an id are, from its beginning and from its end.
_HYPHENS, _FROM_END = (8, 12, 16, 20), (12, 16, 20, 24)
_ID = re.compile(r"[0-9a-f]{1,32}", re.ASCII)

_REASONS = {
    "no_usage": "the response reported neither tokens nor a cost",
    "no_seller": "no seller is known for the upstream",
    "no_deployment": "neither host nor request shows the kind of deployment or the region",
    "no_model": "no model is named, or the list of the seller does not have it",
    "no_tier_price": "the list has no price for the service tier or the speed",
    "no_region_price": "the list has no price for the region",
    "no_kind_price": "the list has no price for a kind of the tokens",
    "no_kinds": "the response does not say of which kinds the tokens are",
    "no_start": "the start is not known",
    "no_list": "the list of prices could not be read",
}
_TOKENS = {
    "input_cached_tokens": "read from a cache",
    "input_cache_write_tokens": "written to a cache",
    "audio_input_tokens": "audio",
}
_OUTPUT = {"reasoning_tokens": "reasoning", "audio_output_tokens": "audio"}
_IDS = (
    ("provider_request_id", "request id of the provider"),
    ("response_id", "response id"),
    ("trace_id", "trace id"),
    ("request_digest", "request digest"),
)


def run(settings: Settings, args: Arguments) -> int:
    """Prints the record. Returns FOUND if the ledger has none with this id. Raises UsageFault if several have it."""
    part = args.id.strip().lstrip("\u2026").lower()
    digits = part.replace("-", "")
    if not _ID.fullmatch(digits):
        raise UsageFault(
            f"{escaped(args.id[:64])!r} is no stream id: write an id, or its beginning or end, in hexadecimal"
        )
    tenants = read_tenants(settings.tenants)
    with ledger_to_read(settings) as ledger:
        records = _records_with(ledger, digits)
        if not records:
            sys.stderr.write(f"the ledger has no stream whose id begins or ends with {part}\n")
            return FOUND
        if len(records) > 1:
            width = line_width()
            columns, rows = table_of(records[:_MOST], tenants, whole=True)
            print_fitted(columns, rows, width)
            more = " at least" if len(records) > _MOST else ""
            raise UsageFault(
                f"{part} is a part of the ids of{more} {min(len(records), _MOST)} streams: write more of it"
            )
        [record] = records
        if args.output == JSON:
            sys.stdout.write(f"{record.decode()}\n")
            return DONE
        _print(ledger, record, tenants)
    return DONE


def _records_with(ledger: Reader, digits: str) -> list[bytes]:
    """The records whose id begins with the digits, else those whose id ends with them; one more than are listed."""
    beginning = "".join(f"-{digit}" if at in _HYPHENS else digit for at, digit in enumerate(digits))
    if found := ledger.with_id(beginning, _MOST + 1):
        return found
    last = len(digits)
    ending = "".join(f"{digit}-" if last - at - 1 in _FROM_END else digit for at, digit in enumerate(digits))
    return ledger.with_id(ending, _MOST + 1)


def _print(ledger: Reader, record: bytes, tenants: Mapping[str, str]) -> None:
    known = msgspec.json.decode(record)
    facts = [(name, text) for name, text in _facts(ledger, known, tenants) if text]
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        sys.stdout.write(f"{name.ljust(width)}  {escaped(text)}\n")
    attempts = _attempts(ledger, record)
    if len(attempts) > 1:
        sys.stdout.write(f"\nAttempts of the same request, within {_NEAR_US // 60_000_000} minutes\n")
        columns, rows = table_of(attempts[:_MOST], tenants, whole=line_width() is None)
        print_fitted(columns, rows, line_width())
        if len(attempts) > _MOST:
            sys.stdout.write(f"More than {_MOST}: ledger query --where request_digest={known['request_digest']}\n")


def _attempts(ledger: Reader, record: bytes) -> list[bytes]:
    """The records of requests with the same body that started near this one, itself among them, oldest first."""
    row = LedgerRow.of_stored(record)
    if row.request_digest is None or row.started_us is None:
        return []
    near = Filter(row.started_us - _NEAR_US, row.started_us + _NEAR_US, (("request_digest", row.request_digest),))
    return list(ledger.query(_MOST + 1, near))


def _facts(ledger: Reader, record: Json, tenants: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    yield "stream", record["stream_id"]
    yield "started", record.get("started_at") or "unknown"
    yield "tenant", _tenant(record, tenants)
    yield "upstream", _upstream(record)
    yield "model", _model(record)
    yield "status", str(record.get("status_code") or "none: no head of a response came")
    yield "outcome", _outcome(record)
    yield "error", _error(record.get("error"))
    yield "first token", _first_token(record)
    yield "pace", _pace(record)
    yield "duration", _duration(record)
    yield "tokens", _tokens(record["usage"])
    yield "cost", _cost(ledger, record)
    for name, shown in _IDS:
        yield shown, record.get(name)
    yield "attempt", None if record.get("attempt") is None else str(record["attempt"])
    yield "resumed from", record.get("resumed_from")
    yield "attributes", ", ".join(f"{name}={value}" for name, value in (record.get("attributes") or {}).items())
    yield "tap", _tap(record)
    yield "capture", _capture(record)


def _tenant(record: Json, tenants: Mapping[str, str]) -> str:
    credential = record.get("credential_id")
    tenant = record.get("tenant") or tenants.get(credential or "") or "none"
    return f"{tenant} (credential {credential})" if credential else str(tenant)


def _upstream(record: Json) -> str:
    host = member(record, "request", "host")
    name = str(record.get("upstream") or "unknown")
    at = f" at {host}" if host and host != name else ""
    return f"{name}{at}, {record.get('dialect') or 'unknown API format'} {record.get('endpoint') or ''}".rstrip()


def _model(record: Json) -> str:
    name, requested = model_of(record) or "unknown", record.get("request_model")
    tier = f", service tier {record['service_tier']}" if record.get("service_tier") else ""
    return f"{name}{f' (requested: {requested})' if requested and requested != name else ''}{tier}"


def _outcome(record: Json) -> str:
    reason = record.get("finish_reason")
    return f"{record['outcome']}{f', finish reason {reason}' if reason else ''}"


def _error(error: Json | None) -> str | None:
    if not error:
        return None
    parts = [f"phase {error['phase']}"] if error.get("phase") else []
    parts += [f"{name} {error[name]}" for name in ("type", "code", "status") if error.get(name) is not None]
    return f"{error_word(error)} ({', '.join(parts)})"


def _first_token(record: Json) -> str:
    timing = record.get("timing") or {}
    first = timing.get("first_token_s")
    if first is None:
        return "none came"
    parts = [
        f"first {word} {duration(timing[name])}"
        for name, word in (
            ("first_reasoning_s", "reasoning"),
            ("first_content_s", "text"),
            ("first_tool_s", "tool call"),
        )
        if timing.get(name) not in (None, first)
    ]
    return f"{duration(first)}{_bracketed(parts)}"


def _pace(record: Json) -> str | None:
    timing = record.get("timing") or {}
    if timing.get("burst"):
        return "unknown: nearly all tokens came in one burst"
    rate, gaps = tokens_a_second(record), timing.get("gaps") or {}
    parts = [f"{rate:.1f} tokens a second"] if rate else []
    if gaps.get("p50_s") is not None:
        shown = ", ".join(
            f"{name} {duration(gaps[key])}"
            for name, key in (("p50", "p50_s"), ("p95", "p95_s"), ("longest", "max_s"))
            if gaps.get(key) is not None
        )
        parts.append(f"gaps {shown}")
    if gaps.get("stalls"):
        parts.append(f"{gaps['stalls']} stall{'' if gaps['stalls'] == 1 else 's'}")
    return ", ".join(parts) or None


def _duration(record: Json) -> str:
    timing = record.get("timing") or {}
    parts = [
        f"{word} {duration(timing[name])}"
        for name, word in (("headers_s", "head of the response after"), ("client_blocked_s", "client did not read for"))
        if timing.get(name)
    ]
    return f"{duration(timing.get('end_s'))}{_bracketed(parts)}"


def _tokens(usage: Json) -> str:
    if usage.get("input_tokens") is None and usage.get("output_tokens") is None:
        return f"not reported ({usage.get('source')})"
    sides = []
    for name, kinds in (("input", _TOKENS), ("output", _OUTPUT)):
        number = usage.get(f"{name}_tokens")
        parts = [f"{usage[kind]:,} {word}" for kind, word in kinds.items() if usage.get(kind)]
        sides.append(f"{name} {'unknown' if number is None else f'{number:,}'}{_bracketed(parts)}")
    return f"{', '.join(sides)}; usage {usage.get('source')}"


def _cost(ledger: Reader, record: Json) -> str:
    cost = record.get("cost")
    if cost:
        parts = [str(cost.get("price_source")), *([f"from {cost['price_date']}"] if cost.get("price_date") else [])]
        lacks = f"; without {', '.join(cost['lacks'])}" if cost.get("lacks") else ""
        return f"{cost['usd']} USD ({', '.join(parts)}){lacks}"
    for total in ledger.totals(["cost_unknown"], Filter(where=(("stream_id", record["stream_id"]),))):
        if reason := total.keys[0]:
            return f"unknown: {_REASONS.get(str(reason), 'for a reason of a later version')} ({reason})"
    return "unknown"


def _bracketed(parts: Sequence[str]) -> str:
    """The parts in brackets after a word; empty if there are none."""
    return f" ({', '.join(parts)})" if parts else ""


def _tap(record: Json) -> str:
    version = record.get("tap_version")
    return f"{record.get('tap') or NOTHING}{f', version {version}' if version else ''}"


def _capture(record: Json) -> str:
    integrity = record.get("integrity") or {}
    capture = str(record.get("capture") or "unknown")
    if integrity.get("complete", True):
        return f"{capture}, complete"
    return f"{capture}, incomplete: {', '.join(integrity.get('reasons') or ['unknown'])}"
