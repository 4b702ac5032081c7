"""Questions to a view on another thread."""

import asyncio
import threading

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle
from streamgauge.live import mailbox
from streamgauge.live.mailbox import DirectAsk, NoAnswerError, WatchedThread
from streamgauge.live.view import LiveView
from tests.live.streams import Process, segment, token
from tests.streams import INSTANCE, MS


def watched() -> WatchedThread:
    return WatchedThread(Process().view)


def test_a_view_of_the_same_thread_answers_at_once() -> None:
    view = Process().view
    assert asyncio.run(DirectAsk(view)(lambda asked: asked is view))


def test_the_question_is_answered_on_the_other_thread() -> None:
    thread, stop = watched(), threading.Event()

    def answer() -> None:
        while not stop.wait(0.01):
            thread.answer()

    other = threading.Thread(target=answer)
    other.start()
    try:
        assert asyncio.run(thread.ask(lambda _: threading.get_ident())) == other.ident
    finally:
        stop.set()
        other.join()


def test_a_question_wakes_a_thread_that_waits_for_bundles() -> None:
    woken, stop = threading.Event(), threading.Event()
    thread = WatchedThread(Process().view, woken.set)

    def answer() -> None:
        while not stop.is_set():
            woken.wait(60.0)
            woken.clear()
            thread.answer()

    other = threading.Thread(target=answer)
    other.start()
    try:
        assert asyncio.run(thread.ask(lambda _: threading.get_ident())) == other.ident
    finally:
        stop.set()
        woken.set()
        other.join()


def test_it_is_answered_between_two_bundles() -> None:
    thread = watched()

    async def run() -> int:
        asked = asyncio.create_task(thread.ask(lambda view: view.overview().open.total))
        await asyncio.sleep(0)
        thread.applied(Bundle(INSTANCE, 0, 0, MS, [segment(1, 0, [token(0)])]), Assembler(), [])
        return await asked

    assert asyncio.run(run()) == 0


def test_an_error_of_the_question_reaches_the_asker_alone() -> None:
    thread = watched()

    def broken(_: LiveView) -> int:
        raise RuntimeError("a bug")

    async def run() -> None:
        asked = asyncio.create_task(thread.ask(broken))
        await asyncio.sleep(0)
        thread.answer()
        with pytest.raises(RuntimeError):
            await asked

    asyncio.run(run())


def test_a_thread_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "ANSWER_S", 0.05)
    thread = watched()
    with pytest.raises(NoAnswerError, match="did not answer"):
        asyncio.run(thread.ask(lambda _: 1))
    thread.answer()  # the question that was given up


def test_questions_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "ANSWER_S", 0.2)
    thread = watched()

    async def run() -> list[BaseException | int]:
        return await asyncio.gather(*(thread.ask(lambda _: 1) for _ in range(100)), return_exceptions=True)

    errors = [str(error) for error in asyncio.run(run())]
    assert sum("too many" in error for error in errors) == 100 - mailbox.MAX_WAITING
