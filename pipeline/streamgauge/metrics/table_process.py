"""The metrics of a process itself, with the names that all clients of Prometheus give them. `table.py` joins them."""

from streamgauge.metrics.declarations import DEFAULT_PAGE_BYTES, Kind, Metric, MetricSource

_OF = "of the process that serves this page. A tap's relays and its recorder are processes of their own."


def _row(name: str, kind: Kind, help: str, unit: str) -> Metric:
    return Metric(f"process_{name}", kind, help, unit, (), (), DEFAULT_PAGE_BYTES, MetricSource.PROCESS)


CPU_SECONDS = _row("cpu_seconds_total", Kind.COUNTER, f"CPU time, user and system, {_OF}", "seconds")
RESIDENT_MEMORY = _row("resident_memory_bytes", Kind.GAUGE, f"Resident memory {_OF}", "bytes")
OPEN_FDS = _row("open_fds", Kind.GAUGE, f"Open file descriptors {_OF}", "1")
MAX_FDS = _row("max_fds", Kind.GAUGE, f"Limit of open file descriptors {_OF}", "1")
START_TIME = _row("start_time_seconds", Kind.GAUGE, f"Start, as Unix time, {_OF}", "seconds")

PROCESS_METRICS: tuple[Metric, ...] = (CPU_SECONDS, RESIDENT_MEMORY, OPEN_FDS, MAX_FDS, START_TIME)
