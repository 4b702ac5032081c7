"""A task is cancelled until it has ended, also one that suppresses its first cancellations; and a client is closed."""

import asyncio
import contextlib

import pytest

from streamgauge.kafka.shims.cancelling import close_client, end_in_background, end_task, error_of


async def suppresses(times: int) -> None:
    """Goes on after so many cancellations."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
    await asyncio.sleep(600)


@pytest.mark.parametrize("times", [0, 1, 2])
def test_it_ends(times: int) -> None:
    async def run() -> None:
        task = asyncio.create_task(suppresses(times))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await end_task(task)
        assert task.cancelled()

    asyncio.run(run())


def test_its_error_is_not_raised() -> None:
    async def fail() -> None:
        raise ValueError

    async def run() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        await end_task(task)
        assert isinstance(task.exception(), ValueError)

    asyncio.run(run())


def test_in_the_background_the_caller_does_not_wait() -> None:
    async def run() -> None:
        task = asyncio.create_task(suppresses(1))
        await asyncio.sleep(0)
        end_in_background(task)
        assert not task.done()
        done, _ = await asyncio.wait({task}, timeout=30)
        assert done

    asyncio.run(run())


class Client:
    """Closes as an AIOKafkaClient does: it waits for a future of each connection."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        await asyncio.gather(self.closed)


def test_a_client_is_closed_after_a_close_that_was_cancelled() -> None:
    async def run() -> None:
        client = Client()
        first = asyncio.ensure_future(close_client(client))
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with contextlib.suppress(asyncio.CancelledError):
            await client.closed
        await close_client(client)

    asyncio.run(run())


def test_a_client_that_does_not_close_raises_its_error() -> None:
    async def run() -> None:
        client = Client()
        client.closed.set_exception(OSError("no"))
        with pytest.raises(OSError, match="no"):
            await close_client(client)

    asyncio.run(run())


def test_how_a_task_failed() -> None:
    async def run() -> None:
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        futures[0].set_result(None)
        futures[1].set_exception(ValueError())
        futures[2].cancel()
        assert [type(error_of(one)) for one in futures] == [type(None), ValueError, asyncio.CancelledError]

    asyncio.run(run())
