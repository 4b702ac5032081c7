"""Causes of a difference in a cell's tokens: hypotheses that predict it exactly, and steps that need other evidence.

A hypothesis is what a cause would add to our tokens, in full, from the cell itself. `combinations_of` gives the ways to
combine them, none first. The search tries each, and accepts a combination only if nothing is left over, or if what is left
over are streams that add up to it. Bounds come last and alone: streams that ended without usage, and requests that no tap
saw (`explain_bounded`). A cause is named only if no other one explains the same tokens as well; else these are undecided
(decision 53).
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
    usd_total,
)
from streamgauge.audit.cells import Cell, Folding, tokens_of, usd_of
from streamgauge.audit.ours import OurStream
from streamgauge.audit.request_rows import RequestRows, total_billed
from streamgauge.audit.subsets import Search, is_decidable

# Streams of a cell in which a search for streams is combined with two hypotheses.
MAX_FOR_PAIRS = 60
# Failed attempts of a cell that are also tried one by one. Of more, only all together are tried.
MAX_EACH = 8

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
# The largest input of a request (tokens): the largest context that providers offer. The size of a request's body is no bound,
# since input may be held by reference: a URL, the id of a file, the id of an earlier response.
MAX_INPUT = 2_000_000
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
    """What the search for causes uses: the combinations of a cell's hypotheses, the search for streams, and the ways to count
    (cause and way) that predict another cell of the model exactly.
    """

    combinations: Callable[[Cell], list[Combination]]
    search: Search
    found: set[tuple[str, tuple[int, ...]]]

    def few(self, cell: Cell) -> list[Combination]:
        """The combinations of a cell that are worth a search for streams: among many streams, at most one hypothesis."""
        most = 0 if self.search.is_spent else 3 if len(cell.streams) <= MAX_FOR_PAIRS else 1
        return [combination for combination in self.combinations(cell) if len(combination.parts) <= most]

    def found_elsewhere(self, cell: Cell) -> list[Combination]:
        """The combinations of ways to count that were found exactly in another cell, the largest first."""
        found = [
            combination
            for combination in self.combinations(cell)
            if combination.parts and all((part.cause, part.way) in self.found for part in combination.parts)
        ]
        return sorted(found, key=lambda combination: -len(combination.parts))


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


def _together(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses of a cause: all of them added up, then each."""
    if len(hypotheses) < 2:
        return hypotheses
    streams = {stream.id: stream for hypothesis in hypotheses for stream in hypothesis.streams}
    whole = Hypothesis(
        hypotheses[0].cause,
        total_of(hypothesis.tokens for hypothesis in hypotheses),
        usd_total(hypothesis.usd for hypothesis in hypotheses),
        tuple(streams.values()),
        sum(hypothesis.requests for hypothesis in hypotheses),
    )
    return [whole, *(hypotheses if len(hypotheses) <= MAX_EACH else ())]


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
    """Hypotheses of retries: a failed attempt is billed with the counts of the attempt that succeeded."""
    pairs = attempts_of(cell)
    return _together(
        [Hypothesis("retries_billed_twice", stream.tokens, stream.usd, (attempt,), 1) for attempt, stream in pairs]
    )


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
    tools.found.update((part.cause, part.way) for part in best[0].parts if part.change is not None)
    best[0].apply(cell)


def _is_no_chance(combination: Combination, combinations: Sequence[Combination]) -> bool:
    """Whether a combination of several hypotheses fits by more than chance: so many of that size were tried."""
    size = len(combination.parts)
    return size == 1 or is_decidable(sum(len(one.parts) == size for one in combinations), combination.tokens)


def _agrees_in_requests(cell: Cell, combination: Combination) -> bool:
    more = cell.requests_rest
    return more is None or 0 <= more - combination.requests <= len(_without_usage(cell))


def explain_exact(cell: Cell, tools: Tools) -> None:
    """Explain a cell by missing streams, moved kinds of input or billed retries, besides what a combination explains."""
    if cell.theirs.token_rows == 0 and not cell.explanations:
        usd = ZERO_USD if cell.theirs.money_rows else usd_negated(cell.our_usd)
        cell.explain(MISSING, cell.rest, usd, cell.billed, -cell.ours.reported)
        cell.gone.update(stream.id for stream in cell.streams)
        return
    for step in (_explain_missing, _explain_cache, _explain_retries):
        for tried, combination in enumerate(tools.few(cell), 1):
            if step(cell, combination, tools.search, tried):
                return


def _explain_missing(cell: Cell, combination: Combination, search: Search, tried: int) -> bool:
    billed = cell.billed
    target = minus(combination.tokens, cell.rest)
    more = cell.requests_rest
    lacking = 0 if more is None else combination.requests - more
    indexes = search.subset([combination.counted(stream) for stream in billed], target, tried, lacking)
    if not indexes or combination.has(MISSING):
        return False
    chosen = [billed[index] for index in indexes]
    combination.apply(cell, without=chosen)
    cell.explain_missing(chosen)
    return True


def _explain_cache(cell: Cell, combination: Combination, _search: Search, _tried: int) -> bool:
    rest = minus(cell.rest, combination.tokens)
    if combination.parts or not is_cache_shift(rest):
        return False
    combination.apply(cell)
    cell.explain(CACHE, rest, None, cached_streams(cell))
    return True


def _explain_retries(cell: Cell, combination: Combination, _search: Search, _tried: int) -> bool:
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
        most = _most_output(attempt for attempt, _ in chosen)
        if chosen and tokens_of(stream for _, stream in chosen).input == rest.input and rest.output <= most:
            return [attempt for attempt, _ in chosen]
    return []


def explain_bounded(cell: Cell, tools: Tools) -> None:
    """Explain what is left of a cell by the causes that only bounds limit: alone, or beside a way to count that was found
    exactly in another cell of the model.
    """
    for combination in (*tools.found_elsewhere(cell), *tools.combinations(cell)[:1]):
        rest = minus(cell.rest, combination.tokens)
        if rest == ZERO:
            combination.apply(cell)
            return
        more = cell.requests_rest
        more = None if more is None else more - combination.requests
        causes = _bounded_causes(cell, rest, more)
        if not causes:
            continue
        combination.apply(cell)
        streams = [stream for cause in causes for stream in _concerned(cell, cause, rest)]
        if len(causes) > 1:
            cell.leave_undecided(causes, rest, streams)
        else:
            cell.explain(causes[0], rest, None, streams, _requests_of(causes[0], cell, more))
        return


def _bounded_causes(cell: Cell, rest: Tokens, more: int | None) -> list[str]:
    """The causes whose bounds hold this rest. `more`: how many more requests are billed than streams with usage of ours, if
    they are counted.
    """
    if max(rest) <= 0:  # a lack that no streams add up to: the invoice also lacks requests
        return [MISSING] if more is not None and more < 0 and rest.input < 0 else []
    if min(rest) < 0:
        return []
    if cell.ours.streams == 0:
        return [COVERAGE]
    partial = [stream for stream in _broken(cell) if stream.has_usage]
    if rest.input == 0:  # each further request has input, so only streams that reported it already may have used more
        return [ABORTED] if partial and rest.output <= _most_output(partial) else []
    if not cell.is_read and cell.ours.streams > cell.ours.reported:
        return [ABORTED, NOT_REPORTED, COVERAGE]
    aborted = [stream for stream in _broken(cell) if not stream.has_usage]
    unreported = _unreported(cell)
    may_be_aborted = bool(aborted) and _is_within(rest, [*aborted, *partial])
    may_be_unreported = bool(unreported) and _is_within(rest, [*unreported, *aborted, *partial])
    if more is None:
        possible = {ABORTED: may_be_aborted, NOT_REPORTED: may_be_unreported, COVERAGE: True}
    else:
        seen = len(aborted) + len(unreported)
        possible = {
            # A completed stream is billed, so the count of requests includes it.
            ABORTED: may_be_aborted and len(unreported) < more <= seen,
            NOT_REPORTED: may_be_unreported and len(unreported) <= more,
            COVERAGE: more > len(unreported) and more != seen,
        }
    return [cause for cause, is_possible in possible.items() if is_possible]


def _requests_of(cause: str, cell: Cell, more: int | None) -> int:
    """How many requests a cause adds to ours."""
    if more is not None:
        return more
    return sum(not stream.has_usage for stream in _concerned(cell, cause, ZERO))


def _concerned(cell: Cell, cause: str, rest: Tokens) -> list[OurStream]:
    """The streams that a cause with bounds concerns."""
    if cause == ABORTED:
        return [stream for stream in _broken(cell) if stream.has_usage or rest.input]
    return _unreported(cell) if cause == NOT_REPORTED else []


def _without_usage(cell: Cell) -> list[OurStream]:
    """The streams without usage that may be billed: the upstream answered them, and not with an error."""
    return [stream for stream in cell.streams if not stream.has_usage and stream.was_sent and not stream.is_refused]


def _broken(cell: Cell) -> list[OurStream]:
    """The streams without final usage that did not complete, and may be billed."""
    return [
        stream
        for stream in cell.streams
        if not stream.is_final and not stream.is_completed and stream.was_sent and not stream.is_refused
    ]


def _unreported(cell: Cell) -> list[OurStream]:
    """The completed streams without usage."""
    return [stream for stream in _without_usage(cell) if stream.is_completed]


def _is_within(rest: Tokens, streams: Sequence[OurStream]) -> bool:
    """Whether these streams may have so much input and output beyond what they reported."""
    most_input = sum(max(0, MAX_INPUT - stream.tokens.input) for stream in streams)
    return rest.input <= most_input and rest.output <= _most_output(streams)


def _most_output(streams: Iterable[OurStream]) -> int:
    """The most output that these streams may have beyond what they reported (tokens): it ends at each request's limit."""
    return sum(
        max(0, (MAX_OUTPUT if stream.output_limit is None else stream.output_limit) - stream.tokens.output)
        for stream in streams
    )
