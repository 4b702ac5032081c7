"""The packet tap's process: `python -m streamgauge.taps.packets.process`. It reads packets and sends messages to the
recorder. Its parent writes PacketSettings; tap_process.py has its exit codes.
"""

import asyncio
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from streamgauge.recorder.client import CAPACITY_BYTES
from streamgauge.recorder.loop_client import LoopClient
from streamgauge.settings.attributes import Attribute
from streamgauge.settings.declarations import Settings
from streamgauge.spool.read_counters import Counters, Incident
from streamgauge.taps.packets.clock import StampClock
from streamgauge.taps.packets.connections import CaptureScope, Connections
from streamgauge.taps.packets.decode import decode_ip
from streamgauge.taps.packets.exchange import Reporting
from streamgauge.taps.packets.files import PcapFault, follow
from streamgauge.taps.packets.ring import ANY, Ring
from streamgauge.taps.proxy.capture_gate import NamedHeaders, named_headers
from streamgauge.taps.tap_process import DONE, UNAVAILABLE, drained, report_ready, run_tap

# Interval at which overdue connections are ended and the kernel's counts are read (seconds).
TICK_S = 1.0
# A file is read ahead of the recorder until 1/_AHEAD of the buffer is full; then reading pauses for _WAIT_S (seconds)
# at a time.
_AHEAD = 2
_WAIT_S = 0.005
# Packets of a file between two turns of the event loop.
_TURN = 256
TAP = "packets"


@dataclass(frozen=True)
class PacketSettings:
    """The parent's settings. `ports`: the servers' ports, each with its upstream's name.

    For a live capture: `socket_fd`, an inherited packet socket, and `interface`. For a file: `pcap`; at its end one line is
    written to `done_fd`: empty, or what is wrong with the file.
    """

    ports: list[tuple[int, str | None]]
    recorder_socket: str
    counters_path: str
    socket_fd: int = -1
    interface: str | None = Settings.interface
    pcap: Path | None = Settings.pcap
    done_fd: int = -1
    role: str = "relay-0"
    tenant_header: str | None = Settings.tenant_header
    attribute: tuple[Attribute, ...] = Settings.attribute
    upstream_idle_timeout: float = Settings.upstream_idle_timeout
    drain_timeout: float = Settings.drain_timeout
    capture_buffer_bytes: int = CAPACITY_BYTES


class LiveTap:
    """A running capture, on the event loop that created it. Raises OSError if the capture is unavailable."""

    def __init__(self, settings: PacketSettings, client: LoopClient, counters: Counters) -> None:
        self.lost = False  # the interface was removed
        ports = dict(settings.ports)
        self._interface = settings.interface or ANY
        self._counters = counters
        self._clock = StampClock(*_both_clocks())
        self._reporting = Reporting(client, TAP, _named(settings), self._clock.offset_ns)
        scope = CaptureScope(ports, round(settings.upstream_idle_timeout * 1e9))
        self._connections = Connections(scope, self._reporting)
        self._ring = Ring(socket.socket(fileno=settings.socket_fd), self._interface, list(ports))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ring.socket, self._readable)
        self._timer = self._loop.call_later(TICK_S, self._tick)

    async def drain(self, timeout_s: float) -> None:
        """Waits until open streams end, up to the deadline, then cuts them."""
        self._reporting.draining = True
        await drained(lambda: 0 if self.lost else self._connections.open, timeout_s)
        self._loop.remove_reader(self._ring.socket)
        self._timer.cancel()
        while self._ring.ready:
            self._take_block()
        self._connections.cut(time.monotonic_ns())
        self._count()
        self._ring.close()

    def _readable(self) -> None:
        """Reads one block in each turn of the event loop, so that the client can send in between."""
        if self._ring.ready:
            self._take_block()
        elif self._ring.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._check_interface()

    def _take_block(self) -> None:
        clock, take = self._clock, self._connections.take
        clock.update(*_both_clocks())
        self._reporting.wall_offset_ns = clock.offset_ns
        for captured in self._ring.take():
            segment = decode_ip(captured.data, clock.monotonic(captured.at_ns))
            if segment is not None:
                take(segment)

    def _check_interface(self) -> None:
        """Checks whether the interface still exists. One that is down may come up again; one that was removed does not."""
        try:
            if self._interface != ANY:
                socket.if_nametoindex(self._interface)
        except OSError:
            self._loop.remove_reader(self._ring.socket)
            self.lost = True

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._connections.tick(time.monotonic_ns())
        self._count()

    def _count(self) -> None:
        if dropped := self._ring.count():
            self._counters.happened(Incident.PACKETS_DROPPED, dropped)
        if self._connections.faults:
            self._counters.happened(Incident.CAPTURE_FAULT, self._connections.faults)
            self._connections.faults = 0


async def report_file(settings: PacketSettings, client: LoopClient) -> str | None:
    """Reads a capture file to its end, no faster than the recorder accepts it. Returns the file's damage, or None."""
    assert settings.pcap is not None
    reporting = Reporting(client, TAP, _named(settings), derives_ids=True)
    connections = Connections(CaptureScope(dict(settings.ports) or None), reporting)
    with settings.pcap.open("rb") as file:
        try:
            for number, _ in enumerate(follow(file, connections)):
                if number % _TURN == 0:
                    await asyncio.sleep(0)
                while client.held > settings.capture_buffer_bytes // _AHEAD:  # noqa: ASYNC110 - as in a pause
                    await asyncio.sleep(_WAIT_S)
        except PcapFault as fault:
            return str(fault)
    return None


def _named(settings: PacketSettings) -> NamedHeaders:
    return named_headers(settings.tenant_header, settings.attribute)


def _both_clocks() -> tuple[int, int]:
    """UTC and monotonic time (ns), read as close together as possible."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return wall, (before + after) // 2


async def _capture(settings: PacketSettings, client: LoopClient, counters: Counters, stop: asyncio.Event) -> int:
    return await (_file(settings, client, stop) if settings.pcap else _live(settings, client, counters, stop))


async def _live(settings: PacketSettings, client: LoopClient, counters: Counters, stop: asyncio.Event) -> int:
    live = LiveTap(settings, client, counters)
    report_ready()
    while not live.lost and not stop.is_set():
        await _first(stop, TICK_S)
    await live.drain(settings.drain_timeout)
    if live.lost:
        sys.stderr.write(f"the packet tap: the interface {settings.interface} does not exist any more\n")
    return UNAVAILABLE if live.lost else DONE


async def _file(settings: PacketSettings, client: LoopClient, stop: asyncio.Event) -> int:
    report_ready()
    reading = asyncio.create_task(report_file(settings, client))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        fault = reading.result()
        os.write(settings.done_fd, (fault or "").encode() + b"\n")
        await stop.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return DONE


async def _first(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


if __name__ == "__main__":
    sys.exit(run_tap("the packet tap", PacketSettings, _capture))
