"""The standard metrics of the process."""

import os
import time

from streamgauge.metrics.process import process_samples
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.table_process import PROCESS_METRICS
from tests.metrics.pages import read_page


def test_the_page_has_what_the_system_says_of_this_process() -> None:
    metrics = Metrics()
    metrics.register(process_samples)
    page = read_page(metrics.render())
    used = time.process_time()
    assert {metric.name for metric in PROCESS_METRICS} <= page.names_with_samples()
    assert used - 1 <= page.value("process_cpu_seconds_total") <= used + 0.1
    assert 1_000_000 < page.value("process_resident_memory_bytes") < 10**11
    assert 3 <= page.value("process_open_fds") < page.value("process_max_fds")
    assert page.value("process_max_fds") == os.sysconf("SC_OPEN_MAX")
    assert time.time() - 86_400 < page.value("process_start_time_seconds") <= time.time() + 2


def test_each_sample_is_of_the_table() -> None:
    assert [sample.name for sample in process_samples() if sample.labels] == []
    assert {sample.name for sample in process_samples()} == {metric.name for metric in PROCESS_METRICS}
