"""I7 and W4: a worker works, waits for a dependency, or ends with its reason; with a real broker."""

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.kafka import topics
from streamgauge.worker.faults import WorkerError
from tests.faults.lengths import length
from tests.integration.synthetic import SyntheticTap, assembled, distinct
from tests.integration.workers import WorkerProcess, worker
from tests.kafka_broker.administration import admin, delete_topic
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import PARTITIONS, make_topics
from tests.kafka_broker.reading import read_all, read_until, write_all
from tests.running import start_worker, wait_for, wait_until_ready

pytestmark = pytest.mark.kafka

# The watchdog's limit: shorter than a test, longer than a checkpoint takes on a busy machine (seconds).
_STUCK_S = 12.0
# The shortest session that a broker accepts by default (`group.min.session.timeout.ms`; seconds).
_SESSION_S = 6.0
_STUCK_CODE = 75
# How long a worker is stopped, and how long its broker is away: beyond the session and the watchdog's limit (seconds).
_STOPPED_S = length(2 * _SESSION_S + _STUCK_S, 90.0)
_AWAY_S = length(45.0, 300.0)


def write(bootstrap: str, prefix: str, messages: list[tuple[int, bytes]]) -> None:
    asyncio.run(write_all(bootstrap, f"{prefix}.segments", messages))


def records_of(bootstrap: str, prefix: str, count: int, timeout_s: float = 90) -> dict[str, set[bytes]]:
    """The records topic, once it has `count` streams."""
    topic = f"{prefix}.records"
    return distinct(asyncio.run(read_until(bootstrap, topic, lambda all_: len(distinct(all_)) >= count, timeout_s)))


def has_all(bootstrap: str, prefix: str, count: int) -> bool:
    """Whether the records topic has `count` streams now."""
    return len(distinct(asyncio.run(read_all(bootstrap, f"{prefix}.records")))) >= count


def assert_all_once(bootstrap: str, prefix: str, count: int) -> None:
    """Exactly one record per stream, equal to the one that a replay of the log gives."""
    found = records_of(bootstrap, prefix, count)
    expected = assembled(asyncio.run(read_all(bootstrap, f"{prefix}.segments")))
    assert len(expected) == count
    assert found == {stream: {record} for stream, record in expected.items()}


def instances(ids: set[str]) -> set[str]:
    """The constant part of a static member's id: the broker appends a UUID."""
    return {one[:-37] for one in ids}


async def members(bootstrap: str, prefix: str) -> set[str]:
    """The ids of the group's members, as the group reports them."""
    async with admin(bootstrap) as client:
        (answer,) = await client.describe_consumer_groups([prefix])
        return {member[1] if len(member) > 5 else member[0] for member in answer.groups[0][5]}


# --- I7: no zombies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "reason", "cause"),
    [
        ("block_the_loop", "the event loop has been blocked for", "loop"),
        ("block_the_consumer", "the consumer's event loop has been blocked for", "loop"),
        ("hang_checkpoints", ".segments/0 has stayed at offset 0 for", "commit"),
        ("commit_nothing", ".segments/0 has stayed at offset 0 for", "commit"),
        ("hang_the_ledger", ".records/", "commit"),
        ("lose_the_recovery", "has not recovered the state of its partitions", "group"),
        ("assign_nothing", "no worker of the group has", "group"),
    ],
)
def test_i7_a_stuck_worker_ends_with_its_reason(
    kafka: str, prefix: str, tmp_path: Path, fault: str, reason: str, cause: str
) -> None:
    settings: dict[str, Any] = {"bootstrap": kafka, "prefix": prefix, "ledger": f"sqlite:////{tmp_path}/ledger.sqlite"}
    limits = {"stuck_s": 6.0, "blocked_s": 5.0}
    write(kafka, prefix, list(SyntheticTap(20, slots=(0,)).bundles(20)))
    with worker(tmp_path, module="tests.faults.faulty_worker", fault=fault, **settings, **limits) as stuck:
        assert stuck.process.wait(90) == _STUCK_CODE, stuck.log
        (line,) = [line for line in stuck.log.splitlines() if "the worker is stuck and exits" in line]
        assert reason in line
        assert {"thread MainThread", "thread watchdog"} <= set(json.loads(line)["stacks"])
        assert "Traceback" not in stuck.log
    with worker(tmp_path, **settings) as next_life:
        next_life.wait_ready()
        assert_all_once(kafka, prefix, 20)
        assert next_life.stop() == 0
        exits = re.findall(
            r'streamgauge_worker_stuck_exits_total\{cause="(\w+)",member="\w+-\d+"\} 1\.0', next_life.metrics
        )
        assert exits == [cause]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not list the threads of a process")
def test_i7_the_last_line_of_a_stuck_worker_has_every_thread(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Those of the same name, one that Python does not know, and one of C among them; and the tasks of both event loops."""
    settings: dict[str, Any] = {"bootstrap": kafka, "prefix": prefix, "blocked_s": 5.0}
    write(kafka, prefix, list(SyntheticTap(20, slots=(0,)).bundles(20)))
    fault = "block_the_loop_among_threads"
    with worker(tmp_path, module="tests.faults.faulty_worker", fault=fault, **settings) as stuck:
        assert stuck.process.wait(90) == _STUCK_CODE, stuck.log
        lines = [json.loads(line) for line in stuck.log.splitlines()]
    (line,) = [line for line in lines if "the worker is stuck and exits" in line["message"]]
    (threads,) = [
        line["message"].partition("threads: ")[2] for line in lines if line["message"].startswith("threads: ")
    ]
    stacks: dict[str, list[str]] = line["stacks"]
    there: dict[str, str | None] = json.loads(threads)
    for number, name in there.items():
        if name == "Thread-1 (announce)":  # of `workers.main`: it ends once the worker is ready
            continue
        wanted = f"thread {name or number}"
        assert any(stack == wanted or stack.startswith(f"{wanted} (") for stack in stacks), (number, name)
    python = {"MainThread", "watchdog", "of the same name", "of the same name (2)"}
    assert all(stacks[f"thread {name}"] for name in python)
    assert stacks["thread MainThread"][-1].endswith(" put")
    assert any(stack.endswith("(made in C)") for stack in stacks)
    for loop in ("the event loop", "the consumer's event loop"):
        assert any(one.startswith(f"{loop}, task ") and places for one, places in stacks.items())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("break_the_coordination", "Did we not perform bootstrap?"),
        ("deny_the_group_unheard", "denies Read on group"),
    ],
)
def test_i7_worker_that_lost_its_membership_ends(
    kafka: str, prefix: str, tmp_path: Path, fault: str, reason: str
) -> None:
    """aiokafka raises the error only in calls that wait for messages; without one the worker only looks like a member."""
    settings: dict[str, Any] = {"bootstrap": kafka, "prefix": prefix}
    write(kafka, prefix, list(SyntheticTap(22).bundles(20)))
    with worker(tmp_path, module="tests.faults.faulty_worker", fault=fault, **settings) as broken:
        assert broken.process.wait(60) == WorkerError.exit_code, broken.log
        (line,) = [line for line in broken.log.splitlines() if '"level":"error","part":"streamgauge.worker"' in line]
        assert "the consumer failed" in line
        assert reason in line
    with worker(tmp_path, **settings) as next_life:
        next_life.wait_ready()
        assert_all_once(kafka, prefix, 20)
        assert next_life.stop() == 0


def test_i7_waiting_fetch_takes_no_messages_of_a_recovery(kafka: str, prefix: str, tmp_path: Path) -> None:
    """After a rebalance Faust's consumer drops what it fetched before. It once dropped a changelog, and waited for it."""
    tap = SyntheticTap(28)
    settings: dict[str, Any] = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    with worker(tmp_path, module="tests.faults.faulty_worker", fault="take_messages_late", **settings) as waits:
        waits.wait_ready()
        write(kafka, prefix, list(tap.bundles(30)))
        assert_all_once(kafka, prefix, 30)
        with worker(tmp_path, **settings) as passing:
            passing.wait_ready()
            assert passing.stop() == 0
        write(kafka, prefix, list(tap.bundles(30)))
        assert_all_once(kafka, prefix, 60)
        assert waits.stop() == 0, waits.log
        assert "No event received" not in waits.log


def test_c1_a_worker_whose_clock_is_hours_ahead_works(kafka: str, prefix: str, tmp_path: Path) -> None:
    write(kafka, prefix, list(SyntheticTap(23).bundles(20)))
    with worker(
        tmp_path, module="tests.faults.faulty_worker", fault="two_hours_ahead", bootstrap=kafka, prefix=prefix
    ) as ahead:
        ahead.wait_ready()
        write(kafka, prefix, [(0, b"poison")])
        assert_all_once(kafka, prefix, 20)
        assert asyncio.run(read_until(kafka, f"{prefix}.deadletter", bool))
        assert ahead.stop() == 0


def test_i7_worker_that_retries_or_is_idle_is_not_stuck(kafka: str, prefix: str, tmp_path: Path) -> None:
    """The dead letter topic does not exist: its partition waits. Three others have nothing to do; the ledger is slow."""
    ledger = tmp_path / "ledger.sqlite"
    tap = SyntheticTap(21, slots=(1,))
    settings = {"bootstrap": kafka, "prefix": prefix, "ledger": f"sqlite:////{ledger}"}
    # By the pauses of `Backoff` and the time for a dead letter, attempts are at most 20 s apart within this test.
    with worker(tmp_path, **settings, stuck_s=25.0) as waits:
        waits.wait_ready()
        asyncio.run(delete_topic(kafka, f"{prefix}.deadletter"))
        with locked(ledger):
            write(kafka, prefix, [(0, b"poison"), *tap.bundles(10)])
            time.sleep(15)
        time.sleep(30)
        assert waits.process.poll() is None, waits.log
        asyncio.run(topics.create(kafka, PARTITIONS, prefix))
        letters = asyncio.run(read_until(kafka, f"{prefix}.deadletter", lambda all_: len(all_) >= 1, 90))
        assert [letter.value for letter in letters] == [b"poison"]
        assert_all_once(kafka, prefix, 10)
        assert waits.stop() == 0
        assert "stuck" not in waits.log


@contextlib.contextmanager
def locked(ledger: Path) -> Iterator[None]:
    """Another process writes into the ledger and does not finish."""
    other = sqlite3.connect(ledger, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


# --- liveness, readiness --------------------------------------------------------------------------------------------


def test_i7_health_reports_the_state_of_the_worker(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Not ready before it has its partitions, nor while it drains; live all the time."""
    data_dir = tmp_path / "data"
    with start_worker(kafka, prefix, data_dir, "--drain-timeout", "60") as running:
        wait_for(lambda: "metrics at" in running.log, "address")
        running.admin = running.log.partition("metrics at ")[2].partition("/metrics")[0]
        status, why = running.get("/health/ready")
        assert (status, why.partition(":")[0]) == (503, "not ready")
        assert running.get("/health/live") == (200, "ok\n")
        wait_until_ready(running)
        wait_for(lambda: running.metrics()["streamgauge_worker_partitions"] == PARTITIONS, "all partitions")
        with locked(data_dir / "ledger.sqlite"):
            write(kafka, prefix, list(SyntheticTap(22).bundles(5)))
            records_of(kafka, prefix, 5)
            time.sleep(2)  # some of them are on their way into the ledger
            running.process.send_signal(signal.SIGTERM)
            wait_for(lambda: running.get("/health/ready")[0] == 503, "an end of readiness")
            assert running.get("/health/live") == (200, "ok\n")
        assert running.process.wait(60) == 0
        assert 1 <= len(running.records()) <= 5


# --- handing over ---------------------------------------------------------------------------------------------------


def test_i7_stopped_worker_leaves_the_group_and_killed_worker_stays_a_member(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    """With a session of 30 s, another worker can take over earlier only if this one leaves."""
    settings = {"bootstrap": kafka, "prefix": prefix, "session_timeout_s": 30.0, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as stays:
        stays.wait_ready()
        with worker(tmp_path, **settings) as leaves:
            leaves.wait_ready()
            wait_for(lambda: len(asyncio.run(members(kafka, prefix))) == 2, "two members")
            assert leaves.stop() == 0
        (place,) = instances(asyncio.run(members(kafka, prefix)))
        write(kafka, prefix, list(SyntheticTap(23).bundles(40)))
        assert_all_once(kafka, prefix, 40)
        stays.kill()
        began = time.monotonic()
        with worker(tmp_path, **settings) as again:
            again.wait_ready()
            assert time.monotonic() - began < 30.0
            assert instances(asyncio.run(members(kafka, prefix))) == {place}
            assert again.stop() == 0


def test_i7_a_worker_that_comes_back_at_once_may_stay_in_the_group(kafka: str, prefix: str, tmp_path: Path) -> None:
    settings = {"bootstrap": kafka, "prefix": prefix, "session_timeout_s": 30.0, "on_stop": "stay"}
    with worker(tmp_path, **settings) as first:
        first.wait_ready()
        before = asyncio.run(members(kafka, prefix))
        assert first.stop() == 0
        assert len(before) == len(asyncio.run(members(kafka, prefix))) == 1


def test_i7_a_worker_without_a_partition_is_ready_and_takes_over(kafka: str, tmp_path: Path) -> None:
    """It fetches nothing, for any time: aiokafka would remove it from the group for that, and never let it rejoin."""
    prefix = make_topics(kafka, 1)
    settings = {"bootstrap": kafka, "prefix": prefix, "stuck_s": 6.0, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as owner:
        owner.wait_ready()
        with worker(tmp_path, **settings) as spare:
            spare.wait_ready()
            time.sleep(_STUCK_S)
            assert [owner.process.poll(), spare.process.poll()] == [None, None]
            asyncio.run(write_all(kafka, f"{prefix}.segments", [(0, one) for _, one in SyntheticTap(27).bundles(10)]))
            assert owner.stop() == 0
            assert_all_once(kafka, prefix, 10)
            assert spare.stop() == 0


# --- W4 -------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(length(180, 400))
def test_w4_a_worker_stopped_beyond_its_session_comes_back(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Another one takes over; when the first continues, it must process only its own partitions, and share them again."""
    bundles = list(SyntheticTap(24).bundles(200, segments=10))
    third = len(bundles) // 3
    settings = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2, "session_timeout_s": _SESSION_S}
    with worker(tmp_path, **settings, stuck_s=_STUCK_S) as first, worker(tmp_path, **settings) as second:
        first.wait_ready()
        second.wait_ready()
        write(kafka, prefix, bundles[:third])
        first.process.send_signal(signal.SIGSTOP)
        write(kafka, prefix, bundles[third : 2 * third])
        time.sleep(_STOPPED_S)
        first.process.send_signal(signal.SIGCONT)
        write(kafka, prefix, bundles[2 * third :])
        assert_all_once(kafka, prefix, 200)
        wait_for(lambda: len(asyncio.run(members(kafka, prefix))) == 2, "two members")
        assert [first.stop(), second.stop()] == [0, 0], first.log


@pytest.mark.timeout(length(180, 400))
def test_w4_a_lone_worker_stopped_beyond_its_session_goes_on(kafka: str, prefix: str, tmp_path: Path) -> None:
    bundles = list(SyntheticTap(25).bundles(100, segments=10))
    half = len(bundles) // 2
    settings = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2, "session_timeout_s": _SESSION_S}
    with worker(tmp_path, **settings, stuck_s=_STUCK_S, blocked_s=5.0) as alone:
        alone.wait_ready()
        write(kafka, prefix, bundles[:half])
        alone.process.send_signal(signal.SIGSTOP)
        write(kafka, prefix, bundles[half:])
        time.sleep(_STOPPED_S)
        alone.process.send_signal(signal.SIGCONT)
        assert_all_once(kafka, prefix, 100)
        assert alone.stop() == 0, alone.log


@pytest.mark.timeout(length(180, 600))
def test_w4_a_broker_away_for_long(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """Longer than the session, each request's timeout, and the watchdog's patience."""
    broker = own_broker()
    prefix = make_topics(broker.bootstrap)
    bundles = list(SyntheticTap(26).bundles(200, segments=10))
    half = len(bundles) // 2
    settings = {"bootstrap": broker.bootstrap, "prefix": prefix, "checkpoint_s": 0.2, "session_timeout_s": _SESSION_S}
    with worker(tmp_path, **settings, stuck_s=_STUCK_S) as waits:
        waits.wait_ready()
        write(broker.bootstrap, prefix, bundles[:half])
        time.sleep(0.3)
        broker.kill()
        time.sleep(_AWAY_S)
        broker.start()
        write(broker.bootstrap, prefix, bundles[half:])
        wait_for(lambda: has_all(broker.bootstrap, prefix, 200) or waits.process.poll() is not None, "all records", 90)
        assert waits.process.poll() is None, waits.log
        assert_all_once(broker.bootstrap, prefix, 200)
        assert survived(waits), waits.log
        assert len(waits.log.splitlines()) < 40, waits.log


def test_w4_worker_stops_in_time_while_its_broker_is_unreachable(
    own_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """No wait for the broker exceeds the drain timeout; once one took 25 s more."""
    broker = own_broker()
    prefix = make_topics(broker.bootstrap)
    bundles = list(SyntheticTap(28).bundles(50, segments=10))
    settings = {"bootstrap": broker.bootstrap, "prefix": prefix, "checkpoint_s": 5.0, "drain_timeout": 4.0}
    with worker(tmp_path, **settings) as stops:
        stops.wait_ready()
        write(broker.bootstrap, prefix, bundles[: len(bundles) // 2])
        broker.kill()
        time.sleep(3)  # it has noticed by now
        began = time.monotonic()
        assert stops.stop() == 0
        assert time.monotonic() - began < 4.0 + 10.0
        assert "Traceback" not in stops.log


def survived(process: WorkerProcess) -> bool:
    return process.process.poll() is None and process.stop() == 0
