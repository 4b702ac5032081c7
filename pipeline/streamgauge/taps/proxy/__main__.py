"""The proxy tap's relay as a process: `python -m streamgauge.taps.proxy`.

The parent writes one line to its standard input, RelaySettings as JSON, and keeps that open: its end means that the parent
is gone, and the process goes too, at once. It writes `ready` to its standard output when it serves. SIGTERM drains.
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
from streamgauge.runtime.child import leave_terminal_to_parent
from streamgauge.runtime.faults import report_fault, report_loop_faults
from streamgauge.taps.proxy.outbox import FLUSH_S
from streamgauge.taps.proxy.relay import RelaySettings, serve

_DONE, _USAGE, _UNAVAILABLE = 0, 2, 3
# Settings are read up to this size (bytes): a thousand upstreams.
_MAX_SETTINGS = 1024 * 1024
# Objects allocated between two collections: the default of 700 is a collection every few reads, and what a relay makes
# is freed by counting references.
_GC_THRESHOLD = 50_000

# When the parent is gone, what was gathered still goes to the recorder, which leaves a moment later (seconds).
_LAST_FLUSH_S = 2 * FLUSH_S
_last_words: list[Callable[[], None]] = []


async def _run(settings: RelaySettings, listening: socket.socket, others: list[socket.socket]) -> NoReturn:
    """Serves, drains at SIGTERM, and leaves."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_loop_faults("the relay's process"))
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    relay = await serve(settings, listening, others, _say)
    _last_words.append(relay.hurry)
    os.write(sys.stdout.fileno(), b"ready\n")
    await stop.wait()
    await relay.drain()
    os._exit(_DONE)  # all is handed over; leaving in order would wait for look-ups of names that hang in their threads


def _say(sentence: str) -> None:
    sys.stderr.write(f"relay: {sentence}\n")
    sys.stderr.flush()


def _read_settings(fd: int) -> RelaySettings:
    """The first line. Raises msgspec.DecodeError."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _MAX_SETTINGS and (byte := os.read(fd, 1)):
        line += byte
    return msgspec.json.decode(line, type=RelaySettings)


def _leave_with_parent(fd: int) -> None:
    """Waits for the end of the parent. A thread, so that even a loop that hangs does not outlive it."""
    try:
        while os.read(fd, 4096):
            continue
        for words in _last_words:
            words()
        time.sleep(_LAST_FLUSH_S)
    finally:
        os._exit(_UNAVAILABLE)


def _allow_many_descriptors() -> None:
    """A stream takes two; the soft limit is 1,024 where nobody raised it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    """Serves until SIGTERM, then leaves with 0. Gives 2 for wrong settings, 3 for an unavailable part, 70 for a bug."""
    leave_terminal_to_parent()
    signal.signal(
        signal.SIGTERM, lambda *_: os._exit(_DONE)
    )  # nothing is begun yet; later the loop's own handler drains
    stdin = sys.stdin.fileno()
    try:
        settings = _read_settings(stdin)
        listening = socket.socket(fileno=settings.listen_fd)
        others = [socket.socket(fileno=fd) for fd in settings.other_fds]
    except (msgspec.DecodeError, OSError) as fault:
        sys.stderr.write(f"relay: its settings cannot be used: {fault}\n")
        return _USAGE
    threading.Thread(target=_leave_with_parent, args=(stdin,), daemon=True).start()
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
    except Exception as error:  # noqa: BLE001 - Python would print its text, which may quote a stream; it is started again
        report_fault("the relay's process, which exits", error)
        return BUG


if __name__ == "__main__":
    sys.exit(main())
