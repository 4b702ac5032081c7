"""Detect whether the broker answers, and throttle the log lines of aiokafka and Faust.

While the broker is unreachable, the two libraries log more than a hundred lines a second. This module logs one sentence
when the broker stops answering and one when it answers again. It passes every other kind of line on at most once a minute,
with the number of times it occurred.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable

from streamgauge.kafka.security import Brokers
from streamgauge.runtime.faults import described, report_fault

_LOG = logging.getLogger("streamgauge.kafka")

# The shortest time between two lines of one kind (seconds): often enough to be seen, too seldom to fill a disk.
REPEAT_S = 60.0
# The number of kinds that are counted separately; the libraries have some dozens. All further kinds count as one.
_KINDS = 256
# How often the broker's connection is checked, while it is down or a library has logged a warning (seconds).
CHECK_EVERY_S = 1.0
# The shortest time between two diagnoses of why the broker does not answer (seconds).
_DIAGNOSE_EVERY_S = 5.0
# How much of a library's line is kept (characters).
_MAX_TEXT = 400

# The form in which the library `mode` names a service in its lines: [^---Consumer]:
_SERVICE = re.compile(r"\[\^-*_?(\w+)\]:? ?")

# aiokafka warns of a heartbeat that failed whenever its group rebalances, as it does with each worker that comes or goes.
# This is how a member learns of a rebalance, and no fault. The worker logs itself which partitions it gets.
_REBALANCES = re.compile(r"Heartbeat failed for group .* because it is rebalancing")

_FLOODING = ("aiokafka", "faust", "mode")


class LogThrottle(logging.Handler):
    """Holds back the libraries' log lines until `take_due` returns them. Safe to use from any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: dict[str, tuple[str, int]] = {}
        self._passed_at: dict[str, float] = {}
        self._has_new_lines = False
        self.reason = "no answer"

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, with the handler's lock held."""
        if _REBALANCES.match(record.getMessage()):
            return
        text = _SERVICE.sub(r"\1: ", " ".join(record.getMessage().split()))[:_MAX_TEXT]
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {described_of_client(record.exc_info[1])}"[:_MAX_TEXT]
            if not isinstance(record.exc_info[1], OSError) and not _is_of_kafka(record.exc_info[1]):
                # With its stack frames, which the throttled line does not have.
                report_fault(f"code that {record.name} calls", record.exc_info[1])
        kind = f"{record.name}:{record.lineno}"
        if len(self._lines) >= _KINDS and kind not in self._lines:
            kind = "other"
        self._lines[kind] = (f"{record.name}: {text}", self._lines.get(kind, ("", 0))[1] + 1)
        self.reason = text
        self._has_new_lines = True

    def has_new_lines(self) -> bool:
        """Whether a library has logged anything since the last call."""
        has_new, self._has_new_lines = self._has_new_lines, False
        return has_new

    def take_due(self, now: float) -> list[str]:
        """Return and remove the lines that may be passed on at `now` (seconds, monotonic)."""
        self.acquire()
        try:
            due = [kind for kind in self._lines if now - self._passed_at.get(kind, -REPEAT_S) >= REPEAT_S]
            self._passed_at.update(dict.fromkeys(due, now))
            due_lines = [self._lines.pop(kind) for kind in due]
        finally:
            self.release()
        return [text if count == 1 else f"{text} ({count} times)" for text, count in due_lines]

    def forget(self) -> None:
        """Discard the lines that were logged while the broker did not answer."""
        self.acquire()
        self._lines.clear()
        self.release()


def described_of_client(error: BaseException) -> str:
    """An error that a client library raised, as it may be logged: with its text only if that is the library's own."""
    return repr(error) if _is_of_kafka(error) else described(error)


def _is_of_kafka(error: BaseException) -> bool:
    """Whether the client libraries define this error, so that it means a broker that refused or did not answer."""
    return type(error).__module__.partition(".")[0] in _FLOODING


_THROTTLE = LogThrottle()


def throttle_logs() -> LogThrottle:
    """Install the process's one LogThrottle as the only handler of the libraries' loggers. Idempotent."""
    for name in _FLOODING:
        logger = logging.getLogger(name)
        if _THROTTLE not in logger.handlers:
            logger.handlers = [_THROTTLE]
            logger.propagate = False
        logger.setLevel(logging.WARNING)  # set again, because commands that only query a broker silence these loggers
    return _THROTTLE


class BrokerMonitor:
    """Tracks whether the broker answers, and logs a line when that changes. Run `run` as a task.

    `answers` checks the broker (None: unknown). `meanwhile`: what happens while it does not answer, as a part of a
    sentence. `refusal` finds the reason why it does not answer. `problem`: what an operator has to fix; None if unknown.
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
        self._throttle = throttle_logs()
        self.connected = False
        # The last check got no answer. Before the first check, `unreachable` and `connected` are both False.
        self.unreachable = False
        self.problem: str | None = None
        self._announced = False
        self._logged: set[str] = set()  # the problems that were logged since the broker last answered
        self._diagnosed_at = -_DIAGNOSE_EVERY_S

    async def run(self) -> None:
        """Check the broker until cancelled."""
        while True:
            if self._throttle.has_new_lines() or not self.connected:
                is_up = await self._answers()
                if is_up is not None:
                    self.report(is_up, None if is_up else await self._diagnose())
            else:
                self._pass_on()
            await asyncio.sleep(CHECK_EVERY_S)

    async def _diagnose(self) -> str | None:
        """The reason why the broker does not answer. Diagnoses are rare: each logs in, and the broker may lock us out."""
        now = time.monotonic()
        if self._refusal is not None and now - self._diagnosed_at >= _DIAGNOSE_EVERY_S:
            self._diagnosed_at = now
            self.problem = await self._refusal()
        return self.problem

    def report(self, is_up: bool, problem: str | None = None) -> None:
        """Report whether the broker answered just now. `problem`: why it did not, if that is known."""
        if not is_up and problem is not None:
            if problem not in self._logged:
                _LOG.error("%s; %s", problem, self._meanwhile)
            self._announced = True
            self._logged.add(problem)
        elif not is_up and (self.connected or not self._announced):
            reason = self._throttle.reason
            _LOG.warning("the broker at %s does not answer (%s); %s", self._brokers, reason, self._meanwhile)
            self._announced = True
        elif is_up and not self.connected and self._announced:
            _LOG.warning("the broker at %s answers again", self._brokers)
        if is_up:
            self._logged.clear()
            self._diagnosed_at, problem = -_DIAGNOSE_EVERY_S, None
        self.connected, self.unreachable, self.problem = is_up, not is_up, problem
        if is_up:
            self._pass_on()
        else:
            self._throttle.forget()

    def _pass_on(self) -> None:
        """Log the held lines that are due."""
        for line in self._throttle.take_due(time.monotonic()):
            _LOG.warning("%s", line)
