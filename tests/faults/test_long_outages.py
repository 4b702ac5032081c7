"""K8, K9 and K12: the broker is away for minutes, at a step of a worker's work, or after the workers were starved."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest

from tests.faults.lengths import length
from tests.faults.test_outages import MOST, SESSION_S, assert_record_comes_soon, at_moment
from tests.faults.test_worker_faults import assert_all_once, write
from tests.integration.synthetic import SyntheticTap, distinct
from tests.integration.workers import WorkerProcess, worker
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import make_topics
from tests.kafka_broker.reading import read_all

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(length(300, 1800))]

# How long the broker is away (seconds): longer than a session and a step of a recovery; in full as the rows say.
K8_AWAY_S, K9_AWAY_S, K12_AWAY_S = length(20.0, 600.0), length(16.0, 120.0), length(10.0, 60.0)
# How long topics are idle before that, and how long workers are starved: beyond their session (seconds).
IDLE_S, STARVED_S = length(2.0, 60.0), length(2 * SESSION_S, 60.0)
# A starved worker runs for this share of each period (seconds): a tenth of a busy machine, in turns of seconds.
RUNS_S, WAITS_S = 0.15, 1.5
STREAMS = 100


def settings_of(broker: Broker, prefix: str) -> dict[str, Any]:
    return {
        "bootstrap": broker.bootstrap,
        "prefix": prefix,
        "checkpoint_s": 0.2,
        "session_timeout_s": SESSION_S,
    }


def assert_run_on(*workers: WorkerProcess) -> None:
    """I7: none has ended, and each ends in order."""
    assert [one.process.poll() for one in workers] == [None] * len(workers), "\n".join(one.log for one in workers)
    assert [one.stop() for one in workers] == [0] * len(workers), "\n".join(one.log for one in workers)


def test_k8_broker_away_for_minutes_with_idle_topics_and_a_worker_started_meanwhile(
    own_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """Two workers have nothing to read, a third starts while no broker answers. The first messages come after the return."""
    broker = own_broker()
    prefix = make_topics(broker.bootstrap)
    settings = settings_of(broker, prefix)
    with worker(tmp_path, **settings) as first, worker(tmp_path, **settings) as second:
        first.wait_ready()
        second.wait_ready()
        time.sleep(IDLE_S)
        broker.kill()
        time.sleep(K8_AWAY_S / 2)
        with worker(tmp_path, **settings) as third:
            time.sleep(K8_AWAY_S / 2)
            assert "ready" not in third.metrics
            broker.start()
            write(broker.bootstrap, prefix, list(SyntheticTap(50).bundles(STREAMS)))
            assert_record_comes_soon(broker.bootstrap, prefix, 0, first)
            assert_all_once(broker.bootstrap, prefix, STREAMS)
            third.wait_ready()
            assert_run_on(first, second, third)


def test_k9_broker_away_during_a_recovery_a_rebalance_and_a_checkpoint(
    own_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """Three groups, each with a worker at one of these steps when the broker ends."""
    broker = own_broker()
    bundles = list(SyntheticTap(51).bundles(STREAMS, segments=10))
    most = len(bundles) * MOST // 100
    prefixes = {moment: make_topics(broker.bootstrap) for moment in ("load", "rebalance", "checkpoint")}
    settings = {moment: settings_of(broker, prefix) for moment, prefix in prefixes.items()}
    folders = {moment: tmp_path / moment for moment in prefixes}
    with worker(folders["load"], **settings["load"]) as earlier:
        earlier.wait_ready()
        write(broker.bootstrap, prefixes["load"], bundles[:most])
        assert_record_comes_soon(broker.bootstrap, prefixes["load"], 0, earlier)
        earlier.kill()
    for moment in ("rebalance", "checkpoint"):
        write(broker.bootstrap, prefixes[moment], bundles[:most])
    with ExitStack() as stack:
        others: list[WorkerProcess] = []

        def let_another_join(process: WorkerProcess) -> None:
            process.wait_ready()
            others.append(stack.enter_context(worker(folders["rebalance"], **settings["rebalance"])))

        before = {"rebalance": let_another_join}
        at_it = {
            moment: stack.enter_context(at_moment(folders[moment], moment, before.get(moment), **settings[moment]))
            for moment in prefixes
        }
        broker.kill()
        for _, go_on in at_it.values():
            go_on()
        time.sleep(K9_AWAY_S)
        broker.start()
        for moment, (process, _) in at_it.items():
            known = len(distinct(asyncio.run(read_all(broker.bootstrap, f"{prefixes[moment]}.records"))))
            write(broker.bootstrap, prefixes[moment], bundles[most:])
            assert_record_comes_soon(broker.bootstrap, prefixes[moment], min(known, STREAMS - 1), process)
            assert_all_once(broker.bootstrap, prefixes[moment], STREAMS)
            assert process.process.poll() is None, process.log
        assert_run_on(*others, *(process for process, _ in at_it.values()))


@contextmanager
def starved(*workers: WorkerProcess) -> Iterator[None]:
    """The workers get the processor for moments only, each in its own turn, as on a machine that is overloaded."""
    over = threading.Event()

    def starve(one: WorkerProcess) -> None:
        while not over.is_set():
            one.process.send_signal(SIGSTOP)
            over.wait(WAITS_S)
            one.process.send_signal(SIGCONT)
            over.wait(RUNS_S)

    threads = [threading.Thread(target=starve, args=(one,)) for one in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_k12_workers_starved_beyond_their_session_and_then_an_outage(
    own_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = own_broker()
    prefix = make_topics(broker.bootstrap)
    settings = settings_of(broker, prefix)
    bundles = list(SyntheticTap(52).bundles(STREAMS, segments=10))
    third = len(bundles) // 3
    with worker(tmp_path, **settings) as first, worker(tmp_path, **settings) as second:
        first.wait_ready()
        second.wait_ready()
        with starved(first, second):
            write(broker.bootstrap, prefix, bundles[:third])
            time.sleep(STARVED_S)
            broker.kill()
            time.sleep(K12_AWAY_S / 2)
        time.sleep(K12_AWAY_S / 2)
        broker.start()
        write(broker.bootstrap, prefix, bundles[third:])
        assert_record_comes_soon(broker.bootstrap, prefix, 0, first)
        assert_all_once(broker.bootstrap, prefix, STREAMS)
        assert_run_on(first, second)
