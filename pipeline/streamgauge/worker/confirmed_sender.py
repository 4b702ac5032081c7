"""What one partition sends, and the moment when all of it is durable. No step of a checkpoint begins before that."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import KafkaError, KafkaTimeoutError  # type: ignore[import-untyped]

from streamgauge.kafka.backoff import Pace
from streamgauge.kafka.cancelling import end_in_background
from streamgauge.kafka.producer import Meaning, Message, Producer, meaning_of
from streamgauge.worker.faults import StateRefusedError, WriteDeniedError

# How soon a broker that was away is tried again (seconds).
_RETRY_S = 1.0
# After so long without one confirmation a new producer sends it all again (seconds): three requests that fail.
_UNCONFIRMED_S = 30.0
# A send that waits for longer than this until there is room waits for a slow broker (seconds).
_SLOW_S = 1.0
# What waits for room elsewhere says so as often (seconds).
_WAITING_S = 5.0


class ConfirmedSender:
    """Sends and remembers until it is confirmed; sends again what failed, for as long as it takes.

    `instead` puts a message that the broker refuses for good elsewhere, durably; False if there is no such place for it.
    `tries` grows while something is tried again, or goes through slowly: who waits for the broker by rule is told from who
    hangs by it.
    """

    def __init__(self, producer: Producer, instead: Callable[[Message], Awaitable[bool]]) -> None:
        self._producer = producer
        self._instead = instead
        self._pace = Pace()
        self.tries = 0
        self._pending: list[tuple[Message, int, asyncio.Future[Any]]] = []

    async def send(self, message: Message) -> None:
        """Hand a message over, waiting while there is no room or no broker. Raises WorkerError."""
        rest: Message | None = message
        while rest is not None:
            message, generation = rest, self._producer.generation
            began = asyncio.get_running_loop().time()
            try:
                future = await self._producer.send(message)
            except KafkaTimeoutError:
                self.tries += 1
                continue  # the producer's buffer is still full: it keeps what it has
            except KafkaError as error:
                rest = await self._after(error, message, generation)
                continue
            if asyncio.get_running_loop().time() - began > _SLOW_S:
                self.tries += 1
            future.add_done_callback(_note)
            self._pending.append((message, generation, future))
            return

    async def confirmed(self) -> None:
        """Returns when all that was sent is durable. Raises WorkerError."""
        while self._pending:
            await self._wait()
            settled, self._pending = self._pending, []
            failed = [(message, generation, error) for message, generation, error in map(_outcome, settled) if error]
            if not failed:
                self._pace.worked()
            for message, generation, error in failed:
                rest = await self._after(error, message, generation)
                if rest is not None:
                    await self.send(rest)

    async def _wait(self) -> None:
        """Until each send has succeeded or failed.

        A producer that confirms nothing for too long is replaced, if the broker answers: what is away it waits for itself.
        """
        waiting = {future for _, _, future in self._pending if not future.done()}
        while waiting:
            generation = self._producer.generation
            done, waiting = await asyncio.wait(waiting, timeout=_UNCONFIRMED_S)
            self.tries += bool(waiting)
            if not done and await self._producer.answers():
                await self._producer.renew(generation)

    async def settle(self, timeout_s: float) -> None:
        """Wait for what is in flight, for at most `timeout_s`, and forget it."""
        waiting = {future for _, _, future in self._pending if not future.done()}
        self._pending.clear()
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)

    async def _after(self, error: BaseException, message: Message, generation: int) -> Message | None:
        """What to send next after a failure: mostly the same again, with a new producer; None if it rests elsewhere."""
        rest: Message | None = message
        match meaning_of(error):
            case Meaning.REFUSED:
                await self._put_elsewhere(message, error)
                rest = None
            case Meaning.DENIED:
                raise WriteDeniedError(
                    f"the broker denies writes to {message.topic} ({type(error).__name__}): grant Write on it"
                )
            case Meaning.AGAIN:
                # Only the first that fails with a producer waits: the others failed for the same reason.
                if generation == self._producer.generation:
                    await asyncio.sleep(self._pace.failed())
        self.tries += 1
        while not await self._producer.renew(generation):
            self.tries += 1
            await asyncio.sleep(_RETRY_S)
        return rest

    async def _put_elsewhere(self, message: Message, error: BaseException) -> None:
        moving = asyncio.ensure_future(self._instead(message))
        try:
            while not (await asyncio.wait({moving}, timeout=_WAITING_S))[0]:
                self.tries += 1  # it waits for its topic
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
    """What was sent, by which producer, and why it failed; None if it is durable."""
    message, generation, future = sent
    return message, generation, KafkaError("cut off") if future.cancelled() else future.exception()


def _note(future: "asyncio.Future[Any]") -> None:
    """An error of a message that nobody waits for any more (its partition was revoked) is no news."""
    if not future.cancelled():
        future.exception()
