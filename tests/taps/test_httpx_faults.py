"""Faults around the httpx tap and inside it: callers get what they get without it, and the record shows what is missing."""

import asyncio
import gc
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.recorder.protocol import ExchangeEnding
from streamgauge.spool.read_counters import read_balance
from streamgauge.taps import httpx as httpx_module
from streamgauge.taps.httpx import AsyncTapTransport, TapTransport
from streamgauge.taps.inprocess import background_senders
from streamgauge.taps.inprocess.background_sender import BackgroundSender
from tests.ports import free_port
from tests.recorder.test_process import Recording, records
from tests.taps.asking import (
    BODY,
    CHAT,
    HEAD,
    LIBRARIES,
    SHORT_TIMEOUT_S,
    STREAM,
    TIMEOUT_S,
    WHOLE,
    Asker,
    Kind,
    Received,
    ask_chat,
    both_ways,
    pausing,
)
from tests.taps.proxy.rig import (
    RawRecorder,
    RawUpstream,
    answering,
    arrived,
    chunked,
    kinds,
    only,
    receive_all,
    reset,
)
from tests.taps.talk import BODY as ANSWER
from tests.taps.talk import EVENTS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("leave_after", [1, 3])
def test_a_caller_that_leaves(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder, leave_after: int) -> None:
    pieces = [chunked(event)[:-5] for event in EVENTS]
    handler = pausing(STREAM.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", *pieces)
    result = both_ways(way, tmp_path, lambda asker: ask_chat(asker, leave_after=leave_after), handler)
    messages = recorder.ended()
    assert arrived(messages) == result.body == b"".join(EVENTS[:leave_after])
    ended = only(messages, ExchangeEnding)
    assert (ended.ending, ended.client_gone_ns) == (Ending.CLIENT, ended.at_ns)


@pytest.mark.parametrize(
    ("end", "ending", "error"),
    [
        (reset, Ending.RESET, "ReadError"),
        (socket.socket.close, Ending.RESET, "RemoteProtocolError"),
        (receive_all, Ending.TIMEOUT, "ReadTimeout"),
    ],
)
@pytest.mark.parametrize("sent", [b"", HEAD, STREAM[:-30]], ids=["nothing", "half a head", "half a body"])
def test_an_upstream_that_breaks_off(
    way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder, end: Any, ending: Ending, error: str, sent: bytes
) -> None:
    def ask(asker: Asker) -> Received:
        asker.timeout_s = SHORT_TIMEOUT_S if end is receive_all else TIMEOUT_S
        return ask_chat(asker)

    result = both_ways(way, tmp_path, ask, pausing(sent, end=end))
    assert result.error is not None
    assert result.error[0] == error
    messages = recorder.ended()
    assert only(messages, ExchangeEnding).ending is ending
    assert arrived(messages) == result.body
    whole = kinds(messages) == WHOLE
    assert whole or kinds(messages) == ["RequestStarted", "RequestBody", "RequestSent", "ExchangeEnding"]
    assert whole == (result.status is not None)


def test_no_server_listens(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    url = f"http://127.0.0.1:{free_port()}{CHAT}"
    plain, tapped = (Asker(*way, data_dir).ask(url) for data_dir in (None, tmp_path))
    assert plain == tapped
    assert tapped.error is not None
    assert tapped.error[0] == "ConnectError"
    messages = recorder.ended()
    assert kinds(messages) == ["RequestStarted", "RequestBody", "ExchangeEnding"]
    assert only(messages, ExchangeEnding).ending is Ending.RESET


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_cancelled_task(library: Any, how: str, tmp_path: Path, recorder: RawRecorder) -> None:
    async def run(url: str) -> list[bytes]:
        received: list[bytes] = []

        async def read() -> None:
            async with (
                library.AsyncClient(transport=AsyncTapTransport(data_dir=tmp_path)) as client,
                client.stream("POST", url + CHAT, content=BODY) as response,
            ):
                async for chunk in response.aiter_raw():
                    received.append(chunk)
                    some.set()

        some = asyncio.Event()
        if how == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read(), 1.0)
            return received
        task = asyncio.create_task(read())
        await some.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return received

    with RawUpstream(pausing(STREAM[:-50])) as upstream:
        chunks = asyncio.run(run(upstream.url))
    messages = recorder.ended()
    assert arrived(messages) == b"".join(chunks) != b""
    assert only(messages, ExchangeEnding).ending is Ending.CLIENT


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_task_that_is_cancelled_before_the_head(library: Any, tmp_path: Path, recorder: RawRecorder) -> None:
    async def run(url: str) -> None:
        async with library.AsyncClient(transport=AsyncTapTransport(data_dir=tmp_path)) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.post(url + CHAT, content=BODY), 1.0)

    with RawUpstream(pausing()) as upstream:
        asyncio.run(run(upstream.url))
    messages = recorder.ended()
    assert (kinds(messages), only(messages, ExchangeEnding).ending) == (
        ["RequestStarted", "RequestBody", "RequestSent", "ExchangeEnding"],
        Ending.CLIENT,
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_response_that_is_never_closed(library: Any, tmp_path: Path, recorder: RawRecorder) -> None:
    with (
        RawUpstream(answering(STREAM)) as upstream,
        library.Client(transport=TapTransport(data_dir=tmp_path)) as client,
    ):
        response = client.send(client.build_request("POST", upstream.url + CHAT, content=BODY), stream=True)
        first = next(response.iter_raw())
        del response
        gc.collect()
        messages = recorder.ended()
    assert arrived(messages) == first
    assert only(messages, ExchangeEnding).ending is Ending.CLIENT


class BugError(Exception):
    """An unexpected exception."""


def raising(*_: object, **__: object) -> Any:
    raise BugError


BREAKABLE: list[tuple[Any, str]] = [
    (httpx_module, "sender_of"),
    (httpx_module, "is_llm"),
    (httpx_module, "is_event_stream"),
    (httpx_module, "stream_classes_of"),
    (httpx_module, "RequestBodyCapture"),
    (httpx_module, "start_capture"),
    (httpx_module, "_content_of"),
    (background_senders, "_made"),
    (BackgroundSender, "put"),
    (BackgroundSender, "put_read"),
    (ExchangeCapture, "_report_dropped"),
]


@pytest.mark.parametrize(("owner", "name"), BREAKABLE, ids=lambda value: str(value).rpartition(".")[2])
def test_a_bug_in_the_tap_does_not_reach_the_caller(
    way: tuple[Any, Kind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, raising)
    for path in (CHAT, "/v1/mystery"):
        result = both_ways(way, tmp_path, lambda asker, path=path: asker.ask(asker.url + path), answering(STREAM))  # type: ignore[misc]
        assert result.body == ANSWER
    once = both_ways(way, tmp_path, lambda asker: ask_chat(asker, content=asker.pieces(BODY)), pausing(HEAD, end=reset))
    assert once.error is not None
    monkeypatch.undo()
    background_senders.end()


def test_without_an_agent_callers_notice_nothing(way: tuple[Any, Kind], tmp_path: Path) -> None:
    assert both_ways(way, tmp_path, ask_chat, answering(STREAM)).body == ANSWER
    background_senders.end()
    assert read_balance(tmp_path / "counters").dropped["recorder_gone"] > 0


@pytest.mark.parametrize("name", ["RequestBodyCapture", "stream_classes_of", "_content_of"])
def test_a_bug_in_the_tap_leaves_no_stream_open(
    tmp_path: Path, recorder: RawRecorder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as broken, RawUpstream(answering(STREAM)) as upstream:
        broken.setattr(httpx_module, name, raising)
        assert Asker(LIBRARIES[0], "sync", tmp_path).ask(upstream.url + CHAT).body == ANSWER
    messages = recorder.ended()
    assert kinds(messages)[0] == "RequestStarted"
    assert only(messages, ExchangeEnding).ending is (
        Ending.COMPLETE if name in ("RequestBodyCapture", "_content_of") else Ending.CUT
    )


def test_a_killed_application_leaves_a_stream_that_is_cut(tmp_path: Path) -> None:
    """With a real recorder: the stream's record is marked as cut, and contains all reads that were sent to the recorder."""
    code = (
        "import os, signal, sys, time, httpx; from streamgauge.taps.httpx import TapTransport\n"
        "with httpx.Client(transport=TapTransport(data_dir=sys.argv[1])).stream('POST', sys.argv[2]) as response:\n"
        "    chunks = response.iter_raw(); next(chunks), next(chunks)\n"
        "    time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)"
    )
    recorded = Recording(tmp_path)
    (recorded.data / "run").symlink_to(tmp_path)
    try:
        with RawUpstream(pausing(STREAM[:-50])) as upstream:
            done = subprocess.run([sys.executable, "-c", code, str(recorded.data), upstream.url + CHAT], check=False)
        assert done.returncode == -signal.SIGKILL
        [record] = records(recorded.until(records))
    finally:
        recorded.kill()
    assert (record.tap, record.outcome) == ("httpx", "abandoned")
    assert 0 < record.counts.bytes < len(ANSWER)  # type: ignore[operator]
    assert record.timing.first_token_s is not None
