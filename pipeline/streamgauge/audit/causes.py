"""Causes of a difference in a cell's tokens: hypotheses that predict it exactly, and steps that need other evidence.

A hypothesis is what a cause would add to our tokens, in full, from the cell itself. `combinations_of` gives the ways to
combine them, none first. The search tries each, and accepts a combination only if nothing is left over, or if what is left
over are streams that add up to it. Causes that only bounds limit come last (`bounds.py`). A cause is named only if no other
one explains the same tokens as well; else these are undecided (decision 53).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import NamedTuple

from streamgauge.audit.amounts import (
    EXACT,
    ZERO,
    ZERO_USD,
    Tokens,
    minus,
    negated,
    plus,
    total_of,
    usd_minus,
    usd_negated,
)
from streamgauge.audit.cells import Cell, Folding, tokens_of, usd_of
from streamgauge.audit.ours import GroupKey, OurStream
from streamgauge.audit.request_rows import RequestRows, total_billed
from streamgauge.audit.subsets import CHANCE, Search, is_decidable

# Streams of a cell in which a search for streams is combined with two hypotheses.
MAX_FOR_PAIRS = 60
# Failed attempts of a cell that are also tried one by one. Of more, only all together are tried.
MAX_EACH = 8
# Failed attempts of a cell of which any choice is tried.
MAX_SOME = 4

# Ways to count cached input (C) and cache writes (W): what is added to uncached input for C and W, to cached input for C and
# W, and to cache writes for W.
_CACHE_PATTERNS = (
    (1, 0, -1, 0, 0), (1, 0, 0, 0, 0), (-1, 0, 0, 0, 0), (0, 0, -1, 0, 0),
    (0, 1, 0, 0, -1), (0, 1, 0, 0, 0), (0, -1, 0, 0, 0), (0, 0, 0, 0, -1), (0, 0, 0, 1, -1),
    (1, 1, -1, 0, -1), (1, 1, 0, 0, 0), (-1, -1, 0, 0, 0),
)  # fmt: skip

Change = Callable[[OurStream], Tokens]
MISSING, RETRIES, CACHE = "missing_from_invoice", "retries_billed_twice", "cache_counted_differently"
ABORTED, NOT_REPORTED, COVERAGE = "aborted_without_usage", "usage_not_reported", "coverage"
# The largest output of a request without a limit (tokens): the largest that providers allow.
MAX_OUTPUT = 128_000


@dataclass(frozen=True)
class Hypothesis:
    """The tokens, money and requests that a cause would add to a cell.

    usd: None if it follows from what is left of the money. requests: how many requests it adds. change: what it adds for one
    stream, if the cause is a way to count every stream; `way`: that way, equal in all cells.
    """

    cause: str
    tokens: Tokens
    usd: Decimal | None
    streams: tuple[OurStream, ...] = ()
    requests: int = 0
    change: Change | None = None
    way: tuple[int, ...] = ()


@dataclass(frozen=True)
class Combination:
    """Hypotheses of different causes, and their sum."""

    parts: tuple[Hypothesis, ...]
    tokens: Tokens
    requests: int

    def has(self, cause: str) -> bool:
        """Whether a part is of this cause."""
        return any(part.cause == cause for part in self.parts)

    @property
    def causes(self) -> frozenset[str]:
        """The causes of its parts."""
        return frozenset(part.cause for part in self.parts)

    def counted(self, stream: OurStream) -> Tokens:
        """The tokens that are billed for a stream if the hypotheses hold."""
        tokens = stream.tokens
        for part in self.parts:
            if part.change is not None:
                tokens = plus(tokens, part.change(stream))
        return tokens

    def apply(self, cell: Cell, without: Iterable[OurStream] = ()) -> None:
        """Explain a cell by the hypotheses, but for streams that are not billed."""
        gone = list(without)
        ids = {stream.id for stream in gone}
        for part in self.parts:
            tokens, streams = part.tokens, [stream for stream in part.streams if stream.id not in ids]
            if part.change is not None:
                tokens = minus(tokens, total_of(map(part.change, gone)))
            if part.cause == "missing_from_invoice":
                cell.explain_missing(streams)
            elif tokens != ZERO or part.usd:
                cell.explain(part.cause, tokens, part.usd, streams, part.requests)


class Tools(NamedTuple):
    """What the search for causes uses: the combinations of a cell's hypotheses, and the search for streams.

    found: by way to count (cause and way), the days with a cell of the model that it predicts exactly. moves: by cell, those
    that its difference may be a part of (`Moves.possible`).
    """

    combinations: Callable[[Cell], list[Combination]]
    search: Search
    found: dict[tuple[str, tuple[int, ...]], set[str]]
    moves: dict[GroupKey, set[str]]

    def few(self, cell: Cell) -> Iterator[tuple[int, Combination]]:
        """The combinations of a cell that are worth a search for streams, each with the number of tries that it counts for:
        among many streams, at most one hypothesis. Two causes need more evidence than one.
        """
        most = 0 if self.search.is_spent else 3 if len(cell.streams) <= MAX_FOR_PAIRS else 1
        for tried, combination in enumerate(self.combinations(cell), 1):
            if len(combination.parts) <= most:
                yield tried * CHANCE if combination.parts else tried, combination

    def found_elsewhere(self, cell: Cell) -> list[Combination]:
        """The combinations of ways to count that hold exactly in other cells of the day, or before and after it; the largest
        first.
        """
        found = [
            combination
            for combination in self.combinations(cell)
            if combination.parts
            and all(holds_on(self.found.get((part.cause, part.way), ()), cell.group.day) for part in combination.parts)
        ]
        return sorted(found, key=lambda combination: -len(combination.parts))


def holds_on(days: Iterable[str], day: str) -> bool:
    """Whether what cells of these days show holds on a day, too: a habit may begin or end with a day."""
    known = set(days)
    return day in known or (min(known, default=day) < day < max(known, default=day))


def combinations_of(hypotheses: Sequence[Hypothesis], most: int = 2) -> Iterator[Combination]:
    """The combinations of up to `most` hypotheses with different causes, the empty one first."""
    for size in range(most + 1):
        for parts in combinations(hypotheses, size):
            if len({part.cause for part in parts}) == size:
                yield Combination(parts, total_of(part.tokens for part in parts), sum(part.requests for part in parts))


def hypotheses_of(cell: Cell, requests: RequestRows | None, folding: Folding) -> list[Hypothesis]:
    """The hypotheses of a cell, the most certain first. With a row for each request, most are known exactly."""
    hypotheses = [] if requests is None else [_missing(cell, requests), *_without_final_usage(cell, requests)]
    hypotheses += [*_duplicates(cell, folding), *_reasoning(cell), *_cache(cell)]
    hypotheses += _retries(cell) if requests is None else _unseen(cell, requests)
    known = {explanation.cause for explanation in cell.explanations}
    return [hypothesis for hypothesis in hypotheses if hypothesis.tokens != ZERO and hypothesis.cause not in known]


def _duplicates(cell: Cell, folding: Folding) -> list[Hypothesis]:
    """Hypotheses of duplicate rows: all extra rows together, then each of them."""
    repeated = cell.theirs.repeated
    if not repeated.rows:
        return []
    # Usage and costs are two files: rows for money that are repeated in the cell belong to those for tokens.
    usd = repeated.usd if repeated.usd is not None else (repeated.money or None)
    hypotheses = [_extra(cell, folding, repeated.tokens, usd, repeated.ids, repeated.requests)]
    lines = [(line, extra) for line, extra in repeated.different() if line.tokens is not None]
    for line, extra in lines if len(lines) > 1 else ():
        tokens = Tokens(*(extra * count for count in line.tokens or ZERO))
        money = None if line.usd is None else EXACT.multiply(line.usd, Decimal(extra))
        ids: set[str] = {line.request_id} if line.request_id else set()
        hypotheses.append(_extra(cell, folding, tokens, money, ids, extra * (line.requests or 0)))
    return hypotheses


def _extra(
    cell: Cell, folding: Folding, tokens: Tokens, usd: Decimal | None, ids: Set[str], requests: int
) -> Hypothesis:
    streams = tuple(stream for stream in cell.streams if stream.response_id in ids)
    return Hypothesis("duplicate_lines", folding.tokens(cell.group.provider, tokens), usd, streams, requests)


def attempts_of(cell: Cell) -> list[tuple[OurStream, OurStream]]:
    """The attempts that ended before a first token, each with a stream of the same request that has usage."""
    billed: dict[str, OurStream] = {}
    for stream in cell.streams:
        if stream.digest is not None and stream.has_usage:
            billed.setdefault(stream.digest, stream)
    return [
        (stream, billed[stream.digest])
        for stream in cell.streams
        if stream.digest in billed and not stream.has_usage and not stream.has_token
    ]


def _retries(cell: Cell) -> list[Hypothesis]:
    """Hypotheses of retries: failed attempts are billed with the counts of those that succeeded. All, each, some of a few."""
    pairs = attempts_of(cell)
    sizes = {len(pairs), *(range(1, len(pairs)) if len(pairs) <= MAX_SOME else (1,) if len(pairs) <= MAX_EACH else ())}
    return [
        Hypothesis(
            RETRIES,
            total_of(stream.tokens for _, stream in chosen),
            usd_of(stream for _, stream in chosen),
            tuple(attempt for attempt, _ in chosen),
            len(chosen),
        )
        for size in sorted(sizes - {0}, key=lambda size: (size != len(pairs), size))
        for chosen in combinations(pairs, size)
    ]


def _reasoning(cell: Cell) -> list[Hypothesis]:
    """Hypotheses of reasoning, which is a part of output: it is counted a second time, or not at all."""
    streams = [stream for stream in cell.billed if stream.reasoning]
    count = sum(stream.reasoning for stream in streams) if cell.is_read else cell.ours.reasoning

    def hypothesis(sign: int) -> Hypothesis:
        def change(stream: OurStream) -> Tokens:
            return Tokens(output=sign * stream.reasoning)

        tokens = Tokens(output=sign * count)
        return Hypothesis("reasoning_counted_differently", tokens, None, tuple(streams), change=change, way=(sign,))

    return [hypothesis(1), hypothesis(-1)]


def _cache(cell: Cell) -> list[Hypothesis]:
    """Hypotheses of cached input: it is counted as uncached, in both kinds, or in neither; cache writes likewise."""
    streams = cached_streams(cell)
    ours = tokens_of(cell.billed) if cell.is_read else cell.ours.tokens
    hypotheses: dict[Tokens, Hypothesis] = {}
    for pattern in _CACHE_PATTERNS:
        tokens = _counted_as(pattern, ours)
        if tokens not in hypotheses:
            hypotheses[tokens] = Hypothesis(
                "cache_counted_differently", tokens, None, streams, change=_change_of(pattern), way=pattern
            )
    return list(hypotheses.values())


def ways_of(cell: Cell) -> list[Hypothesis]:
    """The hypotheses of ways to count, which need no stream of a cell to be read."""
    return [hypothesis for hypothesis in (*_reasoning(cell), *_cache(cell)) if hypothesis.tokens != ZERO]


def _counted_as(pattern: tuple[int, ...], tokens: Tokens) -> Tokens:
    _, cached, written, _ = tokens
    of_cached, of_written, read_cached, read_written, write_written = pattern
    return Tokens(
        of_cached * cached + of_written * written,
        read_cached * cached + read_written * written,
        write_written * written,
    )


def _change_of(pattern: tuple[int, ...]) -> Change:
    def change(stream: OurStream) -> Tokens:
        return _counted_as(pattern, stream.tokens)

    return change


def cached_streams(cell: Cell) -> tuple[OurStream, ...]:
    """The streams that are billed in a cell and have cached input or cache writes."""
    return tuple(stream for stream in cell.billed if stream.tokens.input_cached or stream.tokens.input_cache_write)


def is_cache_shift(rest: Tokens) -> bool:
    """Whether only the kinds of input differ, and all input together agrees."""
    return rest != ZERO and rest.input == 0 and rest.output == 0


def _missing(cell: Cell, requests: RequestRows) -> Hypothesis:
    """Hypothesis of missing streams: their requests have no row on any day that was read."""
    streams = [stream for stream in cell.billed if stream.response_id and not requests.is_billed(stream.response_id)]
    return Hypothesis("missing_from_invoice", negated(tokens_of(streams)), usd_negated(usd_of(streams)), tuple(streams))


def _without_final_usage(cell: Cell, requests: RequestRows) -> list[Hypothesis]:
    """Hypotheses of streams without final usage: what is billed beyond what they reported before they ended."""
    billed = {
        stream.id: requests.billed_in(cell.group, stream.response_id or "")
        for stream in cell.streams
        if not stream.is_final
    }

    def hypothesis(cause: str, is_completed: bool) -> Hypothesis:
        streams = [
            stream
            for stream in cell.streams
            if stream.is_completed == is_completed and billed.get(stream.id) is not None
        ]
        tokens = total_of(minus(found.tokens, stream.tokens) for stream in streams if (found := billed[stream.id]))
        return Hypothesis(cause, tokens, None, tuple(streams), sum(not stream.has_usage for stream in streams))

    return [hypothesis(ABORTED, is_completed=False), hypothesis(NOT_REPORTED, is_completed=True)]


def _unseen(cell: Cell, requests: RequestRows) -> list[Hypothesis]:
    """Hypotheses of rows whose requests are in no stream that was read: of failed attempts, and the others."""
    attempts: dict[int, list[OurStream]] = {}
    for attempt, stream in attempts_of(cell):
        attempts.setdefault(stream.tokens.input, []).append(attempt)
    retried, streams = [], []
    for count, failed in attempts.items():
        rows = requests.unseen(cell.group, count, len(failed))
        retried += rows
        streams += failed[: len(rows)]
    again, whole = total_billed(retried), requests.unseen_total(cell.group)
    rest_usd = usd_minus(whole.usd, again.usd)
    return [
        Hypothesis("retries_billed_twice", again.tokens, again.usd, tuple(streams), again.rows),
        Hypothesis("coverage", minus(whole.tokens, again.tokens), rest_usd, (), whole.rows - again.rows),
    ]


def explain_predicted(cell: Cell, tools: Tools) -> None:
    """Explain a cell by the smallest combination of hypotheses that predicts its difference exactly.

    If several of the smallest do, with different causes, the difference is undecided, unless only those of one set of causes
    agree with the count of requests.
    """
    combinations = tools.combinations(cell)
    fitting = [
        one for one in combinations if one.parts and one.tokens == cell.rest and _is_no_chance(one, combinations)
    ]
    smallest = min((len(one.parts) for one in fitting), default=0)
    best = [one for one in fitting if len(one.parts) == smallest]
    if len({one.causes for one in best}) > 1:
        best = [one for one in best if _agrees_in_requests(cell, one)] or best
    if not best:
        return
    if len({one.causes for one in best}) > 1:
        streams = {stream.id: stream for one in best for part in one.parts for stream in part.streams}
        cell.leave_undecided((cause for one in best for cause in one.causes), cell.rest, streams.values())
        return
    for part in best[0].parts:
        if part.change is not None:
            tools.found.setdefault((part.cause, part.way), set()).add(cell.group.day)
    best[0].apply(cell)


def _is_no_chance(combination: Combination, combinations: Sequence[Combination]) -> bool:
    """Whether a combination of several hypotheses fits by more than chance: so many of that size were tried."""
    size = len(combination.parts)
    return size == 1 or is_decidable(CHANCE * sum(len(one.parts) == size for one in combinations), combination.tokens)


def _agrees_in_requests(cell: Cell, combination: Combination) -> bool:
    more = cell.requests_rest
    return more is None or 0 <= more - combination.requests <= len(without_usage(cell))


def without_usage(cell: Cell) -> list[OurStream]:
    """The streams without usage that may be billed: the upstream answered them, and not with an error."""
    return [stream for stream in cell.streams if not stream.has_usage and stream.was_sent and not stream.is_refused]


def explain_exact(cell: Cell, tools: Tools) -> None:
    """Explain a cell by billed retries, missing streams or moved kinds of input, besides what a combination explains."""
    if cell.theirs.token_rows == 0 and not cell.explanations:
        usd = ZERO_USD if cell.theirs.money_rows else usd_negated(cell.our_usd)
        if tools.moves.get(cell.group):
            cell.leave_undecided({MISSING, *tools.moves[cell.group]}, cell.rest, cell.billed)
        else:
            cell.explain(MISSING, cell.rest, usd, cell.billed, -cell.ours.reported)
        cell.gone.update(stream.id for stream in cell.streams)
        return
    for step in (_explain_again, _explain_missing, _explain_cache, _explain_retries):
        for tried, combination in tools.few(cell):
            if step(cell, combination, tools, tried):
                return


def _lose(cell: Cell, streams: list[OurStream], tools: Tools) -> None:
    """Explain that streams are not billed in a cell: nowhere, unless another cell may have them among other tokens."""
    moves = tools.moves.get(cell.group)
    if moves:
        cell.leave_undecided({MISSING, *moves}, negated(tokens_of(streams)), streams)
        cell.gone.update(stream.id for stream in streams)
    else:
        cell.explain_missing(streams)


def _explain_again(cell: Cell, combination: Combination, tools: Tools, tried: int) -> bool:
    """Explain a cell by some of its failed attempts, billed with the counts of those that succeeded."""
    pairs = [] if combination.has(RETRIES) else attempts_of(cell)
    target = minus(cell.rest, combination.tokens)
    indexes = tools.search.subset([stream.tokens for _, stream in pairs], target, tried)
    if not indexes:
        return False
    combination.apply(cell)
    chosen = [pairs[index] for index in indexes]
    usd = usd_of(stream for _, stream in chosen)
    cell.explain(RETRIES, target, usd, [attempt for attempt, _ in chosen], len(chosen))
    return True


def _explain_missing(cell: Cell, combination: Combination, tools: Tools, tried: int) -> bool:
    billed = cell.billed
    target = minus(combination.tokens, cell.rest)
    more = cell.requests_rest
    lacking = 0 if more is None or combination.requests else -more
    indexes = tools.search.subset([combination.counted(stream) for stream in billed], target, tried, lacking)
    if not indexes or combination.has(MISSING):
        return False
    chosen = [billed[index] for index in indexes]
    combination.apply(cell, without=chosen)
    _lose(cell, chosen, tools)
    return True


def _explain_cache(cell: Cell, combination: Combination, _tools: Tools, _tried: int) -> bool:
    rest = minus(cell.rest, combination.tokens)
    if combination.parts or not is_cache_shift(rest):
        return False
    combination.apply(cell)
    cell.explain(CACHE, rest, None, cached_streams(cell))
    return True


def _explain_retries(cell: Cell, combination: Combination, _tools: Tools, _tried: int) -> bool:
    rest = minus(cell.rest, combination.tokens)
    attempts = [] if combination.parts else _attempts(cell, rest)
    if not attempts:
        return False
    combination.apply(cell)
    cell.explain(RETRIES, rest, None, attempts, len(attempts))
    return True


def _attempts(cell: Cell, rest: Tokens) -> list[OurStream]:
    """The failed attempts whose input is the surplus of input: the request was the same, its output is not known."""
    if min(rest) < 0 or rest == ZERO:
        return []
    pairs = attempts_of(cell)
    choices = [pairs, *([pair] for pair in pairs)] if len(pairs) > 1 else [pairs]
    for chosen in choices:
        most = most_output(attempt for attempt, _ in chosen)
        if chosen and tokens_of(stream for _, stream in chosen).input == rest.input and rest.output <= most:
            return [attempt for attempt, _ in chosen]
    return []


def most_output(streams: Iterable[OurStream]) -> int:
    """The most output that these streams may have beyond what they reported (tokens): it ends at each request's limit."""
    return sum(
        max(0, (MAX_OUTPUT if stream.output_limit is None else stream.output_limit) - stream.tokens.output)
        for stream in streams
    )
