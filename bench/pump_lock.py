"""How long a byte waits in the relay's pump while captured reads of other streams are collected.

The pump's thread moves bytes from upstreams to clients, and keeps a copy for the recorder; the relay's own thread collects
the copies. Both use one mutex. Here another process sends a byte through the pump, reads it, and sends the next one, for a
moment; in the middle of that moment this process collects what many other responses have left in the pump. A figure is the
longest way of a byte within a moment. Where nothing is held that is the work of the machine's scheduler, so each figure is
also given as a multiple of that, from the same run.

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

# What is held when it is collected (MiB): nothing, what a busy relay holds, and the most that it may.
HELD_MIB = (0, 1, 4, 16)
# How long bytes are sent while something is collected once (seconds).
MOMENT_S = 0.05
# One read of each response (bytes): below the size at which the pump closes a run by itself.
_READ_BYTES = 48 * 1024
_CAPACITY = 1 << 26


class Moment(NamedTuple):
    """The longest way of a byte, how many there were, and how long collecting took (seconds)."""

    longest: float
    bytes: int
    collecting: float


def send_bytes(server: socket.socket, browser: socket.socket, asked: Connection) -> None:
    """A process: for each number of seconds that it is asked for, the longest way of a byte, and how many there were."""
    asked.send(None)
    while (seconds := asked.recv()) is not None:
        longest = count = 0
        now = until = time.monotonic_ns()
        until += round(seconds * 1e9)
        while now < until:
            server.send(b".")
            browser.recv(1)
            before, now = now, time.monotonic_ns()
            longest, count = max(longest, now - before), count + 1
        asked.send((longest / 1e9, count))


class Held:
    """A pump, responses that leave captured reads in it, and one more whose bytes are timed."""

    def __init__(self, asked: Connection, pump: Pump, responses: list[socket.socket], sink: socket.socket) -> None:
        self._asked = asked
        self._pump = pump
        self._responses = responses
        self._sink = sink

    def moment(self, mebibytes: int) -> Moment:
        """Has so much captured, and collects it within a moment. Raises SystemExit if that is not what was collected."""
        reads = mebibytes * 1024 * 1024 // _READ_BYTES
        for response in self._responses[:reads]:
            response.sendall(bytes(_READ_BYTES))
            left = _READ_BYTES
            while left:
                left -= len(self._sink.recv(left))
        time.sleep(MOMENT_S)
        self._asked.send(MOMENT_S)
        time.sleep(MOMENT_S / 4)
        before = time.monotonic()
        batches, lost, _ = self._pump.collect(_CAPACITY, True)
        collecting = time.monotonic() - before
        longest, count = self._asked.recv()
        if lost or sum(len(encoded) for encoded, _, _ in batches) < reads * _READ_BYTES:
            raise SystemExit("the pump did not hold what it was given")
        return Moment(longest, count, collecting)


@contextmanager
def held() -> Iterator[Held]:
    """The pump and the process that sends through it have one core; this process, which collects, has the others."""
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
        for stream, (_, one) in enumerate(pairs, 1):
            pump.hand_over(one.fileno(), into.fileno(), True, stream, Phase.UNTIL_EOF, 0)
        ours.recv()
        with started_on(others):
            yield Held(ours, pump, [one for one, _ in pairs], sink)
        ours.send(None)
        sender.join()
    finally:
        sender.terminate()
        pump.close()
        for one in (server, upstream, client, browser, into, sink, *(one for pair in pairs for one in pair)):
            one.close()


def moments(rounds: int) -> dict[int, list[Moment]]:
    """By turns, by what is held (MiB)."""
    found: dict[int, list[Moment]] = {mebibytes: [] for mebibytes in HELD_MIB}
    with held() as one:
        for _ in range(rounds):
            for mebibytes, seen in found.items():
                seen.append(one.moment(mebibytes))
    return found


def rows(found: dict[int, list[Moment]]) -> list[list[str]]:
    """The table."""
    nothing = statistics.median(one.longest for one in found[0])
    lines = [
        ["held, MiB", "collected in, ms", "longest way of a byte, ms", "of nothing held", "in the worst moment, ms"]
    ]
    for mebibytes, seen in found.items():
        longest = statistics.median(one.longest for one in seen)
        lines.append(
            [
                str(mebibytes),
                f"{statistics.median(one.collecting for one in seen) * 1e3:.2f}",
                f"{longest * 1e3:.2f}",
                f"{longest / nothing:.1f}",
                f"{max(one.longest for one in seen) * 1e3:.2f}",
            ]
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.pump_lock", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    found = rows(moments(given.rounds))
    for row in found:
        print("  ".join(f"{cell:<25}" for cell in row))
    if given.document is not None:
        replace_section(given.document, "pump-lock", table(found))


if __name__ == "__main__":
    main()
