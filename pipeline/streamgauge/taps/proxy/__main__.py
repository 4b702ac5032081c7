"""The proxy tap's relay as a process: `python -m streamgauge.taps.proxy`.

The parent writes RelaySettings as one line of JSON to this process's standard input, and keeps the pipe open. When the pipe
closes, the parent has ended: this process sends what it captured to the recorder, and exits. The process writes `ready` to
its standard output once it accepts clients. SIGTERM drains it.
"""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import msgspec
import uvloop

from streamgauge.errors import BUG
from streamgauge.recorder.loop_client import FLUSH_S
from streamgauge.runtime.child import decode_settings, leave_terminal_to_parent
from streamgauge.runtime.faults import report_fault, report_loop_faults
from streamgauge.runtime.log_time import rfc3339
from streamgauge.taps.proxy.relay import serve
from streamgauge.taps.proxy.relay_settings import RelaySettings

_DONE, _USAGE, _UNAVAILABLE = 0, 2, 3
# Largest size of the settings (bytes): enough for a thousand upstreams.
_MAX_SETTINGS = 1024 * 1024
# Objects allocated between two garbage collections. The default, 700, would mean a collection every few reads, and the
# objects of a relay are freed by reference counting.
_GC_THRESHOLD = 50_000

# How long the relay runs after its parent has ended, so that captured reads reach the recorder (seconds). The recorder
# exits a moment later.
_LAST_FLUSH_S = 2 * FLUSH_S
_before_exit: list[Callable[[], None]] = []  # called when the parent has ended


async def _run(settings: RelaySettings, listening: socket.socket, others: list[socket.socket]) -> NoReturn:
    """Serves until SIGTERM, drains, and exits the process with 0."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_loop_faults("the relay's process"))
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    relay = await serve(settings, listening, others, _log)
    _before_exit.append(relay.send_at_once)
    os.write(sys.stdout.fileno(), b"ready\n")
    await stop.wait()
    await relay.drain()
    os._exit(_DONE)  # the drain is complete; a regular exit would wait for threads that hang in DNS lookups


def _log(sentence: str) -> None:
    sys.stderr.write(f"{rfc3339()} relay: {sentence}\n")
    sys.stderr.flush()


def _read_settings(fd: int) -> RelaySettings:
    """Reads the first line. Raises msgspec.DecodeError if it is no RelaySettings."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _MAX_SETTINGS and (byte := os.read(fd, 1)):
        line += byte
    return decode_settings(bytes(line), RelaySettings)


def _exit_with_parent(fd: int) -> None:
    """Waits until the parent has ended, then exits. Runs in a thread, so that the process exits even if its loop hangs."""
    try:
        while os.read(fd, 4096):
            continue
        for step in _before_exit:
            step()
        time.sleep(_LAST_FLUSH_S)
    finally:
        os._exit(_UNAVAILABLE)


def _allow_many_descriptors() -> None:
    """Raises the soft limit, by default 1,024, to the hard limit: each stream takes two descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    """Serves until SIGTERM, then exits with 0. Returns 2 for invalid settings, 3 for an OS error, 70 for a bug."""
    leave_terminal_to_parent()
    signal.signal(
        signal.SIGTERM, lambda *_: os._exit(_DONE)
    )  # there is nothing to drain yet; later the loop's handler drains
    stdin = sys.stdin.fileno()
    try:
        settings = _read_settings(stdin)
        listening = socket.socket(fileno=settings.listen_fd)
        others = [socket.socket(fileno=fd) for fd in settings.other_fds]
    except (msgspec.DecodeError, OSError) as fault:
        sys.stderr.write(f"relay: its settings cannot be used: {fault}\n")
        return _USAGE
    threading.Thread(target=_exit_with_parent, args=(stdin,), daemon=True).start()
    _allow_many_descriptors()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    try:
        uvloop.run(_run(settings, listening, others))
    except ValueError as fault:
        sys.stderr.write(f"relay: its settings cannot be used: {fault}\n")
        return _USAGE
    except OSError as fault:
        sys.stderr.write(f"relay: {fault}\n")
        return _UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - Python's traceback may quote a stream; the parent restarts the relay
        report_fault("the relay's process, which exits", error)
        return BUG


if __name__ == "__main__":
    sys.exit(main())
