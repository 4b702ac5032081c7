"""The packet tap's process: `python -m streamgauge.taps.packets.process`. Packets come in, messages go to the recorder.

The parent writes one line of JSON (PacketSettings) to stdin and keeps it open: its end says that the parent died. `ready`
is said on stdout when the capture runs. SIGTERM: streams that are open may end until the drain deadline; new ones are left
alone.

Exit codes: 0 done, 2 wrong settings, 3 the interface, the file or the counters are not to be had, 70 a bug.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from itertools import count
from pathlib import Path

import msgspec

from streamgauge.errors import BUG
from streamgauge.runtime.child import leave_terminal_to_parent
from streamgauge.runtime.faults import report_fault, report_loop_faults
from streamgauge.spool.read_counters import Counters, Incident
from streamgauge.taps.packets.clock import StampClock
from streamgauge.taps.packets.connections import Connections, Following
from streamgauge.taps.packets.decode import decode_ip
from streamgauge.taps.packets.delivery import Delivery
from streamgauge.taps.packets.exchange import Telling
from streamgauge.taps.packets.files import PcapFault, messages_of
from streamgauge.taps.packets.ring import ANY, Ring
from streamgauge.taps.proxy.outbox import RecorderClient

# Bytes that may wait for a recorder that is away or slow, as in a relay.
CAPTURE_BUFFER_BYTES = 32 * 1024 * 1024
# Connections are looked at for what is overdue, and the kernel's counts are taken, this often (seconds).
TICK_S = 1.0
# A file is read this far ahead of the recorder (part of the buffer), then it waits for it (seconds).
_AHEAD = 2
_WAIT_S = 0.005
# Messages of a file between two turns of the loop.
_TURN = 256
# While open streams are waited for, they are looked at this often (seconds).
_DRAIN_STEP_S = 0.05
_DONE, _USAGE, _UNAVAILABLE = 0, 2, 3
TAP = "packets"


class PacketSettings(msgspec.Struct, frozen=True):
    """What the parent says. `ports`: the servers', each with its upstream's name.

    Live: `socket_fd`, an inherited packet socket, and the `interface`. Else `pcap`, a file; at its end `done_fd` is written
    to: a line, empty or with what is wrong with the file.
    """

    ports: list[tuple[int, str | None]]
    recorder_socket: str
    counters_path: str
    socket_fd: int = -1
    interface: str = ""
    pcap: str | None = None
    done_fd: int = -1
    role: str = "relay-0"
    tenant_header: str | None = None
    upstream_idle_timeout_s: float = 900.0
    drain_timeout_s: float = 30.0
    capture_buffer_bytes: int = CAPTURE_BUFFER_BYTES


class LiveTap:
    """A running capture, on the loop that made it. Raises OSError where the capture cannot be had."""

    def __init__(self, settings: PacketSettings, outbox: RecorderClient, counters: Counters) -> None:
        self.lost = False  # the interface is gone
        ports = dict(settings.ports)
        self._interface = settings.interface
        self._counters = counters
        self._clock = StampClock(*_both_clocks())
        tenant = settings.tenant_header
        numbers = count((os.getpid() & 0xFFFFFF) << 36)  # apart from those of an earlier process, as a relay's are
        self._telling = Telling(
            Delivery(outbox).put, numbers, TAP, tenant.lower().encode() if tenant else None, self._clock.offset_ns
        )
        following = Following(ports, round(settings.upstream_idle_timeout_s * 1e9))
        self._connections = Connections(following, self._telling)
        self._ring = Ring(socket.socket(fileno=settings.socket_fd), settings.interface, list(ports))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ring.socket, self._readable)
        self._timer = self._loop.call_later(TICK_S, self._tick)

    async def drain(self, timeout_s: float) -> None:
        """Lets open streams end until the deadline, then ends them."""
        self._telling.draining = True
        deadline = time.monotonic() + timeout_s
        while self._connections.open and time.monotonic() < deadline and not self.lost:  # noqa: ASYNC110 - looked at seldom
            await asyncio.sleep(_DRAIN_STEP_S)
        self._loop.remove_reader(self._ring.socket)
        self._timer.cancel()
        while self._ring.ready:
            self._take_block()
        self._connections.cut(time.monotonic_ns())
        self._count()
        self._ring.close()

    def _readable(self) -> None:
        """One block a turn of the loop: the outbox has its turn between them."""
        if self._ring.ready:
            self._take_block()
        elif self._ring.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._look_for_interface()

    def _take_block(self) -> None:
        clock, take = self._clock, self._connections.take
        clock.look(*_both_clocks())
        self._telling.wall_offset_ns = clock.offset_ns
        for captured in self._ring.take():
            segment = decode_ip(captured.data, clock.monotonic(captured.at_ns))
            if segment is not None:
                take(segment)

    def _look_for_interface(self) -> None:
        """An interface that went down comes up again by itself; one that is gone does not."""
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


async def tell_file(settings: PacketSettings, outbox: RecorderClient) -> str | None:
    """Reads a capture file to its end, no faster than the recorder takes it. Gives what is wrong with it, if anything is."""
    put = Delivery(outbox).put
    with Path(settings.pcap or "").open("rb") as file:  # noqa: ASYNC230 - this process has nothing else to do
        messages = messages_of(file, dict(settings.ports) or None, TAP, settings.tenant_header)
        try:
            for number, message in enumerate(messages):
                put(message)
                if number % _TURN == 0:
                    await asyncio.sleep(0)
                while outbox.held > settings.capture_buffer_bytes // _AHEAD:  # noqa: ASYNC110 - as in a pause
                    await asyncio.sleep(_WAIT_S)
        except PcapFault as fault:
            return str(fault)
    return None


def _both_clocks() -> tuple[int, int]:
    """UTC and monotonic, read at one moment as well as it can be done."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return wall, (before + after) // 2


async def _run(settings: PacketSettings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_loop_faults("the packet tap's process"))
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _leave_with_parent(loop)
    counters = Counters(Path(settings.counters_path), settings.role)
    counters.settle_relay()
    outbox = RecorderClient(Path(settings.recorder_socket), counters, settings.capture_buffer_bytes)
    code = await (_file(settings, outbox, stop) if settings.pcap else _live(settings, outbox, counters, stop))
    lost = await outbox.close(settings.drain_timeout_s)
    if lost:
        sys.stderr.write(
            f"the packet tap: {lost} reads are discarded (recorder_gone): the recorder did not accept them\n"
        )
    counters.close()
    return code


async def _live(settings: PacketSettings, outbox: RecorderClient, counters: Counters, stop: asyncio.Event) -> int:
    live = LiveTap(settings, outbox, counters)
    _say_ready()
    while not live.lost and not stop.is_set():
        await _first(stop, TICK_S)
    await live.drain(settings.drain_timeout_s)
    if live.lost:
        sys.stderr.write(f"the packet tap: the interface {settings.interface} does not exist any more\n")
    return _UNAVAILABLE if live.lost else _DONE


async def _file(settings: PacketSettings, outbox: RecorderClient, stop: asyncio.Event) -> int:
    _say_ready()
    reading = asyncio.create_task(tell_file(settings, outbox))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        fault = reading.result()
        os.write(settings.done_fd, (fault or "").encode() + b"\n")
        await stop.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return _DONE


async def _first(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def _leave_with_parent(loop: asyncio.AbstractEventLoop) -> None:
    stdin = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(stdin, 4096):
            os._exit(_UNAVAILABLE)

    loop.add_reader(stdin, readable)


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> int:
    """The process: gives its exit code."""
    leave_terminal_to_parent()
    try:
        settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=PacketSettings)
    except msgspec.DecodeError as fault:
        sys.stderr.write(f"the packet tap's settings cannot be read: {fault}\n")
        return _USAGE
    try:
        return asyncio.run(_run(settings))
    except OSError as fault:
        sys.stderr.write(f"the packet tap: {fault}\n")
        return _UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - Python would print its text, which may quote a stream; it is started again
        report_fault("the packet tap's process, which exits", error)
        return BUG


if __name__ == "__main__":
    sys.exit(main())
