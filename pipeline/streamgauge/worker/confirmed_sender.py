"""Sends the messages of one partition and waits until all are durable. Each step of a checkpoint waits for that."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import KafkaError, KafkaTimeoutError  # type: ignore[import-untyped]

from streamgauge.kafka.backoff import Backoff
from streamgauge.kafka.producer import Meaning, Message, Producer, meaning_of
from streamgauge.kafka.shims.cancelling import end_in_background, retrieve_exception
from streamgauge.worker.faults import StateRefusedError, WriteDeniedError

# How soon an unreachable broker is tried again (seconds).
_RETRY_S = 1.0
# After this time without any confirmation, a new producer sends all messages again (seconds): three failed requests.
_UNCONFIRMED_S = 30.0
# A send that waits longer than this for buffer space counts as a try: the broker is slow (seconds).
_SLOW_S = 1.0
# How often `tries` grows while `store_refused` waits for its own topic (seconds).
_WAITING_S = 5.0


class ConfirmedSender:
    """Keeps each message until it is confirmed, and sends failed messages again, without a time limit.

    `store_refused` durably stores a message elsewhere if the broker refuses it permanently; it returns False if there is
    no other place for it. `tries` grows with each retry and each slow send, so that the watchdog can distinguish a
    partition that waits for the broker from a stuck partition.
    """

    def __init__(self, producer: Producer, store_refused: Callable[[Message], Awaitable[bool]]) -> None:
        self._producer = producer
        self._store_refused = store_refused
        self._backoff = Backoff()
        self.tries = 0
        self._pending: list[tuple[Message, int, asyncio.Future[Any]]] = []

    async def send(self, message: Message) -> None:
        """Give a message to the producer, waiting for buffer space and for the broker. Raises WorkerError."""
        rest: Message | None = message
        while rest is not None:
            message, generation = rest, self._producer.generation
            began = asyncio.get_running_loop().time()
            try:
                future = await self._producer.send(message)
            except KafkaTimeoutError:
                self.tries += 1
                continue  # the producer's buffer is still full, and the producer keeps its messages
            except KafkaError as error:
                rest = await self._after_failure(error, message, generation)
                continue
            if asyncio.get_running_loop().time() - began > _SLOW_S:
                self.tries += 1
            future.add_done_callback(retrieve_exception)
            self._pending.append((message, generation, future))
            return

    async def confirmed(self) -> None:
        """Returns when all messages sent so far are durable. Raises WorkerError."""
        while self._pending:
            await self._wait()
            settled, self._pending = self._pending, []
            failed = [(message, generation, error) for message, generation, error in map(_outcome, settled) if error]
            if not failed:
                self._backoff.worked()
            for message, generation, error in failed:
                rest = await self._after_failure(error, message, generation)
                if rest is not None:
                    await self.send(rest)

    async def _wait(self) -> None:
        """Wait until each send has succeeded or failed.

        Replaces a producer that confirms nothing for _UNCONFIRMED_S, if the broker answers. If the broker is unreachable, the
        producer itself waits for it.
        """
        waiting = {future for _, _, future in self._pending if not future.done()}
        while waiting:
            generation = self._producer.generation
            done, waiting = await asyncio.wait(waiting, timeout=_UNCONFIRMED_S)
            self.tries += bool(waiting)
            if not done and await self._producer.answers():
                await self._producer.renew(generation)

    async def wait_and_forget(self, timeout_s: float) -> None:
        """Wait for the sends in flight, for at most `timeout_s` seconds, and discard all messages."""
        waiting = {future for _, _, future in self._pending if not future.done()}
        self._pending.clear()
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)

    async def _after_failure(self, error: BaseException, message: Message, generation: int) -> Message | None:
        """Handle a failed send. Returns the message to send again, with a new producer; None if it is stored elsewhere."""
        rest: Message | None = message
        match meaning_of(error):
            case Meaning.REFUSED:
                await self._handle_refused(message, error)
                rest = None
            case Meaning.DENIED:
                raise WriteDeniedError(
                    f"the broker denies writes to {message.topic} ({type(error).__name__}): grant Write on it"
                )
            case Meaning.AGAIN:
                # Only the first failure with a producer pauses: the others have the same cause.
                if generation == self._producer.generation:
                    await asyncio.sleep(self._backoff.failed())
        self.tries += 1
        while not await self._producer.renew(generation):
            self.tries += 1
            await asyncio.sleep(_RETRY_S)
        return rest

    async def _handle_refused(self, message: Message, error: BaseException) -> None:
        moving = asyncio.ensure_future(self._store_refused(message))
        try:
            while not (await asyncio.wait({moving}, timeout=_WAITING_S))[0]:
                self.tries += 1  # `store_refused` still waits for its topic
            if not moving.result():
                size = len(message.value or b"")
                raise StateRefusedError(
                    f"the broker rejected a message of {size} bytes for {message.topic}: {type(error).__name__}"
                )
        finally:
            end_in_background(moving)


def _outcome(
    sent: tuple[Message, int, "asyncio.Future[Any]"],
) -> tuple[Message, int, BaseException | None]:
    """The message, its producer's generation, and the error; None instead of an error if the message is durable."""
    message, generation, future = sent
    return message, generation, KafkaError("cut off") if future.cancelled() else future.exception()
