"""The metrics of processes, with the names that all clients of Prometheus give them. `table.py` joins them.

A tap has several processes. A label tells them apart, except in the start time: it must not be added up.
"""

from streamgauge.metrics.declarations import Kind, Metric, MetricSource


def _row(name: str, kind: Kind, help: str, unit: str, *labels: str) -> Metric:
    return Metric(f"process_{name}", kind, help, unit, labels, (), MetricSource.PROCESS)


CPU_SECONDS = _row("cpu_seconds_total", Kind.COUNTER, "CPU time, user and system.", "seconds", "process")
RESIDENT_MEMORY = _row("resident_memory_bytes", Kind.GAUGE, "Resident memory.", "bytes", "process")
OPEN_FDS = _row("open_fds", Kind.GAUGE, "Open file descriptors.", "1", "process")
MAX_FDS = _row("max_fds", Kind.GAUGE, "Limit of open file descriptors.", "1", "process")
START_TIME = _row(
    "start_time_seconds", Kind.GAUGE, "Start of the process that serves this page, as Unix time.", "seconds"
)

PROCESS_METRICS: tuple[Metric, ...] = (CPU_SECONDS, RESIDENT_MEMORY, OPEN_FDS, MAX_FDS, START_TIME)
