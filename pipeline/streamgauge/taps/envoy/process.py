"""The Envoy tap's process: `python -m streamgauge.taps.envoy.process`. It serves Envoy, and sends messages to the recorder.

The parent writes one line of JSON (EnvoySettings) to stdin and keeps it open; when it closes, the parent has ended. The
process writes `ready` to stdout when it serves. After SIGTERM, open exchanges may end until the drain deadline, and new
ones are not captured.

Exit codes: 0 done, 2 wrong settings, 3 the address or the counters are unavailable, 70 an internal error.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from streamgauge.errors import BUG
from streamgauge.recorder.loop_client import LoopClient
from streamgauge.runtime.child import decode_settings, leave_terminal_to_parent
from streamgauge.runtime.faults import report_fault, report_loop_faults
from streamgauge.spool.read_counters import Counters
from streamgauge.taps.envoy.exchange import Reporting
from streamgauge.taps.envoy.service import EnvoyServices, server_of
from streamgauge.taps.envoy.settings import EnvoySettings

# Interval at which a drain checks for open exchanges (seconds).
_DRAIN_STEP_S = 0.05
_DONE, _USAGE, _UNAVAILABLE = 0, 2, 3


async def _run(settings: EnvoySettings) -> NoReturn:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_loop_faults("the Envoy tap's process"))
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _exit_with_parent(loop)
    counters = Counters(Path(settings.counters_path), settings.role)
    counters.drop_unsent_reads()
    client = LoopClient(Path(settings.recorder_socket), counters, settings.capture_buffer_bytes)
    inbox = None if settings.inbox_fd is None else _datagram_socket(settings.inbox_fd)
    siblings = [_datagram_socket(fd) for fd in settings.sibling_fds]
    reporting = Reporting(client, settings.tenant_header, settings.attribute)
    services = EnvoyServices(reporting, counters, inbox, siblings)
    server = server_of(services)
    try:
        server.add_insecure_port(settings.address)
    except RuntimeError as error:  # gRPC's own report of a failed bind
        raise OSError(f"the address {settings.address} cannot be used") from error
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await stop.wait()
    await _drain(services, settings.drain_timeout)
    await server.stop(None)
    services.close()
    lost = await client.close(settings.drain_timeout)
    if lost:
        sys.stderr.write(
            f"the Envoy tap: {lost} reads are discarded (recorder_gone): the recorder did not accept them\n"
        )
    counters.close()
    os._exit(_DONE)  # a loop that is closed would let a further SIGTERM kill the process


async def _drain(services: EnvoyServices, timeout_s: float) -> None:
    """Waits until open exchanges end, up to the deadline."""
    services.draining = True
    deadline = time.monotonic() + timeout_s
    while services.open and time.monotonic() < deadline:  # noqa: ASYNC110 - a slow poll is enough
        await asyncio.sleep(_DRAIN_STEP_S)


def _datagram_socket(fd: int) -> socket.socket:
    inherited = socket.socket(fileno=fd)
    inherited.setblocking(False)
    return inherited


def _exit_with_parent(loop: asyncio.AbstractEventLoop) -> None:
    stdin = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(stdin, 4096):
            os._exit(_UNAVAILABLE)

    loop.add_reader(stdin, readable)


def main() -> int:
    """Runs the process. Returns its exit code."""
    leave_terminal_to_parent()
    try:
        settings = decode_settings(sys.stdin.buffer.readline(), EnvoySettings)
    except msgspec.DecodeError as fault:
        sys.stderr.write(f"the Envoy tap's settings cannot be read: {fault}\n")
        return _USAGE
    try:
        asyncio.run(_run(settings))
    except OSError as fault:
        sys.stderr.write(f"the Envoy tap: {fault}\n")
        return _UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - Python would print the error's text, which may quote a stream; the parent restarts us
        report_fault("the Envoy tap's process, which exits", error)
        return BUG


if __name__ == "__main__":
    sys.exit(main())
