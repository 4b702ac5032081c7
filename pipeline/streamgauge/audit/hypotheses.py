"""Causes that predict a difference exactly, from the cell itself: what they would add to our tokens, in full.

`combinations_of` gives the ways to combine them, none first. The search tries each, and accepts one only if nothing is left
over, or if what is left over has a cause with evidence of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import NamedTuple

from streamgauge.audit.amounts import EXACT, ZERO, Tokens, minus, negated, plus, total_of, usd_minus, usd_total
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


@dataclass(frozen=True)
class Hypothesis:
    """What a cause would add to a cell.

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
    """Some hypotheses, and their sum."""

    parts: tuple[Hypothesis, ...]
    tokens: Tokens
    requests: int

    def has(self, cause: str) -> bool:
        """Whether one of them is of this cause."""
        return any(one.cause == cause for one in self.parts)

    def counted(self, stream: OurStream) -> Tokens:
        """What is billed for a stream if they hold."""
        tokens = stream.tokens
        for one in self.parts:
            if one.change is not None:
                tokens = plus(tokens, one.change(stream))
        return tokens

    def apply(self, cell: Cell, without: Iterable[OurStream] = ()) -> None:
        """Explain a cell by them, but for streams that are not billed."""
        gone = list(without)
        ids = {one.id for one in gone}
        for one in self.parts:
            tokens, streams = one.tokens, [stream for stream in one.streams if stream.id not in ids]
            if one.change is not None:
                tokens = minus(tokens, total_of(map(one.change, gone)))
            if one.cause == "missing_from_invoice":
                cell.explain_missing(streams)
            elif tokens != ZERO or one.usd:
                cell.explain(one.cause, tokens, one.usd, streams, one.requests)


class Tools(NamedTuple):
    """What the search for causes uses: the combinations of a cell's hypotheses, and the search for streams."""

    combinations: Callable[[Cell], list[Combination]]
    search: Search

    def few(self, cell: Cell) -> list[Combination]:
        """The combinations of a cell that are worth a search for streams: among many streams, at most one hypothesis."""
        most = 0 if self.search.is_spent else 3 if len(cell.streams) <= MAX_FOR_PAIRS else 1
        return [one for one in self.combinations(cell) if len(one.parts) <= most]


def combinations_of(hypotheses: Sequence[Hypothesis], most: int = 2) -> Iterator[Combination]:
    """None of them, then each, then each two (and three) with different causes."""
    for size in range(most + 1):
        for parts in combinations(hypotheses, size):
            if len({one.cause for one in parts}) == size:
                yield Combination(parts, total_of(one.tokens for one in parts), sum(one.requests for one in parts))


def hypotheses_of(cell: Cell, requests: RequestRows | None, folding: Folding) -> list[Hypothesis]:
    """The hypotheses of a cell, the most certain first. With a row for each request, most are known exactly."""
    found = [] if requests is None else [_missing(cell, requests), _aborted(cell, requests)]
    found += [*_duplicates(cell, folding), *_reasoning(cell), *_cache(cell)]
    found += _retries(cell) if requests is None else _unseen(cell, requests)
    known = {one.cause for one in cell.explanations}
    return [one for one in found if one.tokens != ZERO and one.cause not in known]


def _duplicates(cell: Cell, folding: Folding) -> list[Hypothesis]:
    """The extra rows together, and each of them."""
    repeated = cell.theirs.repeated
    if not repeated.rows:
        return []
    # Usage and costs are two files: rows for money that are repeated in the cell belong to those for tokens.
    usd = repeated.usd if repeated.usd is not None else (repeated.money or None)
    found = [_extra(cell, folding, repeated.tokens, usd, repeated.ids, repeated.requests)]
    lines = [(line, extra) for line, extra in repeated.different() if line.tokens is not None]
    for line, extra in lines if len(lines) > 1 else ():
        tokens = Tokens(*(extra * count for count in line.tokens or ZERO))
        money = None if line.usd is None else EXACT.multiply(line.usd, Decimal(extra))
        ids: set[str] = {line.request_id} if line.request_id else set()
        found.append(_extra(cell, folding, tokens, money, ids, extra * (line.requests or 0)))
    return found


def _extra(
    cell: Cell, folding: Folding, tokens: Tokens, usd: Decimal | None, ids: Set[str], requests: int
) -> Hypothesis:
    streams = tuple(stream for stream in cell.streams if stream.response_id in ids)
    return Hypothesis("duplicate_lines", folding.tokens(cell.place.provider, tokens), usd, streams, requests)


def _together(each: list[Hypothesis]) -> list[Hypothesis]:
    """All hypotheses of one cause as one, then each of them."""
    if len(each) < 2:
        return each
    streams = {stream.id: stream for one in each for stream in one.streams}
    whole = Hypothesis(
        each[0].cause,
        total_of(one.tokens for one in each),
        usd_total(one.usd for one in each),
        tuple(streams.values()),
        sum(one.requests for one in each),
    )
    return [whole, *(each if len(each) <= MAX_EACH else ())]


def attempts_of(cell: Cell) -> list[tuple[OurStream, OurStream]]:
    """The attempts that ended before a first token, each with a stream of the same request that has usage."""
    billed: dict[str, OurStream] = {}
    for one in cell.streams:
        if one.digest is not None and one.has_usage:
            billed.setdefault(one.digest, one)
    return [
        (one, billed[one.digest])
        for one in cell.streams
        if one.digest in billed and not one.has_usage and not one.has_token
    ]


def _retries(cell: Cell) -> list[Hypothesis]:
    """A provider may bill a failed attempt as it bills the one that succeeded: with the same counts."""
    pairs = attempts_of(cell)
    return _together([Hypothesis("retries_billed_twice", other.tokens, other.usd, (one,), 1) for one, other in pairs])


def _reasoning(cell: Cell) -> list[Hypothesis]:
    """Reasoning is a part of output: a provider may count it a second time, or not at all."""
    streams = [one for one in cell.billed if one.reasoning]
    count = sum(one.reasoning for one in streams) if cell.is_read else cell.ours.reasoning

    def hypothesis(sign: int) -> Hypothesis:
        def change(stream: OurStream) -> Tokens:
            return Tokens(output=sign * stream.reasoning)

        tokens = Tokens(output=sign * count)
        return Hypothesis("reasoning_counted_differently", tokens, None, tuple(streams), change=change)

    return [hypothesis(1), hypothesis(-1)]


def _cache(cell: Cell) -> list[Hypothesis]:
    """Cached input may be counted as uncached, in both, in neither; cache writes likewise."""
    streams = cached_streams(cell)
    ours = tokens_of(cell.billed) if cell.is_read else cell.ours.tokens
    found: dict[Tokens, Hypothesis] = {}
    for pattern in _CACHE_PATTERNS:
        tokens = _counted_as(pattern, ours)
        if tokens not in found:
            found[tokens] = Hypothesis("cache_counted_differently", tokens, None, streams, change=_change_of(pattern))
    return list(found.values())


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
    return tuple(one for one in cell.billed if one.tokens.input_cached or one.tokens.input_cache_write)


def is_cache_shift(rest: Tokens) -> bool:
    """Whether only the kinds of input differ, and all input together agrees."""
    return rest != ZERO and rest.input == 0 and rest.output == 0


def _missing(cell: Cell, requests: RequestRows) -> Hypothesis:
    """Streams whose request has no row on any day that was read."""
    streams = [one for one in cell.billed if one.response_id and not requests.is_billed(one.response_id)]
    return Hypothesis("missing_from_invoice", negated(tokens_of(streams)), minus_usd(usd_of(streams)), tuple(streams))


def _aborted(cell: Cell, requests: RequestRows) -> Hypothesis:
    """What is billed for streams of the cell beyond what they reported before they ended."""
    tokens, streams = ZERO, []
    for one in cell.streams:
        billed = None if one.is_final or not one.response_id else requests.billed_in(cell.place, one.response_id)
        if billed is not None:
            streams.append(one)
            tokens = plus(tokens, minus(billed.tokens, one.tokens))
    requests_added = sum(not one.has_usage for one in streams)
    return Hypothesis("aborted_without_usage", tokens, None, tuple(streams), requests_added)


def _unseen(cell: Cell, requests: RequestRows) -> list[Hypothesis]:
    """Rows of the cell whose request is in no stream that was read: those of failed attempts, and the others."""
    attempts: dict[int, list[OurStream]] = {}
    for attempt, other in attempts_of(cell):
        attempts.setdefault(other.tokens.input, []).append(attempt)
    retried, streams = [], []
    for count, some in attempts.items():
        found = requests.unseen(cell.place, count, len(some))
        retried += found
        streams += some[: len(found)]
    again, whole = total_billed(retried), requests.unseen_total(cell.place)
    rest_usd = usd_minus(whole.usd, again.usd)
    return [
        Hypothesis("retries_billed_twice", again.tokens, again.usd, tuple(streams), again.rows),
        Hypothesis("coverage", minus(whole.tokens, again.tokens), rest_usd, (), whole.rows - again.rows),
    ]


def minus_usd(amount: Decimal | None) -> Decimal | None:
    """An amount with the other sign; None stays None."""
    return None if amount is None else EXACT.minus(amount)
