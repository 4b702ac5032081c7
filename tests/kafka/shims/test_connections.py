"""A connection that is reset while a client writes to it, and a broker that names none: with uvloop, as in processes."""

import asyncio
import gc
import socket
import ssl
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from streamgauge.kafka.security import Brokers, TlsFiles, brokers_at

# By when uvloop knows of a reset (turns of the loop).
_TURNS = 10


class _Connected(AIOKafkaConnection):
    """Asks the broker for no versions: the listener below answers nothing."""

    async def _do_version_lookup(self) -> None:
        self._versions = {MetadataRequest.API_KEY: (0, 5)}


async def reset_connection() -> AIOKafkaConnection:
    """A connection of which uvloop knows that it was reset, and aiokafka does not yet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = _Connected(*server.getsockname(), request_timeout_ms=2000)
        await connection.connect()
        accepted, _ = server.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its close is a reset
    accepted.close()
    for _ in range(_TURNS):
        if connection._writer.transport.is_closing():
            break
        connection._writer.write(b"x")  # uvloop writes at the end of the turn, and finds the reset
        await asyncio.sleep(0)
    assert connection._writer.transport.is_closing()
    assert connection.connected()
    return connection


@pytest.fixture
def run() -> Any:
    brokers_at("127.0.0.1:1").options()  # as each client of ours is made
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner.run


def test_a_write_to_a_connection_that_was_reset_is_an_error_of_the_connection(run: Any) -> None:
    async def send() -> None:
        connection = await reset_connection()
        with pytest.raises(KafkaConnectionError):
            await connection.send(MetadataRequest([]))
        assert not connection.connected()

    run(send())


def test_the_metadata_task_of_a_client_outlives_it(run: Any) -> None:
    """RuntimeError ended it, and whatever waited for metadata then waited without end."""

    async def update() -> bool:
        client = AIOKafkaClient(bootstrap_servers="127.0.0.1:1")
        connection = await reset_connection()
        client._conns[0, 0] = connection

        async def get_connection(node_id: int, **_: Any) -> AIOKafkaConnection:
            return connection

        client._get_conn = get_connection
        client.cluster._brokers = {0: object()}
        client.cluster.brokers = lambda: [type("Node", (), {"nodeId": 0})]
        return bool(await client._metadata_update(client.cluster, ["topic"]))

    assert run(update()) is False


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many more metadata answers name no broker, as those of a broker that its controller has not registered yet."""
    left = [0]
    send = AIOKafkaConnection.send

    async def answered(self: AIOKafkaConnection, request: Any, **more: Any) -> Any:
        response = await send(self, request, **more)
        if isinstance(request, MetadataRequest) and left[0]:
            left[0] -= 1
            response.brokers = []
        return response

    monkeypatch.setattr(AIOKafkaConnection, "send", answered)
    return left


@pytest.mark.kafka
def test_client_waits_until_the_metadata_names_a_broker(run: Any, kafka: str, nameless: list[int]) -> None:
    """It took such an answer for a connection, and the lookup of the coordinator was an AssertionError."""

    async def start() -> int | None:
        client = AIOKafkaClient(bootstrap_servers=kafka)
        await client.bootstrap()
        try:
            node: int | None = client.get_random_node()  # as the lookup does
            return node
        finally:
            await client.close()

    nameless[0] = 3
    assert run(start()) is not None
    assert nameless == [0]


@pytest.mark.kafka
def test_client_without_a_named_broker_fails_after_its_timeout(run: Any, kafka: str, nameless: list[int]) -> None:
    async def start() -> None:
        client = AIOKafkaClient(bootstrap_servers=kafka, request_timeout_ms=500)
        try:
            with pytest.raises(KafkaConnectionError, match="returned no broker"):
                await client.bootstrap()
            assert client._conns == {}
        finally:
            await client.close()

    nameless[0] = 1_000
    run(start())


def test_a_client_over_tls_leaves_no_socket_open(tmp_path: Path) -> None:
    """This broker answers no request, and does not close its side of a connection."""
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(lambda: context.wrap_socket(server.accept()[0], server_side=True))
        brokers = Brokers(f"127.0.0.1:{server.getsockname()[1]}", TlsFiles(tmp_path / "ca.pem"))

        async def fail() -> None:
            client = AIOKafkaClient(**brokers.options(), request_timeout_ms=200)
            with pytest.raises(KafkaConnectionError):
                await client.bootstrap()
            await client.close()

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.run(fail())
            gc.collect()
        accepted.result().close()
    assert [str(one.message) for one in caught] == []
