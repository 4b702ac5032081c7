"""Usage and cost: tokens by kind, money, the prompt cache, and what is left of rate limits."""

from dashboards.source.money import BILL, COST
from dashboards.source.panel import (
    GREEN,
    RED,
    YELLOW,
    Column,
    Dashboard,
    Query,
    Row,
    Table,
    Threshold,
    Tile,
    TimeSeries,
)
from dashboards.source.queries import INPUT, OUTPUT, gauge, increase, rate, ratio, share

_NONE = "no usage reported"
_INPUTS, _OUTPUTS = f'kind=~"{INPUT}"', f'kind=~"{OUTPUT}"'
_CACHED = 'kind="input_cached"'


def _cache_share() -> str:
    """By upstream and model. A model that reports no cached tokens has no series: that is not 0."""
    by = "upstream, model"
    return ratio(rate("usage_tokens_total", _CACHED, by=by), rate("usage_tokens_total", _INPUTS, by=by))


def _whole_cache_share() -> str:
    """A ratio of sums, so that long prompts weigh more. Of models that report no cached tokens no input counts."""
    by = "upstream, model"
    cached, inputs = (increase("usage_tokens_total", kinds, by=by) for kinds in (_CACHED, _INPUTS))
    return ratio(f"sum({cached})", f"sum({inputs} and {cached})")


def _headroom(by: str) -> str:
    return f"{gauge('rate_limit_remaining', by=by, of='min')} / ({gauge('rate_limit_limit', by=by, of='max')} > 0)"


_TOTALS = Row(
    "Tokens",
    (
        Tile(
            title="Tokens in the time range",
            help="Input and output tokens that providers reported.",
            unit="short",
            height=8,
            no_value=_NONE,
            thresholds=(Threshold(None, "blue"),),
            queries=(
                Query(increase("usage_tokens_total", _INPUTS), "input"),
                Query(increase("usage_tokens_total", _OUTPUTS), "output"),
            ),
        ),
        TimeSeries(
            title="Tokens by kind",
            help="Tokens per second that providers reported. The kinds are disjoint: their sum is input and output.",
            unit="short",
            width=10,
            stacked=True,
            no_value=_NONE,
            queries=(Query(rate("usage_tokens_total", by="kind"), "{{kind}}"),),
        ),
        TimeSeries(
            title="Tokens by tenant",
            help="Tokens per second that providers reported, of all kinds. Without --metric-attribute tenant all streams are "
            "one tenant without a name.",
            unit="short",
            stacked=True,
            no_value=_NONE,
            queries=(Query(rate("usage_tokens_total", by="tenant"), "tenant {{tenant}}"),),
        ),
        Table(
            title="Tokens by model",
            help="Tokens in the time range that providers reported, by disjoint kinds. A kind that was reported as 0 is 0.",
            unit="short",
            no_value="not reported",
            queries=(
                Query(increase("usage_tokens_total", by="upstream, model"), "{{model}} all"),
                *(
                    Query(
                        increase("usage_tokens_total", f'kind="{kind}"', by="upstream, model"), f"{{{{model}}}} {kind}"
                    )
                    for kind in (*INPUT.split("|"), *OUTPUT.split("|"))
                ),
            ),
            labels={"upstream": Column("upstream"), "model": Column("model")},
            values=(
                Column("all", "short", decimals=1),
                *(
                    Column(kind.replace("_", " "), "short", decimals=1)
                    for kind in (*INPUT.split("|"), *OUTPUT.split("|"))
                ),
            ),
        ),
    ),
)

_CACHE = Row(
    "Prompt cache",
    (
        Tile(
            title="Cache share in the time range",
            help="Share of the input tokens that providers read from their prompt caches, of the models that report it.",
            unit="percentunit",
            height=8,
            no_value=_NONE,
            decimals=1,
            thresholds=(Threshold(None, "blue"),),
            alerts=("CacheShareFallen",),
            queries=(Query(_whole_cache_share(), "read from the cache"),),
        ),
        TimeSeries(
            title="Cache share by upstream and model",
            help="Share of the input tokens that providers read from their prompt caches. A model without a line reports no "
            "number of cached tokens.",
            unit="percentunit",
            width=10,
            no_value=_NONE,
            alerts=("CacheShareFallen",),
            queries=(Query(_cache_share(), "{{upstream}} {{model}}"),),
        ),
        TimeSeries(
            title="Cache not reported",
            help="Share of the streams with usage that report no number of cached tokens.",
            unit="percentunit",
            no_value=_NONE,
            queries=(
                Query(
                    "1 - "
                    + share(
                        rate("usage_reported_streams_total", _CACHED, by="upstream"),
                        rate("usage_reported_streams_total", 'kind="input_uncached"', by="upstream"),
                    ),
                    "{{upstream}}",
                ),
            ),
        ),
    ),
)

_REPORTS = Row(
    "What providers report",
    (
        TimeSeries(
            title="Source of usage",
            help="Streams per second: final, partial, estimated or absent. Token counts lack the streams without usage.",
            unit="reqps",
            stacked=True,
            alerts=("UsageMissing",),
            queries=(Query(rate("usage_sources_total", by="source"), "{{source}}"),),
        ),
        TimeSeries(
            title="Reported kinds of tokens",
            help="Streams per second whose usage reports a kind of token, 0 included.",
            unit="reqps",
            no_value=_NONE,
            queries=(Query(rate("usage_reported_streams_total", by="kind"), "{{kind}}"),),
        ),
        TimeSeries(
            title="Invalid usage",
            help="Bad values, totals that do not match, parts above their whole, and parts that overlap, per second.",
            unit="reqps",
            queries=(Query(rate("usage_anomalies_total", by="upstream, kind"), "{{upstream}} {{kind}}"),),
        ),
    ),
)

_HEADROOM = Row(
    "Rate limits",
    (
        TimeSeries(
            title="Headroom",
            help="Share of the provider's rate limit that is left, of the API key with the least.",
            unit="percentunit",
            maximum=1,
            no_value="no provider reports its limits",
            alerts=("RateLimitHeadroomLow",),
            queries=(Query(_headroom("upstream, kind"), "{{upstream}} {{kind}}"),),
        ),
        Table(
            title="Rate limits by API key",
            help="The newest limits that providers reported for each API key. credential_id is the key's keyed hash, as in "
            "the records.",
            unit="short",
            width=16,
            no_value="no provider reports its limits",
            queries=(
                Query(_headroom("upstream, credential_id, kind"), "{{credential_id}} left"),
                Query(
                    gauge("rate_limit_remaining", by="upstream, credential_id, kind", of="min"),
                    "{{credential_id}} left",
                ),
                Query(
                    gauge("rate_limit_limit", by="upstream, credential_id, kind", of="max"), "{{credential_id}} limit"
                ),
                Query(
                    gauge("rate_limit_reset_seconds", by="upstream, credential_id, kind", of="max"),
                    "{{credential_id}} reset",
                ),
            ),
            labels={name: Column(name) for name in ("upstream", "credential_id", "kind")},
            values=(
                Column(
                    "share left", "percentunit", (Threshold(None, RED), Threshold(0.1, YELLOW), Threshold(0.25, GREEN))
                ),
                Column("left", "short"),
                Column("limit", "short"),
                Column("whole again in", "s"),
            ),
            ascending=True,
        ),
    ),
)

USAGE = Dashboard(
    name="usage",
    title="Usage and cost",
    help="Tokens by disjoint kinds, what they cost, budgets, the audit of the bill, the prompt cache, and what is left of "
    "the providers' rate limits.",
    rows=(_TOTALS, COST, BILL, _CACHE, _REPORTS, _HEADROOM),
)
