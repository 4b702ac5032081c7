"""The soak in short: a minute under load, the broker killed and back; and what would be a finding."""

import asyncio
from pathlib import Path

import pytest
from bench.soak import report, soak
from bench.soak_watch import Sample, _judge

from tests.kafka_broker.jars import NoBrokerError

MIB = 1024 * 1024


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_a_short_soak_holds(tmp_path: Path) -> None:
    try:
        result = asyncio.run(soak(40, tmp_path, up_s=(4, 8), down_s=(2, 5)))
    except NoBrokerError as why:
        pytest.skip(f"no Kafka: {why}")
    said = report(result)
    assert result.findings == [], said
    assert result.records == result.streams > 100
    assert result.outages >= 2
    assert result.most_waiting > 1000, "no outage was felt: this shows nothing"
    assert {verdict.name for verdict in result.verdicts} == {"parent", "recorder", "relay"}
    assert said.endswith("All held.")


def run_of(memory: list[int], descriptors: list[int]) -> list[Sample]:
    return [
        Sample(2.0 * place, one, many, 3) for place, (one, many) in enumerate(zip(memory, descriptors, strict=True))
    ]


def test_what_is_flat_and_what_is_not() -> None:
    wobbling = [(60 + place % 5) * MIB for place in range(300)]
    assert _judge("relay", run_of(wobbling, [20 + place % 3 for place in range(300)])).findings == ()
    warming = [min(40 + place, 60) * MIB for place in range(300)]
    assert _judge("relay", run_of(warming, [20] * 300)).findings == ()
    leaking = [60 * MIB + place * 100_000 for place in range(300)]
    verdict = _judge("relay", run_of(leaking, [20 + place // 15 for place in range(300)]))
    assert len(verdict.findings) == 2
    assert 2_900_000 < verdict.slope < 3_100_000
