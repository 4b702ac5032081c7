"""Explains cells one by one: what is predicted, what streams add up to, and last what no record tells the size of.

The last ones need evidence: a stream that ended without usage and whose bounds hold the difference, a surplus that a request
may have, a count of requests. An estimate is only a bound here; it never is a part of a sum.
"""

from typing import NamedTuple

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, minus
from streamgauge.audit.cells import Cell, tokens_of
from streamgauge.audit.hypotheses import Combination, Tools, attempts_of, cached_streams, is_cache_shift, minus_usd
from streamgauge.audit.ours import OurStream
from streamgauge.audit.subsets import Search

MISSING, RETRIES, CACHE = "missing_from_invoice", "retries_billed_twice", "cache_counted_differently"
ABORTED, COVERAGE = "aborted_without_usage", "coverage"
# The largest input of a request whose size is not known (tokens): the largest context that providers offer.
MAX_INPUT = 2_000_000
# The largest output of a request without a limit (tokens): the largest that providers allow.
MAX_OUTPUT = 128_000


class Bounds(NamedTuple):
    """The most that a provider may bill for a stream beyond what it reported (the least is nothing)."""

    input: int
    output: int


def bounds_of(stream: OurStream) -> Bounds:
    """A token is at least a byte of the request, and output ends at the request's limit."""
    known = stream.tokens
    most_input = MAX_INPUT if stream.input_limit is None else stream.input_limit
    most_output = MAX_OUTPUT if stream.output_limit is None else stream.output_limit
    return Bounds(max(0, most_input - known.input), max(0, most_output - known.output))


def explain_predicted(cell: Cell, tools: Tools) -> None:
    """What hypotheses predict exactly."""
    for combination in tools.combinations(cell):
        if cell.rest == combination.tokens:
            combination.apply(cell)
            return


def explain_exact(cell: Cell, tools: Tools) -> None:
    """Missing streams, moved kinds of input, and billed retries, besides what a combination explains."""
    if cell.theirs.token_rows == 0 and not cell.explanations:
        usd = ZERO_USD if cell.theirs.money_rows else minus_usd(cell.our_usd)
        cell.explain(MISSING, cell.rest, usd, cell.billed, -cell.ours.reported)
        cell.gone.update(one.id for one in cell.streams)
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
    places = search.subset([combination.counted(one) for one in billed], target, tried, lacking)
    if not places or combination.has(MISSING):
        return False
    chosen = [billed[place] for place in places]
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
        most = sum(bounds_of(one).output for one, _ in chosen)
        if chosen and tokens_of(other for _, other in chosen).input == rest.input and rest.output <= most:
            return [one for one, _ in chosen]
    return []


def explain_unseen(cell: Cell, tools: Tools) -> None:
    """A surplus: of streams that ended without usage, else of requests that no tap saw."""
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        aborted = _aborted(cell, rest, combination)
        if aborted and not combination.has(ABORTED):
            combination.apply(cell)
            cell.explain(ABORTED, rest, None, aborted, sum(not one.has_usage for one in aborted))
            return
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        if _is_unseen(cell, rest, combination) and not combination.has(COVERAGE):
            combination.apply(cell)
            cell.explain(COVERAGE, rest, None, requests=cell.requests_rest or 0)
            return


def _aborted(cell: Cell, rest: Tokens, combination: Combination) -> list[OurStream]:
    """Streams of the cell without final usage, if the surplus lies within their bounds."""
    streams = [one for one in cell.streams if not one.is_final and one.was_sent]
    bounds = [bounds_of(one) for one in streams]
    most = Bounds(sum(one.input for one in bounds), sum(one.output for one in bounds))
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
    """A lack without streams that add up to it, if the invoice also lacks requests."""
    more = cell.requests_rest
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        if rest != ZERO and max(rest) <= 0 and more is not None and more < combination.requests:
            combination.apply(cell)
            cell.explain(MISSING, rest, None, requests=more - combination.requests)
            return
