"""What tests of in-process capture share: the place of a recorder, and a stream."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import CaptureClient, ExchangeCapture
from streamgauge.recorder.protocol import Message, ReadsDropped, ResponseRead
from streamgauge.spool.read_counters import Balance, read_balance
from streamgauge.taps.inprocess.capture import SeenRequest, start_capture
from tests.taps.proxy.rig import RawRecorder
from tests.taps.talk import EVENTS

# How long a test waits for what must come (seconds): generous, since the machine is shared.
PATIENCE_S = 30.0
SSE_HEAD = [("Content-Type", "text/event-stream"), ("X-Request-Id", "req_7"), ("Set-Cookie", "secret")]


def recorder_at(data_dir: Path) -> RawRecorder:
    """A recorder where an agent's recorder would listen; not started."""
    (data_dir / "run").mkdir(parents=True, exist_ok=True)
    return RawRecorder(data_dir / "run" / "recorder.sock")


def seen_request(**changes: Any) -> SeenRequest:
    given = SeenRequest("httpx", "up", "POST", "/v1/chat/completions", [("Content-Type", "application/json")], 1_000)
    return given._replace(**changes)


def report_stream(
    client: CaptureClient, *chunks: bytes, ending: Ending = Ending.COMPLETE, end: bool = True
) -> ExchangeCapture:
    """Reports a whole stream with these chunks, or EVENTS if there are none."""
    capture = start_capture(client, seen_request())
    capture.request_body(b'{"model":"m"}')
    capture.request_sent(1_500, None, 13)
    capture.response_head(2_000, 200, SSE_HEAD)
    for at, chunk in enumerate(chunks or EVENTS):
        capture.read(3_000 + at, chunk)
    if end:
        capture.end(9_000, ending)
    return capture


def reads_of(messages: list[Message]) -> tuple[int, int]:
    """How many reads arrived, and how many were reported as dropped."""
    arrived = sum(isinstance(message, ResponseRead) for message in messages)
    return arrived, sum(message.reads for message in messages if isinstance(message, ReadsDropped))


def balance_of(data_dir: Path) -> Balance:
    return read_balance(data_dir / "counters")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
