"""The pipeline: whether every captured read arrives, and whether workers keep up."""

from grafana_foundation_sdk.models.dashboard import Threshold

from dashboards.source.dashboard import Dashboard, Row
from dashboards.source.panel import GREEN, NONE_AT_ALL, RED, UNJUDGED, Query, Tile, TimeSeries
from dashboards.source.queries import gauge, increase, rate, ratio, seldom, series, share

_NO_TAP, _NO_WORKER, _NO_BROKER, _NOT_LINUX = "no tap", "no worker", "no Kafka here", "not on Linux"

# seen = delivered + waiting + dropped, at every scrape: so totals are compared, not rates.
_BALANCE = (
    f"sum by (instance) ({series('tap_reads_seen_total')}) - sum by (instance) ({series('tap_reads_delivered_total')})"
    f" - {gauge('tap_reads_waiting', by='instance')}"
    f" - (sum by (instance) ({series('tap_reads_dropped_total')}) or 0 * {gauge('tap_reads_waiting', by='instance')})"
)

_NUMBERS = Row(
    "",
    (
        Tile(
            title="Captured data unaccounted for",
            help="Reads (pieces of captured responses) that are neither delivered, waiting nor dropped. Always 0.",
            unit="short",
            no_value=_NO_TAP,
            alerts=("TapReadsOutOfBalance",),
            thresholds=(Threshold(None, RED), Threshold(-0.5, GREEN), Threshold(0.5, RED)),
            queries=(Query(f"sum({_BALANCE})", "pieces"),),
        ),
        Tile(
            title="Captured data lost",
            help="Reads (pieces of captured responses) that were discarded in the time range.",
            unit="short",
            no_value=_NO_TAP,
            alerts=("TapDropsReads",),
            thresholds=NONE_AT_ALL,
            queries=(Query(seldom(increase("tap_reads_dropped_total")), "pieces"),),
        ),
        Tile(
            title="Messages that no worker read",
            help="Messages in the time range that could not be read (dead letters), and that were deleted from Kafka before "
            "a worker read them.",
            unit="short",
            no_value=_NO_WORKER,
            alerts=("DeadLettersArrive", "LogLostMessages"),
            thresholds=NONE_AT_ALL,
            queries=(
                Query(seldom(increase("dead_letters_total")), "unreadable"),
                Query(seldom(increase("log_gap_messages_total")), "deleted"),
            ),
        ),
        Tile(
            title="Messages that wait for workers",
            help="Messages of taps that no worker has processed yet. Grows while workers are away or too slow.",
            unit="short",
            no_value=_NO_BROKER,
            alerts=("WorkersLagBehind",),
            thresholds=UNJUDGED,
            queries=(Query(gauge("worker_lag_messages"), "messages"),),
        ),
    ),
)

_CAPTURED = Row(
    "Captured data: is each piece delivered?",
    (
        TimeSeries(
            title="Captured and delivered data",
            help="Reads (pieces of captured responses) per second: seen by taps, and delivered.",
            unit="short",
            no_value=_NO_TAP,
            queries=(
                Query(rate("tap_reads_seen_total", by="instance"), "seen {{instance}}"),
                Query(rate("tap_reads_delivered_total", by="instance"), "delivered {{instance}}"),
            ),
        ),
        TimeSeries(
            title="Data that waits in the spool",
            help="Reads (pieces of captured responses) that are not delivered yet, and bundles of them in the spool.",
            unit="short",
            no_value=_NO_TAP,
            queries=(
                Query(gauge("tap_reads_waiting", by="instance"), "reads {{instance}}"),
                Query(gauge("spool_rows", by="instance"), "bundles {{instance}}"),
            ),
        ),
        TimeSeries(
            title="Lost data by reason",
            help="Reads per second that were seen and are missing in their records.",
            unit="short",
            alerts=("TapDropsReads",),
            queries=(
                Query(
                    seldom(rate("tap_reads_dropped_total", by="instance, reason")), "dropped {{instance}} {{reason}}"
                ),
            ),
        ),
    ),
    collapsed=True,
)

_TAPS = Row(
    "Taps: connections, spool, disk and broker",
    (
        TimeSeries(
            title="Connections of clients",
            help="Used share of the connections that a tap's clients may have (--max-connections).",
            unit="percentunit",
            maximum=1,
            no_value=_NO_TAP,
            alerts=("ClientConnectionsAlmostUsed",),
            queries=(
                Query(
                    ratio(
                        gauge("tap_client_connections", by="instance"),
                        gauge("tap_client_connections_limit", by="instance"),
                    ),
                    "{{instance}}",
                ),
            ),
        ),
        TimeSeries(
            title="Spool in use",
            help="Used share of the size limit. writes refused: 100 % while writes to the spool fail. file unusable: 100 % "
            "while a collector uses an earlier content of a file of its settings.",
            unit="percentunit",
            maximum=1,
            no_value=_NO_TAP,
            alerts=("SpoolFillsUp", "SpoolWritesRefused"),
            queries=(
                Query(
                    ratio(gauge("spool_bytes", by="instance"), gauge("spool_limit_bytes", by="instance")),
                    "{{instance}}",
                ),
                Query(gauge("spool_writes_refused", by="instance", of="max"), "writes refused {{instance}}"),
                Query(
                    gauge("settings_file_unusable", by="instance, setting", of="max"),
                    "file unusable {{instance}} {{setting}}",
                ),
            ),
        ),
        TimeSeries(
            title="Free disk space",
            help="Free space on the disk of each data directory, which the spool shares.",
            unit="bytes",
            no_value=_NO_TAP,
            alerts=("DiskAlmostFull",),
            queries=(
                Query(gauge("data_free_bytes", by="instance", of="min"), "{{instance}}"),
                Query(gauge("data_disk_bytes", by="instance", of="min"), "size {{instance}}"),
            ),
        ),
        TimeSeries(
            title="Connection to Kafka",
            help="1 if the broker is reachable. problem: 1 while an operator must act, see the tap's log.",
            unit="short",
            maximum=1,
            no_value=_NO_BROKER,
            alerts=("BrokerAway", "BrokerProblem"),
            queries=(
                Query(gauge("broker_connected", by="instance", of="min"), "tap {{instance}}"),
                Query(gauge("worker_broker_connected", by="instance", of="min"), "worker {{instance}}"),
                Query(gauge("broker_problem", by="instance", of="max"), "problem {{instance}}"),
            ),
        ),
        TimeSeries(
            title="Errors of the capture",
            help="Errors per second that taps handled, without harm to a response, and event streams of other programs.",
            unit="reqps",
            queries=(
                Query(seldom(rate("tap_incidents_total", by="instance, kind")), "errors {{instance}} {{kind}}"),
                Query(rate("ignored_streams_total", by="instance"), "ignored {{instance}}"),
            ),
        ),
        TimeSeries(
            title="Responses with a record",
            help="Share of the responses that passed taps. A bill may hold the others, too: see the reasons beside this.",
            unit="percentunit",
            maximum=1,
            no_value=_NO_TAP,
            queries=(
                Query(
                    "1 - "
                    + share(
                        rate("tap_responses_not_captured_total", by="upstream"),
                        rate("tap_responses_seen_total", by="upstream"),
                    ),
                    "{{upstream}}",
                ),
            ),
        ),
        TimeSeries(
            title="Responses without a record, by reason",
            help="Responses per second. not_llm: no model's path or content; format: a model's endpoint or format that is "
            "not read; refused: answered by the tap itself.",
            unit="reqps",
            queries=(
                Query(
                    seldom(rate("tap_responses_not_captured_total", by="upstream, reason")),
                    "no record {{upstream}} {{reason}}",
                ),
            ),
        ),
        TimeSeries(
            title="Incomplete records",
            help="Records per second of streams with an incomplete capture, and why. A record may have several reasons.",
            unit="reqps",
            queries=(
                Query(rate("incomplete_records_total"), "all"),
                Query(seldom(rate("incomplete_reasons_total", by="reason")), "reason {{reason}}"),
            ),
        ),
        TimeSeries(
            title="Events that could not be parsed",
            help="Unparsed, unterminated or oversized events per second.",
            unit="reqps",
            queries=(Query(rate("unread_events_total", by="upstream, kind"), "{{upstream}} {{kind}}"),),
        ),
        TimeSeries(
            title="Time that the relay adds",
            help="Mean time from reading the head of a response to having written it to the client.",
            unit="s",
            no_value=_NO_TAP,
            queries=(
                Query(
                    ratio(
                        rate("tap_response_heads_seconds_total", by="instance"),
                        rate("tap_response_heads_total", by="instance"),
                    ),
                    "{{instance}}",
                ),
            ),
        ),
        TimeSeries(
            title="Delay of Envoy's reports",
            help="Mean time from the upstream's first byte at Envoy to the arrival of Envoy's report of it at the tap; 0 "
            "without an Envoy.",
            unit="s",
            no_value=_NO_TAP,
            queries=(
                Query(
                    seldom(
                        ratio(
                            rate("tap_envoy_delay_seconds_total", by="instance"),
                            rate("tap_envoy_heads_total", by="instance"),
                        )
                    ),
                    "tap {{instance}}",
                ),
            ),
        ),
        TimeSeries(
            title="Answers of the relay itself",
            help="Requests per second that the relay answered with an error: it rejected them, or their upstream failed "
            "before it responded.",
            unit="reqps",
            queries=(Query(seldom(rate("tap_refused_total", by="instance, reason")), "relay {{instance}} {{reason}}"),),
        ),
        TimeSeries(
            title="Clocks of taps and broker differ",
            help="Difference between the clocks of a tap's host and of the broker. Start times of records have this error.",
            unit="s",
            no_value=_NO_BROKER,
            alerts=("ClockSkewed",),
            queries=(Query(f"max by (instance) (abs({series('clock_skew_seconds')}))", "{{instance}}"),),
        ),
    ),
    collapsed=True,
)

_WORKERS = Row(
    "Workers",
    (
        TimeSeries(
            title="Messages that wait, by worker",
            help="Messages in the segments topic after the committed offset.",
            unit="short",
            no_value=_NO_BROKER,
            alerts=("WorkersLagBehind", "LagNotExported"),
            queries=(Query(gauge("worker_lag_messages", by="instance"), "{{instance}}"),),
        ),
        TimeSeries(
            title="Partitions of each worker",
            help="Partitions of each worker, with their state recovered. If each partition has an owner, their sum is `all`.",
            unit="short",
            no_value=_NO_BROKER,
            alerts=("PartitionsWithoutOwner",),
            queries=(
                Query(gauge("worker_partitions", by="instance"), "{{instance}}"),
                Query(gauge("worker_expected_partitions", by="job", of="max"), "all {{job}}"),
            ),
        ),
        TimeSeries(
            title="What workers spend their time on",
            help="Seconds per second of each activity; their sum is the number of partitions. If decoding and applying are "
            "near 1, the worker's event loop is full. sending and committing include waiting for the broker.",
            unit="short",
            stacked=True,
            no_value=_NO_BROKER,
            queries=(Query(rate("worker_seconds_total", by="activity"), "{{activity}}"),),
        ),
        TimeSeries(
            title="Messages deleted unread",
            help="How often in an hour messages were deleted from Kafka before a worker read them.",
            unit="short",
            alerts=("LogLostMessages",),
            queries=(Query(seldom(increase("log_gaps_total", by="instance", window="1h")), "gaps {{instance}}"),),
        ),
        TimeSeries(
            title="Messages that workers process",
            help="Bundles (messages of taps) per second: processed, and duplicates that were skipped; and commits of offsets "
            "per second.",
            unit="short",
            no_value=_NO_WORKER,
            queries=(
                Query(rate("bundles_total", by="instance"), "bundles {{instance}}"),
                Query(rate("duplicate_bundles_total", by="instance"), "duplicates {{instance}}"),
                Query(rate("worker_commits_total", by="instance"), "commits {{instance}}"),
            ),
        ),
        TimeSeries(
            title="Progress of each partition",
            help="The offset that is committed in each partition of the segments topic. A line that stays level, although "
            "messages wait, is a partition that stands still.",
            unit="short",
            no_value=_NO_BROKER,
            alerts=("CommitsStandStill",),
            queries=(Query(gauge("worker_committed_offset", by="job, partition", of="max"), "{{job}} {{partition}}"),),
        ),
        TimeSeries(
            title="Data that came twice or too late",
            help="Segments (parts of streams) per second that a worker skipped: duplicates, and those that arrived after "
            "their stream was closed.",
            unit="short",
            no_value=_NO_WORKER,
            queries=(
                Query(rate("duplicate_segments_total", by="instance"), "duplicates {{instance}}"),
                Query(rate("late_segments_total", by="instance"), "late {{instance}}"),
            ),
        ),
        TimeSeries(
            title="Unreadable messages (dead letters)",
            help="Messages per second that could not be read, and messages that block their partitions because writes to the "
            "dead letter topic fail.",
            unit="short",
            no_value=_NO_WORKER,
            alerts=("DeadLettersArrive", "DeadLettersWait"),
            queries=(
                Query(
                    seldom(rate("dead_letters_total", by="stage, error_class")),
                    "dead letters {{stage}} {{error_class}}",
                ),
                Query(gauge("dead_letters_waiting", by="instance"), "waiting {{instance}}"),
            ),
        ),
        TimeSeries(
            title="Stuck workers",
            help="Times in an hour that the watchdog ended a worker because it was stuck, by cause.",
            unit="short",
            alerts=("WorkerWasStuck",),
            queries=(
                Query(
                    seldom(increase("worker_stuck_exits_total", by="member, cause", window="1h")),
                    "stuck {{member}} {{cause}}",
                ),
            ),
        ),
        TimeSeries(
            title="Records that are stored",
            help="Records per second. different: another record for a known stream id, which is an error or a forgery.",
            unit="reqps",
            no_value="no ledger",
            alerts=("LedgerStoresNothing", "LedgerGetsDifferentRecords"),
            queries=(Query(rate("ledger_rows_total", by="result"), "{{result}}"),),
        ),
        TimeSeries(
            title="Size of the ledger",
            help="Used share of the largest size of a SQLite ledger (--ledger-bytes).",
            unit="percentunit",
            maximum=1,
            no_value="no SQLite ledger",
            alerts=("LedgerAlmostFull",),
            queries=(
                Query(
                    ratio(
                        gauge("ledger_bytes", by="instance", of="max"),
                        gauge("ledger_limit_bytes", by="instance", of="max"),
                    ),
                    "{{instance}}",
                ),
            ),
        ),
        TimeSeries(
            title="Records sent to OpenTelemetry",
            help="Records per second that became spans, by what came of them; all but sent are lost.",
            unit="reqps",
            no_value="no --otlp",
            alerts=("SpansAreLost",),
            queries=(Query(rate("spans_total", by="result"), "{{result}}"),),
        ),
        TimeSeries(
            title="Refused at the admin port",
            help="Requests per second that the admin port refused: without its token, limited after wrong tokens, for "
            "another host, or malformed.",
            unit="reqps",
            alerts=("AdminTokenGuessed",),
            queries=(
                Query(seldom(rate("admin_refused_total", by="instance, reason")), "refused {{instance}} {{reason}}"),
            ),
        ),
        TimeSeries(
            title="Metrics that are cut or missing",
            help="Observations per second with a label value beyond its limit, failures of metric sources, running versions.",
            unit="short",
            alerts=("MetricSourceFails", "MetricLabelsCut"),
            queries=(
                Query(seldom(rate("metric_labels_cut_total", by="label")), "cut {{label}}"),
                Query(rate("metric_source_failures_total", by="instance"), "failed sources {{instance}}"),
                Query(f"count by (version) ({series('build_info')})", "version {{version}}"),
            ),
        ),
    ),
    collapsed=True,
)

_PROCESSES = Row(
    "Processes",
    (
        TimeSeries(
            title="CPU time",
            help="CPU seconds per second of each process, user and system.",
            unit="short",
            no_value=_NOT_LINUX,
            queries=(Query(rate("process_cpu_seconds_total", by="instance, process"), "{{instance}} {{process}}"),),
        ),
        TimeSeries(
            title="Memory",
            help="Resident memory of each process.",
            unit="bytes",
            no_value=_NOT_LINUX,
            queries=(
                Query(gauge("process_resident_memory_bytes", by="instance, process"), "{{instance}} {{process}}"),
            ),
        ),
        TimeSeries(
            title="File descriptors",
            help="Open file descriptors as a share of the limit of each process.",
            unit="percentunit",
            no_value=_NOT_LINUX,
            queries=(
                Query(
                    ratio(
                        gauge("process_open_fds", by="instance, process"),
                        gauge("process_max_fds", by="instance, process"),
                    ),
                    "{{instance}} {{process}}",
                ),
            ),
        ),
        TimeSeries(
            title="Restarts",
            help="How often the process that serves the metrics started in an hour.",
            unit="short",
            no_value=_NOT_LINUX,
            queries=(
                Query(f"sum by (instance) (changes({series('process_start_time_seconds')}[1h]))", "{{instance}}"),
            ),
        ),
    ),
    collapsed=True,
)

PIPELINE = Dashboard(
    name="pipeline",
    title="Pipeline",
    help="Does every captured read arrive, and do workers keep up? If not, the other dashboards show too little, or "
    "too late.",
    rows=(_NUMBERS, _CAPTURED, _TAPS, _WORKERS, _PROCESSES),
)
