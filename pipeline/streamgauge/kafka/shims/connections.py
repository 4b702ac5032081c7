"""Work around three faults of aiokafka's connections: a write to a closed transport, metadata without any broker, and closes
that nothing waits for.

Written for aiokafka 0.13 to 0.14; https://github.com/aio-libs/aiokafka/issues/1038 is the first,
https://github.com/aio-libs/aiokafka/issues/460 and https://github.com/aio-libs/aiokafka/issues/551 are the second.

uvloop closes a transport as soon as the connection is reset, and raises RuntimeError for a later write to it. aiokafka
handles the reset one iteration of the event loop later, and expects OSError. The RuntimeError ends the task that wrote. If
that is the client's metadata task, it ends without a log line, and every later wait for metadata lasts without limit.

A broker that was just started may answer a metadata request with an empty list of brokers, until its controller has
registered it. A client that starts at that moment counts as connected. Its lookup of the group's coordinator then fails
with an AssertionError, which ends its consumer; and if the broker goes away again, the client has no address to connect to.

A client's `close` does not wait for its bootstrap connection and for connections whose login failed. A TLS connection is
closed when the broker has answered its close_notify; if the event loop ends earlier, its socket stays open. No public report
was found of the third.
"""

import asyncio
import functools
import time
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup  # type: ignore[import-untyped]
from aiokafka.conn import AIOKafkaConnection, CloseReason  # type: ignore[import-untyped]
from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

_SENDS = ("send", "_send_sasl_token")

# The transports that are being closed, by the future that is done when they are.
_closing: dict[asyncio.Future[None], asyncio.Transport] = {}
# How long a close may take (seconds). It takes one round trip.
_CLOSE_S = 1.0

# The key of the bootstrap connection, which aiokafka keeps if the metadata names no broker.
_BOOTSTRAP = ("bootstrap", ConnectionGroup.DEFAULT)


def patch_connections() -> None:
    """Patch aiokafka. Its connections then raise KafkaConnectionError for a closed transport, and its clients wait until the
    metadata names a broker; a client's `close` waits for the closes of all its connections. Idempotent.
    """
    for name in _SENDS:
        send = getattr(AIOKafkaConnection, name)
        if not hasattr(send, "is_patched"):
            setattr(AIOKafkaConnection, name, _translated(send))
    if not hasattr(AIOKafkaClient.bootstrap, "waits_for_brokers"):
        AIOKafkaClient.bootstrap = _until_broker_named(AIOKafkaClient.bootstrap)
    if not hasattr(AIOKafkaConnection.close, "is_remembered"):
        AIOKafkaConnection.close = _remembered(AIOKafkaConnection.close)
        AIOKafkaClient.close = _until_closed(AIOKafkaClient.close)


async def connections_closed() -> None:
    """Wait until the connections of this event loop whose close has begun are closed; abort those that take too long."""
    loop = asyncio.get_running_loop()
    if begun := [closed for closed in _closing if closed.get_loop() is loop]:
        _, late = await asyncio.wait(begun, timeout=_CLOSE_S)
        for closed in late:
            _closing[closed].abort()
        await asyncio.sleep(0)


def _until_broker_named(bootstrap: Any) -> Any:
    async def bootstrapped(self: AIOKafkaClient) -> None:
        """Raises KafkaConnectionError as aiokafka does, and if the metadata names no broker within one request timeout."""
        deadline = time.monotonic() + self._request_timeout_ms / 1000
        while True:
            await bootstrap(self)
            if self.cluster.brokers():
                return
            self._conns.pop(_BOOTSTRAP).close()
            if time.monotonic() > deadline:
                raise KafkaConnectionError(f"{self.hosts} returned no broker of their cluster")
            await asyncio.sleep(self._retry_backoff)

    bootstrapped.waits_for_brokers = True  # type: ignore[attr-defined]
    return bootstrapped


def _until_closed(close: Any) -> Any:
    async def closed(self: AIOKafkaClient) -> None:
        await close(self)
        await connections_closed()

    return closed


def _remembered(close: Any) -> Any:
    @functools.wraps(close)
    def remembered(self: AIOKafkaConnection, *arguments: Any, **options: Any) -> Any:
        transport = None if self._writer is None else self._writer.transport
        closed = close(self, *arguments, **options)
        if transport is not None:
            _closing[closed] = transport
            closed.add_done_callback(_closing.pop)
        return closed

    remembered.is_remembered = True  # type: ignore[attr-defined]
    return remembered


def _translated(send: Any) -> Any:
    def translated(self: AIOKafkaConnection, *arguments: Any, **options: Any) -> Any:
        try:
            return send(self, *arguments, **options)
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} broken: {error}") from error

    translated.is_patched = True  # type: ignore[attr-defined]
    return translated
