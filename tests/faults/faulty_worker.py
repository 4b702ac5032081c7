"""`python -m tests.faults.faulty_worker JSON`: a worker with an injected fault, `fault` in the JSON.

Bugs that hang cannot be produced from outside, so they are injected; everything else is the real worker.
"""

import _thread
import asyncio
import ctypes
import json
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.producer.message_accumulator import BatchBuilder
from faust.assignor.partition_assignor import PartitionAssignor

from streamgauge.cli.worker import LedgerStore
from streamgauge.core.capture import bundles
from streamgauge.core.capture.segments import FORMAT_VERSION
from streamgauge.kafka.producer import Message, Producer
from streamgauge.worker.assignment import Assignment
from streamgauge.worker.confirmed_sender import ConfirmedSender
from streamgauge.worker.faust import recovery, transport
from streamgauge.worker.offset_commits import OffsetCommits
from streamgauge.worker.partition import Partition
from tests.integration import workers

# Longer than any test waits (seconds).
_FOR_EVER = 600
# How long a worker works before its fault, where that matters (seconds): Faust has finished its rebalance by then.
_WORKS_S = 5.0
# How late messages are taken (seconds): later than a rebalance takes, and than the worker's own limit.
_LATE_S = 3.0
# The longest wait of a send that others overtake (seconds).
_REORDERED_S = 0.5


def block_the_loop() -> None:
    """A call that does not return, while messages are processed: the thread of Faust's consumer continues its
    heartbeats, so the group does not notice.
    """
    Partition.put = lambda self, message: time.sleep(_FOR_EVER)  # type: ignore[method-assign]


def block_the_loop_among_threads() -> None:
    """The same, in a process with threads of the same name, one that Python's `threading` does not know, and one in C.

    A line of the log lists these threads before: their names, or null, by the system's ids.
    """
    c = ctypes.CDLL(None)

    def put(self: Partition, message: Any) -> None:
        for _ in range(2):
            threading.Thread(target=time.sleep, args=(_FOR_EVER,), name="of the same name", daemon=True).start()
        _thread.start_new_thread(time.sleep, (_FOR_EVER,))
        thread = ctypes.c_ulong()
        c.pthread_create(ctypes.byref(thread), None, c.sleep, ctypes.c_void_p(_FOR_EVER))
        c.pthread_setname_np(thread, b"made in C")
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        there = {one.name: names.get(int(one.name)) for one in Path("/proc/self/task").iterdir()}
        logging.getLogger("tests").warning("threads: %s", json.dumps(there))
        time.sleep(_FOR_EVER)

    Partition.put = put  # type: ignore[method-assign]


def hang_the_ledger() -> None:
    """A disk that does not respond."""
    LedgerStore.insert = lambda self, records: threading.Event().wait(_FOR_EVER)  # type: ignore


def hang_checkpoints() -> None:
    """A wait that never ends."""

    async def hang(*_: Any) -> None:
        await asyncio.sleep(_FOR_EVER)

    ConfirmedSender.confirmed = hang  # type: ignore


def commit_nothing() -> None:
    """Everything is processed and durable, but its offset is not committed."""

    async def run(self: OffsetCommits) -> None:
        await asyncio.sleep(_FOR_EVER)

    OffsetCommits.run = run  # type: ignore[method-assign]


def lose_the_recovery() -> None:
    """The function that Faust calls when the state has been recovered does nothing."""

    async def nothing(self: Assignment) -> None:
        return

    Assignment.on_recovered = nothing  # type: ignore[method-assign]


def assign_nothing() -> None:
    """The group's leader finds no topic: each member joins, recovers nothing, and has no partition."""
    PartitionAssignor._get_copartitioned_groups = classmethod(lambda *_: {})  # type: ignore


def block_the_consumer() -> None:
    """The thread of Faust's consumer does not return from a call: no heartbeats and no messages, while the worker's own
    loop continues.
    """
    load = Assignment.on_recovered

    async def load_and_block(self: Assignment) -> None:
        await load(self)
        loop = self.consumer.loop
        loop.call_soon_threadsafe(loop.call_later, _WORKS_S, time.sleep, _FOR_EVER)  # type: ignore[union-attr]

    Assignment.on_recovered = load_and_block  # type: ignore[method-assign]


def break_the_coordination() -> None:
    """A bug in aiokafka's own background task, some time after it has joined: as seen on a busy machine."""
    beat = GroupCoordinator._maybe_do_autocommit
    began = time.monotonic()

    async def fail(self: GroupCoordinator, assignment: Any) -> Any:
        if time.monotonic() - began > _WORKS_S:
            raise AssertionError("Did we not perform bootstrap?")
        await beat(self, assignment)
        return 0.5  # until it is called again (seconds)

    GroupCoordinator._maybe_do_autocommit = fail


def deny_the_group_unheard() -> None:
    """The right to join the group is revoked while Faust does not wait for messages."""
    beat = GroupCoordinator._do_heartbeat
    began = time.monotonic()

    async def denied(self: GroupCoordinator) -> Any:
        if time.monotonic() - began > _WORKS_S:
            raise GroupAuthorizationFailedError(self.group_id)
        return await beat(self)

    GroupCoordinator._do_heartbeat = denied
    SubscriptionState.abort_waiters = lambda self, error: None


def take_messages_late() -> None:
    """A fetch that began before a rebalance takes its messages after reading was set back and before it continues: as
    seen on a busy machine.
    """
    take, set_back = Fetcher.fetched_records, recovery.Recovery._seek_offsets

    async def take_late(self: Fetcher, *given: Any, **more: Any) -> Any:
        await asyncio.sleep(_LATE_S)
        return await take(self, *given, **more)

    async def set_back_and_pause(self: recovery.Recovery, *given: Any) -> None:
        await set_back(self, *given)
        await asyncio.sleep(2 * _LATE_S)

    transport._FETCH_S = _FOR_EVER
    Fetcher.fetched_records = take_late
    recovery.Recovery._seek_offsets = set_back_and_pause  # type: ignore[assignment, method-assign]


def lose_changelog_once() -> None:
    """The first messages of the changelog are taken by Faust's thread and dropped, as when a rebalance begins."""
    take = transport.Consumer._getmany
    lost: list[object] = []

    async def take_and_lose(self: transport.Consumer, *given: Any, **more: Any) -> Any:
        taken = await take(self, *given, **more)
        changelog = [place for place in taken if place.topic.endswith(".state")]
        if changelog and not lost:
            lost.extend(changelog)
            return {place: messages for place, messages in taken.items() if place not in changelog}
        return taken

    transport.Consumer._getmany = take_and_lose  # type: ignore[method-assign]


def lose_the_middle_of_the_changelog() -> None:
    """The consumer gets all messages, and Faust delivers only the first and the last ones, as seen on a busy machine."""
    take = transport.Consumer._getmany
    lost: set[object] = set()

    async def take_and_lose(self: transport.Consumer, *given: Any, **more: Any) -> Any:
        taken = await take(self, *given, **more)
        for place, messages in taken.items():
            if place.topic.endswith(".state") and place not in lost and len(messages) > 3:
                lost.add(place)
                third = len(messages) // 3
                taken[place] = [*messages[:third], *messages[2 * third :]]
        return taken

    transport.Consumer._getmany = take_and_lose  # type: ignore[method-assign]


def send_in_any_order() -> None:
    """Each send waits for a time of its own before the broker gets it, so later ones are confirmed first."""
    send, chance = Producer.send, random.Random(1)

    async def later(producer: Producer, message: Message) -> Any:
        await asyncio.sleep(chance.uniform(0, _REORDERED_S))
        return await (await send(producer, message))

    async def send_later(self: Producer, message: Message) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(later(self, message))

    Producer.send = send_later  # type: ignore[method-assign]


def two_hours_ahead() -> None:
    """The machine's clock is wrong; Kafka 4 refuses messages whose time is more than an hour ahead of the broker's."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + 7_200
    time.time_ns = lambda: now_ns() + 7_200_000_000_000
    append = BatchBuilder.append

    def append_by_this_clock(self: BatchBuilder, *, timestamp: int | None, **given: Any) -> Any:
        """aiokafka's own stamp is a C call's."""
        return append(self, timestamp=timestamp or round(time.time() * 1000), **given)

    BatchBuilder.append = append_by_this_clock


def read_an_earlier_format_alone() -> None:
    """A worker of an earlier version."""
    bundles.FORMAT_VERSION = FORMAT_VERSION - 1  # type: ignore[attr-defined]


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault
    for fault in (
        block_the_loop,
        block_the_loop_among_threads,
        block_the_consumer,
        hang_the_ledger,
        hang_checkpoints,
        commit_nothing,
        lose_the_recovery,
        assign_nothing,
        break_the_coordination,
        deny_the_group_unheard,
        take_messages_late,
        lose_changelog_once,
        lose_the_middle_of_the_changelog,
        send_in_any_order,
        two_hours_ahead,
        read_an_earlier_format_alone,
    )
}

if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    FAULTS[arguments.pop("fault")]()
    sys.argv[1] = json.dumps(arguments)
    sys.exit(workers.main())
