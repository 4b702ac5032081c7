"""Ending a task that may be inside of aiokafka.

aiokafka waits for its own tasks with CancelledError suppressed, as in `AIOKafkaClient.close`. A task that is cancelled once
at that moment goes on, and a caller that waits for its end waits for ever.
"""

import asyncio
from typing import Any

# How soon a task that has not ended is cancelled again (seconds): time for what it does in order at its end.
_AGAIN_S = 1.0


async def end_task(task: "asyncio.Future[Any]") -> None:
    """Cancel a task until it has ended. Its error, if it has one, is not raised."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)
    if not task.cancelled():
        task.exception()  # looked at, or asyncio complains that nobody did


# Referenced until they have ended: asyncio itself keeps weak references to tasks.
_ending: set["asyncio.Task[None]"] = set()


def end_in_background(task: "asyncio.Future[Any]") -> None:
    """As `end_task`, for a caller that is itself cancelled and may not wait."""
    if task.done():
        return
    task.cancel()
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # the loop is at its end, and runs nothing more
        return
    ending = loop.create_task(end_task(task))
    _ending.add(ending)
    ending.add_done_callback(_ending.discard)
