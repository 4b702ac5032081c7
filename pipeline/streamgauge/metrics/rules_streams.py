"""Alerts on the streams of an upstream, besides its objectives (`rules_slo.py`)."""

from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.rules import QUERY, Alert, Durations, RuleGroup, share_of
from streamgauge.metrics.rules_slo import UNREACHABLE

# Alerts use counters whose series begin at 0 with their upstream (`table.py`), so that the first burst counts.
_OUTCOMES = "streamgauge_stream_outcomes_total"
_UNREACHABLE = f'streamgauge_transport_errors_total{{cause=~"{UNREACHABLE}"}}'


def _of(selector: str, window: str, by: str = "upstream", before: str = "") -> str:
    """The increase of a counter in a window, by labels; `before`: the window ends so long ago."""
    offset = f" offset {before}" if before else ""
    return f"sum by ({by}) (increase({selector}[{window}]{offset}))"


def groups(objectives: Objectives, durations: Durations) -> tuple[RuleGroup, RuleGroup]:
    """The alerts by upstream: on its streams, and on what it reports. Each needs a least number of streams, so that one bad
    one of two at night does not page.
    """
    reported = [_cache_share(durations), _headroom()]
    if objectives.usage:
        reported.append(_usage(objectives.usage, durations))
    return (
        RuleGroup("streamgauge-streams", (*_outages(durations), *_quality(durations)), "upstream"),
        RuleGroup("streamgauge-reports", tuple(reported), "usage"),
    )


def _outages(durations: Durations) -> list[Alert]:
    five = durations(5)
    every, unreachable = _of(_OUTCOMES, five), _of(_UNREACHABLE, five)
    refused = _of(f'{_OUTCOMES}{{outcome="http_error"}}', five)
    connected = f"({every} - ({unreachable} or 0 * {every}))"
    return [
        Alert(
            "UpstreamUnreachable",
            f"{share_of(unreachable, every)} > 0.5\nand\n{unreachable} >= 3",
            1,
            "page",
            "{{ $value | humanizePercentage }} of the requests to {{ $labels.upstream }} get no connection",
            "The upstream refuses connections, its name is unknown, or TLS fails. streamgauge_transport_errors_total has the "
            "cause.",
        ),
        Alert(
            "ProviderAnswersErrors",
            f"{share_of(refused, f'({connected} > 0)')} > 0.9\nand\n{refused} >= 5",
            2,
            "page",
            "{{ $labels.upstream }} answers {{ $value | humanizePercentage }} of all requests with an error",
            "An error status, such as 429 or 503, before any stream began. streamgauge_stream_errors_total with the phase "
            "before_stream has the provider's error type.",
            f"{QUERY} --newest --limit 20 --where outcome=http_error",
        ),
        Alert(
            "StreamsSilent",
            "sum by (upstream) (streamgauge_silent_streams) > 5\n"
            "and\n"
            "sum by (upstream) (streamgauge_silent_streams)\n"
            "  > on () group_left () 0.1 * sum(streamgauge_open_streams)",
            2,
            "page",
            "{{ $value }} open streams of {{ $labels.upstream }} send nothing",
            "They are more than a tenth of all open streams, and have been without output for more than --silent-seconds. "
            "Nothing has ended them yet, so no rate of errors shows them.",
        ),
    ]


def _quality(durations: Durations) -> list[Alert]:
    quarter, half = durations(15), durations(30)
    stalls, truncated = (
        _of("streamgauge_stalls_total", quarter),
        _of(f'{_OUTCOMES}{{outcome="truncated"}}', half),
    )
    return [
        Alert(
            "StreamsStall",
            f"{stalls} / {_of(_OUTCOMES, quarter)} > 0.2\nand\n{stalls} >= 10",
            5,
            "ticket",
            'Streams of {{ $labels.upstream }} pause: {{ $value | printf "%.2f" }} stalls for each stream',
            "A stall is a gap in the output that is longer than --stall-seconds. Compare the gaps between chunks of other "
            "upstreams and models (streamgauge_inter_chunk_latency_seconds).",
        ),
        Alert(
            "StreamsTruncated",
            f"{truncated} / {_of(_OUTCOMES, half)} > 0.01\nand\n{truncated} >= 5",
            5,
            "ticket",
            "{{ $value | humanizePercentage }} of the streams of {{ $labels.upstream }} end without their end marker",
            "The connection ended properly, but the answer is not whole, and clients may not notice. A proxy or a load "
            "balancer in between often cuts streams at a fixed time: look at streamgauge_stream_duration_seconds.",
            f"{QUERY} --newest --limit 20 --where outcome=truncated",
        ),
    ]


def without_usage(absent: str, every: str, completed: str) -> str:
    """The number of completed streams without usage, from the sums of streams without usage, of all, and of completed ones.

    Streams that did not complete seldom have usage, and have alerts of their own: as many without usage do not count.
    """
    return f"clamp_min({absent} - ({every} - {completed}), 0)"


def _usage(share: float, durations: Durations) -> Alert:
    half = durations(30)
    completed = _of(f'{_OUTCOMES}{{outcome="completed"}}', half)
    absent = _of('streamgauge_usage_sources_total{source="absent"}', half)
    missing = without_usage(absent, _of(_OUTCOMES, half), completed)
    return Alert(
        "UsageMissing",
        f"{share_of(missing, completed)} > {1 - share:.5g}\nand\n{completed} >= 20",
        5,
        "ticket",
        "{{ $value | humanizePercentage }} of the completed streams of {{ $labels.upstream }} report no token usage",
        "Token counts and costs are too low by these streams. OpenAI and many compatible servers report usage only if the "
        'request has "stream_options": {"include_usage": true}.',
        f"{QUERY} --newest --limit 20 --where usage_source=absent",
    )


def _headroom() -> Alert:
    by = "upstream, credential_id, kind"
    return Alert(
        "RateLimitHeadroomLow",
        f"min by ({by}) (streamgauge_rate_limit_remaining)\n"
        f"  / (max by ({by}) (streamgauge_rate_limit_limit) > 0) < 0.1",
        5,
        "ticket",
        "{{ $labels.upstream }} has {{ $value | humanizePercentage }} left of the limit of {{ $labels.kind }} for a key",
        "The key is {{ $labels.credential_id }}. When nothing is left, the provider answers 429. "
        "streamgauge_rate_limit_reset_seconds says when the limit is full again.",
    )


def _cache_share(durations: Durations) -> Alert:
    hour, day = durations(60), durations(24 * 60)
    by = "upstream, model"
    # The kinds are disjoint: the kinds of input add up to all input tokens.
    cached, tokens = (f"streamgauge_usage_tokens_total{{kind{kind}}}" for kind in ('="input_cached"', '=~"input_.*"'))
    enough = _of(tokens, hour, by)
    # After a restart of all workers there is no series of cached tokens until a stream reports some.
    now = f"({_of(cached, hour, by)}\n  or 0 * {enough})\n  / {enough}"
    before = f"{_of(cached, day, by, hour)} / {_of(tokens, day, by, hour)}"
    return Alert(
        "CacheShareFallen",
        f"{now}\n  < 0.5 * ({before} > 0.1)\nand\n{enough} >= 10000",
        15,
        "ticket",
        "{{ $labels.model }} at {{ $labels.upstream }} reads only {{ $value | humanizePercentage }} of its input from the "
        "prompt cache",
        "That is less than half of the share of the day before. Input that is not cached costs more and takes longer to the "
        "first token.",
    )
