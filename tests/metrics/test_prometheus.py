"""The exporter's page always parses, stays within its budgets, and is one consistent snapshot."""

import functools
import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

import streamgauge
from streamgauge.core.record import Error
from streamgauge.metrics import table
from streamgauge.metrics.declarations import LABELS, OTHER, PAGE_SERIES, MetricSource
from streamgauge.metrics.otel_names import OtelNames
from streamgauge.metrics.prometheus import Metrics, Sample, UnknownMetricError
from tests.metrics.pages import MOST_S, cpu_seconds_of, lines_of, read_page
from tests.metrics.records import ABSENT, make_counts, make_record, make_timing, make_usage

STREAMS = "streamgauge_streams_total"
ANY_TEXT = st.one_of(st.none(), st.text(max_size=300), st.text('"\\\n\r\t{}=,# é\u2028\ud800\x00', max_size=120))


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_l1_whatever_a_label_holds_the_page_parses(upstream: str, model: str, error_type: str, reason: str) -> None:
    metrics = Metrics()
    record = make_record(
        upstream=upstream,
        request_model=model,
        response_model=None,
        dialect=reason,
        finish_reason=reason,
        error=Error("in_stream", type=error_type),
    )
    metrics.observe(record)
    metrics.add("streamgauge_dead_letters_total", 1, stage=reason, error_class=error_type)
    for page in (read_page(metrics.render()), read_page(metrics.page(OPENMETRICS).body, openmetrics=True)):
        assert page.total(STREAMS) == 1
        assert page.total("streamgauge_stream_errors_total") == 1
        assert all(1 <= len(value) <= 80 for label in LABELS for value in page.label_values(label))


OPENMETRICS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("text/plain;version=what;escaping=ever", "text/plain; version=0.0.4"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text;version=nonsense", "application/openmetrics-text; version=1.0.0"),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, content_type: str) -> None:
    page = Metrics().page(accept)
    assert page.content_type.startswith(content_type)
    assert (page.body.endswith(b"# EOF\n")) == ("openmetrics" in accept)


def test_both_formats_say_the_same() -> None:
    metrics = Metrics()
    metrics.observe(make_record())
    assert read_page(metrics.render()) == read_page(metrics.page(OPENMETRICS).body, openmetrics=True)


@pytest.mark.slow
def test_l1_20_000_models_stay_within_their_budget_and_the_page() -> None:
    metrics = Metrics()
    for number in range(20_000):
        name = f"{number}-" + "m" * 90
        metrics.observe(make_record(request_model=name, response_model=name, upstream=f"{'u' * 70}{number % 500}"))
    took = cpu_seconds_of(metrics.render)
    body = metrics.render()
    page = read_page(body)
    assert lines_of(body) < PAGE_SERIES
    assert len(page.label_values("model")) <= LABELS["model"].budget
    assert page.total(STREAMS) == 20_000
    assert page.total("streamgauge_time_to_first_token_seconds_count") == 20_000
    assert OTHER in page.label_values("model")
    assert page.value("streamgauge_metric_labels_cut_total", label="model") > 18_000
    assert took < MOST_S


def test_the_page_is_bounded_whatever_all_labels_hold() -> None:
    metrics = Metrics()
    for number in range(3_000):
        text = f"{number}-{'x' * 100}"
        metrics.observe(
            make_record(
                upstream=text, request_model=text, response_model=text, dialect=text, outcome=text, finish_reason=text,
                error=Error(text, text),
            )
        )  # fmt: skip
    for metric in table.TABLE:
        for number in range(300):
            labels = dict.fromkeys(metric.labels, f"{number}-{'y' * 100}")
            if metric.kind == "counter":
                metrics.add(metric.name, 1, **labels)
            elif metric.kind == "gauge":
                metrics.set(metric.name, 1e300, **labels)
    assert lines_of(metrics.render()) < PAGE_SERIES
    assert lines_of(metrics.page(OPENMETRICS).body) < PAGE_SERIES


def test_a_label_of_a_megabyte_is_cut() -> None:
    metrics = Metrics()
    metrics.observe(make_record(request_model="x" * 1_000_000))
    assert len(metrics.render()) < 60_000


PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
DOTS = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"

HOSTILE = (
    'quo"te',
    "back\\slash",
    "new\nline",
    "\u202edrawkcab",
    "\x00",
    "emoji \U0001f600",
    "}",
    "{le=",
    "# EOF",
    " ",
)


def hostile_metrics(names: OtelNames, streams: int) -> Metrics:
    metrics = Metrics(otel_names=names)
    for number in range(streams):
        text = f"{number}{HOSTILE[number % len(HOSTILE)]}{'m' * (1_000_000 if number % 100 == 0 else 100)}"
        metrics.observe(
            make_record(
                upstream=text, request_model=text, response_model=text, dialect=text, outcome=text, finish_reason=text,
                trace_id=text, stream_id=text, error=Error(text, text, text), usage=make_usage(source=text),
                timing=make_timing(first_reasoning_s=0.3, first_tool_s=0.7),
            )
        )  # fmt: skip
    return metrics


@pytest.mark.slow
@pytest.mark.parametrize(("names", "read_as"), [("off", ""), ("latest", OPENMETRICS), ("v1.41", DOTS)])
def test_l1_hostile_names_neither_grow_the_page_nor_slow_a_scrape(names: OtelNames, read_as: str) -> None:
    """The whole page has its bounds in each format. A page of a few names is read besides, since that takes longest: with
    each variant of OpenTelemetry's names in another format.
    """
    metrics = hostile_metrics(names, 600)
    for accept in ("", OPENMETRICS, DOTS, PROTOBUF):
        assert cpu_seconds_of(functools.partial(metrics.page, accept)) < MOST_S
        if accept != PROTOBUF:
            assert lines_of(metrics.page(accept).body) < PAGE_SERIES
    page = hostile_metrics(names, 60).page(read_as)
    assert read_page(page.body, openmetrics="openmetrics" in page.content_type).total(STREAMS) == 60


def test_an_exemplar_names_the_latest_stream_and_the_slowest_of_the_last_hundred() -> None:
    def shown(*streams: tuple[str, float]) -> dict[str, float]:
        metrics = Metrics()
        for name, seconds in streams:
            timing = make_timing(first_token_s=seconds, last_token_s=10.0)
            metrics.observe(make_record(stream_id=name, trace_id="4bf9", timing=timing))
        families = parse_openmetrics(metrics.page(OPENMETRICS).body.decode())
        samples = [
            one for family in families if family.name.endswith("to_first_token_seconds") for one in family.samples
        ]
        found = {}
        for sample in samples:
            if sample.exemplar is not None:
                assert sample.exemplar.labels["trace_id"] == "4bf9"
                assert sample.exemplar.value <= float(sample.labels["le"])
                found[sample.exemplar.labels["stream_id"]] = sample.exemplar.value
        return found

    assert shown(("a", 0.2)) == {"a": 0.2}
    assert shown(("slow", 9.0), ("a", 0.2), ("b", 0.3)) == {"slow": 9.0, "b": 0.3}
    assert shown(("slow", 9.0), *[(str(number), 0.2) for number in range(100)]) == {"99": 0.2}
    assert b"stream_id" not in Metrics().page("").body


# The most that the labels of an exemplar may have, names and values together (OpenMetrics 1.0, in UTF-8 characters).
EXEMPLAR_CHARS = 128


@pytest.mark.parametrize("text", ["x" * 10_000, "\u00e9" * 200, '"' * 200, "\n" * 200, "\ud800" * 200, "\0" * 200])
def test_l2_an_exemplar_of_a_forged_record_is_cut_to_what_is_allowed(text: str) -> None:
    metrics = Metrics()
    metrics.observe(make_record(stream_id=text, trace_id=text, started_at=text))
    families = parse_openmetrics(metrics.page(OPENMETRICS).body.decode())
    exemplars = [sample.exemplar for family in families for sample in family.samples if sample.exemplar is not None]
    assert exemplars
    assert max(sum(map(len, (*one.labels, *one.labels.values()))) for one in exemplars) <= EXEMPLAR_CHARS


def test_an_exemplar_without_a_trace_has_the_stream_alone() -> None:
    metrics = Metrics()
    metrics.observe(make_record(trace_id=None))
    body = metrics.page(OPENMETRICS).body.decode()
    assert f' # {{stream_id="{make_record().stream_id}"}} 0.2\n' in body
    assert "stream_id" not in metrics.render().decode(), "the classic format has no exemplars"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (
            "text/plain;version=1.0.0;escaping=allow-utf-8",
            "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ),
        ("text/plain;version=0.0.4;escaping=allow-utf-8", "text/plain; version=0.0.4; charset=utf-8"),
        (f"text/plain;q=0.9,{PROTOBUF};q=0.3", "text/plain; version=0.0.4; charset=utf-8"),
        (f"{PROTOBUF},{OPENMETRICS.replace(';q', ';x')};q=0.8", "application/vnd.google.protobuf"),
        ("application/vnd.google.protobuf;encoding=text", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;q=0,text/plain;q=0.1", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;q=much", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ],
)
def test_the_format_is_the_one_of_the_highest_weight(accept: str, content_type: str) -> None:
    assert Metrics().page(accept).content_type.startswith(content_type)


def test_models_that_no_upstream_served_leave_space_for_others() -> None:
    metrics = Metrics()
    for number in range(1_000):
        metrics.observe(
            make_record(
                request_model=f"nonsense-{number}", response_model=None, outcome="http_error",
                usage=ABSENT, counts=make_counts(token_events=0),
            )
        )  # fmt: skip
    metrics.observe(make_record(request_model="the-real-one"))
    page = read_page(metrics.render())
    models = page.label_values("model")
    assert "the-real-one" in {dict(labels).get("model") for name, labels in page.samples if name == STREAMS}
    assert "nonsense-1" in models
    assert "nonsense-999" not in models


def test_sources_are_read_at_each_scrape_and_added_up() -> None:
    metrics = Metrics()
    scrapes = []

    def source() -> Iterable[Sample]:
        scrapes.append(1)
        yield Sample("streamgauge_tap_reads_dropped_total", len(scrapes), {"reason": "crash"})
        yield Sample("streamgauge_worker_lag_messages", 5, {"partition": 3})

    metrics.register(source)
    metrics.register(lambda: [Sample("streamgauge_worker_lag_messages", 2, {"partition": "3"})])
    metrics.render()
    page = read_page(metrics.render())
    assert page.value("streamgauge_tap_reads_dropped_total", reason="crash") == 2
    assert page.value("streamgauge_worker_lag_messages", partition="3") == 7


def test_a_source_that_fails_hides_nothing_else() -> None:
    metrics = Metrics()
    metrics.observe(make_record())

    def broken() -> Iterable[Sample]:
        yield Sample("streamgauge_spool_bytes", 5, {})
        raise OSError("the disk is gone")

    metrics.register(broken)
    metrics.register(lambda: [Sample("streamgauge_no_such_thing", 1, {}), Sample("streamgauge_spool_rows", 3, {})])
    page = read_page(metrics.render())
    assert page.value("streamgauge_metric_source_failures_total") == 2
    assert page.value("streamgauge_spool_rows") == 3
    assert page.total(STREAMS) == 1
    assert "streamgauge_spool_bytes" not in page.names_with_samples(), "half a snapshot is none"


def test_counters_of_this_processs_parts_begin_at_zero_and_gauges_do_not() -> None:
    tap = read_page(Metrics([MetricSource.TAP]).render()).names_with_samples()
    worker = read_page(Metrics([MetricSource.WORKER]).render()).names_with_samples()
    assert "streamgauge_tap_reads_seen_total" in tap - worker
    assert "streamgauge_late_segments_total" in worker - tap
    assert "streamgauge_tap_reads_waiting" not in tap | worker


def test_a_gauge_can_be_taken_off_the_page() -> None:
    metrics = Metrics()
    metrics.set("streamgauge_worker_lag_messages", 5, partition=1)
    metrics.set("streamgauge_worker_lag_messages", 7, partition=2)
    metrics.unset("streamgauge_worker_lag_messages", partition=1)
    metrics.unset("streamgauge_worker_lag_messages", partition=3)
    page = read_page(metrics.render())
    assert page.label_values("partition") == {"2"}
    with pytest.raises(UnknownMetricError):
        metrics.unset("streamgauge_bundles_total")


def test_all_series_of_a_gauge_at_once() -> None:
    metrics = Metrics()
    metrics.set_all("streamgauge_silent_streams", {"nimbus": 3, None: 1})
    metrics.set_all("streamgauge_silent_streams", {"sansa": 2})
    page = read_page(metrics.render())
    values = {upstream: page.value("streamgauge_silent_streams", upstream=upstream) for upstream in ("nimbus", "sansa")}
    assert values == {"nimbus": 0, "sansa": 2}, "a series that has no value now stays, with 0"
    assert page.value("streamgauge_silent_streams", upstream="unknown") == 0
    with pytest.raises(UnknownMetricError):
        metrics.set_all("streamgauge_stalls_total", {"nimbus": 1})


def test_values_beyond_the_limit_of_a_label_add_up() -> None:
    metrics = Metrics()
    metrics.set_all("streamgauge_silent_streams", {f"host-{number}": 1 for number in range(1_000)})
    page = read_page(metrics.render())
    assert page.total("streamgauge_silent_streams") == 1_000
    assert page.value("streamgauge_silent_streams", upstream="other") == 1_002 - LABELS["upstream"].budget


def test_build_info_names_the_version() -> None:
    assert read_page(Metrics().render()).value("streamgauge_build_info", version=streamgauge.__version__) == 1


def test_what_an_assembler_counts() -> None:
    metrics = Metrics()
    metrics.add_counts({"duplicate_bundles": 3, "late_segments": 1, "something_new": 9})
    metrics.add_counts({"duplicate_bundles": 2})
    page = read_page(metrics.render())
    assert page.value("streamgauge_duplicate_bundles_total") == 5
    assert page.value("streamgauge_late_segments_total") == 1


def test_wrong_use_is_refused() -> None:
    metrics = Metrics()
    with pytest.raises(UnknownMetricError):
        metrics.add("streamgauge_streems_total")
    with pytest.raises(UnknownMetricError):
        metrics.set("streamgauge_bundles_total", 1)
    with pytest.raises(ValueError, match="has the labels"):
        metrics.add("streamgauge_ledger_rows_total", 1, outcome="new")
    for value in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="cannot grow"):
            metrics.add("streamgauge_bundles_total", value)


def test_threads_lose_no_update() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(500):
            metrics.observe(make_record())
            metrics.add("streamgauge_bundles_total", 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        page = read_page(metrics.render())
        counted = page.total("streamgauge_time_to_first_token_seconds_count")
        assert counted == page.total("streamgauge_time_to_first_byte_seconds_count"), "one record is one update"
    for thread in threads:
        thread.join()
    page = read_page(metrics.render())
    assert page.total(STREAMS) == 2_000
    assert page.value("streamgauge_bundles_total") == 4_000
