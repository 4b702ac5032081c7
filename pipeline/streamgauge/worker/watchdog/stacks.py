"""The present frames of each thread and each task of the process, for the last log line of a stuck worker.

This code never waits, and never reads from a disk, because the worker may be stuck on that disk. So frames have no source
line.
"""

import asyncio
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

# The most frames of a stack, counted from the innermost.
_FRAMES = 20
# The most tasks of an event loop: a worker has some dozens, and one with all partitions some hundreds.
_TASKS = 1_000
# How much of a task's name is kept (characters): Faust puts the whole coroutine into some names.
_NAME = 80
# The threads of this process by id, including those that run no Python. Linux only; it is in memory, not on a disk.
_SYSTEM_THREADS = Path("/proc/self/task")


def stacks_of(loops: Mapping[str, asyncio.AbstractEventLoop]) -> dict[str, list[str]]:
    """File, line and function of each frame, outermost first, by thread and by task; without any values.

    Safe to call from any thread. Every thread has an entry; a thread that runs no Python, for example of a library in C, has
    its id and its system name, without frames. `loops`: the event loops by name. If an event loop runs meanwhile, some of
    its tasks may be missing.
    """
    found: dict[str, list[str]] = {}
    threads = {thread.ident: thread for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        _add(found, f"thread {thread.name if thread is not None else ident}", _frames(frame))
    for name in _threads_without_python({thread.native_id for thread in threads.values()}):
        _add(found, f"thread {name}", [])
    for name, loop in loops.items():
        tasks = _tasks(loop)
        for task in tasks[:_TASKS]:
            _add(found, f"{name}, task {task.get_name()[:_NAME]}", _places(task))
        if len(tasks) > _TASKS:
            _add(found, f"{name}, {len(tasks) - _TASKS} more tasks", [])
    return found


def _add(found: dict[str, list[str]], name: str, places: list[str]) -> None:
    """Add an entry; a name that is already present gets a number."""
    entry, times = name, 1
    while entry in found:
        times += 1
        entry = f"{name} ({times})"
    found[entry] = places


def _frames(frame: FrameType | None) -> list[str]:
    places: list[str] = []
    while frame is not None and len(places) < _FRAMES:
        places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return places[::-1]


def _threads_without_python(known: set[int | None]) -> Iterator[str]:
    """The threads of this process that the `threading` module does not list, as `id (system name)`.

    They include threads that were created in C and run Python; their frames are listed under their Python thread id.
    """
    try:
        threads = list(_SYSTEM_THREADS.iterdir())
    except OSError:  # not on Linux
        return
    for thread in threads:
        if int(thread.name) not in known:
            try:
                name = (thread / "comm").read_text(errors="replace").strip()
            except OSError:  # it has ended
                continue
            yield f"{thread.name} ({name})"


def _tasks(loop: asyncio.AbstractEventLoop) -> list["asyncio.Task[Any]"]:
    try:
        return sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    except RuntimeError:  # tasks come and go while they are listed
        return []


def _places(task: "asyncio.Task[Any]") -> list[str]:
    """The frames of a task: of its coroutine, of the object that it awaits, and so on."""
    places: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(places) < _FRAMES:
        frame = next((found for name in _FRAME if (found := getattr(awaited, name, None)) is not None), None)
        if frame is not None:
            places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        awaited = next((found for name in _AWAITED if (found := getattr(awaited, name, None)) is not None), None)
    return places


# The attributes of coroutines, async generators and generators for the frame, and for the awaited object.
_FRAME = ("cr_frame", "ag_frame", "gi_frame")
_AWAITED = ("cr_await", "ag_await", "gi_yieldfrom")
