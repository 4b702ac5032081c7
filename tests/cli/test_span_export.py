"""`--otlp` of the commands that write a ledger: what it needs, and that new records alone are sent."""

import sys
from pathlib import Path

import pytest

from streamgauge.cli.assembling import LedgerDelivery
from streamgauge.cli.span_export import exported_spans
from streamgauge.cli.worker import LedgerStore
from streamgauge.core.record import encode_record
from streamgauge.errors import MissingExtra, UsageFault
from streamgauge.ledger import SqliteLedger
from streamgauge.metrics.prometheus import Metrics
from streamgauge.settings.declarations import Settings
from streamgauge.settings.sources import load
from tests.http_serving import serving
from tests.metrics.records import make_record
from tests.running import here, wait_for
from tests.spans.receiver import Receiver

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def results(metrics: Metrics) -> dict[str, str]:
    lines = metrics.render().decode().splitlines()
    return {
        line.partition('result="')[2].partition('"')[0]: line.rpartition(" ")[2]
        for line in lines
        if line.startswith("streamgauge_spans_total{")
    }


def test_without_a_receiver_nothing_is_sent_and_no_series_is_shown() -> None:
    metrics = Metrics()
    with exported_spans(load({}), metrics) as take_rows:
        take_rows([])
    assert results(metrics) == {}


def test_records_that_are_new_to_the_ledger_are_sent(tmp_path: Path) -> None:
    """By `up`, and by a worker: none twice, and each with the address of its upstream, if that is known."""
    records = [
        make_record(stream_id=f"0190b4a0-0000-7000-8000-{number:012d}", trace_id=TRACE, parent_span_id=PARENT)
        for number in (1, 2, 3)
    ]
    metrics = Metrics()
    with serving(Receiver()) as receiver, SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        settings = load({"otlp": receiver.url, "upstream": "nimbus=https://api.nimbus.example/v1"})
        with exported_spans(settings, metrics) as take_rows:
            assert set(results(metrics).values()) == {"0.0"}
            deliver = LedgerDelivery(ledger, metrics, take_rows=take_rows)
            deliver(records[:2])
            deliver(records[:2])
            stored = LedgerStore(ledger, take_rows).insert([b"{", *map(encode_record, records)])
            assert (stored.new, stored.same, stored.unreadable) == (1, 2, [0])
            wait_for(lambda: len(receiver.spans) == 3, "three spans")
    assert len({span.span_id for span in receiver.spans}) == 3
    assert results(metrics)["sent"] == "3.0"
    for span in receiver.spans:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        known = {one.key: one.value for one in span.attributes}
        assert (known["server.address"].string_value, known["server.port"].int_value) == ("api.nimbus.example", 443)


def test_a_header_without_a_receiver_is_refused() -> None:
    with (
        pytest.raises(UsageFault, match="--otlp-header requires --otlp URL"),
        exported_spans(load({"otlp_header": ["a=b"]}), Metrics()),
    ):
        pass


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("streamgauge.spans.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    says = r"--otlp requires the extra `otlp`: run pip install 'streamgauge\[otlp\]'$"
    with pytest.raises(MissingExtra, match=says), exported_spans(Settings(otlp="http://h"), Metrics()):
        pass


def test_config_show_hides_the_values_of_headers(tmp_path: Path) -> None:
    (tmp_path / "header").write_text("authorization=Bearer CANARY\n")
    (tmp_path / "settings.toml").write_text('otlp = "http://h:4318"\notlp_header = ["x-key=https://h/CANARY"]\n')
    for options in (
        ["--config", str(tmp_path / "settings.toml")],
        ["--otlp", "http://h:4318", "--otlp-header-file", str(tmp_path / "header")],
    ):
        for form in ("table", "json"):
            done = here("config", "show", "up", *options, "--output", form)
            assert done.returncode == 0, done.stderr
            assert "CANARY" not in done.stdout + done.stderr
            assert "http://h:4318" in done.stdout
            assert "x-key=***" in done.stdout or "authorization=***" in done.stdout
