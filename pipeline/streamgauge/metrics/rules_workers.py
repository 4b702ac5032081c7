"""Alerts on workers: partitions, progress, dead letters and the ledger."""

from streamgauge.metrics.rules import Alert, Durations, RuleGroup

# Without its broker a worker cannot make progress: that is another alert.
_CONNECTED = "max by (job, instance) (streamgauge_worker_broker_connected) == 1"


def group(durations: Durations) -> RuleGroup:
    """The alerts of workers."""
    alerts = (*_partitions(), *_progress(durations), *_loss(durations), *_ledger(durations))
    return RuleGroup("streamgauge-workers", alerts, "pipeline")


def _partitions() -> list[Alert]:
    partitions = "sum by (job, instance) (streamgauge_worker_partitions)"
    return [
        Alert(
            "PartitionsWithoutOwner",
            "max by (job) (streamgauge_worker_expected_partitions) - sum by (job) (streamgauge_worker_partitions) > 0\n"
            "and\n"
            "max by (job) (streamgauge_worker_broker_connected) == 1",
            2,
            "page",
            "No worker of {{ $labels.job }} processes {{ $value }} of the partitions",
            "Streams whose data is in these partitions have no records and no metrics until a worker takes them. "
            "/health/ready of each worker says why it is not ready.",
        ),
        Alert(
            "LagNotExported",
            f"{partitions}\n  > (count by (job, instance) (streamgauge_worker_lag_messages) or 0 * {partitions})\n"
            f"and\n{_CONNECTED}",
            5,
            "ticket",
            "The worker {{ $labels.instance }} does not export the lag of its partitions",
            "It has {{ $value }} partitions, and exports the lag of fewer. So the alert on lag, and others, cannot fire for "
            "them.",
        ),
    ]


def _progress(durations: Durations) -> list[Alert]:
    five, hour = durations(5), durations(60)
    # Over all workers, because a partition moves between them: so a restart of its worker hides nothing.
    committed = f"max by (job, partition) (max_over_time(streamgauge_worker_committed_offset[{five}]"
    return [
        Alert(
            "CommitsStandStill",
            f"min by (job, partition) (min_over_time(streamgauge_worker_lag_messages[{five}])) > 0\n"
            "and\n"
            f"{committed}))\n  == {committed} offset {five}))\n"
            "and on (job)\n"
            "max by (job) (streamgauge_worker_broker_connected) == 1",
            2,
            "page",
            "Partition {{ $labels.partition }} of {{ $labels.job }} makes no progress, although {{ $value }} messages wait",
            f"Its committed offset did not change for {five}. The watchdog ends a worker that is stuck. If this one goes on, "
            "it retries something that is refused: its log says what. streamgauge_worker_lag_messages shows which worker has "
            "it.",
        ),
        Alert(
            "WorkersLagBehind",
            "sum by (instance) (streamgauge_worker_lag_messages) > 1000",
            10,
            "ticket",
            "The worker {{ $labels.instance }} has a lag of {{ $value | humanize }} messages",
            "A message holds up to a thousand events. Start more workers, up to the number of partitions.",
        ),
        Alert(
            "WorkerWasStuck",
            f"max by (job, member, cause) (max_over_time(streamgauge_worker_stuck_exits_total[{hour}]))\n"
            f"  - min by (job, member, cause) (min_over_time(streamgauge_worker_stuck_exits_total[{hour}])) > 0",
            0,
            "ticket",
            "The watchdog ended a worker of {{ $labels.job }}, which was stuck: {{ $labels.cause }}",
            "It was the member {{ $labels.member }} of the consumer group. See the last line of its log for the reason. "
            "Nothing is lost. Check that a supervisor restarted the worker.",
        ),
    ]


def _loss(durations: Durations) -> list[Alert]:
    hour = durations(60)
    return [
        Alert(
            "DeadLettersArrive",
            _grown("streamgauge_dead_letters_total", durations(10)),
            0,
            "ticket",
            "The worker {{ $labels.instance }} receives messages that it cannot read",
            "Run `streamgauge deadletter list` to see each message with its reason and its source.",
        ),
        Alert(
            "DeadLettersWait",
            "sum by (instance) (streamgauge_dead_letters_waiting) > 0",
            5,
            "page",
            "{{ $value }} partitions of {{ $labels.instance }} are blocked by messages that cannot be read",
            "See the reason in the worker's log: the dead letter topic is missing, access is denied, too few replicas are in "
            "sync, or as many messages of another version came as --dead-letter-limit allows. Nothing is lost.",
        ),
        Alert(
            "LogLostMessages",
            f"{_grown('streamgauge_log_gaps_total', hour)}\nor\n{_grown('streamgauge_log_gap_messages_total', hour)}",
            0,
            "page",
            "Kafka deleted messages before {{ $labels.instance }} read them",
            "Messages of the segments topic or the records topic: the worker's log says which. Increase the retention of the "
            "topic, or start more workers.",
        ),
    ]


def _ledger(durations: Durations) -> list[Alert]:
    ten = durations(10)
    return [
        Alert(
            "LedgerStoresNothing",
            f"sum by (job) (increase(streamgauge_stream_outcomes_total[{ten}])) > 0\n"
            "unless\n"
            f"sum by (job) (increase(streamgauge_ledger_rows_total[{ten}])) > 0",
            5,
            "page",
            "No worker of {{ $labels.job }} stores records, although streams finish",
            "{{ $value | humanize }} streams finished meanwhile. Their records wait in the records topic. The workers' logs "
            "say why the ledger refuses them.",
        ),
        Alert(
            "LedgerAlmostFull",
            "max by (instance) (streamgauge_ledger_bytes) / max by (instance) (streamgauge_ledger_limit_bytes) > 0.8",
            15,
            "page",
            "The ledger of {{ $labels.instance }} is {{ $value | humanizePercentage }} full",
            "A full ledger stores nothing more. New data then waits in the spool or in Kafka, and is lost when that is full.",
        ),
        Alert(
            "LedgerGetsDifferentRecords",
            _grown('streamgauge_ledger_rows_total{result="different"}', ten),
            0,
            "ticket",
            "The worker {{ $labels.instance }} wrote a different record for a stream that the ledger already has",
            "The ledger keeps the first record. Check whether a capture file was sent twice (tap packets --pcap). If not, "
            "compare the versions of the workers, and check who may write to the records topic.",
        ),
        Alert(
            "SpansAreLost",
            _grown('streamgauge_spans_total{result!="sent"}', ten),
            0,
            "ticket",
            "{{ $labels.instance }} could not send records as spans",
            "The receiver of --otlp is away, overloaded, or refuses them. streamgauge_spans_total has the reason, "
            "the log says what to do. The ledger has all records.",
        ),
    ]


def _grown(selector: str, window: str) -> str:
    """Whether a counter has grown in the window, also over a restart (a reset).

    Not by increase() alone: it ignores the first sample of a series, and a process may count before its first scrape.
    """
    return (
        f"sum by (instance) (increase({selector}[{window}])) > 0\n"
        "or\n"
        f"sum by (instance) ({selector} unless {selector} offset {window}) > 0"
    )
