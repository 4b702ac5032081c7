"""The metrics of workers, and of assemblers with or without Kafka. `table.py` joins them."""

from streamgauge.metrics.declarations import Metric, MetricSource, counter, gauge

# `counted_as` is the key in `Assembler.counts`.
OPEN_STREAMS = gauge(MetricSource.WORKER, "open_streams", "Streams that have started and not ended.", "streams")
IGNORED = counter(
    MetricSource.WORKER,
    "ignored_streams",
    "Event streams that were ignored, because they are not LLM responses.",
    counted_as="not_llm",
)
BUNDLES = counter(MetricSource.WORKER, "bundles", "Bundles that were processed.", counted_as="bundles")
DUPLICATE_BUNDLES = counter(
    MetricSource.WORKER, "duplicate_bundles", "Duplicate bundles, which are skipped.", counted_as="duplicate_bundles"
)
DUPLICATE_SEGMENTS = counter(
    MetricSource.WORKER, "duplicate_segments", "Duplicate segments, which are skipped.", counted_as="duplicate_segments"
)
LATE_SEGMENTS = counter(
    MetricSource.WORKER,
    "late_segments",
    "Skipped segments of streams that are closed, were never opened, or belong to another run on the same capture file.",
    counted_as="late_segments",
)
DEAD_LETTERS = counter(
    MetricSource.WORKER,
    "dead_letters",
    "Messages that could not be read and were written to the dead letter topic.",
    "stage",
    "error_class",
)
DEAD_LETTERS_WAITING = gauge(
    MetricSource.WORKER,
    "dead_letters_waiting",
    "Unreadable messages that block their partitions: dead letters cannot be written, or --dead-letter-limit is reached.",
    "messages",
)
LOG_GAPS = counter(
    MetricSource.WORKER,
    "log_gaps",
    "Times that messages expired in Kafka before a worker read them.",
    counted_as="log_gaps",
)
LOG_GAP_MESSAGES = counter(
    MetricSource.WORKER,
    "log_gap_messages",
    "Messages that were deleted from Kafka before a worker read them: by retention, or with a recreated topic.",
)
WORKER_LAG = gauge(
    MetricSource.WORKER,
    "worker_lag_messages",
    "Messages in the segments topic after the committed offset.",
    "messages",
    "partition",
)
COMMITTED_OFFSET = gauge(
    MetricSource.WORKER,
    "worker_committed_offset",
    "The offset that is committed in a partition of the segments topic: every message below it is processed.",
    "1",
    "partition",
)
WORKER_PARTITIONS = gauge(
    MetricSource.WORKER,
    "worker_partitions",
    "Partitions that are assigned to this worker and have their state recovered.",
    "partitions",
)
WORKER_BROKER = gauge(
    MetricSource.WORKER, "worker_broker_connected", "1 if the broker is reachable from this worker, else 0.", "bool"
)
WORKER_SECONDS = counter(
    MetricSource.WORKER,
    "worker_seconds",
    "Time that partitions of a worker spend in each activity; all activities of a partition add up to 1 second per second. "
    "waiting is for messages or for the partition's turn. sending and committing include waiting for the broker.",
    "activity",
    unit="seconds",
)
STUCK_EXITS = counter(
    MetricSource.WORKER,
    "worker_stuck_exits",
    "Times that the watchdog ended this member of the consumer group because it was stuck, by cause. The count survives "
    "restarts, and belongs to the member: another worker of the same data directory may be this member after a restart.",
    "cause",
    "member",
)
# The values of `result`, which are members of what an insert returns.
RESULTS = ("new", "same", "different")
LEDGER_ROWS = counter(
    MetricSource.WORKER,
    "ledger_rows",
    "Records written to the ledger: new, same (a duplicate), different (another record for a known stream id).",
    "result",
)
LEDGER_BYTES = gauge(
    MetricSource.WORKER, "ledger_bytes", "Bytes that a SQLite ledger uses, without its free pages.", "bytes"
)
LEDGER_LIMIT = gauge(
    MetricSource.WORKER,
    "ledger_limit_bytes",
    "Largest size of a SQLite ledger (--ledger-bytes, or what leaves a part of its disk free).",
    "bytes",
)
SPANS = counter(
    MetricSource.WORKER,
    "spans",
    "New records that became spans (--otlp), by what came of them: sent; or lost, since too many waited (queue_full), the "
    "receiver gave no answer (unreachable), put them off too long (busy) or did not take them (refused), the record has no "
    "start (no_span), or the process ended (stopped).",
    "result",
)

WORKER_METRICS: tuple[Metric, ...] = (
    OPEN_STREAMS, IGNORED, BUNDLES, DUPLICATE_BUNDLES, DUPLICATE_SEGMENTS, LATE_SEGMENTS, DEAD_LETTERS,
    DEAD_LETTERS_WAITING, LOG_GAPS, LOG_GAP_MESSAGES, WORKER_LAG, COMMITTED_OFFSET, WORKER_PARTITIONS,
    WORKER_BROKER, WORKER_SECONDS, STUCK_EXITS, LEDGER_ROWS, LEDGER_BYTES, LEDGER_LIMIT, SPANS,
)  # fmt: skip
