"""Metrics of the health of taps and workers, which alerts need. `table.py` joins them."""

from streamgauge.metrics.declarations import Metric, MetricSource, counter, gauge

DATA_FREE = gauge(MetricSource.TAP, "data_free_bytes", "Free space on the disk of the data directory.", "bytes")
DATA_DISK = gauge(MetricSource.TAP, "data_disk_bytes", "Size of the disk of the data directory.", "bytes")
CLOCK_SKEW = gauge(
    MetricSource.TAP,
    "clock_skew_seconds",
    "Wall clock of this host minus that of the broker, by the times of confirmed bundles: the smallest difference of the "
    "last 1 to 2 minutes, since each includes the broker's answering time. Exists once a bundle is confirmed.",
    "seconds",
)
SILENT_STREAMS = gauge(
    MetricSource.WORKER,
    "silent_streams",
    "Open event streams without a token event for more than --silent-seconds, by the clock of their tap.",
    "streams",
    "upstream",
)
COMMITS = counter(
    MetricSource.WORKER,
    "worker_commits",
    "Successful commits of offsets to the broker. A worker commits while it processes messages.",
)
EXPECTED_PARTITIONS = gauge(
    MetricSource.WORKER,
    "worker_expected_partitions",
    "Partitions of the segments topic, which the workers of a group share.",
    "partitions",
)

HEALTH_METRICS: tuple[Metric, ...] = (DATA_FREE, DATA_DISK, CLOCK_SKEW, SILENT_STREAMS, COMMITS, EXPECTED_PARTITIONS)
