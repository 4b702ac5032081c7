"""A call in a thread gives its result or its error, and a cancelled caller does not wait for it."""

import asyncio
import threading

import pytest

from streamgauge.doctor.contract import in_thread


def test_a_result_and_an_error() -> None:
    async def both() -> None:
        assert await in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await in_thread(divmod, 7, 0)

    asyncio.run(both())


def test_a_cancelled_caller_does_not_wait() -> None:
    release = threading.Event()

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await in_thread(release.wait, 60)

    asyncio.run(cancelled())
    release.set()
