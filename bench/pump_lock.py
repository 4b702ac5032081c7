"""How long a byte waits in the relay's pump while captured reads of other streams are collected.

The pump's thread moves bytes from upstreams to clients, and keeps a copy of each read for the recorder. The relay's own
thread collects the copies. Both use one mutex. Here another process sends a byte through the pump, reads it, and sends
the next one, for 50 ms. Within that time this process collects the reads that many other responses have left in the
pump. The figure is the longest time of a byte. If the pump holds no reads, that is the time of the machine's scheduler;
so each figure is also given as a multiple of that, from the same run.

    python -m bench.pump_lock [--rounds N] [--document FILE]
"""

import argparse
import multiprocessing
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
from streamgauge.core.http1.body_position import Phase
from streamgauge.recorder.loop_client import BATCH_BYTES
from streamgauge.taps.proxy.native._pump import Pump

# What the pump holds when it is collected (MiB): nothing, as much as in a busy relay, and the most that it may hold.
HELD_MIB = (0, 1, 4, 16)
# How long bytes are sent; within this time there is one collection (seconds).
MOMENT_S = 0.05
# The read of each response (bytes): below the size at which the pump completes a run by itself.
_READ_BYTES = 48 * 1024
_CAPACITY = 1 << 26


class Moment(NamedTuple):
    """The longest time of a byte, the number of bytes, and the time of the collection (seconds)."""

    longest: float
    bytes: int
    collecting: float


def send_bytes(server: socket.socket, browser: socket.socket, control: Connection) -> None:
    """The main function of the sender. For each number of seconds it returns a byte's longest time, and their number."""
    control.send(None)
    while (seconds := control.recv()) is not None:
        longest = count = 0
        now = until = time.monotonic_ns()
        until += round(seconds * 1e9)
        while now < until:
            server.send(b".")
            browser.recv(1)
            before, now = now, time.monotonic_ns()
            longest, count = max(longest, now - before), count + 1
        control.send((longest / 1e9, count))


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
        longest, count = self._control.recv()
        if lost or sum(len(encoded) for encoded, _, _ in batches) < reads * _READ_BYTES:
            raise SystemExit("the pump did not hold all reads")
        return Moment(longest, count, collecting)


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
        pump = Pump(_CAPACITY, BATCH_BYTES, 0, memoryview(bytearray(8)))
        sender = spawn.Process(target=send_bytes, args=(server, browser, theirs), daemon=True)
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
    """The table."""
    nothing = statistics.median(moment.longest for moment in measured[0])
    lines = [
        ["held, MiB", "collected in, ms", "longest way of a byte, ms", "of nothing held", "in the worst moment, ms"]
    ]
    for mebibytes, of_size in measured.items():
        longest = statistics.median(moment.longest for moment in of_size)
        lines.append(
            [
                str(mebibytes),
                f"{statistics.median(moment.collecting for moment in of_size) * 1e3:.2f}",
                f"{longest * 1e3:.2f}",
                f"{longest / nothing:.1f}",
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
        print("  ".join(f"{cell:<25}" for cell in row))
    if given.document is not None:
        replace_section(given.document, "pump-lock", table(lines))


if __name__ == "__main__":
    main()
