"""F7 and F8: faults of the log. Topics recreated, beginnings deleted, taps with wrong clocks.

The worker continues after a fault if it can; lost messages are counted and marked on the records. A fault that would
lose streams silently, or give a stream a second record, ends the worker with one sentence, at each start.
"""

import asyncio
import json
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from streamgauge.core.capture.bundles import decode_bundle
from tests.client import request, talk
from tests.faults.log_faults import (
    EXIT,
    errors,
    forget_offsets,
    forget_state,
    incomplete,
    one_partition,
    read_some,
    recreate_topic,
    refuses,
    settings_of,
    wait_until_committed,
    with_farewell,
    with_gap,
)
from tests.faults.test_tap_faults import BROKEN_PYTHON
from tests.integration.provider import Provider, provider
from tests.integration.synthetic import SyntheticTap, assembled, distinct
from tests.integration.test_worker import log_of, records_of, same, write
from tests.integration.workers import WorkerProcess, worker
from tests.kafka_broker.administration import delete_beginning, delete_topic
from tests.kafka_broker.fixtures import make_topics
from tests.running import CHAT_BODY, Running, start_tap, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

GAP = "streamgauge_log_gap_messages_total"
# A fetch that waits at the broker for new messages has ended by then (seconds); the session is longer.
FETCH_OVER_S = 3.0
YEAR_S = 365 * 24 * 3600


def deleted_while_stopped(
    process: WorkerProcess, kafka: str, prefix: str, messages: list[tuple[int, bytes]], before: int
) -> None:
    """A worker that is stopped while these are written and the first of them deleted."""
    process.process.send_signal(signal.SIGSTOP)
    time.sleep(FETCH_OVER_S)
    write(kafka, prefix, messages)
    asyncio.run(delete_beginning(kafka, f"{prefix}.segments", 0, before))
    process.process.send_signal(signal.SIGCONT)


def assert_reports_recreated(process: WorkerProcess, topic: str) -> None:
    """Asserts one sentence, whichever part of the worker notices it first."""
    [sentence] = errors(process)
    assert re.search(rf"{re.escape(topic)}(/\d+)? ", sentence)
    assert "recreated" in sentence
    assert "docs/guides/" in sentence


# --- the beginning is deleted before it was read --------------------------------------------------------------------


def test_f7_a_beginning_deleted_between_two_runs(kafka: str, prefix: str, tmp_path: Path) -> None:
    messages = one_partition(1)
    read_some(kafka, prefix, tmp_path, messages[:3])
    write(kafka, prefix, messages[3:])
    asyncio.run(delete_beginning(kafka, f"{prefix}.segments", 0, 7))
    expected = with_gap(messages, 3, 7)
    with worker(tmp_path, **settings_of(kafka, prefix)) as process:
        found = records_of(kafka, prefix, len(expected))
        assert process.stop() == 0
        assert process.metric(GAP) == 4
        assert [f"4 messages of {prefix}.segments/0 were deleted" in line for line in errors(process)] == [True]
    assert same(found, expected)
    lacking = {segment.stream for _, value in messages[3:7] for segment in decode_bundle(value).segments}
    assert {str(UUID(bytes=stream)) for stream in lacking} & set(expected) <= incomplete(expected) < set(expected)


def test_f7_a_beginning_deleted_under_a_worker(kafka: str, prefix: str, tmp_path: Path) -> None:
    messages = one_partition(2)
    expected = with_gap(messages, 3, 7)
    with worker(tmp_path, **settings_of(kafka, prefix)) as process:
        process.wait_ready()
        write(kafka, prefix, messages[:3])
        wait_until_committed(kafka, prefix, 3)
        deleted_while_stopped(process, kafka, prefix, messages[3:], 7)
        found = records_of(kafka, prefix, len(expected))
        assert process.stop() == 0
        assert process.metric(GAP) == 4
        assert len(errors(process)) == 1
    assert same(found, expected)


def test_f7_all_messages_deleted_and_none_follows(kafka: str, prefix: str, tmp_path: Path) -> None:
    """No later message shows the gap, not even a tick. It is detected nevertheless, and marked on later records."""
    messages = one_partition(3)
    expected = with_gap(messages, 3, 9)
    with worker(tmp_path, **settings_of(kafka, prefix), tick_s=600.0) as process:
        process.wait_ready()
        write(kafka, prefix, messages[:3])
        wait_until_committed(kafka, prefix, 3)
        deleted_while_stopped(process, kafka, prefix, messages[3:9], 9)
        wait_for(lambda: errors(process), "sentence")
        wait_until_committed(kafka, prefix, 9)
        write(kafka, prefix, messages[9:])
        found = records_of(kafka, prefix, len(expected))
        assert process.stop() == 0
        assert process.metric(GAP) == 6
    assert same(found, expected)


# --- topics are recreated ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [15, 8], ids=["shorter", "longer"])
def test_f7_segments_recreated_between_two_runs(kafka: str, prefix: str, tmp_path: Path, read: int) -> None:
    """The tap continues in the new log, until that is longer than the old one, so that every committed offset exists."""
    messages = with_farewell(one_partition(4))
    read_some(kafka, prefix, tmp_path, messages[:read])
    before = distinct(log_of(kafka, f"{prefix}.records"))
    recreate_topic(kafka, prefix, "segments")
    write(kafka, prefix, messages[read:])
    for _ in range(2):
        refuses(kafka, prefix, tmp_path, f"{prefix}.segments/0", "recreated", "another --topic-prefix")
    assert distinct(log_of(kafka, f"{prefix}.records")) == before
    forget_state(kafka, prefix)
    expected = assembled(log_of(kafka, f"{prefix}.segments"))
    with worker(tmp_path, **settings_of(kafka, prefix)) as process:
        wait_until_committed(kafka, prefix, len(messages) - read)
        found = records_of(kafka, prefix, len(before) + len(expected))
        assert process.stop() == 0
    assert found == before | {stream: {record} for stream, record in expected.items()}
    assert not set(before) & set(expected)
    begun = {
        str(UUID(bytes=segment.stream)) for _, value in messages[:read] for segment in decode_bundle(value).segments
    }
    assert set(expected) & begun == incomplete(expected) != set()


def test_f7_segments_recreated_while_a_worker_runs(kafka: str, prefix: str, tmp_path: Path) -> None:
    messages = one_partition(6)
    with worker(tmp_path, **settings_of(kafka, prefix)) as process:
        process.wait_ready()
        write(kafka, prefix, messages)
        wait_until_committed(kafka, prefix, len(messages))
        recreate_topic(kafka, prefix, "segments")
        write(kafka, prefix, one_partition(7, 60))
        assert process.process.wait(60) == EXIT, process.log
        assert_reports_recreated(process, f"{prefix}.segments")
    refuses(kafka, prefix, tmp_path, f"{prefix}.segments/0", "recreated")


def test_f7_segments_deleted_and_not_created_again(kafka: str, prefix: str, tmp_path: Path) -> None:
    with worker(tmp_path, **settings_of(kafka, prefix)) as process:
        process.wait_ready()
        write(kafka, prefix, one_partition(8))
        wait_until_committed(kafka, prefix, 1)
        asyncio.run(delete_topic(kafka, f"{prefix}.segments"))
        assert process.process.wait(90) == EXIT, process.log
        [sentence] = errors(process)
        assert f"topic {prefix}.segments does not exist any more" in sentence


def test_f7_state_recreated_between_two_runs(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Streams that were open are lost with it. If the log is complete, it gives the same records once more."""
    messages = one_partition(9)
    read_some(kafka, prefix, tmp_path, messages[:8])
    recreate_topic(kafka, prefix, "state")
    write(kafka, prefix, messages[8:])
    refuses(kafka, prefix, tmp_path, f"{prefix}.state has no state of partition 0", "8 messages", "offsets")
    forget_offsets(kafka, prefix)
    with worker(tmp_path, **settings_of(kafka, prefix)) as process:
        found = records_of(kafka, prefix, 30)
        assert process.stop() == 0
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 30


@pytest.mark.parametrize("name", ["state", "records"])
def test_f7_state_or_records_recreated_while_a_worker_runs(kafka: str, prefix: str, tmp_path: Path, name: str) -> None:
    ledger = f"sqlite:////{tmp_path / 'ledger.sqlite'}"
    with worker(tmp_path, **settings_of(kafka, prefix), ledger=ledger) as process:
        process.wait_ready()
        write(kafka, prefix, one_partition(10))
        wait_until_committed(kafka, prefix, 1)
        recreate_topic(kafka, prefix, name)
        assert process.process.wait(60) == EXIT, process.log
        assert_reports_recreated(process, f"{prefix}.{name}")


def test_f7_unreadable_messages_alone_write_state(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Acknowledged messages must have state, or the next worker would take the state topic for a new one."""
    read_some(kafka, prefix, tmp_path, [(0, b"poison"), (0, b"more of it")])
    tap = SyntheticTap(11, slots=(0,))
    write(kafka, prefix, list(tap.bundles(5)))
    with worker(tmp_path, **settings_of(kafka, prefix)) as process:
        assert len(records_of(kafka, prefix, 5)) == 5
        assert process.stop() == 0


# --- clocks ---------------------------------------------------------------------------------------------------------


def test_f8_a_tap_whose_clock_is_a_year_off(kafka: str, tmp_path: Path) -> None:
    """Three taps in one partition: one fast, one slow, one correct. Their streams are open while all of them send."""
    prefix = make_topics(kafka, 1)
    settings = settings_of(kafka, prefix) | {"tick_s": 1.0}
    with provider() as upstream, worker(tmp_path, **settings) as process:
        process.wait_ready()
        upstream.go_on.clear()
        asyncio.run(three_taps(upstream, kafka, prefix, tmp_path))
        found = records_of(kafka, prefix, 6)
        assert process.stop() == 0
    assert {len(versions) for versions in found.values()} == {1}
    records = [json.loads(record) for versions in found.values() for record in versions]
    assert [(one["outcome"], one["integrity"]["complete"]) for one in records] == [("completed", True)] * 6
    years = sorted(int(one["started_at"][:4]) for one in records)
    assert years[0] == years[1] < years[2] == years[3] < years[4] == years[5]
    assert len({one["tap_instance"] for one in records}) == 3


async def three_taps(upstream: Provider, kafka: str, prefix: str, folder: Path) -> None:
    """Each has an open stream while the others' messages are read; each begins another when all have sent."""
    opened = []
    try:
        for seconds in (0, YEAR_S, -YEAR_S):
            opened.append(await asyncio.to_thread(tap_with_clock, upstream.url, kafka, prefix, folder, seconds))
        taps = [tap for _, tap in opened]
        asking = [asyncio.create_task(ask(tap)) for tap in taps]
        await asyncio.to_thread(wait_for, lambda: instances(log_of(kafka, f"{prefix}.segments")) == 3, "all taps")
        await asyncio.sleep(3)  # each tap continues its heartbeats, and the worker lets time pass
        assert distinct(await asyncio.to_thread(log_of, kafka, f"{prefix}.records")) == {}
        asking += [asyncio.create_task(ask(tap)) for tap in taps]
        upstream.go_on.set()
        await asyncio.gather(*asking)
        for tap in taps:
            assert await asyncio.to_thread(tap.stop) == 0, tap.log
    finally:
        for context, _ in opened:
            await asyncio.to_thread(context.__exit__, None, None, None)


def tap_with_clock(url: str, kafka: str, prefix: str, folder: Path, seconds: int) -> tuple[Any, Running]:
    off = folder / f"off-{seconds}"
    off.write_text(str(seconds))
    environment = {"PYTHONPATH": BROKEN_PYTHON, "FAULT_CLOCK": str(off)}
    flags = ["--kafka", kafka, "--topic-prefix", prefix]
    context = start_tap("tap", url, folder / f"tap-{seconds}", *flags, environment=environment)
    return context, context.__enter__()


def instances(messages: Iterable[Any]) -> int:
    """How many taps have sent segments."""
    bundles = [decode_bundle(message.value) for message in messages]
    return len({bundle.instance for bundle in bundles if bundle.segments})


async def ask(tap: Running) -> None:
    assert (await talk(tap.url, [request("/v1/chat/completions", CHAT_BODY)])).end == "done"
