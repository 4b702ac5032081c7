"""What each thread and each task of the process does now: for the line that a stuck worker ends with."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

# Frames of a stack, from its inner end (count), and tasks of an event loop that are kept: a worker has some dozens.
_FRAMES = 20
_TASKS = 100
# Of a task's name (characters): Faust puts the whole coroutine into some.
_NAME = 80


def stacks_of(loops: Mapping[str, asyncio.AbstractEventLoop]) -> dict[str, list[str]]:
    """By thread and by task, outermost first: file, line and function of each frame, without any value. From any thread.

    `loops`: by name. An event loop that turns while it is looked at may lose the one or other task here.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = {
        f"thread {names.get(ident, ident)}": [
            f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_stack(frame)[-_FRAMES:]
        ]
        for ident, frame in sys._current_frames().items()
    }
    for name, loop in loops.items():
        for task in _tasks(loop)[:_TASKS]:
            found[f"{name}, task {task.get_name()[:_NAME]}"] = _places(task)
    return found


def _tasks(loop: asyncio.AbstractEventLoop) -> list["asyncio.Task[Any]"]:
    try:
        return sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    except RuntimeError:  # tasks come and go while they are listed
        return []


def _places(task: "asyncio.Task[Any]") -> list[str]:
    """What a task waits for: its coroutine, what that awaits, and so on."""
    places: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(places) < _FRAMES:
        frame = next((found for name in _FRAME if (found := getattr(awaited, name, None)) is not None), None)
        if frame is not None:
            places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        awaited = next((found for name in _AWAITED if (found := getattr(awaited, name, None)) is not None), None)
    return places


# Of coroutines, async generators and generators: the frame, and what it waits for.
_FRAME = ("cr_frame", "ag_frame", "gi_frame")
_AWAITED = ("cr_await", "ag_await", "gi_yieldfrom")
