"""Passes the page's requests to the thread that has the assembler, and the answers back to the event loop."""

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.record import Record
from streamgauge.live.view import LiveView

Result = TypeVar("Result")

# How long a question waits for the thread (seconds): longer than one step of the thread takes.
ANSWER_S = 5.0
# Questions that may wait: pages ask every two seconds.
MAX_WAITING = 32


class NoAnswerError(Exception):
    """The view cannot be asked now. The text is one sentence for an operator."""


class Ask(Protocol):
    """Asks a view."""

    async def __call__(self, question: Callable[[LiveView], Result]) -> Result:
        """The question's answer. Raises NoAnswerError."""


class DirectAsk:
    """Asks a view of the event loop's own thread."""

    def __init__(self, view: LiveView) -> None:
        self._view = view

    async def __call__(self, question: Callable[[LiveView], Result]) -> Result:
        """The question's answer, at once."""
        return question(self._view)


class WatchedThread:
    """The view of an assembler that runs on a thread of its own. That thread calls `applied` and `answer`.

    `wake`: called with each question, so that a thread that waits for bundles calls `answer`.
    """

    def __init__(self, view: LiveView, wake: Callable[[], None] = lambda: None) -> None:
        self.view = view
        self.wake = wake
        self._questions: deque[Callable[[], None]] = deque()

    def applied(self, bundle: Bundle, assembler: Assembler, records: Collection[Record]) -> None:
        """Takes a bundle that was applied to the assembler. `records`: of the streams that it ended."""
        self.view.applied(bundle, assembler, records)
        if self._questions:
            self.answer()

    def answer(self) -> None:
        """Answers the waiting questions."""
        while self._questions:
            self._questions.popleft()()

    async def ask(self, question: Callable[[LiveView], Result]) -> Result:
        """The question's answer. Raises NoAnswerError if the thread is too busy, or has ended."""
        if len(self._questions) >= MAX_WAITING:
            raise NoAnswerError("too many requests wait for the assembler: try again later")
        waiting: concurrent.futures.Future[Result] = concurrent.futures.Future()

        def answered() -> None:
            if not waiting.set_running_or_notify_cancel():
                return
            try:
                waiting.set_result(question(self.view))
            except Exception as error:  # noqa: BLE001 - the caller gets it, and the assembler goes on
                waiting.set_exception(error)

        self._questions.append(answered)
        self.wake()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.wrap_future(waiting)
        except TimeoutError:
            raise NoAnswerError(f"the assembler did not answer within {ANSWER_S:g} s") from None
