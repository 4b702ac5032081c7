"""Reports bugs that a part catches so that traffic, or its other work, continues.

The first bug of each kind is logged with its frames; later ones are counted, and the count is logged at most every
REPEAT_S. A kind is the part, the exception's type and the innermost frame.

An exception's text may quote a prompt, a response or a credential: a parser's ValueError quotes its input. So the text is
logged only if it is ours (StreamgaugeError) or the system's (OSError). Frames are logged as file, line and function,
without source lines: in an application these may be the application's own.
"""

import contextlib
import itertools
import logging
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from streamgauge.errors import StreamgaugeError
from streamgauge.runtime.redaction import redacted_text

if TYPE_CHECKING:
    import asyncio

_LOG = logging.getLogger("streamgauge.runtime.faults")

# The shortest time between two log lines about one kind (seconds): often enough to be seen, too seldom to fill a disk.
REPEAT_S = 60.0
# Kinds with a count of their own: the code has a few dozen places that catch bugs. Further kinds share one count.
MAX_KINDS = 256
# The innermost frames of an exception are logged (count): outer frames belong to the event loop.
MAX_FRAMES = 30
# Exceptions that caused the reported one and are logged with it (count).
MAX_CAUSES = 3

Result = TypeVar("Result")

Kind = tuple[str, str, str]
_OTHER: Kind = ("other places", "", "")


class LoopError(StreamgaugeError):
    """An event loop's report that has no exception."""


class FaultReports:
    """Counts and logs bugs by kind. Any thread may call `report`; it takes no lock, and raises nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[Kind, Iterator[int]] = {}
        self._logged: dict[Kind, tuple[float, int]] = {}  # when, and the count then

    def report(self, where: str, error: BaseException) -> None:
        """Log the first bug of a kind with its frames, and later the count of its repetitions, at most every REPEAT_S."""
        with contextlib.suppress(Exception):  # the caller relays traffic: a fault of the report must not reach it
            self._report(where, error)

    def _report(self, where: str, error: BaseException) -> None:
        kind = self._kind_of(where, error)
        count = next(self._counts.setdefault(kind, itertools.count(1)))  # atomic, unlike an addition
        now = self._clock()
        if count == 1:
            self._logged[kind] = now, 1
            frames = frames_with_causes(error)
            sentence = f"internal error in {where}: {described(error)}"
            fault = {"error": described(error), "traceback": frames}
            _LOG.error("%s", "\n".join([sentence, *[f"  {frame}" for frame in frames]]), extra={"fault": fault})
        elif now - self._logged.get(kind, (now, 0))[0] >= REPEAT_S:
            before = self._logged[kind][1]
            self._logged[kind] = now, count
            _LOG.error(
                "internal error in %s (%s) repeated %d times, %d in total",
                where,
                described(error),
                count - before,
                count,
            )

    def _kind_of(self, where: str, error: BaseException) -> Kind:
        innermost = frames_of(error.__traceback__)[-1:] or [str(error) if isinstance(error, LoopError) else ""]
        kind = where, type(error).__qualname__, innermost[0]
        return kind if kind in self._counts or len(self._counts) < MAX_KINDS else _OTHER


def described(error: BaseException) -> str:
    """An exception as it may be logged: its type, and its text if that is ours or the system's."""
    name = type(error).__qualname__
    if isinstance(error, StreamgaugeError):
        return redacted_text(str(error)) or name
    return redacted_text(f"{name}: {error}") if isinstance(error, OSError) else name


def frames_of(raised: TracebackType | None) -> list[str]:
    """The frames of an error, outermost first: file, line and function of each. Values are left out: they may be secret."""
    frames = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_tb(raised)]
    return [f"{file}:{line} {name}" for file, line, name in frames[-MAX_FRAMES:]]


def frames_with_causes(error: BaseException) -> list[str]:
    """The frames of an error; then, for each exception that caused it, a line that names it, and its frames."""
    first, *causes = _with_causes(error)
    lines = frames_of(first.__traceback__)
    for cause in causes:
        lines += [f"caused by {described(cause)}:", *frames_of(cause.__traceback__)]
    return lines


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then the exceptions that caused it."""
    cause: BaseException | None = error
    for _ in range(1 + MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


_reports = FaultReports()


def report_fault(where: str, error: BaseException) -> None:
    """Report a bug that was caught in `where`, a part's name. Never raises."""
    _reports.report(where, error)


def reported_task(where: str, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
    """A task on the running loop whose error is reported when it ends, since nothing waits for its result."""
    import asyncio  # an application with a synchronous client need not load it

    def report_end(task: "asyncio.Task[Result]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            report_fault(where, error)

    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(report_end)
    return task


def report_loop_faults(where: str) -> "Callable[[asyncio.AbstractEventLoop, Mapping[str, Any]], None]":
    """An exception handler for an event loop. The default handler would log the exception's text, which may be secret."""

    def handle(_: "asyncio.AbstractEventLoop", context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        report_fault(where, error if error is not None else LoopError(str(context.get("message"))))

    return handle
