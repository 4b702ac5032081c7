"""Streams through `up`, as spans in a real OpenTelemetry Collector."""

import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.provider import BEGIN, REST, Provider, provider
from tests.integration.test_up import Stream
from tests.running import Running, start_up, wait_for
from tests.spans.collector import BUILD_S, Collector, collector_program, running_collector

pytestmark = pytest.mark.slow

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TOKEN = "a-token-of-the-receiver"


@pytest.fixture(scope="module")
def program() -> str:
    return collector_program()


@pytest.mark.timeout(BUILD_S + 300)
def test_streams_are_spans_in_a_collector(program: str, tmp_path: Path) -> None:
    (tmp_path / "header").write_text(f"authorization=Bearer {TOKEN}\n")
    with running_collector(program, tmp_path) as collector, provider() as small:
        options = ("--otlp", collector.url, "--otlp-header-file", str(tmp_path / "header"))
        with start_up({"small": small.url}, tmp_path / "data", *options) as up:
            called = Stream(up, traceparent=f"00-{TRACE}-{PARENT}-01")
            assert called.rest() == BEGIN + REST
            left = _left_early(up, small)
            alone = Stream(up)
            assert alone.rest() == BEGIN + REST
            for stream in (called, left, alone):
                stream.close()
            wait_for(lambda: up.metrics().get('streamgauge_spans_total{result="sent"}') == 3, "three spans")
            records = {record["stream_id"]: record for record in up.wait_for_records(3)}
            assert up.stop() == 0
        _check(collector, records, urlsplit(small.url).port)
        assert TOKEN not in up.log + collector.text
        for secret in ("A SECRET", "ANOTHER-SECRET", "Hello", "world"):
            assert secret not in collector.text


def _left_early(up: Running, small: Provider) -> Stream:
    small.go_on.clear()
    stream = Stream(up)
    assert stream.read(len(BEGIN)) == BEGIN
    wait_for(lambda: up.metrics().get("streamgauge_open_streams"), "open stream")
    stream.close()
    wait_for(lambda: up.metrics().get('streamgauge_spans_total{result="sent"}') == 2, "the span of a client that left")
    small.go_on.set()
    return stream


def _check(collector: Collector, records: dict[str, dict[str, object]], port: int | None) -> None:
    spans = collector.spans()
    assert len(spans) == 3
    for span in spans:
        stream_id = span.attributes["streamgauge.stream_id"].removeprefix("Str(").removesuffix(")")
        record = records.pop(stream_id)
        facts, attributes = span.facts, span.attributes
        assert (facts["Name"], facts["Kind"]) == ("chat small-1", "Client")
        timing = record["timing"]
        assert isinstance(timing, dict)
        start = datetime.fromisoformat(str(record["started_at"])).timestamp()
        assert _time(facts["Start time"]) == pytest.approx(start, abs=2e-6)
        assert _time(facts["End time"]) == pytest.approx(start + timing["end_s"], abs=2e-6)
        first, *others = span.events
        assert (first["Name"], others) == ("streamgauge.first_token", [])
        assert _time(first["Timestamp"]) == pytest.approx(start + timing["first_token_s"], abs=2e-6)
        assert attributes["gen_ai.operation.name"] == "Str(chat)"
        assert attributes["gen_ai.provider.name"] == "Str(openai)"
        assert attributes["gen_ai.request.model"] == attributes["gen_ai.response.model"] == "Str(small-1)"
        assert (attributes["server.address"], attributes["server.port"]) == ("Str(127.0.0.1)", f"Int({port})")
        if record["outcome"] == "completed":
            assert (facts["Status code"], "error.type" in attributes) == ("Unset", False)
            assert attributes["gen_ai.response.finish_reasons"] == 'Slice(["stop"])'
            assert attributes["gen_ai.usage.input_tokens"] == "Int(3)"
            assert attributes["gen_ai.usage.output_tokens"] == "Int(2)"
        else:
            assert record["outcome"] == "client_abort"
            assert (facts["Status code"], facts["Status message"]) == ("Error", "client_abort")
            assert attributes["error.type"] == "Str(client_abort)"
        if record["trace_id"]:
            assert (facts["Trace ID"], facts["Parent ID"]) == (TRACE, PARENT)
        else:
            assert (facts["Trace ID"], facts["Parent ID"]) == (stream_id.replace("-", ""), "")
        assert re.fullmatch("[0-9a-f]{16}", facts["ID"])
    assert records == {}


def _time(text: str) -> float:
    """Seconds since 1970 of a time that Go has written: up to nine digits of a second, none of which is a closing 0."""
    found = re.fullmatch(r"(\S+ [0-9:]+)(\.\d+)? \+0000 UTC", text)
    assert found, text
    whole = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    return whole + float(found[2] or 0)
