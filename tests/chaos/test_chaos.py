"""Chaos in short: each kind of fault once or a few times, and the verifier's result for every stream. In full: `make
chaos`.
"""

import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet, Left, Seat, reason
from tests.chaos.run import TAKEOVER_S, USUAL_START_S, Chaos, Plan, amiss, late
from tests.kafka_broker.jars import NoBrokerError
from tests.running import Running

# Three workers killed in rotation and two taps besides, a worker stopped for longer than its session, those who took
# its partitions killed when it continues, one outage of the broker. Other tests run at the same time, so the time of a
# takeover is only judged in the full run.
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
    clients=3,
)


def test_planned_phase_without_latencies_is_a_finding() -> None:
    plan = Plan(away_s=0)
    soon = {phase: {"count": 9, "max_s": TAKEOVER_S} for phase in ("calm", "kills", "stopped", "brokers")}
    assert late(plan, USUAL_START_S, soon) == []
    assert late(plan, USUAL_START_S, soon | {"kills": {}}) == [
        "kills: of no stream it is known how late its record came"
    ]
    slow = soon | {"calm": {"count": 9, "max_s": 1.5 * TAKEOVER_S}}
    assert late(plan, USUAL_START_S, slow) == ["calm: a record came 30.0 s after its stream's end"]
    assert late(plan, 2 * USUAL_START_S, slow) == []
    assert len(late(Plan(), USUAL_START_S, {})) == 4


@pytest.mark.parametrize("phase", ["woken", "brokers"])
def test_a_process_that_lost_its_broker_or_group_may_end(phase: str) -> None:
    assert amiss([Left("worker-1", 3, "the broker is away", phase)]) == []
    assert amiss([Left("worker-1", 3, "the topic was recreated", phase)]) == [
        f"{phase}: worker-1 ended with 3: the topic was recreated"
    ]
    assert amiss([Left("worker-1", 70, "a bug", phase)]) == [f"{phase}: worker-1 ended with 70: a bug"]


@pytest.mark.parametrize("phase", ["start", "calm", "kills", "away", "stopped", "end"])
def test_process_that_ends_although_broker_and_group_work_is_a_finding(phase: str) -> None:
    left = Left("worker-1", 3, "the broker is away", phase)
    assert amiss([left]) == [f"{phase}: worker-1 ended with 3: the broker is away"]


def test_the_phase_in_which_a_process_ended_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest after a phase is part of it."""
    chaos = Chaos(tmp_path, Plan(calm_s=0, away_s=0))
    fleet = chaos._fleet = Fleet(tmp_path, "127.0.0.1:1", "chaos", {}, 1, 0)
    seat = fleet.workers[0]
    log = tmp_path / "worker-0.log"
    log.write_text("it begins\nthe broker is away\n")

    with subprocess.Popen(["sh", "-c", "exit 3"], text=True) as process:
        seat.running = Running(process, log, 0, tmp_path)

    async def end(*_: object) -> None:
        fleet._note(seat)

    for name in ("_kills", "_stopped", "_woken", "_brokers"):
        monkeypatch.setattr(chaos, name, end)
    monkeypatch.setattr(asyncio, "sleep", end)
    monkeypatch.setattr(fleet, "wait_ready", lambda: None)
    asyncio.run(chaos._torment())
    phases = [phase for phase in ("kills", "stopped", "woken", "brokers") for _ in range(2)]
    assert fleet.left == [Left("worker-0", 3, "the broker is away", phase) for phase in phases]


def test_a_finding_reports_what_is_known_about_its_streams(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, Plan(calm_s=0, kills_s=0, away_s=0, stopped_s=0))
    chaos._fleet = Fleet(tmp_path, "127.0.0.1:1", "chaos", {}, 1, 0)
    chaos._truth.enter("kills")
    lost, wrong, fine = (chaos._truth.begin("tap-0", {}) for _ in range(3))
    chaos._in_log = {wrong.trace_id, fine.trace_id}
    faults = {"missing": [lost.trace_id], "differing": [f"{wrong.trace_id}: outcome completed, not truncated"]}
    chaos.result.verdict = {"faults": faults, "latency": {}}
    chaos._judge()
    assert chaos.result.findings == ["missing: 1", "differing: 1"]
    known = [(one["trace_id"], one["source"], one["in_log"]) for one in chaos.result.evidence]
    assert known == [(lost.trace_id, "tap-0", False), (wrong.trace_id, "tap-0", True)]


def test_a_process_that_has_ended_is_not_stopped() -> None:
    """A signal counts only if the process exists."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            seat = Seat("worker-0", "worker", [], Path())
            assert not seat.signal(signal.SIGSTOP)
            seat.running = Running(process, Path(), 0, Path())
            assert seat.signal(signal.SIGSTOP)
        finally:
            process.kill()
        process.wait()
        assert not seat.signal(signal.SIGCONT)


@pytest.mark.kafka
@pytest.mark.timeout(600)  # two minutes on an idle machine
def test_every_stream_has_one_record_whatever_is_killed(tmp_path: Path) -> None:
    """W1, W2, W4, W5, F1, F2, F5, T1, R1: kills in rotation, a zombie, kills of broker and taps, under traffic."""
    try:
        result = asyncio.run(Chaos(tmp_path, SHORT).run())
    except NoBrokerError as why:
        pytest.skip(f"no Kafka: {why}")
    assert result.findings == [], result
    assert result.verdict["holds"]
    assert result.partitions == 8
    assert result.verdict["streams"] > 250
    assert result.replayed > 250
    assert result.done["workers killed"] >= 2
    assert (result.done["workers stopped"], result.done["workers killed as one woke"]) == (1, 2)
    assert {"workers woken", "broker outages", "taps killed"} <= result.done.keys()
    assert {"completed", "abandoned", "client_abort", "stream_error", "truncated"} <= result.verdict["outcomes"].keys()


def test_a_tap_that_has_ended_has_no_address(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, "127.0.0.1:1", "chaos", {}, 0, 1)
    log = tmp_path / "tap-0.log"
    log.write_text("tap: http://127.0.0.1:4000/a -> http://127.0.0.1:5000\n")
    with subprocess.Popen(["sleep", "600"], text=True) as process:
        fleet.taps[0].running = Running(process, log, 0, tmp_path)
        assert fleet.url_of(0) == "http://127.0.0.1:4000"
        process.kill()
        process.wait()
        assert fleet.url_of(0) == ""


def test_why_a_process_ended_is_its_last_error() -> None:
    stuck = '{"at":2,"level":"error","part":"streamgauge.worker","message":"the worker is stuck and exits: why"}'
    stopping = '{"at":3,"level":"info","part":"streamgauge.worker.faust.transport","message":"Stopping..."}'
    assert reason(f"worker: ready\n{stuck}\n{stopping}\n") == stuck
    assert reason("worker: no topics") == "worker: no topics"
    assert reason("") == ""
