"""K9 to K11: after an outage of the broker, at any time of a worker's run, records come soon; with a real broker."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamgauge.kafka.administrator import identities
from streamgauge.worker.faults import WorkerError
from tests.faults.lengths import FULL, length
from tests.faults.log_faults import forget_offsets, recreate_topic
from tests.faults.test_worker_faults import assert_all_once, write
from tests.integration.synthetic import SyntheticTap, distinct
from tests.integration.workers import WorkerProcess, worker
from tests.kafka_broker.administration import admin
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import make_topics
from tests.kafka_broker.reading import read_all, read_until
from tests.running import wait_for

pytestmark = pytest.mark.kafka

# The latest time of the first record after the broker's return (seconds).
FIRST_RECORD_S = 15.0
# The shortest session that a broker accepts by default; how long Faust waits for each step of a recovery, which must be
# longer; and an outage that is longer than both (seconds).
SESSION_S, STEP_S, OUTAGE_S = 6.0, 8.0, length(10.0, 35.0)
STREAMS = 100
# The share of these streams' messages after which the first streams have ended (per cent).
MOST = 80


def assert_record_comes_soon(bootstrap: str, prefix: str, known: int, process: WorkerProcess) -> None:
    """Asserts that the records topic has more than `known` streams before FIRST_RECORD_S."""
    began = time.monotonic()
    topic = f"{prefix}.records"
    read = read_until(bootstrap, topic, lambda all_: len(distinct(all_)) > known, 2 * FIRST_RECORD_S)
    found = len(distinct(asyncio.run(read)))
    took_s = time.monotonic() - began
    assert found > known, f"{found} records, exit code {process.process.poll()}\n{process.log}"
    assert took_s < FIRST_RECORD_S, process.log


@contextmanager
def at_moment(
    directory: Path, moment: str, before: Callable[[WorkerProcess], object] | None = None, **settings: Any
) -> Iterator[tuple[WorkerProcess, Callable[[], None]]]:
    """A worker that has reached this step; the object that is given lets it continue. `before`: what leads to the step."""
    reached = directory / f"{moment}.reached"
    for mark in (reached, reached.with_suffix(".go")):
        mark.unlink(missing_ok=True)
    arguments = {"module": "tests.faults.moment_worker", "moment": moment, "reached": str(reached)}
    with worker(directory, **arguments, request_timeout_s=STEP_S, **settings) as process:
        if before:
            before(process)
        wait_for(lambda: reached.exists() or process.process.poll() is not None, f"worker at {moment}")
        assert process.process.poll() is None, process.log
        yield process, reached.with_suffix(".go").touch


# The steps of a start, several of them with one outage: each by its own worker and group.
STEPS = {
    "the beginning": ("log_start", "faust_start", "subscribe", "join"),
    "the assignment": ("sync", "highwaters", "offsets", "seek"),
    "the state": ("load", "recognition", "perform_seek"),
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.timeout(length(300, 600))
def test_k11_an_outage_at_each_step_of_a_start(own_broker: Callable[..., Broker], tmp_path: Path, steps: str) -> None:
    """A worker with state starts, and the broker ends at one step, for longer than Faust waits for it. Then it starts
    again, and the broker does not respond for as long. In a short run each step has one of these two outages.
    """
    broker = own_broker()
    bundles = list(SyntheticTap(40).bundles(STREAMS, segments=10))
    most, nearly_all = len(bundles) * MOST // 100, len(bundles) * 9 // 10
    settings: dict[str, Any] = {"bootstrap": broker.bootstrap, "checkpoint_s": 0.2, "session_timeout_s": SESSION_S}

    def lives_before(moment: str) -> str:
        prefix = make_topics(broker.bootstrap)
        with worker(tmp_path / moment, prefix=prefix, **settings) as first:
            first.wait_ready()
            write(broker.bootstrap, prefix, bundles[:most])
            assert_record_comes_soon(broker.bootstrap, prefix, 0, first)
        return prefix

    def comes_soon(more: list[tuple[int, bytes]], prefix: str, starts: WorkerProcess) -> None:
        known = len(distinct(asyncio.run(read_until(broker.bootstrap, f"{prefix}.records", bool))))
        write(broker.bootstrap, prefix, more)
        assert_record_comes_soon(broker.bootstrap, prefix, min(known, STREAMS - 1), starts)
        if more[-1] is bundles[-1]:  # a worker that stops leaves unread messages to the next one
            assert_all_once(broker.bootstrap, prefix, STREAMS)
        assert starts.stop() == 0, starts.log

    moments = STEPS[steps]
    ended, frozen = ((moments, bundles[most:nearly_all]), (moments, bundles[nearly_all:]))
    if not FULL:
        ended, frozen = ((moments[::2], bundles[most:]), (moments[1::2], bundles[most:]))
    with ThreadPoolExecutor(len(moments)) as beside:
        prefix_at = dict(zip(moments, beside.map(lives_before, moments), strict=True))
        for away, back, (names, more) in ((broker.kill, broker.start, ended), (broker.freeze, broker.thaw, frozen)):
            prefixes = [prefix_at[name] for name in names]
            waiting = [
                at_moment(tmp_path / name, name, prefix=of, **settings)
                for name, of in zip(names, prefixes, strict=True)
            ]
            with ExitStack() as stack:
                starting = list(beside.map(stack.enter_context, waiting))
                away()
                for _, go_on in starting:
                    go_on()
                time.sleep(OUTAGE_S)
                for starts, _ in starting:
                    assert starts.process.poll() is None, starts.log
                    assert "ready" not in starts.metrics
                back()
                list(beside.map(partial(comes_soon, more), prefixes, [starts for starts, _ in starting]))


def test_k11_a_leader_whose_metadata_request_fails_assigns_all_partitions(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    """The broker works all the time. Without the topics' metadata a leader once assigned no partition for five minutes."""
    write(kafka, prefix, list(SyntheticTap(41).bundles(20)))
    arguments = {"module": "tests.faults.moment_worker", "moment": "metadata"}
    with worker(tmp_path, **arguments, bootstrap=kafka, prefix=prefix) as leads:
        leads.wait_ready()
        assert_record_comes_soon(kafka, prefix, 0, leads)
        assert_all_once(kafka, prefix, 20)
        assert leads.stop() == 0


@pytest.mark.parametrize("fault", ["lose_changelog_once", "lose_the_middle_of_the_changelog"])
def test_k9_lost_changelog_messages_are_read_again(kafka: str, prefix: str, tmp_path: Path, fault: str) -> None:
    """Faust once waited for messages that it had dropped, until the watchdog ended the worker two minutes later. Or it
    read on after them, and records lacked the beginnings of their streams.
    """
    bundles = list(SyntheticTap(45).bundles(STREAMS, segments=10))
    most = len(bundles) * MOST // 100
    settings: dict[str, Any] = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as first:
        first.wait_ready()
        write(kafka, prefix, bundles[:most])
        assert_record_comes_soon(kafka, prefix, 0, first)
        time.sleep(1)  # its state has been written
        first.kill()
    known = len(distinct(asyncio.run(read_all(kafka, f"{prefix}.records"))))
    write(kafka, prefix, bundles[most:])
    with worker(tmp_path, module="tests.faults.faulty_worker", fault=fault, **settings) as again:
        assert_record_comes_soon(kafka, prefix, known, again)
        assert_all_once(kafka, prefix, STREAMS)
        assert again.stop() == 0, again.log


# --- offsets that expired ---------------------------------------------------------------------------------------------


def test_k10_state_replaces_expired_offsets(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Kafka deletes a group's committed offsets when no worker ran for a week: nothing is lost or duplicated by that."""
    bundles = list(SyntheticTap(42).bundles(STREAMS, segments=10))
    most = len(bundles) * MOST // 100
    settings = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as before:
        before.wait_ready()
        write(kafka, prefix, [(0, b"poison"), *bundles[:most]])
        assert_record_comes_soon(kafka, prefix, 0, before)
        asyncio.run(read_until(kafka, f"{prefix}.deadletter", bool))
        assert before.stop() == 0
    forget_offsets(kafka, prefix)  # as Kafka does after `offsets.retention.minutes`
    write(kafka, prefix, bundles[most:])
    with worker(tmp_path, **settings) as refuses:
        assert refuses.process.wait(60) == WorkerError.exit_code
        (sentence,) = [json.loads(line)["message"] for line in refuses.log.splitlines() if "--segments-id" in line]
    assert "the offsets expired because no worker ran, or the topic was recreated" in sentence
    (given,) = re.findall(r"--segments-id (\w+)", sentence)
    with worker(tmp_path, **settings, segments_id="0" * len(given)) as refuses_again:
        assert refuses_again.process.wait(60) == WorkerError.exit_code
        assert sentence in refuses_again.log
    with worker(tmp_path, **settings, segments_id=given) as goes_on:
        goes_on.wait_ready()
        assert_all_once(kafka, prefix, STREAMS)
        assert goes_on.stop() == 0, goes_on.log
    # Unreadable messages are not read again either, and the next worker needs no action of an operator.
    assert len(asyncio.run(read_all(kafka, f"{prefix}.deadletter"))) == 1
    with worker(tmp_path, **settings, stuck_s=8.0) as next_life:
        next_life.wait_ready()
        time.sleep(12)
        assert next_life.stop() == 0, next_life.log


def test_k10_recreated_segments_topic_does_not_match_the_given_id(kafka: str, prefix: str, tmp_path: Path) -> None:
    """An option that was left in place is accepted for no other topic."""
    settings = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as before:
        before.wait_ready()
        write(kafka, prefix, list(SyntheticTap(43).bundles(20, segments=10)))
        assert_all_once(kafka, prefix, 20)
        assert before.stop() == 0
    given = asyncio.run(topic_id(kafka, f"{prefix}.segments"))
    recreate_topic(kafka, prefix, "segments")
    write(kafka, prefix, list(SyntheticTap(44).bundles(100, segments=10)))
    with worker(tmp_path, **settings, segments_id=given) as refuses:
        assert refuses.process.wait(60) == WorkerError.exit_code, refuses.log
        assert "recreated" in refuses.log


async def topic_id(bootstrap: str, name: str) -> str:
    async with admin(bootstrap) as client:
        return (await identities(client, [name]))[name].id
