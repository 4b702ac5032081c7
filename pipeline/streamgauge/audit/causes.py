"""Causes of a difference in a cell's tokens: hypotheses that predict it exactly, and steps that need other evidence.

A hypothesis is what a cause would add to our tokens, in full, from the cell itself. `combinations_of` gives the ways to
combine them, none first. The search tries each, and accepts a combination only if nothing is left over, or if what is left
over has a cause with evidence of its own: streams that add up to it, a stream that ended without usage and whose bounds
hold it, a surplus that a request may have, a count of requests. An estimate is only a bound here; it never is a part of
a sum.
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
from streamgauge.audit.subsets import Search

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
ABORTED, COVERAGE = "aborted_without_usage", "coverage"
# The largest input of a request whose size is not known (tokens): the largest context that providers offer.
MAX_INPUT = 2_000_000
# The largest output of a request without a limit (tokens): the largest that providers allow.
MAX_OUTPUT = 128_000


@dataclass(frozen=True)
class Hypothesis:
    """The tokens, money and requests that a cause would add to a cell.

    usd: None if it follows from what is left of the money. requests: how many requests it adds. change: what it adds for one
    stream, if the cause is a way to count every stream.
    """

    cause: str
    tokens: Tokens
    usd: Decimal | None
    streams: tuple[OurStream, ...] = ()
    requests: int = 0
    change: Change | None = None


@dataclass(frozen=True)
class Combination:
    """Hypotheses of different causes, and their sum."""

    parts: tuple[Hypothesis, ...]
    tokens: Tokens
    requests: int

    def has(self, cause: str) -> bool:
        """Whether a part is of this cause."""
        return any(part.cause == cause for part in self.parts)

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
    """What the search for causes uses: the combinations of a cell's hypotheses, and the search for streams."""

    combinations: Callable[[Cell], list[Combination]]
    search: Search

    def few(self, cell: Cell) -> list[Combination]:
        """The combinations of a cell that are worth a search for streams: among many streams, at most one hypothesis."""
        most = 0 if self.search.is_spent else 3 if len(cell.streams) <= MAX_FOR_PAIRS else 1
        return [combination for combination in self.combinations(cell) if len(combination.parts) <= most]


def combinations_of(hypotheses: Sequence[Hypothesis], most: int = 2) -> Iterator[Combination]:
    """The combinations of up to `most` hypotheses with different causes, the empty one first."""
    for size in range(most + 1):
        for parts in combinations(hypotheses, size):
            if len({part.cause for part in parts}) == size:
                yield Combination(parts, total_of(part.tokens for part in parts), sum(part.requests for part in parts))


def hypotheses_of(cell: Cell, requests: RequestRows | None, folding: Folding) -> list[Hypothesis]:
    """The hypotheses of a cell, the most certain first. With a row for each request, most are known exactly."""
    hypotheses = [] if requests is None else [_missing(cell, requests), _aborted(cell, requests)]
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
        return Hypothesis("reasoning_counted_differently", tokens, None, tuple(streams), change=change)

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
                "cache_counted_differently", tokens, None, streams, change=_change_of(pattern)
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


def _aborted(cell: Cell, requests: RequestRows) -> Hypothesis:
    """Hypothesis of aborted streams: what is billed beyond what they reported before they ended."""
    tokens, streams = ZERO, []
    for stream in cell.streams:
        billed = (
            None if stream.is_final or not stream.response_id else requests.billed_in(cell.group, stream.response_id)
        )
        if billed is not None:
            streams.append(stream)
            tokens = plus(tokens, minus(billed.tokens, stream.tokens))
    requests_added = sum(not stream.has_usage for stream in streams)
    return Hypothesis("aborted_without_usage", tokens, None, tuple(streams), requests_added)


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


class Bounds(NamedTuple):
    """The most that a provider may bill for a stream beyond what it reported (the least is nothing)."""

    input: int
    output: int


def bounds_of(stream: OurStream) -> Bounds:
    """The bounds of a stream: a token is at least a byte of the request, and output ends at the request's limit."""
    known = stream.tokens
    most_input = MAX_INPUT if stream.input_limit is None else stream.input_limit
    most_output = MAX_OUTPUT if stream.output_limit is None else stream.output_limit
    return Bounds(max(0, most_input - known.input), max(0, most_output - known.output))


def explain_predicted(cell: Cell, tools: Tools) -> None:
    """Explain a cell by the combination of hypotheses that predicts its difference exactly."""
    for combination in tools.combinations(cell):
        if cell.rest == combination.tokens:
            combination.apply(cell)
            return


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
    if not is_cache_shift(rest) or combination.has(CACHE):
        return False
    combination.apply(cell)
    cell.explain(CACHE, rest, None, cached_streams(cell))
    return True


def _explain_retries(cell: Cell, combination: Combination, _search: Search, _tried: int) -> bool:
    rest = minus(cell.rest, combination.tokens)
    attempts = _attempts(cell, rest)
    if not attempts or combination.has(RETRIES):
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
        most = sum(bounds_of(attempt).output for attempt, _ in chosen)
        if chosen and tokens_of(stream for _, stream in chosen).input == rest.input and rest.output <= most:
            return [attempt for attempt, _ in chosen]
    return []


def explain_unseen(cell: Cell, tools: Tools) -> None:
    """Explain a surplus: by streams that ended without usage, else by requests that no tap saw."""
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        aborted = _aborted_within_bounds(cell, rest, combination)
        if aborted and not combination.has(ABORTED):
            combination.apply(cell)
            cell.explain(ABORTED, rest, None, aborted, sum(not stream.has_usage for stream in aborted))
            return
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        if _is_unseen(cell, rest, combination) and not combination.has(COVERAGE):
            combination.apply(cell)
            cell.explain(COVERAGE, rest, None, requests=cell.requests_rest or 0)
            return


def _aborted_within_bounds(cell: Cell, rest: Tokens, combination: Combination) -> list[OurStream]:
    """Streams of the cell without final usage, if the surplus lies within their bounds."""
    streams = [stream for stream in cell.streams if not stream.is_final and stream.was_sent]
    bounds = [bounds_of(stream) for stream in streams]
    most = Bounds(sum(bound.input for bound in bounds), sum(bound.output for bound in bounds))
    if not streams or rest == ZERO or min(rest) < 0 or rest.input > most.input or rest.output > most.output:
        return []
    more = cell.requests_rest
    return [] if more is not None and more - combination.requests > len(streams) else streams


def _is_unseen(cell: Cell, rest: Tokens, combination: Combination) -> bool:
    """Whether a surplus may be of requests that no tap saw: each has input, and is counted where requests are."""
    if rest == ZERO or min(rest) < 0:
        return False
    if cell.ours.streams == 0:
        return True
    more = cell.requests_rest
    return rest.input > 0 and (more is None or more > combination.requests)


def explain_lack(cell: Cell, tools: Tools) -> None:
    """Explain a lack that no streams add up to, if the invoice also lacks requests."""
    more = cell.requests_rest
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        if rest != ZERO and max(rest) <= 0 and more is not None and more < combination.requests:
            combination.apply(cell)
            cell.explain(MISSING, rest, None, requests=more - combination.requests)
            return
