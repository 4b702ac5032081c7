"""Chaos in short: each kind of fault once or a few times, and the verifier's word on every stream. In full: `make chaos`."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.run import TAKEOVER_S, USUAL_START_S, Chaos, Plan, late
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


def test_a_phase_that_was_planned_has_to_tell_how_late_records_came() -> None:
    plan = Plan(away_s=0)
    soon = {phase: {"count": 9, "max_s": TAKEOVER_S} for phase in ("calm", "kills", "stopped", "brokers")}
    assert late(plan, USUAL_START_S, soon) == []
    assert late(plan, USUAL_START_S, soon | {"kills": {}}) == [
        "kills: of no stream it is known how late its record came"
    ]
    slow = soon | {"calm": {"count": 9, "max_s": 1.5 * TAKEOVER_S}}
    assert late(plan, USUAL_START_S, slow) == ["calm: a record came 30.0 s behind its stream's end"]
    assert late(plan, 2 * USUAL_START_S, slow) == []
    assert len(late(Plan(), USUAL_START_S, {})) == 4


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
