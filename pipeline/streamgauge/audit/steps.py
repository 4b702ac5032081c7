"""Reads the steps of ledgers ahead: while the audit looks at one step, threads add up the next ones.

Nearly all of an audit's time is spent on two queries of each step. The databases, and Python's driver of SQLite, run them
outside of the interpreter's lock, so that each thread uses a core.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from streamgauge.ledger import Part
from streamgauge.ledger.contract import Step, Usage

# Threads, each with a connection of its own. More need more memory: each sorts the records of a step.
READERS = 2


class Span(NamedTuple):
    """A half-open span of a day (microseconds since 1970), in the ledger at the place `part`."""

    day: str
    part: int
    since_us: int
    until_us: int


class AddedUp(NamedTuple):
    """A step with its sums, and the response ids that several of its records have."""

    step: Step
    sums: list[Usage]
    equal_ids: dict[str, int]


class StepAhead(NamedTuple):
    """A step that is being added up. `opened`: the context of the step."""

    span: Span
    opened: ExitStack
    added_up: "Future[AddedUp]"

    @contextmanager
    def read(self) -> Iterator[AddedUp]:
        """The step, in its context, once it is added up. Raises LedgerUnavailableError, also for queries in the context."""
        with self.opened:
            yield self.added_up.result()


def read_ahead(parts: Sequence[Part], spans: Iterable[Span]) -> Generator[StepAhead, None, None]:
    """The steps of the spans of some ledgers, in order. Each has to be read. Raises LedgerUnavailableError.

    The caller closes the iterator: that waits for the threads, and ends the contexts of steps that were not read.
    """
    waiting: deque[StepAhead] = deque()
    with ExitStack() as unread, ThreadPoolExecutor(READERS, "audit") as pool:
        for span in spans:
            since_us = span.since_us
            while since_us < span.until_us:
                with ExitStack() as opening:
                    step = opening.enter_context(parts[span.part].usage_step(since_us, span.until_us))
                    if step is None:
                        break
                    since_us, opened = step.until_us, unread.enter_context(opening.pop_all())
                waiting.append(StepAhead(span, opened, pool.submit(_added_up, step)))
                if len(waiting) > READERS:
                    yield waiting.popleft()
        while waiting:
            yield waiting.popleft()


def _added_up(step: Step) -> AddedUp:
    return AddedUp(step, step.sums(), step.counts_of_equal_ids())
