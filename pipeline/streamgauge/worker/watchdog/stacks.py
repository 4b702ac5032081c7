"""What each thread and each task of the process does now: for the line that a stuck worker ends with.

Nothing here waits or reads a file of a disk, which may be what the worker is stuck at: so frames have no line of source.
"""

import asyncio
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

# Frames of a stack, from its inner end (count), and tasks of an event loop that are kept: a worker has some dozens, and one
# with all partitions some hundreds.
_FRAMES = 20
_TASKS = 1_000
# Of a task's name (characters): Faust puts the whole coroutine into some.
_NAME = 80
# The threads of this process by their ids, those without Python among them. Linux has it, in memory.
_SYSTEM_THREADS = Path("/proc/self/task")


def stacks_of(loops: Mapping[str, asyncio.AbstractEventLoop]) -> dict[str, list[str]]:
    """By thread and by task, outermost first: file, line and function of each frame, without any value. From any thread.

    Every thread has an entry: one that runs no Python, as those that a library makes in C, by its id and its name to the
    system, without frames. `loops`: by name. An event loop that turns while it is looked at may lose the one or other task
    here.
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
    """Names of threads and tasks may occur several times: each has its entry."""
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
    """The threads of this process that the `threading` module does not know, as `id (name to the system)`.

    One that was made in C and runs Python all the same is here, too: its frames stand under another id.
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
