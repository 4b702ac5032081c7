"""Chaos in short: each kind of fault once or a few times, and the verifier's word on every stream. In full: `make chaos`."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.run import Chaos, Plan
from tests.kafka_broker.jars import NoBrokerError

# Three workers killed in rotation and two taps beside them, a worker stopped for longer than its session, those who took its
# partitions killed as it wakes, one outage of the broker. Other tests run beside: how soon one takes over is judged in full.
SHORT = Plan(
    calm_s=4,
    kills_s=18,
    one_at_a_time=True,
    tap_every_s=8,
    away_s=0,
    stopped_s=19,
    woken_s=5,
    brokers_s=1,
    up_s=3,
    down_s=2,
    takeover_s=60,
)


@pytest.mark.kafka
@pytest.mark.timeout(600)  # two minutes on a machine of its own
def test_every_stream_has_one_record_whatever_dies(tmp_path: Path) -> None:
    """W1, W2, W4, W5, F1, F2, F5, T1, R1: kills in rotation, a zombie, a broker and taps that die, under traffic."""
    try:
        result = asyncio.run(Chaos(tmp_path, SHORT).run())
    except NoBrokerError as why:
        pytest.skip(f"no Kafka: {why}")
    assert result.findings == [], result
    assert result.verdict["holds"]
    assert result.partitions == 8
    assert result.verdict["streams"] > 500
    assert result.replayed > 500
    assert {"workers killed", "workers stopped", "broker outages", "taps killed"} <= result.done.keys()
    assert {"completed", "abandoned", "client_abort", "stream_error", "truncated"} <= result.verdict["outcomes"].keys()
