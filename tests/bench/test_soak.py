"""A short soak: under load and for a while under twice the load, the broker killed and restarted. In full 40 minutes."""

import asyncio
from pathlib import Path

import pytest
from bench.soak import report, soak

from tests.faults.lengths import FULL, length
from tests.kafka_broker.jars import NoBrokerError


@pytest.mark.kafka
@pytest.mark.timeout(length(240, 3600))
def test_r1_a_short_soak_holds(tmp_path: Path) -> None:
    try:
        outages = {} if FULL else {"up_s": (4.0, 8.0), "down_s": (2.0, 5.0)}
        result = asyncio.run(soak(length(40.0, 2400.0), tmp_path, surge=True, **outages))
    except NoBrokerError as error:
        pytest.skip(f"no Kafka: {error}")
    text = report(result)
    assert result.findings == [], text
    assert result.records == result.streams > 100
    assert result.outages >= 1  # more on a machine on which the broker starts quickly
    assert result.most_waiting > 1000, "no outage had an effect, so the test shows nothing"
    assert set(result.outcomes) == {"completed", "stream_error", "client_abort", "upstream_reset", "truncated"}
    assert {verdict.name for verdict in result.verdicts} == {"supervisor", "collector", "relay"}
    assert text.endswith("No check failed.")
