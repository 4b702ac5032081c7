"""Imported by every Python process that is started with this folder on its path: injects the fault that a test sets.

FAULT_CAPTURE=relay|pump|recorder and FAULT_MARK: an exception in the capture, at each read that contains the mark.
FAULT_CLOCK=FILE: the wall clock is off by the seconds in the file.
"""

import os
import time
from pathlib import Path
from typing import Any


class Broken(Exception):
    """An unexpected bug."""


def break_recorder(mark: bytes) -> None:
    from streamgauge.recorder.response import Response

    read_all = Response.read_all

    def breaks(self: Any, arrived: Any, *rest: Any) -> Any:
        if any(mark in one.data for one in arrived):
            raise Broken
        return read_all(self, arrived, *rest)

    Response.read_all = breaks  # type: ignore


def break_relay(mark: bytes) -> None:
    from streamgauge.recorder.loop_client import LoopClient

    put = LoopClient.put

    def breaks(self: Any, message: Any, size: int) -> None:
        if mark in getattr(message, "data", b"") or mark in getattr(message, "encoded", b""):
            raise Broken
        put(self, message, size)

    put_read = LoopClient.put_read

    def read_breaks(self: Any, stream: Any, at_ns: Any, data: Any) -> bool:
        if mark in data:
            raise Broken
        return bool(put_read(self, stream, at_ns, data))

    LoopClient.put, LoopClient.put_read = breaks, read_breaks  # type: ignore


def break_clock(file: Path) -> None:
    real_time, real_time_ns = time.time, time.time_ns
    time.time = lambda: real_time() + int(file.read_text() or 0)
    time.time_ns = lambda: real_time_ns() + int(file.read_text() or 0) * 1_000_000_000


if "FAULT_MARK" in os.environ:
    breaking = {"relay": break_relay, "pump": break_relay, "recorder": break_recorder}[os.environ["FAULT_CAPTURE"]]
    breaking(os.environ["FAULT_MARK"].encode())
if "FAULT_CLOCK" in os.environ:
    break_clock(Path(os.environ["FAULT_CLOCK"]))
