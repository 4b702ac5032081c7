"""The answers to the page's requests, as JSON. docs/reference/streams.md describes each member.

Times are seconds; null means unknown, as in the record. No member holds a prompt, generated text, or a credential.
"""

import msgspec

from streamgauge.core.record import Error, RateLimit, Record


class Row(msgspec.Struct, kw_only=True):
    """One stream in a list: an open one (`outcome` is None) or a finished one."""

    id: str
    upstream: str | None
    dialect: str | None
    endpoint: str | None
    model: str | None
    tenant: str | None
    started_at: str | None
    status_code: int | None
    outcome: str | None
    error: Error | None
    finish_reason: str | None
    first_token_s: float | None
    longest_gap_s: float | None
    stalls: int | None
    token_events: int
    output_tokens: int | None
    end_s: float | None
    # Of open streams alone.
    open_s: float | None = None
    silent_s: float | None = None
    is_silent: bool | None = None
    tap_heard_s: float | None = None
    ticks: list[int] | None = None
    # Of finished streams alone.
    ended_s_ago: float | None = None
    # Of streams from a ledger alone.
    cost_usd: str | None = None


class OpenStreams(msgspec.Struct):
    """The open streams: their numbers, and the shown streams."""

    total: int
    not_shown: int
    silent: int
    streams: list[Row]


class Heatmap(msgspec.Struct):
    """Counts by minute and bucket. `bounds_s`: upper bounds; the last bucket has none. Not cumulative."""

    bounds_s: list[float]
    counts: list[list[int]]


class UpstreamOutcomes(msgspec.Struct):
    """Streams of one upstream by outcome."""

    upstream: str | None
    outcomes: dict[str, int]


class Hour(msgspec.Struct):
    """The finished streams of the last hour, or from `since` (RFC 3339) on, if that is later.

    Lists by minute are as long as `minutes`: the beginning of each, in seconds since 1970; minutes without a stream are left
    out. `cost_usd`: by upstream, of the `priced` streams whose cost is known; `unpriced`: how many have usage and no known
    cost. These are None if the process knows no prices.
    """

    since: str
    minutes: list[int]
    streams: int
    with_usage: int
    first_token: Heatmap
    gaps: Heatmap
    outcomes: list[dict[str, int]]
    upstreams: list[UpstreamOutcomes]
    tokens: list[dict[str, int]]
    cost_usd: list[dict[str, float]] | None
    unpriced: int | None
    priced: int | None


class Limited(msgspec.Struct):
    """The newest rate limits of one upstream and API key."""

    upstream: str | None
    credential_id: str | None
    rate_limit: RateLimit


class Worst(msgspec.Struct):
    """The worst streams of the last hour, the worst first, and the streams that ended last."""

    first_token: list[Row]
    gap: list[Row]
    broken: list[Row]
    recent: list[Row]


class Uncaptured(msgspec.Struct):
    """Responses of one upstream that have no record, for one reason (`spool.response_counters.NotCaptured`)."""

    upstream: str
    reason: str
    responses: int


class Responses(msgspec.Struct):
    """All responses that the tap has counted in its data directory, and those that have a record, or will have one."""

    seen: int
    captured: int
    not_captured: list[Uncaptured]


class BudgetRow(msgspec.Struct):
    """A budget of this month."""

    key: str
    value: str
    limit_usd: float
    spent_usd: float
    forecast_usd: float | None
    unknown_streams: int


class LastAudit(msgspec.Struct):
    """The audit that was kept last in the ledger."""

    saved_at: str
    first: str
    end: str
    agrees: bool
    preliminary: bool
    unexplained_tokens: int | None
    unexplained_usd: str | None
    coverage: dict[str, str | None]


class Money(msgspec.Struct):
    """Budgets and the last audit, as the process read them from its ledger."""

    budgets: list[BudgetRow]
    audit: LastAudit | None


class Overview(msgspec.Struct, kw_only=True):
    """The answer of /streams. `partitions`: of a worker; None for others. `unready`: why it has none, or nothing to
    show. `since`: since when this process counts (RFC 3339). `responses`: None for a worker, which sees no responses.
    """

    process: str
    version: str
    now: str
    since: str
    partitions: list[int] | None
    unready: str | None
    missed_bundles: int
    stall_seconds: float
    silent_seconds: float
    open: OpenStreams
    hour: Hour
    responses: Responses | None
    rate_limits: list[Limited]
    budgets: list[BudgetRow]
    audit: LastAudit | None
    worst: Worst


class Latency(msgspec.Struct):
    """Percentiles (seconds) of a time over `streams` streams that have it."""

    p50_s: float
    p95_s: float
    streams: int


class Numbers(msgspec.Struct, kw_only=True):
    """The sums of finished streams. None: not known.

    first_token: of any kind; first_text: of text; per_token: the time per output token. `cost_usd`: of the `priced` streams;
    `unpriced`: streams with usage whose cost is not known. `times_since`: the start (RFC 3339) of the oldest stream whose
    times are read, if only the newest are; None: the times are of all streams.
    """

    streams: int
    outcomes: dict[str, int]
    first_token: Latency | None
    first_text: Latency | None
    per_token: Latency | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    priced: int | None
    unpriced: int | None
    times_since: str | None = None


class Group(msgspec.Struct):
    """The numbers of an upstream, a model or a tenant; `name` None: of the streams without one."""

    name: str | None
    numbers: Numbers


class Summary(msgspec.Struct, kw_only=True):
    """The answer of /summary: the streams that began in the last hour and have ended.

    `source`: `ledger`, or `process` if there is none: then the streams that ended in the last hour. `ledger`: its URL without
    a password. `since`: RFC 3339, later than an hour ago if no earlier streams are known. `yesterday`: the same hour, 24
    hours before; None if it is not known. `streams` and `broken`: by minute, of which `minutes` has the beginnings (seconds
    since 1970), without the minutes that have no stream. Groups are None if they are not known, those with most streams
    first; `not_shown` has the numbers of further groups.
    """

    source: str
    ledger: str | None
    now: str
    since: str
    hour: Numbers
    yesterday: Numbers | None
    minutes: list[int]
    streams: list[int]
    broken: list[int]
    upstreams: list[Group] | None
    models: list[Group] | None
    tenants: list[Group] | None
    not_shown: dict[str, int]


class Finished(msgspec.Struct):
    """The answer of /finished: rows in the requested order. `more`: whether further streams match."""

    source: str
    streams: list[Row]
    more: bool


class FirstAnswers(msgspec.Struct):
    """What the page carries, so that it shows numbers before it asks: the answers of /streams, /summary and /finished.

    `reading`: the process has a ledger, and these are its own numbers, since the ledger was not read of late.
    """

    live: Overview
    summary: Summary
    finished: Finished
    reading: bool = False


class Client(msgspec.Struct):
    """What a client of an upstream needs: its base URL, and a command for a shell that asks for a stream."""

    upstream: str
    base_url: str
    curl: str


class Step(msgspec.Struct):
    """One read of a stream: its time, the time since the read before it, and its content."""

    at_s: float | None
    gap_s: float | None
    stall: bool
    skipped_before: int
    bytes: int
    events: int
    tokens: int
    kinds: tuple[str, ...]


class KnownCost(msgspec.Struct):
    """A cost in USD, and the price that it is computed with: its source, and its first day (YYYY-MM-DD)."""

    usd: str
    price_source: str
    price_date: str | None = None


class Timeline(msgspec.Struct, kw_only=True):
    """The answer of /streams/ID. `record`: of an open stream the record that it would have if it were closed now.

    `error_at_s`: the time of the error in the stream, if it had one. `cost`: as its ledger has it; `cost_unknown`: why there
    is none, a value of `Unpriced`. Both are None without a ledger. `source`: `process`, or `ledger`: then reads are not kept.
    """

    stream: Row
    reads: int
    skipped_reads: int
    error_at_s: float | None
    steps: list[Step]
    record: Record
    source: str = "process"
    cost: KnownCost | None = None
    cost_unknown: str | None = None
