"""The metrics of finished streams, which `observe.py` sets from their records. `table.py` joins them.

Alerts compare how counters grow. The growth of a series with an open label (model, error type) lacks what was counted
before the first scrape that shows it. So what alerts need has a counter without open labels, too, and its series exist
with 0 as soon as the upstream is known (`starts`).
"""

from typing import get_args

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.capture.segments import TransportFault
from streamgauge.core.outcome import Outcome
from streamgauge.metrics.declarations import UNKNOWN, Metric, MetricSource, counter, histogram

_STREAM = MetricSource.STREAM

OUTCOMES: tuple[str, ...] = get_args(Outcome)
PHASES = ("before_stream", "in_stream", "transport")
# `error.code` of a record whose error is one of transport.
TRANSPORT_CAUSES = (*map(str, TransportFault), UNKNOWN)
# Sources of usage that a record has; `estimated` is reserved.
SOURCES = ("final", "partial", "absent")
UNREAD_KINDS = ("unparsed", "unterminated", "oversized")
ANOMALIES = ("bad_value", "identity", "part_above_whole", "parts_overlap")

# Upper bounds in seconds. First tokens take 50 ms (a local server) to five minutes (reasoning, or a queue); bounds are
# dense near the limits of alerts.
FIRST_TOKEN_BOUNDS_S = (
    0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0,
    60.0, 120.0, 300.0,
)  # fmt: skip
# The first token of one kind: some of the bounds above, since three metrics have them.
FIRST_OF_A_KIND_BOUNDS_S = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
# A response starts at once or after a queue; an error page within milliseconds.
FIRST_BYTE_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Time per output token: 1 ms (1,000 tokens/s, the fastest hardware) to 1 s.
TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
# The longest gap of a stream: usually some pace, in a bad stream a stall (5 s), at most the idle timeout (900 s).
LONGEST_GAP_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# 5 (a small machine) to 1,000 (the fastest hardware).
TOKENS_PER_SECOND_BOUNDS = (5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 500.0, 1000.0)
# A short answer takes a second, an agent's long one ten minutes; the upstream's idle timeout is 900 s.
DURATION_BOUNDS_S = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)


def _seconds(name: str, help: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    return histogram(_STREAM, f"{name}_seconds", help, "seconds", bounds, *labels)


_UNMEASURED = (
    "streams with an incomplete capture, requests that resume or poll a response, and those where this time is unknown."
)
_MEASURED = f"Excludes {_UNMEASURED}"
_SINCE_REQUEST = "Time from the first byte of the request to the first"

STREAMS = counter(
    _STREAM, "streams", "Finished streams.", "upstream", "dialect", "model", "outcome", starts={"outcome": OUTCOMES},
)  # fmt: skip
STREAM_OUTCOMES = counter(
    _STREAM, "stream_outcomes",
    "Finished streams by outcome, for alerts: all series of an upstream start at 0 before its first stream.",
    "upstream", "outcome", starts={"outcome": OUTCOMES},
)  # fmt: skip
FIRST_BYTE = _seconds(
    "time_to_first_byte", f"{_SINCE_REQUEST} byte of the response body. {_MEASURED}",
    FIRST_BYTE_BOUNDS_S, "upstream",
)  # fmt: skip
FIRST_TOKEN = _seconds(
    "time_to_first_token", f"{_SINCE_REQUEST} token event: generated output of any kind, reasoning included. {_MEASURED}",
    FIRST_TOKEN_BOUNDS_S, "upstream", "model",
)  # fmt: skip
FIRST_REASONING = _seconds(
    "time_to_first_reasoning", f"{_SINCE_REQUEST} token event with reasoning. {_MEASURED}",
    FIRST_OF_A_KIND_BOUNDS_S, "upstream", "model",
)  # fmt: skip
FIRST_CONTENT = _seconds(
    "time_to_first_content", f"{_SINCE_REQUEST} token event with text: not reasoning, not a tool call. {_MEASURED}",
    FIRST_OF_A_KIND_BOUNDS_S, "upstream", "model",
)  # fmt: skip
FIRST_TOOL = _seconds(
    "time_to_first_tool", f"{_SINCE_REQUEST} token event of a tool call. {_MEASURED}",
    FIRST_OF_A_KIND_BOUNDS_S, "upstream", "model",
)  # fmt: skip
INTER_CHUNK = _seconds(
    "inter_chunk_latency",
    f"Time between successive token events of a stream, one observation for each gap. Excludes bursts, {_UNMEASURED}",
    GAP_BOUNDS_S, "upstream", "model",
)  # fmt: skip
LONGEST_GAP = _seconds(
    "longest_gap",
    "The longest time between successive token events of a stream, one observation for each stream with a gap. "
    f"Excludes bursts, {_UNMEASURED}",
    LONGEST_GAP_BOUNDS_S, "upstream",
)  # fmt: skip
INTER_TOKEN = _seconds(
    "inter_token_latency",
    "Time per output token: (last token - first token) / (output tokens - 1), one observation for each stream with final "
    "usage. Reasoning that was hidden or summarised is left out: then time and tokens are those of the answer. "
    f"Excludes bursts, {_UNMEASURED}",
    TOKEN_BOUNDS_S, "upstream", "model",
)  # fmt: skip
TOKENS_PER_SECOND = histogram(
    _STREAM, "output_tokens_per_second",
    "Output tokens a second, once the first has come: 1 / time per output token, one observation for each stream with "
    "final usage. Tokens of hidden or summarised reasoning are left out. "
    f"Excludes bursts, {_UNMEASURED}",
    "tokens/s", TOKENS_PER_SECOND_BOUNDS, "upstream", "model",
)  # fmt: skip
DURATION = _seconds(
    "stream_duration", f"Time from the first byte of the request to the end of the stream. {_MEASURED}",
    DURATION_BOUNDS_S, "upstream", "outcome",
)  # fmt: skip
FINISH_REASONS = counter(
    _STREAM, "finish_reasons",
    "Streams that reported a finish reason, by normalised finish reason; unknown: the provider's own has no normal form.",
    "upstream", "model", "finish_reason",
)  # fmt: skip
ERRORS = counter(
    _STREAM, "stream_errors",
    "Errors that ended streams. Phase in_stream: an error event after the status 200.",
    "upstream", "phase", "error_type", starts={"phase": PHASES},
)  # fmt: skip
FAILED_STREAMS = counter(
    _STREAM, "failed_streams",
    "Streams that an error ended, by phase, for alerts: all series of an upstream start at 0 before its first stream.",
    "upstream", "phase", starts={"phase": PHASES},
)  # fmt: skip
TRANSPORT_ERRORS = counter(
    _STREAM, "transport_errors",
    "Connections to an upstream that failed, by cause: before the response or in the middle of it.",
    "upstream", "cause", starts={"cause": TRANSPORT_CAUSES},
)  # fmt: skip
RETRIED = counter(
    _STREAM, "retried_streams",
    "Requests that a client sent again after a failure, as its library reports it (x-stainless-retry-count).",
    "upstream", starts={},
)  # fmt: skip
USAGE_TOKENS = counter(
    _STREAM, "usage_tokens",
    "Tokens that providers reported, by kind. The kinds are disjoint: their sum is input + output. output_text is all "
    "output that is not reasoning or audio. Streams without usage add nothing, a kind that is not reported has no series. "
    "Requests that resume or poll one response count once in each process that observes any of them, and once in the ledger.",
    "upstream", "model", "kind",
)  # fmt: skip
USAGE_REPORTED = counter(
    _STREAM, "usage_reported_streams",
    "Streams whose usage reported this kind of token, 0 included. input_uncached and output_text: input and output at all.",
    "upstream", "model", "kind",
)  # fmt: skip
USAGE_SOURCES = counter(
    _STREAM, "usage_sources", "Streams by the source of their usage: final, partial, estimated or absent.",
    "upstream", "source", starts={"source": SOURCES},
)  # fmt: skip
USAGE_ANOMALIES = counter(
    _STREAM, "usage_anomalies",
    "Invalid usage numbers: bad values, totals that do not match, a part above its whole (more cached tokens than input); "
    "and parts that overlap (cached audio). Parts then count up to their whole, cache before audio.",
    "upstream", "kind", starts={"kind": ANOMALIES},
)  # fmt: skip
WITHOUT_TOKEN = counter(
    _STREAM, "streams_without_token",
    "Finished streams without a token event. No histogram of token latency includes them.",
    "upstream", "outcome", "streaming",
)  # fmt: skip
BURSTS = counter(
    _STREAM, "bursts",
    "Streams whose token events came in one or two arrivals (reads less than 5 ms apart), because something buffered the "
    "response.",
    "upstream", starts={},
)  # fmt: skip
STALLS = counter(
    _STREAM, "stalls", "Gaps between token events longer than --stall-seconds.", "upstream", starts={},
)  # fmt: skip
RESUMED = counter(
    _STREAM, "resumed_streams", "Requests that resume an earlier stream, including rejected ones.",
    "upstream", starts={},
)  # fmt: skip
TOKEN_EVENTS = counter(
    _STREAM, "token_events", "Events with generated output.", "upstream", starts={},
)  # fmt: skip
UNREAD_EVENTS = counter(
    _STREAM, "unread_events", "Events that could not be parsed: unparsed, unterminated or oversized.",
    "upstream", "kind", starts={"kind": UNREAD_KINDS},
)  # fmt: skip
BODY_BYTES = counter(
    _STREAM, "body_bytes", "Bytes of response bodies, before content decoding.", "upstream", starts={},
)  # fmt: skip
INCOMPLETE = counter(
    _STREAM, "incomplete_records", "Records of streams with an incomplete capture.",
    "upstream", starts={},
)  # fmt: skip
INCOMPLETE_REASONS = counter(
    _STREAM, "incomplete_reasons", "Reasons for incomplete captures. A record may have several.", "reason"
)

STREAM_METRICS: tuple[Metric, ...] = (
    STREAMS, STREAM_OUTCOMES, FIRST_BYTE, FIRST_TOKEN, FIRST_REASONING, FIRST_CONTENT, FIRST_TOOL, INTER_CHUNK,
    LONGEST_GAP, INTER_TOKEN, TOKENS_PER_SECOND, DURATION, FINISH_REASONS, ERRORS, FAILED_STREAMS, TRANSPORT_ERRORS,
    RETRIED, USAGE_TOKENS, USAGE_REPORTED, USAGE_SOURCES, USAGE_ANOMALIES, WITHOUT_TOKEN, BURSTS, STALLS, RESUMED,
    TOKEN_EVENTS, UNREAD_EVENTS, BODY_BYTES, INCOMPLETE, INCOMPLETE_REASONS,
)  # fmt: skip
