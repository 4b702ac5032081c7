"""A collector's view of its supervisor: the messages on stdin, the request to stop, and the supervisor's end."""

import asyncio
import os
import signal
import sys
import time

import msgspec

from streamgauge.runtime.child import Status, Stop, decode_message
from streamgauge.runtime.faults import report_fault
from streamgauge.runtime.process_group import streams_drain_s

_READ_BYTES = 64 * 1024


class Control:
    """The supervisor's last status and its request to stop. Made on the collector's event loop.

    `stopping` is set by a Stop, or by SIGTERM, which leaves the whole `drain_timeout` (seconds); `orphaned` is set when the
    supervisor has ended.
    """

    def __init__(self, drain_timeout: float) -> None:
        self.status = Status(serving=False, processes=[])
        self.stopping, self.orphaned = asyncio.Event(), asyncio.Event()
        self._drain_timeout = drain_timeout
        self._stop: Stop | None = None
        self._input = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGTERM, self._stop_by_signal)
        self._loop.add_reader(sys.stdin.fileno(), self._read)

    @property
    def streams_s(self) -> float:
        """How long open streams may go on (seconds); the whole drain timeout's part for streams before a request to stop."""
        if self._stop is None:
            return streams_drain_s(self._drain_timeout)
        return max(self._stop.streams_end_s - time.monotonic(), 0.0)

    @property
    def left_s(self) -> float:
        """How long the collector may write and deliver (seconds)."""
        return self._drain_timeout if self._stop is None else max(self._stop.end_s - time.monotonic(), 0.0)

    def _stop_by_signal(self) -> None:
        now = time.monotonic()
        self._stop = self._stop or Stop(now + streams_drain_s(self._drain_timeout), now + self._drain_timeout)
        self.stopping.set()

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), _READ_BYTES)
        if not data:
            self._loop.remove_reader(sys.stdin.fileno())
            self.orphaned.set()
            return
        self._input += data
        *lines, rest = self._input.split(b"\n")
        self._input = rest
        for line in lines:
            self._take(bytes(line))

    def _take(self, line: bytes) -> None:
        try:
            message = decode_message(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            report_fault("the reader of the supervisor's messages", error)
            return
        if isinstance(message, Status):
            self.status = message
        else:
            self._stop = message
            self.stopping.set()
