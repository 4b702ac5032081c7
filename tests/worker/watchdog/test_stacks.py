"""Every thread and task has its stack: also those with equal names, and threads that were created in C."""

import _thread
import asyncio
import ctypes
import sys
import threading
from collections.abc import Iterator

import pytest

from streamgauge.worker.watchdog import watchdog
from streamgauge.worker.watchdog.watchdog import stacks_of


@pytest.fixture
def ends() -> Iterator[threading.Event]:
    """Set at the end, for threads that wait for it."""
    event = threading.Event()
    yield event
    event.set()


def test_threads_of_the_same_name_have_a_stack_each(ends: threading.Event) -> None:
    for _ in range(3):
        threading.Thread(target=ends.wait, name="same").start()
    found = stacks_of({})
    assert {"thread same", "thread same (2)", "thread same (3)"} <= set(found)
    assert found["thread same (3)"][-1].endswith(" wait")
    assert found["thread MainThread"][-1].endswith(" stacks_of"), (
        "outermost first, and the looking thread's own as well"
    )


def test_a_thread_that_the_threading_module_does_not_know_has_its_stack(ends: threading.Event) -> None:
    begun = threading.Event()

    def waits_without_a_name() -> None:
        begun.set()
        ends.wait()

    ident = _thread.start_new_thread(waits_without_a_name, ())
    begun.wait()
    assert any(place.endswith(" waits_without_a_name") for place in stacks_of({})[f"thread {ident}"])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not list the threads of a process")
def test_a_thread_that_runs_no_python_has_its_name(ends: threading.Event) -> None:
    c = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    assert c.pthread_create(ctypes.byref(thread), None, c.sleep, ctypes.c_void_p(600)) == 0
    assert c.pthread_setname_np(thread, b"made in C") == 0
    try:
        named = [name for name in stacks_of({}) if name.endswith(" (made in C)")]
        assert len(named) == 1
        assert named[0].removeprefix("thread ").split()[0].isdecimal()
        assert stacks_of({})[named[0]] == []
    finally:
        assert c.pthread_cancel(thread) == 0
        assert c.pthread_join(thread, None) == 0


def test_tasks_of_the_same_name_have_a_stack_each_and_too_many_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "TASKS", 4)

    async def waits() -> None:
        await asyncio.Event().wait()

    async def run() -> dict[str, list[str]]:
        tasks = [asyncio.create_task(waits(), name="x" * 200) for _ in range(5)]
        await asyncio.sleep(0)
        found = stacks_of({"a loop": asyncio.get_running_loop()})
        for task in tasks:
            task.cancel()
        return found

    found = asyncio.run(run())
    name = f"a loop, task {'x' * 80}"
    assert found[f"{name} (2)"][0].endswith(" waits")
    assert found[f"{name} (2)"][-1].endswith(" wait")
    assert "a loop, 2 more tasks" in found
