"""W1, W2, W3, W6, F5 and F6: workers are killed, come and go, or die at a step of a checkpoint; taps die for ever.

The broker and the workers are real. Each record must be the one that a replay of the whole log gives (I4).
"""

import asyncio
import itertools
import json
import os
import random
import signal
import socket
import threading
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.core.limits import Limits
from tests.faults.lengths import FULL, length
from tests.faults.log_faults import wait_until_committed
from tests.faults.test_worker_faults import assert_all_once, records_of, write
from tests.integration.provider import BEGIN, provider
from tests.integration.synthetic import SyntheticTap, assembled, distinct
from tests.integration.workers import WorkerProcess, worker
from tests.kafka_broker.administration import admin
from tests.kafka_broker.fixtures import make_topics
from tests.kafka_broker.reading import read_all
from tests.processes import children
from tests.running import Running, start_tap, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(length(240, 2400))]

SESSION_S = 6.0
# A takeover takes the session and 10 s at most. While other tests run beside, it is not judged.
TAKEOVER_S = length(60.0, SESSION_S + 10.0)
# Kills in rotation; how long workers come and go, and how often (seconds); lives whose sends come in any order.
KILLS, COMING_AND_GOING_S, EVERY_S, LIVES = length(2, 12), length(25.0, 300.0), 5.0, length(2, 20)
STREAMS = 40


def settings_of(kafka: str, prefix: str) -> dict[str, Any]:
    return {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2, "session_timeout_s": SESSION_S}


def in_parts(seed: int, parts: int, streams: int = STREAMS, **more: Any) -> list[list[tuple[int, bytes]]]:
    """The log of this many streams a part; it is cut where the streams of a part are open. The last part has the rest."""
    tap = SyntheticTap(seed)
    batches = [list(tap.bundles(streams, **more)) for _ in range(parts)]
    log = [message for batch in batches for message in batch]
    cuts = [0, *(sum(map(len, batches[:part])) + len(batches[part]) // 2 for part in range(1, parts)), len(log)]
    return [log[begin:end] for begin, end in itertools.pairwise(cuts)]


def wait_for_no_lag(kafka: str, prefix: str) -> None:
    """Until the group has committed the end of each partition of the segments topic."""
    for partition, messages in itertools.groupby(
        asyncio.run(read_all(kafka, f"{prefix}.segments")), lambda one: one.partition
    ):
        wait_until_committed(kafka, prefix, max(one.offset for one in messages) + 1, partition)


def test_w1_workers_killed_in_rotation_and_taken_over(kafka: str, prefix: str, tmp_path: Path) -> None:
    """The killed one stays away until another has its partitions; then it starts again, and the next one is killed."""
    tap = SyntheticTap(70)
    settings, took_s = settings_of(kafka, prefix), []
    with ExitStack() as stack:
        working = deque(stack.enter_context(worker(tmp_path, **settings)) for _ in range(2))
        for one in working:
            one.wait_ready()
        for kill in range(1, KILLS + 1):
            bundles = list(tap.bundles(STREAMS, segments=10))
            half = len(bundles) // 2
            write(kafka, prefix, bundles[:half])
            time.sleep(0.3)  # in the middle of its streams
            working.popleft().kill()
            began = time.monotonic()
            write(kafka, prefix, bundles[half:])
            assert_all_once(kafka, prefix, kill * STREAMS)
            took_s.append(time.monotonic() - began)
            working.append(stack.enter_context(worker(tmp_path, **settings)))
            working[-1].wait_ready()
        assert max(took_s) < TAKEOVER_S, took_s
        assert [one.stop() for one in working] == [0, 0]


def test_w2_workers_come_and_go_every_five_seconds(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Up to three at a time: each ends by SIGTERM or SIGKILL, while streams go on all the time."""
    tap, chance, over = SyntheticTap(71), random.Random(71), threading.Event()
    settings = settings_of(kafka, prefix)
    written: list[int] = []
    stopped: list[WorkerProcess] = []

    def traffic() -> None:
        while not over.wait(0.5):
            write(kafka, prefix, list(tap.bundles(5, segments=4)))
            written.append(5)

    writing = threading.Thread(target=traffic)
    with ExitStack() as stack:
        working = [stack.enter_context(worker(tmp_path, **settings)).wait_ready()]
        writing.start()
        try:
            ends = time.monotonic() + COMING_AND_GOING_S
            while time.monotonic() < ends:
                time.sleep(EVERY_S)
                if len(working) == 3 or (len(working) > 1 and chance.random() < 0.4):
                    leaves = working.pop(chance.randrange(len(working)))
                    assert leaves.process.poll() is None, leaves.log
                    if chance.random() < 0.5:
                        leaves.kill()
                    else:
                        leaves.process.send_signal(signal.SIGTERM)
                        stopped.append(leaves)
                else:
                    working.append(stack.enter_context(worker(tmp_path, **settings)))
        finally:
            over.set()
            writing.join()
        assert sum(written) > STREAMS
        assert_all_once(kafka, prefix, sum(written))
        wait_for_no_lag(kafka, prefix)
        for one in working:
            one.wait_ready()
            assert one.stop() == 0, one.log
        # A worker whose signal came before it could handle one ends by it.
        assert {one.process.wait(60) for one in stopped} <= {0, -signal.SIGTERM}


# --- W3 ---------------------------------------------------------------------------------------------------------------


def assert_commits_are_durable(kafka: str, prefix: str) -> int:
    """Every stream that ended below the committed offsets has its record. Gives the committed messages."""
    committed = asyncio.run(committed_offsets(kafka, prefix))
    records = distinct(asyncio.run(read_all(kafka, f"{prefix}.records")))
    log = asyncio.run(read_all(kafka, f"{prefix}.segments"))
    below = [message for message in log if message.offset < committed.get(message.partition, 0)]
    expected = assembled(below)
    assert {stream: records.get(stream) for stream in expected} == {stream: {one} for stream, one in expected.items()}
    return len(below)


async def committed_offsets(kafka: str, prefix: str) -> dict[int, int]:
    async with admin(kafka) as client:
        found = await client.list_consumer_group_offsets(prefix)
    return {place.partition: at.offset for place, at in found.items() if place.topic == f"{prefix}.segments"}


def test_w3_confirmations_in_any_order_never_commit_an_unfinished_bundle(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    """Each send waits for up to half a second of its own, so later ones are confirmed first; the worker is killed."""
    *parts, rest = in_parts(72, LIVES + 1, segments=4)
    settings, committed = settings_of(kafka, prefix), 0
    for part in parts:
        write(kafka, prefix, part)
        with worker(tmp_path, module="tests.faults.faulty_worker", fault="send_in_any_order", **settings) as process:
            process.wait_ready()
            for _ in range(4):
                time.sleep(0.4)
                committed = assert_commits_are_durable(kafka, prefix)
            process.kill()
        assert_commits_are_durable(kafka, prefix)
    assert committed > 0
    write(kafka, prefix, rest)
    with worker(tmp_path, **settings) as process:
        assert_all_once(kafka, prefix, (LIVES + 1) * STREAMS)
        process.wait_ready()
        assert process.stop() == 0


# --- W6 ---------------------------------------------------------------------------------------------------------------

OPEN = "streamgauge_open_streams"
# How often a worker updates it (seconds).
REPORT_S = 1.0


def test_w6_streams_of_a_partition_whose_taps_are_all_dead(kafka: str, tmp_path: Path) -> None:
    """A real tap has open streams that its provider never ends, is killed with all its processes, and does not return."""
    prefix = make_topics(kafka, 1)
    settings = {**settings_of(kafka, prefix), "abandon_after": 4.0, "tick_s": 1.0}
    with worker(tmp_path, **settings) as process, provider() as upstream:
        process.wait_ready()
        upstream.go_on.clear()
        flags = ["--kafka", kafka, "--topic-prefix", prefix]
        with start_tap("tap", {"small": upstream.url}, tmp_path / "tap", *flags) as tap, ExitStack() as clients:
            for _ in range(STREAMS // 10):
                clients.callback(open_stream(tap).close)
            wait_for(lambda: len(begun(kafka, prefix)) == STREAMS // 10, "beginnings in the log")
            kill_all(tap)
        found = records_of(kafka, prefix, STREAMS // 10)
        time.sleep(3 * REPORT_S)
        assert process.stop() == 0, process.log
        assert process.metric(OPEN) == 0
        ended = [line for line in process.metrics.splitlines() if line.startswith("streamgauge_streams_total{")]
        assert sum(float(line.rsplit(" ", 1)[1]) for line in ended if 'outcome="abandoned"' in line) == len(found)
    assert {len(records) for records in found.values()} == {1}
    records = [json.loads(record) for (record,) in found.values()]
    assert {(one["outcome"], one["usage"]["output_tokens"]) for one in records} == {("abandoned", None)}
    expected = assembled(asyncio.run(read_all(kafka, f"{prefix}.segments")), Limits(abandon_after=4.0))
    assert found == {stream: {record} for stream, record in expected.items()}
    with worker(tmp_path, **settings) as again:  # the state has none of them
        again.wait_ready()
        assert again.stop() == 0
        assert again.metric(OPEN) == 0


def begun(kafka: str, prefix: str) -> set[bytes]:
    """The streams whose first reads are in the segments topic."""
    log = asyncio.run(read_all(kafka, f"{prefix}.segments"))
    segments = [one for message in log for one in decode_bundle(message.value).segments]
    return {one.stream for one in segments if one.opening and one.reads}


def open_stream(tap: Running) -> socket.socket:
    """A client whose response has begun and does not end."""
    address = urlsplit(tap.url)
    client = socket.create_connection((address.hostname, address.port))
    body = b'{"model":"small-1","stream":true,"messages":[]}'
    head = b"POST /small/v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    client.sendall(head + body)
    received = b""
    while BEGIN not in received:
        received += client.recv(2**16)
    return client


def kill_all(tap: Running) -> None:
    for pid in (*children(tap.process.pid), tap.process.pid):
        os.kill(pid, signal.SIGKILL)
    tap.process.wait()


# --- F5 ---------------------------------------------------------------------------------------------------------------


def test_f5_a_stopped_worker_wakes_after_the_next_owner_died_too(kafka: str, prefix: str, tmp_path: Path) -> None:
    """It was stopped in the middle of its streams, and wakes with state and messages of its own. The one that took over is
    killed in that moment, and a third one reads what both wrote."""
    parts = in_parts(74, 4, segments=4)
    settings = settings_of(kafka, prefix)
    with worker(tmp_path, **settings) as zombie:
        zombie.wait_ready()
        write(kafka, prefix, parts[0])
        time.sleep(0.2)  # some of it is applied, and no checkpoint has it
        zombie.process.send_signal(signal.SIGSTOP)
        with worker(tmp_path, **settings) as owner:
            write(kafka, prefix, parts[1])
            owner.wait_ready()
            wait_for(lambda: sum(asyncio.run(committed_offsets(kafka, prefix)).values()) > len(parts[0]), "commits", 60)
            write(kafka, prefix, parts[2])
            zombie.process.send_signal(signal.SIGCONT)
            time.sleep(0.5)
            owner.kill()
        with worker(tmp_path, **settings) as third:
            write(kafka, prefix, parts[3])
            assert_all_once(kafka, prefix, 4 * STREAMS)
            wait_for_no_lag(kafka, prefix)
            third.wait_ready()
            assert third.stop() == 0, third.log
        assert zombie.process.poll() in (None, 3), zombie.log
    with worker(tmp_path, **settings) as last:  # the state that remains is the newest
        last.wait_ready()
        assert_all_once(kafka, prefix, 4 * STREAMS)
        assert last.stop() == 0, last.log


# --- F6 ---------------------------------------------------------------------------------------------------------------

DEATHS = [
    ("record", 0, False),
    ("record", 3, True),
    ("bucket", 0, True),
    ("bucket", 2, True),
    ("bucket", 2, False),
    ("producers", 0, True),
    ("commit", 0, True),
    ("commit", 1, True),
]
MORE_DEATHS = [
    (kind, skip, durable)
    for kind, most in (("record", 8), ("bucket", 8), ("producers", 3), ("commit", 3))
    for skip in range(most)
    for durable in (False, True)
]


def test_f6_a_crash_between_any_two_sends_of_a_checkpoint(kafka: str, prefix: str, tmp_path: Path) -> None:
    """One life after the other dies at another step, with some streams open and others ended."""
    deaths = MORE_DEATHS if FULL else DEATHS
    *parts, rest = in_parts(75, len(deaths) + 1, 20, segments=4, a_bundle=10)
    settings = settings_of(kafka, prefix)
    for part, (before, skip, durable) in zip(parts, deaths, strict=True):
        write(kafka, prefix, part)
        given = {"before": before, "skip": skip, "durable": durable}
        with worker(tmp_path, module="tests.faults.dying_worker", **given, **settings) as dies:
            for _ in range(10):
                if has_ended(dies, 3.0):
                    break
                write(kafka, prefix, part)  # the same again: it is skipped, and the next checkpoint goes on
            assert dies.process.poll() == -signal.SIGKILL, (given, dies.log)
    write(kafka, prefix, rest)
    with worker(tmp_path, **settings) as process:
        assert_all_once(kafka, prefix, (len(deaths) + 1) * 20)
        process.wait_ready()
        wait_for_no_lag(kafka, prefix)
        assert process.stop() == 0


def has_ended(process: WorkerProcess, seconds: float) -> bool:
    ends = time.monotonic() + seconds
    while process.process.poll() is None and time.monotonic() < ends:
        time.sleep(0.05)
    return process.process.poll() is not None
