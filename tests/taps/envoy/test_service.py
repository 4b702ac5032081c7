"""The gRPC services, called by a client of gRPC as Envoy calls them, and as it never does."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import ExchangeEnding, ReadsDropped, RequestStarted
from streamgauge.spool.read_counters import Counters, DropReason, read_arrivals, read_incidents
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.envoy import service
from streamgauge.taps.envoy.exchange import EnvoyExchange, Reporting
from streamgauge.taps.envoy.service import UPSTREAM_METADATA, EnvoyServices, server_of
from tests.recorder.fake_client import FakeClient
from tests.taps.envoy.schema import body, entry, headers, log, processing
from tests.taps.envoy.test_exchange import ASKED, LAST, OTHER, PAGE, PIECE, REQUEST, STREAM

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
LOGS = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
STARTED_NS = 1_796_125_960_500_000_000  # of REQUEST
PATIENCE_S = 20.0


class Rig:
    """Services with a client of the recorder that keeps everything, and a channel to them."""

    def __init__(self, folder: Path, name: str = "counters", **sockets: Any) -> None:
        self.client = FakeClient()
        self.path = folder / name
        self.counters = Counters(self.path, "relay-0")
        self.services = EnvoyServices(Reporting(self.client), self.counters, **sockets)

    async def serve(self) -> None:
        self._server = server_of(self.services)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def close(self) -> None:
        await self._channel.close()
        await self._server.stop(None)
        self.services.close()
        self.counters.close()

    async def report(self, *messages: bytes, metadata: Sequence[tuple[str, str]] = (), cancels: bool = False) -> None:
        """A call of Process with these messages, until the server has ended it, or has read all."""
        call = self._channel.stream_stream(PROCESS)(metadata=metadata)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for message in messages:
                await call.write(message)
            if cancels:
                await self.until(lambda: self.client.seen > 0)
                call.cancel()
            else:
                await call.done_writing()
        with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
            async with asyncio.timeout(PATIENCE_S):
                assert await call.read() is grpc.aio.EOF  # never an answer

    async def log(self, *messages: bytes) -> None:
        """A call of StreamAccessLogs."""
        call = self._channel.stream_unary(LOGS)()
        for message in messages:
            await call.write(message)
        await call.done_writing()
        async with asyncio.timeout(PATIENCE_S):
            assert await call == b""

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not what():  # noqa: ASYNC110 - another thread changes it
                await asyncio.sleep(0.01)

    @property
    def endings(self) -> list[Ending]:
        return [message.ending for message in self.client.messages if isinstance(message, ExchangeEnding)]


class Details(NamedTuple):
    """What gRPC knows of a call when it looks for its handler."""

    method: str
    invocation_metadata: tuple[()] = ()


@contextlib.asynccontextmanager
async def rig(folder: Path, name: str = "counters", **sockets: Any) -> AsyncIterator[Rig]:
    made = Rig(folder, name, **sockets)
    await made.serve()
    try:
        yield made
    finally:
        await made.close()


def run(check: Callable[[Rig], Awaitable[None]], folder: Path) -> Rig:
    async def main() -> Rig:
        async with rig(folder) as made:
            await check(made)
        return made

    return asyncio.run(main())


def test_a_stream_and_its_entry(tmp_path: Path) -> None:
    async def check(made: Rig) -> None:
        await made.report(REQUEST, STREAM, PIECE, LAST)
        assert made.endings == []
        assert made.services.open == 1
        await made.log(log(entry("id-1", STARTED_NS, first_rx_ns=5, last_rx_ns=6)))
        assert made.endings == [Ending.COMPLETE]
        assert made.services.open == 0

    made = run(check, tmp_path)
    heads, delay_ns = read_arrivals(made.path)
    assert heads == 1
    assert delay_ns >= 0
    assert not any(read_incidents(made.path).values())


def test_metadata_names_the_upstream(tmp_path: Path) -> None:
    async def check(made: Rig) -> None:
        await made.report(REQUEST, metadata=[(UPSTREAM_METADATA, "vllm")])
        started = made.client.messages[0]
        assert isinstance(started, RequestStarted)
        assert started.upstream == "vllm"

    run(check, tmp_path)


def test_what_is_not_captured_is_reported_no_further(tmp_path: Path) -> None:
    """The server ends the call at the response's head: so Envoy sends no body of it."""

    async def check(made: Rig) -> None:
        call = made._channel.stream_stream(PROCESS)()
        await call.write(OTHER)
        await call.write(PAGE)
        async with asyncio.timeout(PATIENCE_S):
            assert await call.code() is grpc.StatusCode.OK
        assert made.client.messages == []
        assert made.client.responses == {(None, NotCaptured.NOT_LLM): 1}

    run(check, tmp_path)


def test_an_envoy_that_waits_for_answers_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    waits = processing(request_headers=headers(*ASKED), observed=False)

    async def check(made: Rig) -> None:
        for _ in range(2):
            await made.report(waits)
        assert made.client.messages == []
        assert made.client.responses == {(None, NotCaptured.PROTOCOL): 2}

    run(check, tmp_path)
    assert capfd.readouterr().err.count("observability_mode: true") == 1


@pytest.mark.parametrize("hostile", [b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xff", b"\x12\x7f"])
def test_hostile_messages_end_one_report(hostile: bytes, tmp_path: Path) -> None:
    async def check(made: Rig) -> None:
        await made.report(REQUEST, STREAM, PIECE, hostile, LAST)
        await made.log(hostile)
        await made.log(log(entry("id-1", STARTED_NS, 15)))
        assert made.endings == [Ending.CLIENT]
        assert made.client.dropped == {DropReason.NOT_REPORTED: 1}

    run(check, tmp_path)


def test_a_message_above_the_limit_ends_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_MESSAGE_BYTES", 1_000)

    async def check(made: Rig) -> None:
        await made.report(REQUEST, STREAM, PIECE, processing(response_body=body(b"x" * 2_000)))
        await made.until(lambda: made.services.waiting)
        await made.log(log(entry("id-1", STARTED_NS, 15, body_bytes=2_010)))
        assert made.endings == [Ending.CLIENT]
        assert any(isinstance(message, ReadsDropped) for message in made.client.messages)

    run(check, tmp_path)


@pytest.mark.parametrize("passed_on", [0, 2_000])
def test_a_call_that_is_cancelled_lacks_what_the_log_has_more(passed_on: int, tmp_path: Path) -> None:
    """Envoy cancels the call of a broken stream; and the connection may break."""

    async def check(made: Rig) -> None:
        await made.report(REQUEST, STREAM, PIECE, cancels=True)
        await made.until(lambda: made.services.waiting)
        await made.log(log(entry("id-1", STARTED_NS, 15, body_bytes=passed_on)))
        assert made.endings == [Ending.CLIENT]
        assert made.client.dropped == ({DropReason.NOT_REPORTED: 1} if passed_on else {})

    run(check, tmp_path)


def test_a_report_that_is_given_up_before_any_of_it_is_read_is_counted(tmp_path: Path) -> None:
    class Call:
        """A call that Envoy resets while the tap waits for its first message."""

        def invocation_metadata(self) -> list[tuple[str, str]]:
            return [(UPSTREAM_METADATA, "vllm")]

        async def read(self) -> bytes:
            raise asyncio.CancelledError

    async def check(made: Rig) -> None:
        process = made.services.handlers()[0].service(Details(PROCESS)).stream_stream
        with pytest.raises(asyncio.CancelledError):
            await process(None, Call())
        assert made.client.responses == {("vllm", NotCaptured.RECORDER_BEHIND): 1}
        assert made.client.messages == []

    run(check, tmp_path)


def test_a_bug_in_the_capture_ends_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(made: Rig) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(EnvoyExchange, "receive", lambda *_: 1 / 0)
            await made.report(REQUEST)
        assert made.client.faults == 1
        await made.report(REQUEST, STREAM, LAST)
        await made.log(log(entry("id-1", STARTED_NS, last_rx_ns=5)))
        assert made.endings == [Ending.COMPLETE]

    run(check, tmp_path)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda services, patch: setattr(services, "draining", True), NotCaptured.STOPPING),
        (lambda services, patch: patch.setattr(service, "MAX_OPEN", 0), NotCaptured.LIMIT),
        (lambda services, patch: setattr(services, "_is_behind", True), NotCaptured.RECORDER_BEHIND),
    ],
    ids=["stopping", "limit", "behind"],
)
def test_what_is_refused_is_counted(
    prepare: Callable[[EnvoyServices, pytest.MonkeyPatch], None],
    reason: NotCaptured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(made: Rig) -> None:
        prepare(made.services, monkeypatch)
        await made.report(REQUEST, STREAM, LAST)
        assert made.client.messages == []
        assert made.client.responses == {(None, reason): 1}

    run(check, tmp_path)


def test_a_busy_event_loop_refuses_new_exchanges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "TICK_S", 0.05)
    monkeypatch.setattr(service, "BUSY_SHARE", -1.0)

    async def check(made: Rig) -> None:
        await asyncio.sleep(0.2)
        await made.report(REQUEST, STREAM, LAST)
        assert made.client.responses == {(None, NotCaptured.RECORDER_BEHIND): 1}
        monkeypatch.setattr(service, "BUSY_SHARE", 1_000.0)
        await asyncio.sleep(0.2)
        await made.report(REQUEST, STREAM, LAST)
        assert made.services.open == 1

    run(check, tmp_path)


def test_an_entry_reaches_the_process_that_has_its_exchange(tmp_path: Path) -> None:
    async def main() -> None:
        inboxes = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
        for pair in inboxes:
            for one in pair:
                one.setblocking(False)
        (to_first, from_first), (to_second, from_second) = inboxes
        async with (
            rig(tmp_path, "first", inbox=to_first, siblings=[from_second]) as first,
            rig(tmp_path, "second", inbox=to_second, siblings=[from_first]) as second,
        ):
            await first.report(REQUEST, STREAM, LAST)
            await second.log(log(entry("id-1", STARTED_NS, 15)))
            await first.until(lambda: first.endings)
            assert (first.endings, second.endings) == ([Ending.CLIENT], [])
            from_first.send(b"\xff")  # what is no entry
            await second.log(log(entry("other", STARTED_NS)))
            await asyncio.sleep(0.1)
        for pair in inboxes:
            for one in pair:
                one.close()

    asyncio.run(main())
