"""Metrics of the health of taps and workers, which alerts need."""

from streamgauge.metrics.declarations import DEFAULT_PAGE_BYTES, Kind, Metric, MetricSource


def _gauge(part: MetricSource, name: str, help: str, unit: str, *labels: str, page: int = DEFAULT_PAGE_BYTES) -> Metric:
    return Metric(f"streamgauge_{name}", Kind.GAUGE, help, unit, labels, (), page, part)


DATA_FREE = _gauge(MetricSource.TAP, "data_free_bytes", "Free space on the disk of the data directory.", "bytes")
CLOCK_SKEW = _gauge(
    MetricSource.TAP,
    "clock_skew_seconds",
    "Wall clock of this host minus that of the broker, by the times of confirmed bundles: the smallest difference of the "
    "last 1 to 2 minutes, since each includes the broker's answering time. Exists once a bundle is confirmed.",
    "seconds",
)
SILENT_STREAMS = _gauge(
    MetricSource.WORKER,
    "silent_streams",
    "Open event streams without a token event for more than --silent-seconds, by the clock of their tap.",
    "streams",
    "upstream",
    page=6_000,
)
COMMITS = Metric(
    "streamgauge_worker_commits_total",
    Kind.COUNTER,
    "Successful commits of offsets to the broker. A worker commits while it processes messages.",
    "1",
    (),
    (),
    DEFAULT_PAGE_BYTES,
    MetricSource.WORKER,
)
EXPECTED_PARTITIONS = _gauge(
    MetricSource.WORKER,
    "worker_expected_partitions",
    "Partitions of the segments topic, which the workers of a group share.",
    "partitions",
)

HEALTH: tuple[Metric, ...] = (DATA_FREE, CLOCK_SKEW, SILENT_STREAMS, COMMITS, EXPECTED_PARTITIONS)
