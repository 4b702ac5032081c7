"""Makes the record of a finished stream from its state. Only this module maps the fields of one to the other."""

from datetime import datetime, timedelta
from operator import attrgetter

from streamgauge.core import record as made
from streamgauge.core.assembly.pace import time_per_output_token
from streamgauge.core.assembly.state import ChoiceState, LossState, StreamState, ToolState
from streamgauge.core.assembly.timing import TimingState, gaps_of, is_burst, seconds, wire_max_gap
from streamgauge.core.capture.segments import Ending, RateLimit, TransportFault
from streamgauge.core.dialects import BY_NAME, OTHER, Dialect, dialect_of_endpoint
from streamgauge.core.formats.json_validator import is_valid
from streamgauge.core.outcome import FIRST_ERROR_STATUS, Outcome, outcome_of
from streamgauge.core.usage import normalised

_NO_CLAIMS = (None, None, None, None)
_INDEX = attrgetter("index")
_NO_LOSS = LossState()
# Decode errors after which a client may have read more of the body than the tap did.
_NOT_DECODED = frozenset(("unknown_coding", "too_many_codings", "bomb", "too_large"))
_TRANSPORT_FAULTS = frozenset(fault.value for fault in TransportFault)
_EPOCH = datetime(1970, 1, 1)  # in UTC; without a zone, so that isoformat writes no offset


def record_of(state: StreamState) -> made.Record:
    """The record of a stream that has ended, or was closed without an end."""
    opening, head, request, identity = state.opening, state.head, state.request, state.identity
    dialect = _dialect_name(state)
    outcome = _outcome(state, dialect)
    rules = BY_NAME[dialect].usage if dialect in BY_NAME else None
    usage = normalised(state.usage, rules, head, identity.response_id, state.counts.token_events)
    choices = sorted(state.choices, key=_INDEX) if len(state.choices) > 1 else state.choices
    finished = next((choice for choice in choices if choice.finish_raw is not None), None)
    return made.Record(
        schema_version=made.SCHEMA_VERSION,
        stream_id=_uuid(state.stream),
        tap=opening.tap if opening else None,
        tap_instance=_uuid(state.instance),
        tap_version=opening.tap_version if opening else None,
        capture=opening.capture if opening else None,
        upstream=opening.upstream if opening else None,
        dialect=dialect,
        endpoint=_endpoint(state, dialect),
        streaming=head.event_stream if head else None,
        request=_request(state),
        request_model=request.model if request else None,
        response_model=identity.response_model,
        routed_model=identity.routed_model,
        service_tier=identity.service_tier or (request.service_tier if request else None),
        response_id=identity.response_id or (opening.continues if opening else None),
        provider_request_id=_provider_request_id(state),
        trace_id=opening.trace_id if opening else None,
        parent_span_id=opening.parent_span_id if opening else None,
        tenant=opening.tenant if opening else None,
        credential_id=opening.credential_id if opening else None,
        provider_organization=head.organization if head else None,
        provider_project=head.project if head else None,
        request_digest=request.digest if request else None,
        attempt=opening.attempt if opening else None,
        resumed_from=opening.resumed_from if opening else None,
        last_event_id=identity.last_event_id,
        last_sequence_number=identity.last_sequence_number,
        attributes=dict(opening.attributes) if opening else {},
        rate_limit=_rate_limit(head.rate_limit if head else None),
        started_at=_started_at(opening.started_at_ns if opening else None),
        status_code=head.status if head else None,
        content_encoding=head.content_encoding if head else None,
        retry_after_s=head.retry_after_s if head else None,
        outcome=outcome,
        error=_error(state, outcome),
        finish_reason=finished.finish if finished else None,
        finish_reason_raw=finished.finish_raw if finished else None,
        choices=[_choice(choice, state.timing) for choice in choices],
        timing=_timing(state, usage, BY_NAME.get(dialect or "")),
        provider_timing=_provider_timing(state),
        usage=usage,
        counts=_counts(state),
        integrity=_integrity(state),
    )


def _uuid(raw: bytes) -> str:
    """16 bytes as a lower-case hyphenated UUID."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_ignored(state: StreamState) -> bool:
    """Whether a stream gets no record: an event stream on a path that is no LLM endpoint, without an LLM's events.

    A replayed body always gets a record; replayed exchanges follow the rule for live ones.
    """
    opening = state.opening
    if opening is None or opening.tap == "replay" or opening.path is not None:
        return False
    return state.dialect in (None, OTHER)


def ignored_as(state: StreamState) -> str:
    """The reason why an ignored stream has no record: `not_llm` if its events show what else it is; else `format`, since its
    format is not known, and it may come from a model.
    """
    return "not_llm" if state.dialect == OTHER else "format"


def _dialect_name(state: StreamState) -> str | None:
    """The dialect by the content; else by the operator's choice, the endpoint, or a weaker sign, in this order.

    Without any of these it is `other` if there were events, else None.
    """
    if state.dialect is not None:
        return state.dialect
    opening = state.opening
    if opening is not None and opening.dialect in BY_NAME:
        return opening.dialect
    hinted = dialect_of_endpoint(opening.path if opening else None)
    if hinted is not None:
        return hinted.name
    return state.hint or (OTHER if state.counts.events else None)


def _endpoint(state: StreamState, dialect: str | None) -> str | None:
    """The path's template if the dialect has it, or if no dialect is known; else the dialect's own endpoint."""
    path = state.opening.path if state.opening else None
    if dialect not in BY_NAME:
        return path
    known = BY_NAME[dialect]
    return path if path in known.paths else known.endpoint


def _outcome(state: StreamState, dialect: str | None) -> Outcome:
    end, head = state.end, state.head
    terminal = state.terminal or _all_finished(state, dialect) or dialect == OTHER
    if head is not None and not head.event_stream and end is not None:
        terminal = state.body_read and end.ending is Ending.COMPLETE
    elif end is not None and end.ending is Ending.COMPLETE and not _may_lack_terminal(state):
        terminal = terminal or (state.dialect in BY_NAME and BY_NAME[state.dialect].end_is_terminal)
    outcome = outcome_of(
        status=head.status if head else None,
        error=state.error is not None,
        terminal=terminal,
        ending=end.ending if end else None,
        client_gone=end is not None and end.client_gone_ns is not None,
    )
    return "abandoned" if outcome == "truncated" and _may_lack_terminal(state) else outcome


def _may_lack_terminal(state: StreamState) -> bool:
    """Whether a part of the response was not read that may have held the protocol's terminal.

    An event over the size limit may have held it unless token events followed.
    """
    loss = state.loss
    is_lost = loss.missing_segments or loss.dropped_reads or loss.log_gap or loss.decode_error in _NOT_DECODED
    return bool(is_lost) or loss.unread_at == state.counts.token_events


def _all_finished(state: StreamState, dialect: str | None) -> bool:
    """Whether enough choices have a finish reason: all that began and `n` of the request; for some dialects a single one."""
    if dialect not in BY_NAME or not BY_NAME[dialect].finish_is_terminal:
        return False
    wanted = max(len(state.choices), (state.request.n if state.request else None) or 1)
    if BY_NAME[dialect].one_finish_is_enough:
        wanted = 1
    return sum(choice.finish_raw is not None for choice in state.choices) >= wanted


def _error(state: StreamState, outcome: Outcome) -> made.Error | None:
    facts, head = state.error, state.head
    kind, code = (facts.type, facts.code) if facts else (None, None)
    status = facts.status if facts else None
    if outcome in ("upstream_reset", "timeout"):
        fault = state.end.fault if state.end is not None else None
        return made.Error("transport", code=fault if fault in _TRANSPORT_FAULTS else None)
    if outcome not in ("http_error", "stream_error"):
        return None
    in_stream = head is not None and head.event_stream
    if outcome == "http_error" and status is None and head is not None and (head.status or 0) >= FIRST_ERROR_STATUS:
        status = head.status
    return made.Error("in_stream" if in_stream and facts else "before_stream", kind, code, status)


def _request(state: StreamState) -> made.Request | None:
    facts, host = state.request, state.opening.host if state.opening else None
    if facts is None:
        return None if host is None else made.Request(host=host)
    return made.Request(facts.stream, facts.n, facts.max_tokens, facts.include_usage, facts.body_bytes, host)


def _provider_request_id(state: StreamState) -> str | None:
    if state.head is not None and state.head.provider_request_id is not None:
        return state.head.provider_request_id
    return state.error.request_id if state.error else None


def _started_at(wall_ns: int | None) -> str | None:
    """UTC, RFC 3339, to the microsecond."""
    if wall_ns is None:
        return None
    return (_EPOCH + timedelta(microseconds=wall_ns // 1000)).isoformat(timespec="microseconds") + "Z"


def _rate_limit(reported: RateLimit | None) -> made.RateLimit | None:
    if reported is None:
        return None
    return made.RateLimit(
        requests_limit=reported.requests_limit,
        requests_remaining=reported.requests_remaining,
        requests_reset_s=seconds(reported.requests_reset_ns),
        tokens_limit=reported.tokens_limit,
        tokens_remaining=reported.tokens_remaining,
        tokens_reset_s=seconds(reported.tokens_reset_ns),
    )


def _choice(choice: ChoiceState, timing: TimingState) -> made.Choice:
    return made.Choice(
        index=choice.index,
        finish_reason=choice.finish,
        finish_reason_raw=choice.finish_raw,
        first_token_s=seconds(timing.known(choice.first_token)),
        token_events=choice.token_events,
        tool_calls=[_tool(tool) for tool in choice.tools],
    )


def _tool(tool: ToolState) -> made.ToolCall:
    """`arguments_valid` is None if the arguments are masked, are not JSON by contract, or never came."""
    valid = None
    if tool.check is not None:
        valid = is_valid(tool.check) if tool.argument_chars else tool.empty or None
    return made.ToolCall(tool.name, tool.argument_chars, valid)


def _timing(state: StreamState, usage: made.Usage, dialect: Dialect | None) -> made.Timing:
    timing, head, end, request = state.timing, state.head, state.end, state.request
    return made.Timing(
        gaps=gaps_of(timing),
        upstream_connect_s=seconds(request.connect_ns if request else None),
        request_sent_s=seconds(request.sent_ns if request else None),
        headers_s=seconds(head.stamp_ns if head else None),
        first_byte_s=seconds(timing.known(timing.first_byte)),
        first_event_s=seconds(timing.known(timing.first_event)),
        first_token_s=seconds(timing.known(timing.first_token)),
        first_reasoning_s=seconds(timing.known(timing.first_reasoning)),
        first_content_s=seconds(timing.known(timing.first_content)),
        first_tool_s=seconds(timing.known(timing.first_tool)),
        last_token_s=seconds(timing.last_token),
        finish_s=seconds(timing.finish),
        end_s=seconds(end.stamp_ns if end else None),
        client_blocked_s=seconds(end.client_blocked_ns if end else None),
        client_gone_s=seconds(end.client_gone_ns if end else None),
        wire_max_gap_s=seconds(wire_max_gap(timing)),
        inter_token_latency_s=seconds(time_per_output_token(state, usage, dialect)),
        burst=is_burst(timing),
    )


def _provider_timing(state: StreamState) -> made.ProviderTiming | None:
    known = state.identity
    claims = (known.queue_s, known.routing_s, known.first_token_s, known.total_s)
    if claims == _NO_CLAIMS:
        return None
    return made.ProviderTiming(*[None if claim is None else round(claim, 6) for claim in claims])


def _counts(state: StreamState) -> made.Counts:
    counts = state.counts
    return made.Counts(
        events=counts.events,
        token_events=counts.token_events,
        repeated_events=counts.repeated_events,
        after_terminal_events=counts.after_terminal_events,
        comments=counts.comments,
        unparsed_events=counts.unparsed_events,
        unterminated_events=counts.unterminated_events,
        error_fields=counts.error_fields,
        bytes=counts.bytes,
        client_bytes=state.end.client_bytes if state.end else None,
        reads=counts.reads,
        segments=counts.segments,
        text_chars=counts.text_chars,
        reasoning_chars=counts.reasoning_chars,
        refusal_chars=counts.refusal_chars,
    )


def _integrity(state: StreamState) -> made.Integrity:
    loss, end = state.loss, state.end
    unended = end is None or end.ending is Ending.CUT
    request_capped = state.request is not None and state.request.capped
    if not unended and not request_capped and loss == _NO_LOSS and end is not None and not end.body_capped:
        return made.Integrity(True, [], 0, 0, 0, None)
    reasons = [
        reason
        for reason, holds in (
            ("no_end", unended),
            ("missing_segments", loss.missing_segments > 0),
            ("dropped_reads", loss.dropped_reads > 0),
            ("oversized_event", loss.oversized_events > 0),
            ("decode_error", loss.decode_error is not None),
            ("body_capped", end is not None and end.body_capped),
            ("log_gap", loss.log_gap),
            ("state_limit", loss.state_limit),
            (made.REQUEST_CAPPED, request_capped),
        )
        if holds
    ]
    return made.Integrity(
        complete=not set(reasons) - {made.REQUEST_CAPPED},
        reasons=reasons,
        missing_segments=loss.missing_segments,
        dropped_reads=loss.dropped_reads,
        oversized_events=loss.oversized_events,
        decode_error=loss.decode_error,
    )
