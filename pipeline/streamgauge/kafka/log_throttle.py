"""Is the broker there? And what aiokafka and Faust say about it, damped.

With a broker away the two log more than a hundred lines a second. Here that becomes one sentence when the broker goes
and one when it is back; whatever else they say comes once a minute for each kind, with the number of what was left out.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable

from streamgauge.kafka.security import Brokers
from streamgauge.runtime.faults import report_fault

_LOG = logging.getLogger("streamgauge.kafka")

# How often one kind of complaint is passed on (seconds): often enough to be seen, too seldom to fill a disk.
_REPEAT_S = 60.0
# Kinds of complaint that are told apart; the libraries have some dozens. What is beyond is counted as one kind.
_KINDS = 256
# How often the broker is asked whether it is there, while there is a reason to doubt it (seconds).
_ASK_EVERY_S = 1.0
# How often it is looked why it does not answer (seconds).
_LOOK_EVERY_S = 5.0
# How much of a library's sentence is kept (characters).
_MAX_TEXT = 400

# How the library `mode` names a service in its sentences: [^---Consumer]:
_SERVICE = re.compile(r"\[\^-*_?(\w+)\]:? ?")

_FLOODING = ("aiokafka", "faust", "mode")


class LogThrottle(logging.Handler):
    """Holds back what the libraries log until somebody takes it. Safe to use from any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._heard: dict[str, tuple[str, int]] = {}
        self._passed_at: dict[str, float] = {}
        self._doubt = False
        self.reason = "no answer"

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, with the handler's lock held."""
        text = _SERVICE.sub(r"\1: ", " ".join(record.getMessage().split()))[:_MAX_TEXT]
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"[:_MAX_TEXT]
            if not isinstance(record.exc_info[1], OSError) and not _is_of_kafka(record.exc_info[1]):
                report_fault(
                    f"code that {record.name} calls", record.exc_info[1]
                )  # a sentence would leave its frames out
        kind = f"{record.name}:{record.lineno}"
        if len(self._heard) >= _KINDS and kind not in self._heard:
            kind = "other"
        self._heard[kind] = (f"{record.name}: {text}", self._heard.get(kind, ("", 0))[1] + 1)
        self.reason = text
        self._doubt = True

    def doubt(self) -> bool:
        """Whether something was said since this was last asked."""
        doubt, self._doubt = self._doubt, False
        return doubt

    def take(self, now: float) -> list[str]:
        """What may be passed on at `now` (seconds, monotonic)."""
        self.acquire()
        try:
            due = [kind for kind in self._heard if now - self._passed_at.get(kind, -_REPEAT_S) >= _REPEAT_S]
            self._passed_at.update(dict.fromkeys(due, now))
            said = [self._heard.pop(kind) for kind in due]
        finally:
            self.release()
        return [text if count == 1 else f"{text} ({count} times)" for text, count in said]

    def forget(self) -> None:
        """What was said while the broker was away is no news."""
        self.acquire()
        self._heard.clear()
        self.release()


def _is_of_kafka(error: BaseException) -> bool:
    """Whether it is the client's own, which says that the broker refused or did not answer."""
    return type(error).__module__.partition(".")[0] in _FLOODING


_DAMPER = LogThrottle()


def throttle_logs() -> LogThrottle:
    """Put the damper in front of the libraries' loggers; for the whole process, and only once."""
    for name in _FLOODING:
        logger = logging.getLogger(name)
        if _DAMPER not in logger.handlers:
            logger.handlers = [_DAMPER]
            logger.propagate = False
        logger.setLevel(logging.WARNING)  # a command that only asks a broker something silences them for its process
    return _DAMPER


class Watch:
    """Knows whether the broker is there, and says so when that changes. Run `run` as a task.

    `answers` asks the broker (None: cannot tell); `meanwhile` is what happens while it is away, for the sentence.
    `refusal` looks for the reason why it does not. `problem`: what an operator has to put right, None if nothing is known.
    """

    def __init__(
        self,
        at: Brokers | str,
        answers: Callable[[], Awaitable[bool | None]],
        meanwhile: str,
        refusal: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        self._brokers = at
        self._answers = answers
        self._meanwhile = meanwhile
        self._refusal = refusal
        self._damper = throttle_logs()
        self.connected = False
        self.away = False  # it was last seen not to answer; unlike `connected`, False before the first look
        self.problem: str | None = None
        self._announced = False
        self._said: set[str] = set()  # at most a sentence a broker and kind of trouble
        self._looked_at = -_LOOK_EVERY_S

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            if self._damper.doubt() or not self.connected:
                there = await self._answers()
                if there is not None:
                    self.seen(there, None if there else await self._look())
            await asyncio.sleep(_ASK_EVERY_S)

    async def _look(self) -> str | None:
        """Why the broker does not answer. A look is a log-in: a broker that refuses us is not to be stormed with them."""
        now = time.monotonic()
        if self._refusal is not None and now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            self.problem = await self._refusal()
        return self.problem

    def seen(self, there: bool, problem: str | None = None) -> None:
        """The broker was just seen to answer, or not to; `problem`: why not, where that is known."""
        if not there and problem is not None:
            if problem not in self._said:
                _LOG.error("%s; %s", problem, self._meanwhile)
            self._announced = True
            self._said.add(problem)
        elif not there and (self.connected or not self._announced):
            reason = self._damper.reason
            _LOG.warning("the broker at %s does not answer (%s); %s", self._brokers, reason, self._meanwhile)
            self._announced = True
        elif there and not self.connected and self._announced:
            _LOG.warning("the broker at %s answers again", self._brokers)
        if there:
            self._said.clear()
            self._looked_at, problem = -_LOOK_EVERY_S, None
        self.connected, self.away, self.problem = there, not there, problem
        if there:
            for line in self._damper.take(time.monotonic()):
                _LOG.warning("%s", line)
        else:
            self._damper.forget()
