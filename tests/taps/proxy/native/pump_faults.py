"""The pump while the system refuses or delays something: no descriptor, no memory, a slow send, a fork.

Each case is a function that test_pump_faults.py runs in a separate process, with faulty_libc.c preloaded:

    python -m tests.taps.proxy.native.pump_faults CASE
"""

import ctypes
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from streamgauge.core.http1.framing import Phase
from streamgauge.recorder.protocol import Message, ReadsDropped, ResponseReads
from streamgauge.taps.proxy.native._pump import Pump
from tests.running import wait_for

ROOM = 1 << 26
# Time limit for what would block for ever with a bug in the pump (seconds).
PATIENCE_S = 20.0


class Flow:
    """A flow that was handed over: what is written to `server` can be read from `browser`."""

    def __init__(self, pump: Pump, stream: int, phase: Phase = Phase.UNTIL_EOF) -> None:
        self.server, self.upstream = socket.socketpair()
        self.client, self.browser = socket.socketpair()
        self.browser.settimeout(PATIENCE_S)
        self.token = pump.hand_over(self.upstream.fileno(), self.client.fileno(), True, stream, phase, 0)

    def write(self, data: bytes) -> None:
        """The upstream sends; without `send`, which faulty_libc.c holds up."""
        assert os.write(self.server.fileno(), data) == len(data)

    def passes(self, data: bytes) -> None:
        """Asserts that the client gets what the upstream sends."""
        self.write(data)
        found = b""
        while len(found) < len(data):
            found += self.browser.recv(len(data))
        assert found == data


def pump_of(batch: int = 1 << 16, hold_s: float = 0.0) -> tuple[Pump, memoryview]:
    """A pump, and the counter word in which it counts reads."""
    seen = memoryview(bytearray(8))
    return Pump(ROOM, batch, round(hold_s * 1e9), seen), seen.cast("Q")


def messages_of(batches: list[tuple[bytes, int, int]]) -> list[Message]:
    return [
        message
        for encoded, count, _ in batches
        for message in msgspec.msgpack.decode(b"\xdd" + struct.pack(">I", count) + encoded, type=list[Message])
    ]


def fault(name: str, kind: Any = ctypes.c_int) -> Any:
    """A variable of faulty_libc.c."""
    return kind.in_dll(ctypes.CDLL(None), name)


def seen_are(seen: memoryview, reads: int) -> None:
    assert wait_for(lambda: seen[0] == reads, f"{reads} reads are captured"), seen[0]


@contextmanager
def no_descriptors(left: int = 0) -> Iterator[None]:
    """Limits the number of descriptors to those that are open and this many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    used = []
    try:
        while True:
            used.append(os.dup(0))
    except OSError:
        for _ in range(left):
            os.close(used.pop())
    try:
        yield
    finally:
        for one in used:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def no_memory(size: int) -> Iterator[None]:
    """Makes allocations of this size and above fail."""
    refused = fault("refused_bytes", ctypes.c_size_t)
    refused.value = size
    try:
        yield
    finally:
        refused.value = 0


@contextmanager
def sends_that_wait() -> Iterator[Callable[[], None]]:
    """Blocks every send. Gives the function that releases them."""
    hold = fault("hold_sends")

    def release() -> None:
        hold.value = 0

    hold.value = 1
    try:
        yield release
    finally:
        release()


def ends(call: Callable[[], object]) -> bool:
    """Whether a call ends within PATIENCE_S; in a thread that may stay in it."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return not thread.is_alive()


# --- the cases ------------------------------------------------------------------------------------------------------


def close_needs_no_descriptor() -> None:
    pump, _ = pump_of()
    flow = Flow(pump, 1)
    flow.passes(b"a")
    with no_descriptors():
        pump.send_at_once()
        pump.recall(flow.token)
        _, _, returns = pump.collect(ROOM, True)
        assert [one[0] for one in returns] == [flow.token]
        assert ends(pump.close), "close() waits for the thread"


def a_pump_that_cannot_be_made_leaves_no_descriptor_open() -> None:
    for left in range(4):
        before = set(Path("/proc/self/fd").iterdir())
        with no_descriptors(left):
            try:
                Pump(ROOM, ROOM, 0, memoryview(bytearray(8))).close()
            except OSError:
                assert left < 3, "it needs three"
        assert set(Path("/proc/self/fd").iterdir()) == before, left


def a_forked_child_closes_its_pump() -> None:
    """And its parent's thread neither ends by that nor spins."""
    pump, _ = pump_of()
    flow = Flow(pump, 1)
    child = os.fork()
    if child == 0:
        signal.alarm(round(PATIENCE_S))
        pump.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child waits in close()"
    before = time.process_time()
    time.sleep(1)
    assert time.process_time() - before < 0.1, "the thread spins"
    flow.passes(b"a")
    pump.close()


def f2_a_byte_passes_while_a_batch_is_made() -> None:
    """The objects that `collect` returns are created while the thread can move other flows."""
    pump, seen = pump_of(batch=1 << 20)
    held, other = Flow(pump, 1), Flow(pump, 2)
    for _ in range(20):
        held.passes(b"x" * 30_000)
    seen_are(seen, 20)
    fault("tried_from").value, fault("tried_to").value = other.server.fileno(), other.browser.fileno()
    fault("tried_bytes", ctypes.c_size_t).value = 200_000
    batches, _, _ = pump.collect(ROOM, True)
    assert sum(len(encoded) for encoded, _, _ in batches) > 600_000
    assert fault("tried_passes").value == 1
    pump.close()


def f2_calls_do_not_wait_for_a_send() -> None:
    """While the thread sends, the relay can hand over, collect and query any flow, and recall others."""
    pump, _ = pump_of()
    slow, other = Flow(pump, 1), Flow(pump, 2)
    with sends_that_wait():
        slow.write(b"a")
        assert wait_for(lambda: fault("held_sends").value == 1, "the thread sends")
        for call in (
            lambda: pump.moved(slow.token),
            lambda: Flow(pump, 3),
            lambda: pump.recall(other.token),
            lambda: pump.collect(ROOM, True),
            pump.send_at_once,
        ):
            assert ends(call), call
    assert slow.browser.recv(1) == b"a"
    pump.recall(slow.token)
    batches, _, returns = pump.collect(ROOM, True)
    assert [one[0] for one in returns] == [slow.token]
    assert [one.stream for one in messages_of(batches)] == [1], "the running read comes before the return"
    pump.close()


def f2_nothing_waits_for_the_interpreter_with_the_mutex() -> None:
    """A Python thread that waits for the pump does not make the pump wait for the interpreter."""
    pump, _ = pump_of()
    slow, other = Flow(pump, 1), Flow(pump, 2)
    begins = threading.Event()

    def asks() -> None:
        begins.set()
        pump.moved(slow.token)

    sys.setswitchinterval(1000)
    with sends_that_wait() as release:
        slow.write(b"a")
        assert wait_for(lambda: fault("held_sends").value == 1, "the thread sends")
        threading.Thread(target=asks, daemon=True).start()
        assert begins.wait(PATIENCE_S)
        time.sleep(0.2)  # it is in the call by then, or has finished
        keeping_the_interpreter = ctypes.PyDLL(None)
        release()
        keeping_the_interpreter.usleep(
            200_000
        )  # the send is finished by then, and the call has the mutex if it waited for it
        passes = keeping_the_interpreter.byte_passes(other.server.fileno(), other.browser.fileno(), 5000)
    assert passes == 1
    pump.close()


def an_unfinished_read_is_not_lost_for_want_of_memory() -> None:
    pump, _ = pump_of()
    flow, other = Flow(pump, 1, Phase.SIZE_BEGIN), Flow(pump, 2)
    data = b"3;an=extension\r\n" * 2000
    with no_memory(8192):
        flow.write(data)
        assert wait_for(lambda: pump.moved(flow.token) == 0, "it is given back")
        _, _, returns = pump.collect(ROOM, True)
        assert returns == [], "there is no memory for its read: it is kept"
        pump.recall(other.token)
        _, _, returns = pump.collect(ROOM, True)
        assert [one[0] for one in returns] == [other.token], "another response is returned in the meantime"
    _, _, returns = pump.collect(ROOM, True)
    ((token, _, phase, left, found, sent, reset, dropped),) = returns
    assert (token, phase, left, sent, reset, dropped) == (flow.token, Phase.SIZE_BEGIN, 0, 0, False, 0)
    assert found == data
    Flow(pump, 3).passes(b"a")
    pump.close()


def a_pump_that_waits_for_memory_can_be_closed() -> None:
    pump, _ = pump_of()
    flow, data = Flow(pump, 1, Phase.SIZE_BEGIN), b"z" * 9000
    with no_memory(8192):
        flow.write(data)
        assert wait_for(lambda: pump.moved(flow.token) == 0, "it is given back")
        assert ends(pump.close), "close() waits for the thread"
    assert pump.collect(ROOM, True)[2][0][4] == data


def without_memory_reads_are_dropped_and_responses_come_back() -> None:
    pump, seen = pump_of()
    flow, lent = Flow(pump, 1), Flow(pump, 2)
    for one in (flow, lent):
        one.passes(b"x" * 20_000)
        one.passes(b"y" * 20_000)
    seen_are(seen, 4)
    pump.recall(flow.token)
    with no_memory(8192):
        batches, lost, returns = pump.collect(ROOM, True)
    assert [one[0] for one in returns] == [flow.token]
    assert sorted(messages_of(batches), key=lambda one: one.stream) == [ReadsDropped(1, 2), ReadsDropped(2, 2)]
    assert (lost, [reads for _, _, reads in batches]) == (4, [0])
    lent.passes(b"z")
    pump.recall(lent.token)
    batches, lost, _ = pump.collect(ROOM, True)
    assert lost == 0
    assert [(type(one), one.stream) for one in messages_of(batches)] == [(ResponseReads, 2)]
    pump.close()


def what_there_is_no_memory_to_tell_of_is_kept() -> None:
    pump, seen = pump_of()
    flows = [Flow(pump, stream) for stream in range(64)]
    for flow in flows:
        flow.passes(b"x" * 2000)
    seen_are(seen, 64)
    for flow in flows[:32]:
        pump.recall(flow.token)
    with no_memory(600):  # not enough for 64 times 20 bytes
        assert pump.collect(ROOM, True) == ([], 64, [])
    batches, lost, returns = pump.collect(ROOM, True)
    assert sorted(one.stream for one in messages_of(batches) if isinstance(one, ReadsDropped)) == list(range(64))
    assert (lost, {one[0] for one in returns}) == (0, {flow.token for flow in flows[:32]})
    pump.close()


def without_memory_to_capture_a_read_it_passes() -> None:
    pump, seen = pump_of()
    flow = Flow(pump, 7)
    flow.passes(b"a")
    seen_are(seen, 1)
    with no_memory(2048):
        flow.write(b"b" * 2000)
        seen_are(seen, 2)
    assert flow.browser.recv(4096) == b"b" * 2000
    flow.passes(b"c")
    seen_are(seen, 3)
    batches, lost, _ = pump.collect(ROOM, True)
    kinds = [(type(one), getattr(one, "reads", None)) for one in messages_of(batches)]
    assert [kind for kind, _ in kinds] == [ResponseReads, ReadsDropped, ResponseReads]
    assert (lost, kinds[1][1]) == (1, 1)
    pump.close()


CASES = (
    close_needs_no_descriptor,
    a_pump_that_cannot_be_made_leaves_no_descriptor_open,
    a_forked_child_closes_its_pump,
    f2_a_byte_passes_while_a_batch_is_made,
    f2_calls_do_not_wait_for_a_send,
    f2_nothing_waits_for_the_interpreter_with_the_mutex,
    an_unfinished_read_is_not_lost_for_want_of_memory,
    a_pump_that_waits_for_memory_can_be_closed,
    without_memory_reads_are_dropped_and_responses_come_back,
    what_there_is_no_memory_to_tell_of_is_kept,
    without_memory_to_capture_a_read_it_passes,
)

if __name__ == "__main__":
    next(case for case in CASES if case.__name__ == sys.argv[1])()
    print("ended well", flush=True)
    os._exit(0)  # the interpreter would wait for a thread that is still in a call
