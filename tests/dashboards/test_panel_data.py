"""Every query of every dashboard returns data on a real Prometheus that scrapes the demo with its failures, and Kafka."""

import time
from pathlib import Path

import pytest
from dashboards.source.generate import DASHBOARDS

from tests.dashboards.demo_system import ask_prometheus, filled, results, watched_demo

pytestmark = pytest.mark.slow

# A round of the demo takes half a minute alone; the second one makes rates of what happens once in a round.
PATIENCE_S = 150.0

Empty = set[tuple[str, str, str]]


def empty_or_nan(base: str) -> tuple[Empty, Empty]:
    """The queries without series, and those with a NaN: dashboard, panel and legend."""
    empty: Empty = set()
    nan: Empty = set()
    for dashboard in DASHBOARDS:
        for (panel, legend), found in results(base, dashboard).items():
            if not found:
                empty.add((dashboard.name, panel, legend))
            if any(series["value"][1] == "NaN" for series in found):
                nan.add((dashboard.name, panel, legend))
    return empty, nan


@pytest.mark.timeout(400)
def test_every_query_returns_data_and_no_nan(tmp_path: Path, prefix: str, kafka: str, prometheus_tools: None) -> None:
    with watched_demo(tmp_path / "system", kafka, prefix) as base:
        missing: Empty = set()
        deadline = time.monotonic() + PATIENCE_S
        first = True
        while time.monotonic() < deadline:
            empty, nan = empty_or_nan(base)
            assert nan == set()
            missing = empty if first else missing & empty
            first = False
            if not missing:
                break
            time.sleep(1)
        assert missing == set()
        exemplars_name_streams(base)


def exemplars_name_streams(base: str) -> None:
    """Each query that asks for exemplars gets some, each with a stream id."""
    now = time.time()
    asking = [
        (panel, query) for one in DASHBOARDS for panel in one.panels for query in panel.queries if query.exemplars
    ]
    assert len(asking) > 6
    for panel, query in asking:
        found = ask_prometheus(base, "query_exemplars", query=filled(query.expression), start=now - 600, end=now)
        labels = [exemplar["labels"] for series in found for exemplar in series["exemplars"]]
        assert labels, panel.title
        assert all("stream_id" in one for one in labels), panel.title
