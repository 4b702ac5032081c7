"""A short soak: under load, the broker killed and restarted."""

import asyncio
from pathlib import Path

import pytest
from bench.soak import report, soak

from tests.kafka_broker.jars import NoBrokerError


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_r1_a_short_soak_holds(tmp_path: Path) -> None:
    try:
        result = asyncio.run(soak(40, tmp_path, up_s=(4, 8), down_s=(2, 5)))
    except NoBrokerError as error:
        pytest.skip(f"no Kafka: {error}")
    text = report(result)
    assert result.findings == [], text
    assert result.records == result.streams > 100
    assert result.outages >= 2
    assert result.most_waiting > 1000, "no outage had an effect, so the test shows nothing"
    assert set(result.endings) == {"completed", "stream_error", "client_abort", "upstream_reset", "truncated"}
    assert {verdict.name for verdict in result.verdicts} == {"parent", "recorder", "relay"}
    assert text.endswith("No check failed.")
