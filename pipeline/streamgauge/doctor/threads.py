"""Runs a call that blocks. Its thread is a daemon: a disk or a resolver that hangs delays no other check, and not the end."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


async def in_thread(call: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """The result of the call, or its error. If the caller is cancelled, the thread goes on."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Result] = loop.create_future()

    def finish(set_result: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: None if result.done() else set_result())

    def work() -> None:
        try:
            value = call(*given, **named)
        except Exception as error:  # noqa: BLE001 - it is raised in the caller
            failed = error
            finish(lambda: result.set_exception(failed))
        else:
            finish(lambda: result.set_result(value))

    threading.Thread(target=work, name="doctor", daemon=True).start()
    return await result
