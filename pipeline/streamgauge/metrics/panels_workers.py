"""The panels of workers, of the log they read and of the ledger."""

from streamgauge.metrics.panel import Panel, Row
from streamgauge.metrics.panel_queries import rate, seldom

WORKERS = Row(
    "Workers",
    (
        Panel(
            "Lag",
            "Messages in the segments topic after the committed offset.",
            "short",
            (("sum by (instance) (streamgauge_worker_lag_messages)", "{{instance}}"),),
        ),
        Panel(
            "Partitions",
            "Partitions of each worker, with their state recovered. If each partition has an owner, their sum is `all`.",
            "short",
            (
                ("sum by (instance) (streamgauge_worker_partitions)", "{{instance}}"),
                ("max by (job) (streamgauge_worker_expected_partitions)", "all {{job}}"),
            ),
        ),
        Panel(
            "Time by activity",
            "Seconds per second of each activity; their sum is the number of partitions. decoding and applying near 1: the "
            "worker's event loop is full. sending and committing include waiting for the broker.",
            "short",
            ((rate("worker_seconds_total", "instance, activity"), "{{instance}} {{activity}}"),),
        ),
        Panel(
            "Bundles and commits",
            "Bundles per second: processed, and duplicates that were skipped. Commits of offsets per second.",
            "short",
            (
                (rate("bundles_total", "instance"), "processed {{instance}}"),
                (rate("worker_commits_total", "instance"), "commits {{instance}}"),
                (seldom(rate("duplicate_bundles_total", "instance")), "duplicates {{instance}}"),
            ),
        ),
        Panel(
            "Skipped segments",
            "Duplicates, and segments that arrived after their stream was closed.",
            "short",
            (
                (seldom(rate("duplicate_segments_total", "instance")), "duplicates {{instance}}"),
                (seldom(rate("late_segments_total", "instance")), "late {{instance}}"),
            ),
        ),
        Panel(
            "Dead letters",
            "Messages that could not be read. waiting: writes to the dead letter topic fail, so partitions are blocked.",
            "short",
            (
                (seldom(rate("dead_letters_total", "stage, error_class")), "{{stage}} {{error_class}}"),
                ("sum by (instance) (streamgauge_dead_letters_waiting)", "waiting {{instance}}"),
            ),
        ),
        Panel(
            "Messages deleted unread",
            "Messages that were deleted from Kafka before a worker read them, in 1 hour.",
            "short",
            (
                (seldom("sum by (instance) (increase(streamgauge_log_gaps_total[1h]))"), "gaps {{instance}}"),
                (
                    seldom("sum by (instance) (increase(streamgauge_log_gap_messages_total[1h]))"),
                    "messages {{instance}}",
                ),
            ),
        ),
        Panel(
            "Stuck workers",
            "Times in 1 hour that the watchdog ended a worker because it was stuck, by cause. A supervisor must restart it.",
            "short",
            (
                (
                    seldom("sum by (instance, cause) (increase(streamgauge_worker_stuck_exits_total[1h]))"),
                    "{{instance}} {{cause}}",
                ),
            ),
        ),
        Panel(
            "Ledger",
            "Records per second. different: another record for a known stream id, which is an error or a forgery.",
            "reqps",
            ((rate("ledger_rows_total", "result"), "{{result}}"),),
        ),
        Panel(
            "Exporter",
            "Label values beyond their limit, failed metric sources, running versions.",
            "short",
            (
                (seldom(rate("metric_labels_cut_total", "label")), "cut {{label}}"),
                (seldom(rate("metric_source_failures_total", "instance")), "failed sources {{instance}}"),
                ("count by (version) (streamgauge_build_info)", "version {{version}}"),
            ),
        ),
        Panel(
            "CPU",
            "CPU seconds per second of each process. main serves the metrics page.",
            "short",
            (
                (
                    "sum by (instance, process) (rate(process_cpu_seconds_total[$__rate_interval]))",
                    "{{instance}} {{process}}",
                ),
            ),
        ),
        Panel(
            "Memory",
            "Resident memory of each process. main serves the metrics page.",
            "bytes",
            (("sum by (instance, process) (process_resident_memory_bytes)", "{{instance}} {{process}}"),),
        ),
        Panel(
            "Open file descriptors",
            "Used share of the limit of each process. main serves the metrics page.",
            "percentunit",
            (("max by (instance, process) (process_open_fds / process_max_fds)", "{{instance}} {{process}}"),),
        ),
        Panel(
            "Uptime",
            "Time since each process with a metrics page was started.",
            "s",
            (("time() - max by (instance) (process_start_time_seconds)", "{{instance}}"),),
        ),
    ),
)
