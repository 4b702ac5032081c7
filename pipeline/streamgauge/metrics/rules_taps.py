"""Alerts on taps: what they lose, their disk, and their broker."""

from streamgauge.metrics.rules import Alert, Durations, RuleGroup


def group(durations: Durations) -> RuleGroup:
    """The alerts of taps, and of the broker as taps and workers see it."""
    return RuleGroup("streamgauge-taps", (*_reads(durations), *_clients(), *_disk(), *_broker()), "pipeline")


def _reads(durations: Durations) -> list[Alert]:
    return [
        Alert(
            "TapDropsReads",
            f"sum by (instance, reason) (increase(streamgauge_tap_reads_dropped_total[{durations(10)}])) > 0",
            1,
            "ticket",
            "The tap {{ $labels.instance }} discards reads: {{ $labels.reason }}",
            f"{{{{ $value | humanize }}}} reads in {durations(10)} are missing in records, which are marked incomplete. "
            "Traffic is not affected.",
        ),
        Alert(
            "TapReadsOutOfBalance",
            "abs(\n"
            "  sum by (instance) (streamgauge_tap_reads_seen_total)\n"
            "  - sum by (instance) (streamgauge_tap_reads_delivered_total)\n"
            "  - sum by (instance) (streamgauge_tap_reads_waiting)\n"
            "  - sum by (instance) (streamgauge_tap_reads_dropped_total)\n"
            ") > 0",
            5,
            "ticket",
            "The read counters of the tap {{ $labels.instance }} do not match",
            "{{ $value | humanize }} reads were lost without a reason or counted twice. This is an internal error: please "
            "report it.",
        ),
    ]


def _clients() -> list[Alert]:
    return [
        Alert(
            "ClientConnectionsAlmostUsed",
            "sum by (instance) (streamgauge_tap_client_connections)\n"
            "  / (sum by (instance) (streamgauge_tap_client_connections_limit) > 0) > 0.9",
            5,
            "page",
            "{{ $value | humanizePercentage }} of the client connections of {{ $labels.instance }} are used",
            "At 100 % the tap closes idle connections, and further clients wait if there are none. Either there is more "
            "traffic than --max-connections allows, or a client holds connections without using them.",
        ),
    ]


def _disk() -> list[Alert]:
    return [
        Alert(
            "SpoolWritesRefused",
            "max by (instance) (streamgauge_spool_writes_refused) > 0",
            1,
            "page",
            "{{ $labels.instance }} cannot write to its spool",
            "The disk of the data directory is full, read-only or broken. New reads wait in memory, and are discarded when "
            "it is full. See the directory and the error in the tap's log.",
        ),
        Alert(
            "SpoolFillsUp",
            "sum by (instance) (streamgauge_spool_bytes) / sum by (instance) (streamgauge_spool_limit_bytes) > 0.8",
            5,
            "page",
            "The spool of {{ $labels.instance }} is {{ $value | humanizePercentage }} full",
            "What receives its data is away or too slow. Check that the broker is reachable (streamgauge_broker_connected). "
            "A full spool discards reads.",
        ),
        Alert(
            "DiskAlmostFull",
            "(\n"
            "  min by (instance) (streamgauge_data_free_bytes)\n"
            "    < sum by (instance) (streamgauge_spool_limit_bytes) - sum by (instance) (streamgauge_spool_bytes)\n"
            "  or\n"
            "  min by (instance) (streamgauge_data_free_bytes) < 0.05 * sum by (instance) (streamgauge_spool_limit_bytes)\n"
            ")\n"
            # On a disk that is smaller than the spool may be, the alert would never end.
            "unless\n"
            "min by (instance) (streamgauge_data_free_bytes) >= 0.5 * min by (instance) (streamgauge_data_disk_bytes)",
            15,
            "ticket",
            "The disk of {{ $labels.instance }} has only {{ $value | humanize1024 }}B left",
            "That is less than the spool may still take (--spool-bytes). During an outage of the broker the disk would be "
            "full before the spool is.",
        ),
    ]


def _broker() -> list[Alert]:
    connected = (
        "(\n"
        "  min by (job, instance) (streamgauge_broker_connected)\n"
        "  or min by (job, instance) (streamgauge_worker_broker_connected)\n"
        ") == 0"
    )
    return [
        Alert(
            "BrokerAway",
            f"{connected}\nunless\nmax by (job, instance) (streamgauge_broker_problem) > 0",
            2,
            "page",
            "{{ $labels.instance }} cannot reach the broker",
            "Traffic goes on, and taps keep what they capture in their spools. No records are made, and metrics of streams "
            "stand still, until the broker is back.",
        ),
        Alert(
            "BrokerProblem",
            "max by (instance) (streamgauge_broker_problem) > 0",
            1,
            "page",
            "The broker does not accept what {{ $labels.instance }} sends",
            "An operator has to act: TLS, log-in, rights or topics. The tap's log has a sentence that says what. Captured "
            "data waits in the spool.",
        ),
        Alert(
            "ClockSkewed",
            "max by (instance) (abs(streamgauge_clock_skew_seconds)) > 5",
            10,
            "ticket",
            "The clock of {{ $labels.instance }} differs from the broker's by {{ $value | humanizeDuration }}",
            "Durations are right, since they come from a monotonic clock. The start times in records, and the days in "
            "totals, are wrong by the difference. Check the time service of both hosts.",
        ),
    ]
