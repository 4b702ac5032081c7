"""Attributes and rate limits through `tap`, a real Kafka, and a worker: its record, its metrics, and its ledger."""

import csv
import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.provider import BEGIN, REST, provider
from tests.running import PATIENCE_S, command, start, start_tap, wait_for, wait_until_ready

BODY = json.dumps({"model": "small-1", "stream": True, "messages": []})
HEADERS = {"content-type": "application/json", "x-agent": "planner"}


def ask(url: str) -> None:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
    connection.request("POST", "/small/v1/chat/completions", BODY, HEADERS)
    assert connection.getresponse().read() == BEGIN + REST
    connection.close()


@pytest.mark.kafka
def test_through_kafka(kafka: str, prefix: str, tmp_path: Path) -> None:
    broker = ["--kafka", kafka, "--topic-prefix", prefix]
    place = tmp_path / "worker"
    own = ["--admin", "127.0.0.1:0", "--data-dir", str(place), "--metric-attribute", "agent"]
    with provider() as small, start("worker", [*broker, *own], place) as worker:
        small.headers = {"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "40"}
        wait_until_ready(worker)
        with start_tap("tap", {"small": small.url}, tmp_path / "tap", *broker, "--attribute", "agent=X-Agent") as tap:
            ask(tap.url)
            [record] = worker.wait_for_records(1)
            assert tap.metrics()["streamgauge_tap_response_heads_total"] == 1
            assert tap.stop() == 0
        assert small.asked[0]["x-agent"] == "planner"
        assert record["attributes"] == {"agent": "planner"}
        assert (record["rate_limit"]["tokens_limit"], record["rate_limit"]["tokens_remaining"]) == (1000, 40)
        labels = 'agent="planner",dialect="openai-chat",model="small-1",outcome="completed",upstream="small"'
        series = f"streamgauge_streams_total{{{labels}}}"
        page = wait_for(lambda: (found := worker.metrics()).get(series) and found, "the stream in the metrics")
        labels = 'credential_id="unknown",kind="tokens",upstream="small"'
        assert page[f"streamgauge_rate_limit_remaining{{{labels}}}"] == 40
        assert worker.stop() == 0
    done = command("ledger", "query", "--data-dir", str(place), "--by", "agent,model", "--output", "csv")
    [total] = csv.DictReader(done.stdout.splitlines())
    assert (total["agent"], total["streams"], total["total_tokens"]) == ("planner", "1", "5")
