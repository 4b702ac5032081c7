"""A task is cancelled until it has ended, also one that suppresses its first cancellations."""

import asyncio
import contextlib

import pytest

from streamgauge.kafka.cancelling import end_in_background, end_task


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
