"""Two faults of aiokafka's connections: one that breaks while it is written to, and a broker that does not know itself yet.

uvloop raises RuntimeError for a write to a transport that it has closed, and it closes one as soon as it hears of a reset.
aiokafka's connection learns of that a turn of the loop later, and expects OSError. The RuntimeError then ends the task that
wrote: a client's metadata task ends without a word, and all that waits for metadata after that waits without end.

A broker that was just started may answer a metadata request without any broker, until its controller has registered it. A
client that starts in that second believes that it has connected, and its lookup of the group's coordinator fails with an
AssertionError, which ends its consumer. If the broker goes away again, the client has no address to ask any more.
"""

import asyncio
import time
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup  # type: ignore[import-untyped]
from aiokafka.conn import AIOKafkaConnection, CloseReason  # type: ignore[import-untyped]
from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

_SENDS = ("send", "_send_sasl_token")


# The connection that aiokafka keeps where it was told no broker.
_BOOTSTRAP = ("bootstrap", ConnectionGroup.DEFAULT)


def break_as_expected() -> None:
    """Have aiokafka's connections raise KafkaConnectionError where the transport was closed under them, and its clients wait
    until they are told a broker. Twice is as once.
    """
    for name in _SENDS:
        send = getattr(AIOKafkaConnection, name)
        if not hasattr(send, "breaks_as_expected"):
            setattr(AIOKafkaConnection, name, _translated(send))
    if not hasattr(AIOKafkaClient.bootstrap, "waits_for_brokers"):
        AIOKafkaClient.bootstrap = _until_told_a_broker(AIOKafkaClient.bootstrap)


def _until_told_a_broker(bootstrap: Any) -> Any:
    async def bootstrapped(self: AIOKafkaClient) -> None:
        """Raises KafkaConnectionError as aiokafka does, and where no broker is named for the time of a request."""
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


def _translated(send: Any) -> Any:
    def translated(self: AIOKafkaConnection, *given: Any, **more: Any) -> Any:
        try:
            return send(self, *given, **more)
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} broken: {error}") from error

    translated.breaks_as_expected = True  # type: ignore[attr-defined]
    return translated
