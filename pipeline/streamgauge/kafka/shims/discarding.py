"""Discard a producer without waiting for its messages: aiokafka's own `stop` waits until all are delivered.

Written for aiokafka 0.13 to 0.14; https://github.com/aio-libs/aiokafka/issues/1101.
"""

import asyncio
from typing import Any

from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

from streamgauge.kafka.shims.cancelling import close_client

# How long the sender task of a discarded producer may take to end (seconds).
_TIMEOUT_S = 2.0


async def discard(producer: Any) -> None:
    """Disconnect a producer and fail its buffered messages."""
    producer._closed = True
    await close_client(producer.client)
    sender = producer._sender.sender_task
    if sender is not None and not sender.done():
        sender.cancel()
        await asyncio.wait({sender}, timeout=_TIMEOUT_S)
    accumulator = producer._message_accumulator
    accumulator.fail_all(KafkaConnectionError("the producer was discarded"))
    for batch in (batch for batches in accumulator._batches.values() for batch in batches):
        if batch._drain_waiter.done() and not batch._drain_waiter.cancelled():
            batch._drain_waiter.exception()  # retrieved, because asyncio logs an exception that was never retrieved
