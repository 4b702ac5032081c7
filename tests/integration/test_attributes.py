"""Attributes and rate limits through `tap`, a real Kafka, and a worker: its record, its metrics, and its ledger."""

import csv
import json
from pathlib import Path

import pytest

from tests.integration.provider import BEGIN, REST, provider
from tests.running import command, start_tap, start_worker, wait_for, wait_until_ready

BODY = json.dumps({"model": "small-1", "stream": True, "messages": []})
HEADERS = {"content-type": "application/json", "x-agent": "planner"}


@pytest.mark.kafka
def test_through_kafka(kafka: str, prefix: str, tmp_path: Path) -> None:
    broker = ["--kafka", kafka, "--topic-prefix", prefix]
    started = start_worker(kafka, prefix, tmp_path / "worker", "--metric-attribute", "agent")
    with provider() as small, started as worker:
        small.headers = {"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "40"}
        wait_until_ready(worker)
        with start_tap("tap", {"small": small.url}, tmp_path / "tap", *broker, "--attribute", "agent=X-Agent") as tap:
            with tap.post(BODY, HEADERS) as answer:
                assert answer.read() == BEGIN + REST
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
    done = command("ledger", "query", "--data-dir", str(tmp_path / "worker"), "--by", "agent,model", "--output", "csv")
    [total] = csv.DictReader(done.stdout.splitlines())
    assert (total["agent"], total["streams"], total["total_tokens"]) == ("planner", "1", "5")
