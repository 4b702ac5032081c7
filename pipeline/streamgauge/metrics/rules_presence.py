"""Alerts on what is not there: processes that are not scraped, and metrics that are not exported.

An instance that exports the limit of its spool is a tap; one that exports its connection to the broker is a worker. So these
rules depend on no name of a job, and hold for `up`, which has no worker.
"""

from collections.abc import Mapping

from streamgauge.metrics import table
from streamgauge.metrics.declarations import Metric
from streamgauge.metrics.rules import Alert, Durations, RuleGroup

# Metrics that every tap or worker exports from its start on; by the anchor, a selector of the instances that have them.
OF_TAPS: Mapping[str, tuple[Metric, ...]] = {
    table.READS_SEEN.name: (
        table.READS_DELIVERED,
        table.READS_DROPPED,
        table.READS_WAITING,
        table.SPOOL_BYTES,
        table.SPOOL_LIMIT,
        table.SPOOL_WRITES_REFUSED,
        table.CLIENT_CONNECTIONS,
        table.CLIENT_CONNECTIONS_LIMIT,
        table.DATA_FREE,
        table.DATA_DISK,
    ),
    table.BROKER_CONNECTED.name: (table.BROKER_PROBLEM,),
}
OF_WORKERS: Mapping[str, tuple[Metric, ...]] = {
    f"{table.WORKER_BROKER.name} == 1": (
        table.WORKER_PARTITIONS,
        table.EXPECTED_PARTITIONS,
        table.COMMITS,
        table.OPEN_STREAMS,
        table.DEAD_LETTERS_WAITING,
        table.LOG_GAPS,
        table.LOG_GAP_MESSAGES,
    )
}
# Metrics of finished streams, by what shows that there have been such streams.
OF_STREAMS: Mapping[str, tuple[str, ...]] = {
    "sum(streamgauge_bundles_total) > 1000": (table.STREAM_OUTCOMES.name,),
    "sum(streamgauge_stream_outcomes_total) > 0": (
        table.USAGE_SOURCES.name,
        table.TRANSPORT_ERRORS.name,
        table.STALLS.name,
    ),
    "sum(streamgauge_token_events_total) > 100": (f"{table.FIRST_TOKEN.name}_count",),
}


def group(durations: Durations) -> RuleGroup:
    """The alerts on processes and metrics that are missing."""
    return RuleGroup("streamgauge-presence", (*_processes(durations), *_metrics(durations)), "pipeline")


def _processes(durations: Durations) -> list[Alert]:
    # As long as it may be down until its alert ends: Prometheus has forgotten by then what it was.
    day = durations(24 * 60)
    return [
        Alert(
            "TapDown",
            f"up == 0\nand on (job, instance)\nmax_over_time(streamgauge_spool_limit_bytes[{day}])",
            2,
            "page",
            "The tap {{ $labels.instance }} cannot be scraped",
            "If the process is down, clients that use it get no connection. If only its admin port cannot be reached, "
            "traffic goes on.",
        ),
        Alert(
            "WorkerDown",
            f"up == 0\nand on (job, instance)\nmax_over_time(streamgauge_worker_broker_connected[{day}])",
            2,
            "ticket",
            "The worker {{ $labels.instance }} cannot be scraped",
            "Other workers take over its partitions within seconds. Nothing is lost.",
        ),
        Alert(
            "NoWorker",
            "count(streamgauge_broker_connected) > 0\nunless on ()\ncount(streamgauge_worker_broker_connected)",
            2,
            "page",
            "{{ $value }} taps send data, but no worker can be scraped",
            "No records are made, and metrics of streams stand still: latency, errors and usage on dashboards are of the "
            "past. Nothing is lost as long as the segments topic keeps its messages (3 days by default).",
        ),
        Alert(
            "NoTap",
            "count(streamgauge_worker_broker_connected) > 0\nunless on ()\ncount(streamgauge_tap_reads_seen_total)",
            2,
            "page",
            "{{ $value }} workers run, but no tap can be scraped",
            "If taps are down, clients get no connection.",
        ),
        Alert(
            "StreamgaugeAbsent",
            "absent(streamgauge_build_info)",
            5,
            "page",
            "Prometheus scrapes no part of Streamgauge",
            "No other alert of Streamgauge can fire. Check the scrape configuration (each instance may answer 403: see "
            "--admin-host), and then taps and workers.",
        ),
    ]


def _metrics(durations: Durations) -> list[Alert]:
    consequence = (
        "Alerts that need it cannot fire. Compare the versions of this instance and of the rules, and see its log."
    )
    of_instances = "{{ $labels.instance }} does not export {{ $labels.metric }}"
    of_streams = [
        f"label_replace({shown} unless on () count({name}), {_label(name)})"
        for shown, names in OF_STREAMS.items()
        for name in names
    ]
    return [
        Alert("TapMetricMissing", _missing(OF_TAPS), 5, "ticket", of_instances, consequence),
        Alert("WorkerMetricMissing", _missing(OF_WORKERS), 5, "ticket", of_instances, consequence),
        Alert(
            "StreamMetricMissing",
            "\nor\n".join(of_streams),
            30,
            "ticket",
            "No process exports {{ $labels.metric }}, although data is processed",
            "Alerts that need it cannot fire. If no stream of an LLM has finished yet, nothing is wrong.",
        ),
        Alert(
            "MetricSourceFails",
            f"sum by (instance) (increase(streamgauge_metric_source_failures_total[{durations(15)}])) > 0",
            1,
            "ticket",
            "A part of the metrics of {{ $labels.instance }} is missing",
            "A source of metrics failed during a scrape. The log of the process has the error.",
        ),
        Alert(
            "MetricLabelsCut",
            f"sum by (instance, label) (increase(streamgauge_metric_labels_cut_total[{durations(15)}])) > 0",
            15,
            "ticket",
            "Metrics of {{ $labels.instance }} count values of the label {{ $labels.label }} as other",
            "A limit of the page is reached: streams with further values are counted under other, so panels and alerts by "
            "this label do not show them. The ledger has all of them.",
        ),
        # A scraper with an old token asks every 5 s at most: 120 times in these ten minutes.
        Alert(
            "AdminTokenGuessed",
            'sum by (instance) (increase(streamgauge_admin_refused_total{reason=~"token|limited"}'
            f"[{durations(10)}])) > 200",
            0,
            "ticket",
            "The admin port of {{ $labels.instance }} gets many requests without its token",
            "A client guesses the token, or scrapers have none or an old one. The process's log names an address; the admin "
            "log (--admin-log) has all of them.",
        ),
    ]


def _missing(metrics: Mapping[str, tuple[Metric, ...]]) -> str:
    """The instances of each anchor that lack one of its metrics, with the metric's name as a label."""
    return "\nor\n".join(
        f"label_replace(group by (job, instance) ({anchor}) unless on (job, instance) {metric.name}, {_label(metric.name)})"
        for anchor, exported in metrics.items()
        for metric in exported
    )


def _label(name: str) -> str:
    return f'"metric", "{name}", "", ""'
