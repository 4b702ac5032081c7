"""The panels of the on-call dashboard, as data: the queries to Prometheus, and how results are shown.

In order from the top: outcomes of streams, latency, usage, completeness of the capture, progress of the workers. Every
metric of the table has a panel. `$upstream` and `$model` are variables of the dashboard.
"""

from streamgauge.metrics.panel import Panel, Row
from streamgauge.metrics.panel_queries import UP, rate, seldom
from streamgauge.metrics.panels_streams import SLOW, USAGE, WELL
from streamgauge.metrics.panels_workers import WORKERS

_CAPTURE = Row(
    "Capture",
    (
        Panel(
            "Reads",
            "Reads per second. Always: seen = delivered + waiting + dropped.",
            "short",
            (
                (rate("tap_reads_seen_total", "instance"), "seen {{instance}}"),
                (rate("tap_reads_delivered_total", "instance"), "delivered {{instance}}"),
            ),
        ),
        Panel(
            "Discarded reads, by reason",
            "Reads that were seen and are missing in their records.",
            "short",
            ((seldom(rate("tap_reads_dropped_total", "instance, reason")), "{{instance}} {{reason}}"),),
        ),
        Panel(
            "Waiting reads and bundles",
            "Reads that are not delivered yet, and bundles in the spool.",
            "short",
            (
                ("sum by (instance) (streamgauge_tap_reads_waiting)", "reads {{instance}}"),
                ("sum by (instance) (streamgauge_spool_rows)", "bundles {{instance}}"),
            ),
        ),
        Panel(
            "Spool",
            "Used share of the size limit; 100 % while writes to the spool fail.",
            "percentunit",
            (
                (
                    "sum by (instance) (streamgauge_spool_bytes) / sum by (instance) (streamgauge_spool_limit_bytes)",
                    "{{instance}}",
                ),
                ("max by (instance) (streamgauge_spool_writes_refused)", "{{instance}}, writes refused"),
            ),
        ),
        Panel(
            "Free disk space",
            "Free space on the disk of each data directory, which the spool shares.",
            "bytes",
            (("min by (instance) (streamgauge_data_free_bytes)", "{{instance}}"),),
        ),
        Panel(
            "Clock skew",
            "Difference between the clocks of each tap and of the broker. `started_at` of records has this error.",
            "s",
            (("max by (instance) (abs(streamgauge_clock_skew_seconds))", "{{instance}}"),),
        ),
        Panel(
            "Broker connected",
            "1 if the broker is reachable. Problem: 1 while an operator must fix the connection, see the tap's log.",
            "short",
            (
                ("min by (instance) (streamgauge_broker_connected)", "{{instance}}"),
                ("max by (instance) (streamgauge_broker_problem)", "{{instance}} has a problem"),
                ("min by (instance) (streamgauge_worker_broker_connected)", "{{instance}}, a worker"),
            ),
        ),
        Panel(
            "Incomplete records",
            "Records of streams with an incomplete capture. Latency panels exclude them.",
            "reqps",
            (
                (seldom(rate("incomplete_records_total", "upstream", UP)), "{{upstream}}"),
                (seldom(rate("incomplete_reasons_total", "reason")), "because of {{reason}}"),
            ),
        ),
        Panel(
            "Events that could not be parsed",
            "Unparsed, unterminated or oversized events.",
            "short",
            ((seldom(rate("unread_events_total", "upstream, kind", UP)), "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Capture errors, ignored streams",
            "Errors that taps handled, and event streams that are not LLM responses.",
            "short",
            (
                (seldom(rate("tap_incidents_total", "instance, kind")), "{{instance}} {{kind}}"),
                (seldom(rate("ignored_streams_total", "instance")), "ignored {{instance}}"),
            ),
        ),
        Panel(
            "Time that the relay adds",
            "Mean time from reading the head of a response to having written it to the client.",
            "s",
            (
                (
                    f"{rate('tap_response_heads_seconds_total', 'instance')}"
                    f" / {rate('tap_response_heads_total', 'instance')}",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Error responses of the relay",
            "Requests that the relay rejected, and requests to an upstream that failed before it responded.",
            "short",
            ((seldom(rate("tap_refused_total", "instance, reason")), "{{instance}} {{reason}}"),),
        ),
    ),
)

ROWS: tuple[Row, ...] = (WELL, SLOW, USAGE, _CAPTURE, WORKERS)
