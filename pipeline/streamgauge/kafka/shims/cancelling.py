"""Cancel a task that may be running code of aiokafka, and close a client that such a task was closing.

Written for aiokafka 0.13 to 0.14; https://github.com/aio-libs/aiokafka/issues/983 lists places that suppress the error, and
https://github.com/aio-libs/aiokafka/pull/1000 is about closing.

aiokafka suppresses CancelledError while it waits for its own tasks, for example in `AIOKafkaClient.close`. A task that is
cancelled once at that moment continues, and a caller that waits for its end waits without limit. A task that is cancelled
later in the same method cancels futures of the connections, and each later `close` raises their CancelledError, although
its caller was not cancelled.
"""

import asyncio
from typing import Any

# After how long a task that has not ended is cancelled again (seconds): time for its regular cleanup.
_AGAIN_S = 1.0


async def end_task(task: "asyncio.Future[Any]") -> None:
    """Cancel a task, again and again, until it has ended. Does not raise the task's error."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)
    retrieve_exception(task)


async def close_client(client: Any) -> None:
    """Close the connections of an AIOKafkaClient. Raises CancelledError only if the caller is cancelled."""
    closing = asyncio.ensure_future(client.close())
    try:
        await asyncio.wait({closing})
    except asyncio.CancelledError:
        end_in_background(closing)
        raise
    if not closing.cancelled():
        closing.result()


def error_of(future: "asyncio.Future[Any]") -> BaseException | None:
    """The error of a done future; CancelledError if it was cancelled. None if it has a result."""
    return asyncio.CancelledError() if future.cancelled() else future.exception()


def retrieve_exception(future: "asyncio.Future[Any]") -> None:
    """Read the exception of a done future that may have no reader: asyncio logs an exception that was never retrieved."""
    if not future.cancelled():
        future.exception()


# Keeps tasks referenced until they have ended: asyncio itself holds only weak references to tasks.
_cancelling: set["asyncio.Task[None]"] = set()


def end_in_background(task: "asyncio.Future[Any]") -> None:
    """As `end_task`, for a caller that is itself being cancelled and must not wait."""
    if task.done():
        return
    task.cancel()
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no event loop is running any more
        return
    cancelling = loop.create_task(end_task(task))
    _cancelling.add(cancelling)
    cancelling.add_done_callback(_cancelling.discard)
