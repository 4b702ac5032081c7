"""Causes that predict a difference exactly, from the cell itself: what they would add to our tokens, in full.

`combinations_of` gives the ways to combine up to two of them, none first. The search tries each, and accepts one only if
nothing is left over, or if what is left over has a cause with evidence of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import NamedTuple

from streamgauge.audit.amounts import EXACT, ZERO, Tokens, minus, negated, plus, total_of, usd_total
from streamgauge.audit.cells import Cell, Folding, tokens_of, usd_of
from streamgauge.audit.invoices import InvoiceLine
from streamgauge.audit.ours import OurStream, Place
from streamgauge.audit.subsets import Search

# Streams of a cell in which a search for streams is combined with two hypotheses.
MAX_FOR_PAIRS = 60
# Failed attempts of a cell that are also tried one by one. With more, only all of them together are tried.
MAX_ATTEMPTS = 8


@dataclass(frozen=True)
class Requests:
    """rows: those that are each for one request, by its id, with their cell. ours: the ids of our streams that were read."""

    rows: Mapping[str, tuple[Place, InvoiceLine]]
    ours: frozenset[str]


@dataclass(frozen=True)
class Hypothesis:
    """What a cause would add. usd: None if it follows from what is left of the money."""

    cause: str
    tokens: Tokens
    usd: Decimal | None
    streams: tuple[OurStream, ...] = ()


@dataclass(frozen=True)
class Combination:
    """Some hypotheses, and their sum."""

    parts: tuple[Hypothesis, ...]
    tokens: Tokens

    def apply(self, cell: Cell) -> None:
        """Explain a cell by them."""
        for one in self.parts:
            cell.explain(one.cause, one.tokens, one.usd, one.streams)


class Tools(NamedTuple):
    """What the search for causes uses: the combinations of a cell's hypotheses, and the search for streams."""

    combinations: Callable[[Cell], list[Combination]]
    search: Search

    def few(self, cell: Cell) -> list[Combination]:
        """The combinations of a cell that are worth a search for streams: among many streams, at most one hypothesis."""
        most = 3 if len(cell.streams) <= MAX_FOR_PAIRS else 1
        return [one for one in self.combinations(cell) if len(one.parts) <= most]


def combinations_of(hypotheses: Sequence[Hypothesis], most: int = 2) -> Iterator[Combination]:
    """None of them, then each, then each two with different causes."""
    yield Combination((), ZERO)
    for size in range(1, most + 1):
        for parts in combinations(hypotheses, size):
            if len({one.cause for one in parts}) == size:
                yield Combination(parts, total_of(one.tokens for one in parts))


def hypotheses_of(cell: Cell, requests: Requests, folding: Folding) -> list[Hypothesis]:
    """The hypotheses of a cell, the most certain first. With a row for each request, most are known exactly."""
    found = [_missing(cell, requests), _aborted(cell, requests, folding)] if requests.rows else []
    found += [*_duplicates(cell, folding), *_retries(cell), *_reasoning(cell), *_cache(cell)]
    if requests.rows:
        found.append(_unseen(cell, requests, folding))
    return [one for one in found if one.tokens != ZERO]


def _duplicates(cell: Cell, folding: Folding) -> list[Hypothesis]:
    repeated = [one for one in cell.theirs.repeated if one.line.tokens is not None]
    each: list[Hypothesis] = []
    for one in repeated:
        tokens = folding.tokens(cell.place.provider, one.line.tokens or ZERO)
        usd = None if one.line.usd is None else EXACT.multiply(one.line.usd, Decimal(one.extra))
        ids = {one.line.request_id}
        streams = [stream for stream in cell.streams if stream.response_id in ids and stream.response_id]
        if not streams and tokens == cell.ours.tokens:  # the row is for the whole cell
            streams = [stream for stream in cell.streams if stream.has_usage]
        each.append(Hypothesis("duplicate_lines", Tokens(*(n * one.extra for n in tokens)), usd, tuple(streams)))
    if len(each) < 2:
        return each
    streams = list({stream.id: stream for one in each for stream in one.streams}.values())
    usd = None if any(one.usd is None for one in each) else usd_total(one.usd for one in each)
    whole = Hypothesis("duplicate_lines", total_of(one.tokens for one in each), usd, tuple(streams))
    return [whole, *each[:MAX_ATTEMPTS]]


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
    each = [Hypothesis("retries_billed_twice", other.tokens, other.usd, (one,)) for one, other in pairs]
    if len(each) < 2:
        return each
    whole = Hypothesis(
        "retries_billed_twice",
        tokens_of(other for _, other in pairs),
        usd_of(other for _, other in pairs),
        tuple(one for one, _ in pairs),
    )
    return [whole, *(each if len(each) <= MAX_ATTEMPTS else ())]


def _reasoning(cell: Cell) -> list[Hypothesis]:
    """Reasoning is a part of output: a provider may count it a second time, or not at all."""
    count, streams = cell.ours.reasoning, tuple(one for one in cell.streams if one.reasoning)
    return [Hypothesis("reasoning_counted_differently", Tokens(output=sign * count), None, streams) for sign in (1, -1)]


def _cache(cell: Cell) -> list[Hypothesis]:
    """Cached input may be counted in the uncached too, in its place, in neither; cache writes likewise."""
    _, cached, written, _ = cell.ours.tokens
    streams = tuple(one for one in cell.streams if one.tokens.input_cached or one.tokens.input_cache_write)
    patterns = (
        (cached, 0, 0), (cached, -cached, 0), (-cached, 0, 0), (0, -cached, 0),
        (written, 0, 0), (written, 0, -written), (0, written, -written), (-written, 0, 0), (0, 0, -written),
        (cached + written, 0, 0), (cached + written, -cached, -written), (-cached - written, 0, 0),
    )  # fmt: skip
    found = dict.fromkeys(Tokens(*pattern, 0) for pattern in patterns)
    return [Hypothesis("cache_counted_differently", one, None, streams) for one in found]


def is_cache_shift(rest: Tokens) -> bool:
    """Whether only the kinds of input differ, and all input together agrees."""
    return rest != ZERO and rest.input == 0 and rest.output == 0


def _missing(cell: Cell, requests: Requests) -> Hypothesis:
    """Streams whose request has no row on any day that was read."""
    streams = [
        one for one in cell.streams if one.has_usage and one.response_id and one.response_id not in requests.rows
    ]
    return Hypothesis("missing_from_invoice", negated(tokens_of(streams)), minus_usd(usd_of(streams)), tuple(streams))


def _aborted(cell: Cell, requests: Requests, folding: Folding) -> Hypothesis:
    """What is billed for streams of the cell beyond what they reported before they ended."""
    tokens, streams = ZERO, []
    for one in cell.streams:
        place, line = requests.rows.get(one.response_id or "", (None, None))
        if line is not None and place == cell.place and line.tokens is not None and not one.is_final:
            streams.append(one)
            tokens = plus(tokens, minus(folding.tokens(cell.place.provider, line.tokens), one.tokens))
    return Hypothesis("aborted_without_usage", tokens, None, tuple(streams))


def _unseen(cell: Cell, requests: Requests, folding: Folding) -> Hypothesis:
    """Rows of the cell whose request is in no stream that was read."""
    lines = [
        line
        for name, (place, line) in sorted(requests.rows.items())
        if place == cell.place and name not in requests.ours
    ]
    tokens = total_of(folding.tokens(cell.place.provider, line.tokens or ZERO) for line in lines)
    return Hypothesis("coverage", tokens, usd_total(line.usd for line in lines))


def minus_usd(amount: Decimal | None) -> Decimal | None:
    """An amount with the other sign; None stays None."""
    return None if amount is None else EXACT.minus(amount)
