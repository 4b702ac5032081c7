"""Makes records of what gateways have logged, for a ledger where no tap stands yet: tap `import`, without a capture.

A record has what the log says: times, models, tokens, and of LiteLLM the cost. Each row is a call of a model. Left out are
rows that the gateway answered itself (its own cache), and those that are no call of a model. Sources:

- LiteLLM: the table LiteLLM_SpendLogs (BerriAI/litellm schema.prisma), which /spend/logs gives: prompt tokens include those
  of the cache, which metadata.additional_usage_values (or usage_object) has.
- Langfuse: observations of the UI and the public API (langfuse.com/docs), and of the export to blob storage
  (langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields): `usageDetails` has tokens by kind.
- Helicone: docs.helicone.ai/tools/export, and Helicone/helicone request_response_rmt.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from streamgauge.audit.amounts import usd_text
from streamgauge.audit.invoices.contract import BadFieldError, BadTextError, InvoiceError
from streamgauge.audit.invoices.file import table_of
from streamgauge.audit.invoices.sources import sources_of
from streamgauge.audit.invoices.values import Values, count, moment_us, money, required_text, shown, text
from streamgauge.audit.period import DAY_US, Period
from streamgauge.core.record import Counts, Error, Gaps, Integrity, Record, ReportedCost, Request, Timing, Usage
from streamgauge.core.safe_values import safe_id
from streamgauge.ledger import Filter, Reader

# The value of `tap` in these records.
IMPORTED = "import"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Hosts of providers whose log names no address: prices are known by the host.
_HOSTS = {"openai": "api.openai.com", "anthropic": "api.anthropic.com", "openrouter": "openrouter.ai"}


class LogTokens(NamedTuple):
    """Tokens of a call. `prompt` includes `cached` and `written`; `completion` includes `reasoning`."""

    prompt: int
    completion: int
    cached: int = 0
    written: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Call:
    """A call of a model, as a log has it. Times in microseconds since 1970, UTC. `status`: HTTP, None if it is not known.
    `failed`: whether it ended in an error. `tokens`: None if it has none. `usd`: the cost that the gateway computed.
    """

    id: str
    start_us: int
    end_us: int | None
    provider: str | None
    response_model: str | None
    request_model: str | None = None
    host: str | None = None
    first_token_us: int | None = None
    status: int | None = None
    failed: bool = False
    tokens: LogTokens | None = None
    usd: Decimal | None = None
    response_id: str | None = None
    tenant: str | None = None
    credential_id: str | None = None
    trace_id: str | None = None


class Unreadable(NamedTuple):
    """A row that is no call: its line, and what is wrong."""

    line: int
    fault: str


def _inclusive(values: Values, name: str, tokens: LogTokens, total: int | None) -> LogTokens:
    """Tokens whose prompt includes the parts of the cache, by the row's total; the prompt of `tokens` may exclude them.

    Raises BadFieldError if the total shows neither: `name` is its field.
    """
    parts = tokens.cached + tokens.written
    if not parts or total == tokens.prompt + parts + tokens.completion:
        return tokens._replace(prompt=tokens.prompt + parts)
    if total == tokens.prompt + tokens.completion and parts <= tokens.prompt:
        return tokens
    given = f"{tokens.prompt} prompt, {tokens.completion} completion, {tokens.cached} read from and {tokens.written} written"
    raise BadFieldError(name, f"{total} does not show whether the prompt includes the cache: {given}")


def _object(values: Values, name: str) -> Mapping[str, object]:
    """An object, also as the JSON text that CSV has; empty if there is none."""
    content = values.get(name)
    if isinstance(content, str) and content.strip():
        try:
            content = json.loads(content)
        except (ValueError, RecursionError):
            raise BadFieldError(name, f"{shown(content)} is not JSON") from None
    if content in (None, ""):
        return {}
    if not isinstance(content, Mapping):
        raise BadFieldError(name, f"{shown(content)} is not an object")
    return content


def _first(values: Values, *names: str) -> str:
    """The first of the names that the row has."""
    return next((name for name in names if name in values), names[0])


def _time(values: Values, *names: str) -> int | None:
    name = _first(values, *names)
    return None if text(values, name) is None else moment_us(values, name, zone=False)


# --- LiteLLM ---------------------------------------------------------------------------------------------------------


def _litellm(values: Values, _: str | None) -> Call | None:
    if (text(values, "cache_hit") or "").lower() == "true":
        return None
    metadata = _object(values, "metadata")
    usage = _object(metadata, "usage_object") or _object(metadata, "additional_usage_values")
    details = _object(usage, "prompt_tokens_details")
    cached = count(usage, "cache_read_input_tokens") or count(details, "cached_tokens") or 0
    written = count(usage, "cache_creation_input_tokens") or 0
    reasoning = count(_object(usage, "completion_tokens_details"), "reasoning_tokens") or 0
    prompt, completion = count(values, "prompt_tokens") or 0, count(values, "completion_tokens") or 0
    if cached + written > prompt:
        raise BadFieldError("prompt_tokens", f"{prompt} is less than its parts: {cached} and {written} of the cache")
    failed = "failure" in ((text(values, "status") or "").lower(), (text(metadata, "status") or "").lower())
    status = count(_object(metadata, "error_information"), "error_code") if failed else 200
    provider = text(values, "custom_llm_provider")
    base = text(values, "api_base")
    spend = money(values, "spend")
    return Call(
        id=required_text(values, "request_id"),
        start_us=moment_us(values, "startTime", zone=False),
        end_us=_time(values, "endTime"),
        first_token_us=_time(values, "completionStartTime"),
        provider=provider,
        host=urlsplit(base).hostname if base is not None else None,
        response_model=text(values, "model"),
        request_model=text(values, "model_group"),
        status=status,
        failed=failed,
        tokens=LogTokens(prompt, completion, cached, written, reasoning) if prompt or completion else None,
        usd=spend or None,  # 0 beside tokens: LiteLLM knows no price
        response_id=text(values, "request_id"),
        tenant=text(values, "team_id"),
        credential_id=text(values, "api_key"),
    )


# --- Langfuse --------------------------------------------------------------------------------------------------------

# Observations that call a model. Others are steps of an application.
_MODEL_CALLS = frozenset({"GENERATION", "EMBEDDING"})
_CACHED = ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read", "cached_tokens")
_WRITTEN = ("input_cache_creation", "cache_creation_input_tokens", "input_cache_write")
_REASONING = ("output_reasoning_tokens", "output_reasoning", "reasoning_tokens")


def _langfuse(values: Values, provider: str | None) -> Call | None:
    if (text(values, "type") or "").upper() not in _MODEL_CALLS:
        return None
    unit = (text(values, "unit") or "TOKENS").upper()
    if unit != "TOKENS":
        raise BadFieldError("unit", f"{shown(unit)} is not TOKENS")
    failed = (text(values, "level") or "").upper() == "ERROR"
    started = _first(values, "startTime", "start_time")
    return Call(
        id=required_text(values, "id"),
        start_us=moment_us(values, started, zone=False),
        end_us=_time(values, "endTime", "end_time"),
        first_token_us=_time(values, "completionStartTime", "completion_start_time"),
        provider=provider,
        response_model=text(values, _first(values, "model", "providedModelName", "provided_model_name")),
        failed=failed,
        tokens=_langfuse_tokens(values),
        tenant=text(values, _first(values, "userId", "user_id")),
        trace_id=text(values, _first(values, "traceId", "trace_id")),
    )


def _langfuse_tokens(values: Values) -> LogTokens | None:
    """The tokens by kind, whose sum is the total; else the sums of input and output alone."""
    name = _first(values, "usageDetails", "usage_details")
    details = _object(values, name)
    if not details:
        prompt = count(values, _first(values, "inputUsage", "promptTokens", "input_usage"))
        completion = count(values, _first(values, "outputUsage", "completionTokens", "output_usage"))
        return LogTokens(prompt or 0, completion or 0) if prompt or completion else None
    try:
        counts = {kind: count(details, kind) or 0 for kind in details}
    except BadFieldError as error:
        raise BadFieldError(name, f"{error.field}: {error}") from None
    total = counts.pop("total", None)
    cached, written, reasoning = (
        sum(counts.pop(kind, 0) for kind in kinds) for kinds in (_CACHED, _WRITTEN, _REASONING)
    )
    prompt = sum(counts.pop(kind) for kind in list(counts) if kind.startswith(("input", "prompt")))
    completion = sum(counts.pop(kind) for kind in list(counts) if kind.startswith(("output", "completion")))
    if any(counts.values()):
        raise BadFieldError(
            name, f"{shown(next(kind for kind, number in counts.items() if number))} is no known kind of token"
        )
    if reasoning and total != prompt + completion + cached + written:  # reasoning is a part of the output, or beside it
        completion += reasoning
    tokens = LogTokens(prompt, completion, cached, written, reasoning)
    return _inclusive(values, name, tokens, total) if prompt or completion or cached else None


# --- Helicone --------------------------------------------------------------------------------------------------------

# What the reference of the cache is of a response that did not come from it.
_NO_REFERENCE = "00000000-0000-0000-0000-000000000000"


def _helicone(values: Values, _: str | None) -> Call | None:
    reference = text(values, _first(values, "cache_reference_id", "cacheReferenceId"))
    if reference not in (None, _NO_REFERENCE, "DEFAULT_UUID"):
        return None
    status = count(values, _first(values, "response_status", "status"), signed=True)
    started = moment_us(values, "request_created_at", zone=False)
    delay = money(values, _first(values, "latency", "delay_ms"))
    first = money(values, "time_to_first_token")
    prompt, completion = count(values, "prompt_tokens") or 0, count(values, "completion_tokens") or 0
    cached = count(values, "prompt_cache_read_tokens") or 0
    written = count(values, "prompt_cache_write_tokens") or 0
    tokens = LogTokens(prompt, completion, cached, written, count(values, "reasoning_tokens") or 0)
    failed = status is None or not 200 <= status < 300
    return Call(
        id=required_text(values, "request_id"),
        start_us=started,
        end_us=None if delay is None else started + int(delay * 1_000),
        first_token_us=None if not first else started + int(first * 1_000),
        provider=text(values, "provider"),
        host=urlsplit(text(values, "target_url") or "").hostname,
        response_model=text(values, _first(values, "response_model", "model")),
        request_model=text(values, "request_model"),
        status=status if status is not None and 100 <= status <= 599 else None,
        failed=failed,
        tokens=_inclusive(values, "total_tokens", tokens, count(values, "total_tokens"))
        if prompt or completion or cached
        else None,
        tenant=text(values, "user_id"),
    )


class Log(NamedTuple):
    """A kind of log. `signs`: names that its rows have; `read`: a row's call, None for one that is left out."""

    name: str
    signs: frozenset[str]
    read: Callable[[Values, str | None], Call | None]
    names_provider: bool = True


LOGS: Mapping[str, Log] = {
    "litellm": Log("LiteLLM's spend log", frozenset({"request_id", "startTime", "prompt_tokens"}), _litellm),
    "langfuse": Log("Langfuse's observations", frozenset({"id", "type"}), _langfuse, names_provider=False),
    "helicone": Log("Helicone's requests", frozenset({"request_id", "request_created_at", "prompt_tokens"}), _helicone),
}


def records_of(
    path: Path, name: str, provider: str | None, stream_id: Callable[[int, bytes], bytes]
) -> Iterator[Record | Unreadable | None]:
    """The records of a log (a name of LOGS), also of gzip and ZIP; None for a row that is left out.

    `provider`: of the calls of a log that names none. `stream_id`: the 16 bytes of a stream's id by its start (nanoseconds
    since 1970) and what tells it from others: equal for every import. Raises InvoiceError for a file that is no such log.
    """
    log = LOGS[name]
    try:
        for source in sources_of(path):
            for line, values in table_of(source):
                if missing := sorted(log.signs - values.keys()):
                    raise InvoiceError(source.name, f"it is no {log.name}: {missing[0]} is missing", line)
                try:
                    call = log.read(values, provider)
                except BadFieldError as error:
                    yield Unreadable(line, f"field {error.field}: {error}")
                    continue
                if call is None:
                    yield None
                    continue
                facts = f"{name}\x1f{call.id}".encode("utf-8", "surrogatepass")
                yield _record(name, call, str(UUID(bytes=stream_id(call.start_us * 1_000, facts))))
    except BadTextError as error:
        raise InvoiceError(str(path), str(error), error.line) from None
    except UnicodeDecodeError:
        raise InvoiceError(str(path), "the text is not UTF-8") from None
    except OSError as error:
        raise InvoiceError(str(path), f"the file cannot be read: {error.strerror}") from None


def _seconds(call: Call, moment_us: int | None) -> float | None:
    return None if moment_us is None or moment_us < call.start_us else (moment_us - call.start_us) / 1_000_000


def _record(name: str, call: Call, stream_id: str) -> Record:
    provider = None if call.provider is None else call.provider.lower()
    tokens = call.tokens
    status = call.status if call.status is not None or call.failed else 200
    outcome = (
        "completed" if not call.failed else "http_error" if status is not None and status >= 300 else "stream_error"
    )
    error = None
    if call.failed:
        error = Error(
            "before_stream" if outcome == "http_error" else "in_stream",
            status=status if outcome == "http_error" else None,
        )
    return Record(
        schema_version=1,
        stream_id=stream_id,
        tap=IMPORTED,
        tap_instance=None,
        tap_version=None,
        capture=None,
        upstream=safe_id(provider),
        dialect=None,
        endpoint=None,
        streaming=None,
        request=Request(host=call.host or _HOSTS.get(provider or "")),
        request_model=safe_id(call.request_model),
        response_model=safe_id(call.response_model),
        routed_model=None,
        service_tier=None,
        response_id=safe_id(call.response_id),
        provider_request_id=None,
        trace_id=safe_id(call.trace_id),
        tenant=safe_id(call.tenant),
        credential_id=safe_id(call.credential_id),
        provider_organization=None,
        provider_project=None,
        request_digest=None,
        attempt=None,
        resumed_from=None,
        last_event_id=None,
        last_sequence_number=None,
        started_at=f"{_EPOCH + timedelta(microseconds=call.start_us):%Y-%m-%dT%H:%M:%S.%fZ}",
        status_code=status,
        content_encoding=None,
        retry_after_s=None,
        outcome=outcome,
        error=error,
        finish_reason=None,
        finish_reason_raw=None,
        choices=[],
        timing=Timing(Gaps(0), first_token_s=_seconds(call, call.first_token_us), end_s=_seconds(call, call.end_us)),
        provider_timing=None,
        usage=_usage(name, call, tokens),
        counts=Counts(0, 0, 0, 0, 0, 0, 0, 0, None, None, 0, 0, 0, 0, 0),
        integrity=Integrity(False, ["no_end"], 0, 0, 0, None),
    )


def _usage(name: str, call: Call, tokens: LogTokens | None) -> Usage:
    if tokens is None:
        return Usage(None, None, None, None, None, None, None, None, None, [], "absent", None, 0, None)
    # What LiteLLM computes is the one cost of a log that a record has a name for.
    has_cost = name == "litellm" and call.usd is not None and call.usd >= 0
    return Usage(
        tokens.prompt,
        tokens.completion,
        tokens.prompt + tokens.completion,
        tokens.cached or None,  # a log that has none may not tell it apart
        tokens.written or None,
        None,
        tokens.reasoning or None,
        None,
        None,
        [],
        "final",
        None,
        0,
        None,
        ReportedCost(usd_text(call.usd), None, "litellm") if has_cost and call.usd is not None else None,
    )


class _Tapped(msgspec.Struct):
    tap: str | None = None


def note_of_imports(ledger: Reader, period: Period) -> str | None:
    """A sentence if our side is, at least in part, a gateway's log: the first and the last record of each day tell.

    None if all of these are of taps. Raises LedgerUnavailableError.
    """
    days = imported = 0
    for start_us in range(period.since_us, period.until_us, DAY_US):
        span = Filter(start_us, min(start_us + DAY_US, period.until_us))
        ends = [text for newest in (False, True) for text in ledger.query(1, span, newest_first=newest)]
        days += bool(ends)
        imported += any(msgspec.json.decode(text, type=_Tapped).tap == IMPORTED for text in ends)
    if not imported:
        return None
    logged = "what a gateway has logged, and not what a tap has seen"
    return f"Our side is {logged}, on {imported} of the {days} days with streams: see tap {IMPORTED} in `ledger query`."
