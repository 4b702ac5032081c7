"""The tap's balance on the page, from a real counters file with several processes' roles."""

from pathlib import Path

from streamgauge.core.token_kinds import INPUT_KINDS, OUTPUT_KINDS
from streamgauge.metrics import table
from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.tap import tap_reads
from streamgauge.spool.read_counters import Counters, DropReason, Incident, Refusal
from streamgauge.spool.response_counters import NotCaptured
from tests.metrics.pages import ReadPage, read_page


def balance(page: ReadPage) -> tuple[float, float, float, float]:
    names = ("seen_total", "delivered_total", "waiting", "dropped_total")
    return tuple(page.total(f"streamgauge_tap_reads_{name}") for name in names)  # type: ignore[return-value]


def test_the_page_holds_one_balance_of_all_processes(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    metrics = Metrics([MetricSource.TAP])
    metrics.register(tap_reads(path))
    with Counters(path, "relay-0") as one, Counters(path, "relay-1") as two, Counters(path, "delivery") as delivery:
        one.seen(10)
        two.seen(5)
        two.dropped(DropReason.RECORDER_BEHIND, 2)
        delivery.delivered(9)
        one.happened(Incident.BODY_CAPPED)
        two.refused(Refusal.UNKNOWN_UPSTREAM)
        page = read_page(metrics.render())
        assert balance(page) == (15, 9, 4, 2)
        assert page.value("streamgauge_tap_reads_dropped_total", reason="recorder_behind") == 2
        assert page.value("streamgauge_tap_reads_dropped_total", reason="crash") == 0, (
            "each reason is there from the start"
        )
        assert page.value("streamgauge_tap_incidents_total", kind="body_capped") == 1
        assert page.value("streamgauge_tap_refused_total", reason="unknown_upstream") == 1
        assert page.value("streamgauge_tap_refused_total", reason="relay_busy") == 0
        assert "streamgauge_metric_source_failures_total" in page.names_with_samples()
        clients = [f"streamgauge_tap_client_connections{end}" for end in ("", "_limit")]
        assert [page.value(name) for name in clients] == [0, 0]
        one.clients(3, 100)
        two.clients(4, 100)
        one.clients(2)
        one.head_passed_on(40_000)
        two.head_passed_on(60_000)
        one.arrived(300_000)
        delivery.delivered(4)
    later = read_page(metrics.render())
    assert [later.value(name) for name in clients] == [6, 200]
    assert balance(later) == (15, 13, 0, 2)
    assert [page.value(f"streamgauge_tap_response_heads_{name}") for name in ("total", "seconds_total")] == [0, 0]
    assert [later.value(f"streamgauge_tap_response_heads_{name}") for name in ("total", "seconds_total")] == [2, 0.0001]
    assert [later.value(f"streamgauge_tap_envoy_{name}_total") for name in ("heads", "delay_seconds")] == [1, 0.0003]


def test_each_reason_and_incident_has_its_own_value_beside_those_of_streams(tmp_path: Path) -> None:
    """`up` shows streams on the same page, and a label's budget is one for all metrics."""
    metrics = Metrics()
    for kind in (*INPUT_KINDS, *OUTPUT_KINDS):
        metrics.add(table.USAGE_TOKENS.name, upstream="small", model="small-1", kind=kind)
    metrics.register(tap_reads(tmp_path / "counters"))
    with Counters(tmp_path / "counters", "relay-0") as relay:
        for incident in Incident:
            relay.happened(incident)
        for reason in DropReason:
            relay.dropped(reason)
        for refusal in Refusal:
            relay.refused(refusal)
        for without in NotCaptured:
            relay.responses.passed("up", without)
    page = read_page(metrics.render())
    for incident in Incident:
        assert page.value("streamgauge_tap_incidents_total", kind=incident.value) == 1
    for reason in DropReason:
        assert page.value("streamgauge_tap_reads_dropped_total", reason=reason.value) == 1
    for refusal in Refusal:
        assert page.value("streamgauge_tap_refused_total", reason=refusal.value) == 1
    for without in NotCaptured:
        name = "streamgauge_tap_responses_not_captured_total"
        assert page.value(name, upstream="up", reason=without.value) == 1
    assert page.value("streamgauge_tap_responses_seen_total", upstream="up") == len(NotCaptured)
