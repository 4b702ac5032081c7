"""The standard metrics of processes."""

import os
import subprocess
import sys
import time

import pytest

from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.process import process_metrics
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.table import TABLE
from tests.metrics.pages import read_page

MAIN = {"process": "main"}


def test_the_page_has_what_the_system_says_of_this_process() -> None:
    metrics = Metrics()
    metrics.register(process_metrics())
    page = read_page(metrics.render())
    used = time.process_time()
    assert {metric.name for metric in TABLE if metric.part is MetricSource.PROCESS} <= page.names_with_samples()
    assert used - 1 <= page.value("process_cpu_seconds_total", **MAIN) <= used + 0.1
    assert 1_000_000 < page.value("process_resident_memory_bytes", **MAIN) < 10**11
    assert 3 <= page.value("process_open_fds", **MAIN) < page.value("process_max_fds", **MAIN)
    assert page.value("process_max_fds", **MAIN) == os.sysconf("SC_OPEN_MAX")
    assert time.time() - 86_400 < page.value("process_start_time_seconds") <= time.time() + 2


@pytest.mark.slow
def test_children_of_one_name_are_added_up_and_one_that_has_ended_is_left_out() -> None:
    metrics = Metrics()
    program = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(program, stdin=subprocess.PIPE) as first,
        subprocess.Popen(program, stdin=subprocess.PIPE) as second,
    ):
        started = [("relay", first.pid), ("relay", second.pid)]
        metrics.register(process_metrics(lambda: started))
        page = read_page(metrics.render())
        assert page.value("process_max_fds", process="relay") == 2 * os.sysconf("SC_OPEN_MAX")
        assert page.value("process_resident_memory_bytes", process="relay") > 0
        for child in (first, second):
            child.communicate(b"\n")
    page = read_page(metrics.render())
    assert page.label_values("process") == {"main"}
    assert page.total("streamgauge_metric_source_failures_total") == 0
