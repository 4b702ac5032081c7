"""The process of a tap that is not in the traffic's path: its life beside its parent and the recorder.

The parent writes one line of JSON, the settings, to stdin and keeps it open; when it closes, the parent has ended. The
process writes `ready` to stdout when it captures. After SIGTERM, open streams may end until the drain deadline, and new ones
are not captured.

Exit codes: 0 done, 2 wrong settings, 3 what the tap captures from or the counters are unavailable, 70 an internal error.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

import msgspec

from streamgauge.errors import BUG
from streamgauge.recorder.loop_client import LoopClient
from streamgauge.runtime.child import decode_settings, leave_terminal_to_parent
from streamgauge.runtime.faults import report_fault, report_loop_faults
from streamgauge.spool.read_counters import Counters

DONE, USAGE, UNAVAILABLE = 0, 2, 3
# Interval at which a drain checks for open streams (seconds).
_DRAIN_STEP_S = 0.05


class TapSettings(Protocol):
    """The settings that each of these processes has."""

    @property
    def recorder_socket(self) -> str:
        """The path of the recorder's socket."""

    @property
    def counters_path(self) -> str:
        """The path of the counters' file."""

    @property
    def role(self) -> str:
        """The role of the process in the counters."""

    @property
    def drain_timeout(self) -> float:
        """How long streams may go on after SIGTERM, and what is captured may take to be sent (seconds)."""

    @property
    def capture_buffer_bytes(self) -> int:
        """The bytes that may wait for the recorder."""


AnySettings = TypeVar("AnySettings", bound=TapSettings)
Capture = Callable[[AnySettings, LoopClient, Counters, asyncio.Event], Awaitable[int]]


def run_tap(tap: str, kind: type[AnySettings], capture: Capture[AnySettings]) -> int:
    """Run the process, which captures until `capture` returns its exit code. Returns the exit code of a failure.

    `tap`: its name in sentences. `capture` calls `report_ready`, and ends after its event, which SIGTERM sets. It raises
    OSError if what it captures from is unavailable.
    """
    leave_terminal_to_parent()
    try:
        settings = decode_settings(sys.stdin.buffer.readline(), kind)
    except msgspec.DecodeError as fault:
        sys.stderr.write(f"{tap}'s settings cannot be read: {fault}\n")
        return USAGE
    try:
        asyncio.run(_run(tap, settings, capture))
    except OSError as fault:
        sys.stderr.write(f"{tap}: {fault}\n")
        return UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - Python would print the error's text, which may quote a stream; the parent restarts us
        report_fault(f"{tap}'s process, which exits", error)
        return BUG


async def _run(tap: str, settings: AnySettings, capture: Capture[AnySettings]) -> NoReturn:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_loop_faults(f"{tap}'s process"))
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _exit_with_parent(loop)
    counters = Counters(Path(settings.counters_path), settings.role)
    counters.drop_unsent_reads()
    client = LoopClient(Path(settings.recorder_socket), counters, settings.capture_buffer_bytes)
    code = await capture(settings, client, counters, stop)
    lost = await client.close(settings.drain_timeout)
    if lost:
        sys.stderr.write(f"{tap}: {lost} reads are discarded (recorder_gone): the recorder did not accept them\n")
    counters.close()
    os._exit(code)  # a loop that is closed would let a further SIGTERM kill the process


def report_ready() -> None:
    """Tell the parent that the process captures."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def drained(open_streams: Callable[[], int], timeout_s: float) -> None:
    """Wait until no stream is open, up to the deadline."""
    deadline = time.monotonic() + timeout_s
    while open_streams() and time.monotonic() < deadline:  # noqa: ASYNC110 - a slow poll is enough
        await asyncio.sleep(_DRAIN_STEP_S)


def _exit_with_parent(loop: asyncio.AbstractEventLoop) -> None:
    stdin = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(stdin, 4096):
            os._exit(UNAVAILABLE)

    loop.add_reader(stdin, readable)
