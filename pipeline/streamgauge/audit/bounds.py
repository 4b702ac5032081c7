"""Causes that only bounds limit: aborted streams, completed ones without usage, failed attempts, requests that no tap saw.

They come last, and explain what is left of a cell alone. Of several that may, none is named (decision 53). What excludes one
of them is the count of requests, and what other cells of the model show: where such streams are not billed in cells that
agree, they are not billed here (`Habits`).
"""

from collections import Counter
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
    holds_on,
    most_output,
    ways_of,
    without_usage,
)
from streamgauge.audit.cells import Cell
from streamgauge.audit.ours import OurStream
from streamgauge.audit.theirs import BATCH

# The largest input of a request (tokens): the largest context that providers offer. The size of a request's body is no bound,
# since input may be held by reference: a URL, the id of a file, the id of an earlier response.
MAX_INPUT = 2_000_000
# Characters of text that a token of output has at most, in a whole stream: it may be billed; and that it usually has at most:
# a cause is named. In English text it is about four, in code three.
MAX_CHARS, USUAL_CHARS = 20, 8
# So many streams that are not billed in other cells show that such streams are not billed.
ENOUGH = 5

# Kinds of streams of which it is not known what is billed: those of `_unknown`, and ways to count as causes have them.
_ABSENT, _PARTIAL, _UNREPORTED, _ATTEMPT = "absent", "partial", "unreported", "attempt"


def _unknown(cell: Cell) -> dict[str, list[OurStream]]:
    """The streams of a cell of which it is not known what is billed, by kind."""
    quiet = without_usage(cell)
    return {
        _ABSENT: [stream for stream in quiet if not stream.is_completed],
        _PARTIAL: [
            stream
            for stream in cell.streams
            if stream.has_usage and not stream.is_final and not stream.is_completed and not stream.is_refused
        ],
        _UNREPORTED: [stream for stream in quiet if stream.is_completed],
        _ATTEMPT: [attempt for attempt, _ in attempts_of(cell) if not attempt.is_refused],
    }


class Habits:
    """What the cells of a model that agree show of its provider: which streams are not billed, and whether these are counted
    as requests. A habit may begin or end with a day, so the day itself has to show it, or days before and after it.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._unbilled: dict[object, Counter[str]] = {}
        self._held: Counter[object] = Counter()
        self._is_counted: set[bool] = set()
        for cell in cells:
            if cell.billed_day and cell.ours.streams and min(cell.rest) >= 0 and not cell.undecided:
                self._learn_ways(cell)
                if cell.rest == ZERO and cell.is_read and _is_plain(cell):
                    self._learn_unbilled(cell)

    def _learn_ways(self, cell: Cell) -> None:
        """Learn the ways to count that do not hold: what they add is not even a part of what is left; and those that may."""
        known = {explanation.cause for explanation in cell.explanations}
        for part in ways_of(cell):
            if part.cause in known or _is_part(part.tokens, cell.rest):
                self._held[part.cause, part.way] += 1
            else:
                self._add((part.cause, part.way), cell, ENOUGH)

    def _learn_unbilled(self, cell: Cell) -> None:
        unknown = _unknown(cell)
        for kind, streams in unknown.items():
            self._add(kind, cell, len(streams))
        if unknown[_ABSENT] and not unknown[_UNREPORTED] and cell.requests_rest is not None:
            self._is_counted.add(cell.requests_rest >= len(unknown[_ABSENT]))

    def _add(self, what: object, cell: Cell, count: int) -> None:
        self._unbilled.setdefault(what, Counter())[cell.group.day] += count

    def exclude(self, what: object, cell: Cell) -> bool:
        """Whether streams of a kind, or tokens that a way to count adds, are not billed on the day of a cell."""
        days = +self._unbilled.get(what, Counter())
        return days.total() >= ENOUGH and holds_on(days, cell.group.day)

    def may_hold(self, part: Hypothesis) -> bool:
        """Whether a hypothesis may be a part of a rest. A way to count concerns a model: one cell alone does not show it."""
        return part.change is None or self._held[part.cause, part.way] > 1

    @property
    def counts_aborted(self) -> bool:
        """Whether streams that are not billed are counted as requests."""
        return self._is_counted == {True}


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
        unknown = _unknown(cell)
        self._kinds = {kind: [] if habits.exclude(kind, cell) else streams for kind, streams in unknown.items()}
        self._more = None if cell.requests_rest is None else cell.requests_rest - combination.requests
        if self._more is not None and habits.counts_aborted and not self._kinds[_ABSENT]:
            self._more -= len(unknown[_ABSENT])

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
            partial = self._kinds[_PARTIAL]
            return {ABORTED} if rest.output <= most_output(partial) and self._has_text(partial) else set()
        if not cell.is_read and cell.ours.streams > cell.ours.reported:
            return {ABORTED, NOT_REPORTED, COVERAGE}
        possible = {
            ABORTED: self._may_be_aborted(),
            NOT_REPORTED: self._may_be_unreported(),
            RETRIES: self._may_be_retries(),
            COVERAGE: self._may_be_unseen(),
        }
        return {cause for cause, is_possible in possible.items() if is_possible}

    def _may_be_aborted(self) -> bool:
        absent, partial = self._kinds[_ABSENT], self._kinds[_PARTIAL]
        streams = [*absent, *partial]
        is_counted = self._more is None or (self._more > 0 if partial else self._more > len(self._kinds[_UNREPORTED]))
        # Beside other causes, partial streams have only more output.
        return bool(streams) and is_counted and (not absent or _holds(absent, self._rest)) and self._has_text(streams)

    def _may_be_unreported(self) -> bool:
        streams = self._kinds[_UNREPORTED]
        is_counted = self._more is None or self._more >= len(streams)  # a completed stream is billed, so it is counted
        return bool(streams) and is_counted and self._has_text(streams)

    def _may_be_retries(self) -> bool:
        attempts = {attempt.id for attempt in self._kinds[_ATTEMPT]}
        inputs = [stream.tokens.input for attempt, stream in attempts_of(self._cell) if attempt.id in attempts]
        return bool(inputs) and min(inputs) <= self._rest.input and self.has_others()

    def _may_be_unseen(self) -> bool:
        has_output = self._rest.output > 0 or not self._cell.ours.tokens.output
        return has_output and self.has_others()

    def has_others(self) -> bool:
        """Whether other requests than those of streams without usage may be billed: not if there are as many more."""
        unreported = len(self._kinds[_UNREPORTED])
        seen = unreported + len(self._kinds[_ABSENT])
        return self._more is None or (self._more > unreported and self._more != seen)

    def has_part(self, part: Hypothesis, combination: Combination) -> bool:
        """Whether a part of it may be what a hypothesis predicts: duplicates, retries, and ways to count."""
        what = (part.cause, part.way) if part.change is not None else _ATTEMPT if part.cause == RETRIES else part.cause
        is_counted = self._more is None or part.requests == 0 or (self.has_others() and part.requests <= self._more)
        return (
            _is_part(part.tokens, self._rest)
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
        has_text = sum(stream.chars for stream in streams) <= USUAL_CHARS * (self._rest.output + _output(streams))
        return has_text and _holds(streams, self._rest)

    def streams_of(self, cause: str) -> list[OurStream]:
        """The streams that a cause concerns."""
        if cause == ABORTED:
            return [*(self._kinds[_ABSENT] if self._rest.input else ()), *self._kinds[_PARTIAL]]
        return {NOT_REPORTED: self._kinds[_UNREPORTED], RETRIES: self._kinds[_ATTEMPT]}.get(cause, [])

    def requests_of(self, cause: str) -> int:
        """How many requests a cause adds to ours."""
        if self._more is not None:
            return self._more
        return sum(not stream.has_usage for stream in self.streams_of(cause))


def _is_plain(cell: Cell) -> bool:
    """Whether a cell agrees but for the Batch API. Where streams are billed elsewhere or nowhere, aborted ones are, too."""
    return all(explanation.tokens == ZERO or explanation.cause == BATCH for explanation in cell.explanations)


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


def _is_part(tokens: Tokens, rest: Tokens) -> bool:
    """Whether tokens may be a part of a rest: of the same sign in each kind, and not more."""
    return all(0 <= one <= left or left <= one <= 0 for one, left in zip(tokens, rest, strict=True))
