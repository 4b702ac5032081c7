"""Causes that only bounds limit: aborted streams, completed ones without usage, failed attempts, requests that no tap saw.

They come last, and explain what is left of a cell alone. Of several that may, none is named (decision 53). What excludes one
of them is the count of requests, and what other cells show: where such streams are not billed in cells that agree, they are
not billed here (`habits.py`).
"""

from collections.abc import Iterable, Iterator, Sequence

from streamgauge.audit.amounts import ZERO, Tokens, minus
from streamgauge.audit.causes import (
    ABORTED,
    COVERAGE,
    MISSING,
    NOT_REPORTED,
    RETRIES,
    Combination,
    Hypothesis,
    Tools,
    attempts_of,
    most_output,
)
from streamgauge.audit.cells import Cell
from streamgauge.audit.habits import ABSENT, ATTEMPT, PARTIAL, UNREPORTED, Habits, is_part, unknown_streams
from streamgauge.audit.ours import OurStream

# The largest input of a request (tokens): the largest context that providers offer. The size of a request's body is no bound,
# since input may be held by reference: a URL, the id of a file, the id of an earlier response.
MAX_INPUT = 2_000_000
# Characters of text that a token of output has at most, in a whole stream: it may be billed; and that it usually has at most:
# a cause is named, unless the sizes of the requests show it. In English text it is about four, in code three.
MAX_CHARS, USUAL_CHARS = 20, 8


def explain_bounded(cell: Cell, tools: Tools, habits: Habits) -> None:
    """Explain what is left of a cell by the causes that only bounds limit: alone, or beside a way to count that was found
    exactly in another cell of the model.
    """
    for combination in (*tools.found_elsewhere(cell), *tools.combinations(cell)[:1]):
        rest = minus(cell.rest, combination.tokens)
        if any(habits.exclude((part.cause, part.way), cell) for part in combination.parts):
            continue
        if rest == ZERO:
            combination.apply(cell)
            return
        possible = _Possible(cell, rest, combination, habits)
        causes = possible.causes()
        if not causes:
            continue
        causes |= tools.moves.get(cell.group, set())
        causes |= {part.cause for part in _predicted(cell, tools) if possible.has_part(part, combination)}
        if len(causes) > 1:  # the parts of the combination are not certain either
            streams = [stream for cause in causes for stream in possible.streams_of(cause)]
            cell.leave_undecided(causes | combination.causes, cell.rest, streams)
            return
        (cause,) = causes
        if possible.may_be_all(cause):
            combination.apply(cell)
            cell.explain(cause, rest, None, possible.streams_of(cause), possible.requests_of(cause))
            return


class _Possible:
    """The causes whose bounds hold what is left of a cell. `more`: how many more requests are billed than streams with usage
    of ours and streams that are counted without being billed; None if requests are not counted.
    """

    def __init__(self, cell: Cell, rest: Tokens, combination: Combination, habits: Habits) -> None:
        self._cell, self._rest, self._habits = cell, rest, habits
        unknown = unknown_streams(cell)
        self._kinds = {kind: [] if habits.exclude(kind, cell) else streams for kind, streams in unknown.items()}
        self._more = None if cell.requests_rest is None else cell.requests_rest - combination.requests
        if self._more is not None and habits.counts_aborted and not self._kinds[ABSENT]:
            self._more -= len(unknown[ABSENT])

    def causes(self) -> set[str]:
        """The causes, each of which may explain it, or a part of it beside another one."""
        cell, rest, more = self._cell, self._rest, self._more
        if max(rest) <= 0:  # a lack that no streams add up to: the invoice also lacks requests
            return {MISSING} if more is not None and more < 0 and rest.input < 0 else set()
        if min(rest) < 0:
            return set()
        if (
            rest.input == 0
        ):  # each further request has input, so only streams that reported it already may have used more
            partial = self._kinds[PARTIAL]
            return {ABORTED} if rest.output <= most_output(partial) and self._has_text(partial) else set()
        if not cell.is_read and cell.ours.streams > cell.ours.reported:
            return {ABORTED, NOT_REPORTED, COVERAGE}
        possible = {
            ABORTED: self._may_be_aborted(),
            NOT_REPORTED: self._may_be_unreported(),
            RETRIES: self._may_be_retries(),
            COVERAGE: self._may_be_unseen(),
        }
        if possible[ABORTED] and self._habits.bill_absent(cell):
            possible[COVERAGE] = False
        return {cause for cause, is_possible in possible.items() if is_possible}

    def _may_be_aborted(self) -> bool:
        absent, partial = self._kinds[ABSENT], self._kinds[PARTIAL]
        streams = [*absent, *partial]
        is_counted = self._more is None or (self._more > 0 if partial else self._more > len(self._kinds[UNREPORTED]))
        # Beside other causes, partial streams have only more output.
        return bool(streams) and is_counted and (not absent or _holds(absent, self._rest)) and self._has_text(streams)

    def _may_be_unreported(self) -> bool:
        streams = self._kinds[UNREPORTED]
        is_counted = self._more is None or self._more >= len(streams)  # a completed stream is billed, so it is counted
        return bool(streams) and is_counted and self._has_text(streams)

    def _may_be_retries(self) -> bool:
        attempts = {attempt.id for attempt in self._kinds[ATTEMPT]}
        inputs = [stream.tokens.input for attempt, stream in attempts_of(self._cell) if attempt.id in attempts]
        return bool(inputs) and min(inputs) <= self._rest.input and self.has_others()

    def _may_be_unseen(self) -> bool:
        has_output = self._rest.output > 0 or not self._cell.ours.tokens.output
        return has_output and self.has_others()

    def has_others(self) -> bool:
        """Whether other requests than those of streams without usage may be billed: not if there are as many more."""
        unreported = len(self._kinds[UNREPORTED])
        seen = unreported + len(self._kinds[ABSENT])
        return self._more is None or (self._more > unreported and self._more != seen)

    def has_part(self, part: Hypothesis, combination: Combination) -> bool:
        """Whether a part of it may be what a hypothesis predicts: duplicates, retries, and ways to count."""
        what = (part.cause, part.way) if part.change is not None else ATTEMPT if part.cause == RETRIES else part.cause
        is_counted = self._more is None or part.requests == 0 or (self.has_others() and part.requests <= self._more)
        return (
            is_part(part.tokens, self._rest)
            and is_counted
            and part.cause not in combination.causes
            and not (part.cause == RETRIES and any(stream.is_refused for stream in part.streams))
            and self._habits.may_hold(part)
            and not self._habits.exclude(what, self._cell)
        )

    def _has_text(self, streams: Sequence[OurStream]) -> bool:
        """Whether at least one of the streams may be billed: what it was seen to write is billed, then."""
        return bool(streams) and min(stream.chars for stream in streams) <= MAX_CHARS * self._rest.output

    def may_be_all(self, cause: str) -> bool:
        """Whether the streams of a cause, all of them, have so much input and output at least and at most."""
        streams = self.streams_of(cause)
        if cause not in (ABORTED, NOT_REPORTED):
            return True
        chars = MAX_CHARS if cause == ABORTED and self._habits.bill_absent(self._cell) else USUAL_CHARS
        has_text = sum(stream.chars for stream in streams) <= chars * (self._rest.output + _output(streams))
        return has_text and _holds(streams, self._rest)

    def streams_of(self, cause: str) -> list[OurStream]:
        """The streams that a cause concerns."""
        if cause == ABORTED:
            return [*(self._kinds[ABSENT] if self._rest.input else ()), *self._kinds[PARTIAL]]
        return {NOT_REPORTED: self._kinds[UNREPORTED], RETRIES: self._kinds[ATTEMPT]}.get(cause, [])

    def requests_of(self, cause: str) -> int:
        """How many requests a cause adds to ours."""
        if self._more is not None:
            return self._more
        return sum(not stream.has_usage for stream in self.streams_of(cause))


def _output(streams: Iterable[OurStream]) -> int:
    return sum(stream.tokens.output for stream in streams)


def _holds(streams: Sequence[OurStream], rest: Tokens) -> bool:
    """Whether these streams may have so much input and output beyond what they reported."""
    most_input = sum(max(0, MAX_INPUT - stream.tokens.input) for stream in streams)
    return rest.input <= most_input and rest.output <= most_output(streams)


def _predicted(cell: Cell, tools: Tools) -> Iterator[Hypothesis]:
    """The hypotheses of a cell."""
    for combination in tools.combinations(cell):
        if len(combination.parts) == 1:
            yield combination.parts[0]
