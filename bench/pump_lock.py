"""How long a byte waits in the relay's pump while captured reads of other streams are collected.

The pump's thread moves bytes from upstreams to clients, and keeps a copy of each read for the recorder. The relay's own
thread collects the copies. Both use one mutex. Here another process sends a byte through the pump, reads it, and sends
the next one, for 50 ms. Within that time this process collects the reads that many other responses have left in the
pump. The figure is the longest time of a byte. If the pump holds no reads, that is the time of the machine's scheduler;
so each figure is also given as a multiple of that, from the same run.

A virtual machine also pauses for milliseconds, whatever the pump does. The kernel's count of the times that a thread has
blocked (voluntary_ctxt_switches, proc(5)) tells both apart: for each byte the pump's thread blocks once, when it has
nothing more to do, and once more for each wait for the mutex.

    python -m bench.pump_lock [--rounds N] [--document FILE]
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from bench.document import replace_section, table
from bench.measure import cores, started_on
from streamgauge.core.http1.framing import Phase
from streamgauge.recorder.loop_client import BATCH_BYTES
from streamgauge.taps.proxy.native._pump import Pump

# What the pump holds when it is collected (MiB): nothing, as much as in a busy relay, and the most that it may hold.
HELD_MIB = (0, 1, 4, 16)
# How long bytes are sent; within this time there is one collection (seconds).
MOMENT_S = 0.05
# The read of each response (bytes): below the size at which the pump completes a run by itself.
_READ_BYTES = 48 * 1024
_CAPACITY = 1 << 26


# The time that the pump's thread has to block again, before its count is read (seconds). Both threads share a core.
_SETTLING_S = 50e-6


class Moment(NamedTuple):
    """The bytes of a moment, and those that waited for the mutex: their number, and the longest time (seconds).

    `collecting` is the time of the collection. `longest_wait` is 0 if no byte waited.
    """

    bytes: int
    longest: float
    waited: int
    longest_wait: float
    collecting: float


def threads_of_this_process() -> list[Path]:
    """The directories of its threads in /proc."""
    return list(Path(f"/proc/{os.getpid()}/task").iterdir())


def times_blocked(status: int) -> int:
    """How often a thread has blocked so far, by its open /proc/PID/task/TID/status."""
    name = b"\nvoluntary_ctxt_switches:"
    return int(os.pread(status, 8192, 0).split(name)[1].split(b"\n")[0])


def send_bytes(server: socket.socket, browser: socket.socket, control: Connection, pump_thread: Path) -> None:
    """The main function of the sender. For each number of seconds it returns the first four figures of a moment.

    pump_thread: the directory of the pump's thread in /proc.
    """
    status = os.open(pump_thread / "status", os.O_RDONLY)
    control.send(None)
    while (seconds := control.recv()) is not None:
        every: list[int] = []
        waiting: list[int] = []
        until = time.monotonic() + seconds
        blocked = times_blocked(status)
        while time.monotonic() < until:
            before = time.monotonic_ns()
            server.send(b".")
            browser.recv(1)
            every.append(time.monotonic_ns() - before)
            time.sleep(_SETTLING_S)
            blocked_before, blocked = blocked, times_blocked(status)
            if blocked - blocked_before > 1:
                waiting.append(every[-1])
        control.send((len(every), max(every) / 1e9, len(waiting), max(waiting, default=0) / 1e9))


class Held:
    """A pump, responses that leave captured reads in it, and one response whose bytes are timed."""

    def __init__(self, control: Connection, pump: Pump, responses: list[socket.socket], sink: socket.socket) -> None:
        self._control = control
        self._pump = pump
        self._responses = responses
        self._sink = sink

    def moment(self, mebibytes: int) -> Moment:
        """Fills the pump with reads and collects them while bytes are sent. Raises SystemExit if reads are missing."""
        reads = mebibytes * 1024 * 1024 // _READ_BYTES
        for response in self._responses[:reads]:
            response.sendall(bytes(_READ_BYTES))
            unread = _READ_BYTES
            while unread:
                unread -= len(self._sink.recv(unread))
        time.sleep(MOMENT_S)
        self._control.send(MOMENT_S)
        time.sleep(MOMENT_S / 4)
        before = time.monotonic()
        batches, lost, _ = self._pump.collect(_CAPACITY, True)
        collecting = time.monotonic() - before
        count, longest, waited, longest_wait = self._control.recv()
        if lost or sum(len(encoded) for encoded, _, _ in batches) < reads * _READ_BYTES:
            raise SystemExit("the pump did not hold all reads")
        return Moment(count, longest, waited, longest_wait, collecting)


@contextmanager
def held() -> Iterator[Held]:
    """Runs pump and sender on one core, and this process, which collects, on the others."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    others, core = cores()
    server, upstream = socket.socketpair()
    client, browser = socket.socketpair()
    into, sink = socket.socketpair()
    pairs = [socket.socketpair() for _ in range(max(HELD_MIB) * 1024 * 1024 // _READ_BYTES)]
    with started_on(core):
        threads = set(threads_of_this_process())
        pump = Pump(_CAPACITY, BATCH_BYTES, 0, memoryview(bytearray(8)))
        (pump_thread,) = set(threads_of_this_process()) - threads
        sender = spawn.Process(target=send_bytes, args=(server, browser, theirs, pump_thread), daemon=True)
        sender.start()
    try:
        pump.hand_over(upstream.fileno(), client.fileno(), False, 0, Phase.UNTIL_EOF, 0)
        for stream, (_, source) in enumerate(pairs, 1):
            pump.hand_over(source.fileno(), into.fileno(), True, stream, Phase.UNTIL_EOF, 0)
        ours.recv()
        with started_on(others):
            yield Held(ours, pump, [response for response, _ in pairs], sink)
        ours.send(None)
        sender.join()
    finally:
        sender.terminate()
        pump.close()
        for end in (server, upstream, client, browser, into, sink, *(end for pair in pairs for end in pair)):
            end.close()


def moments(rounds: int) -> dict[int, list[Moment]]:
    """Measures each size by turns. The result is by the size of what is held (MiB)."""
    measured: dict[int, list[Moment]] = {mebibytes: [] for mebibytes in HELD_MIB}
    with held() as pump:
        for _ in range(rounds):
            for mebibytes, of_size in measured.items():
                of_size.append(pump.moment(mebibytes))
    return measured


def rows(measured: dict[int, list[Moment]]) -> list[list[str]]:
    """The table. Worst is the longest of all moments; the worst wait is given as a share of the worst with nothing held."""
    nothing = statistics.median(moment.longest for moment in measured[0])
    nothing_worst = max(moment.longest for moment in measured[0])
    lines = [
        [
            "held, MiB",
            "collected in, ms",
            "longest way of a byte, ms",
            "of nothing held",
            "bytes that waited",
            "worst of them, ms",
            "of the worst with nothing held",
            "worst of all bytes, ms",
        ]
    ]
    for mebibytes, of_size in measured.items():
        longest = statistics.median(moment.longest for moment in of_size)
        waited = sum(moment.waited for moment in of_size)
        worst_wait = max(moment.longest_wait for moment in of_size)
        lines.append(
            [
                str(mebibytes),
                f"{statistics.median(moment.collecting for moment in of_size) * 1e3:.2f}",
                f"{longest * 1e3:.2f}",
                f"{longest / nothing:.1f}",
                f"{waited:,} of {sum(moment.bytes for moment in of_size):,}",
                f"{worst_wait * 1e3:.2f}" if waited else "-",
                f"{worst_wait / nothing_worst:.2f}" if waited else "-",
                f"{max(moment.longest for moment in of_size) * 1e3:.2f}",
            ]
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.pump_lock", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    lines = rows(moments(given.rounds))
    for row in lines:
        print("  ".join(f"{cell:<{len(head)}}" for head, cell in zip(lines[0], row, strict=True)))
    if given.document is not None:
        replace_section(given.document, "pump-lock", table(lines))


if __name__ == "__main__":
    main()
