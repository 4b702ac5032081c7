"""Causes whose size no record tells: streams without usage, requests that no tap saw, and what the invoice lacks.

They are tried last, and each needs evidence: a stream that ended without usage and whose bounds hold the difference, a
surplus that a request may have, or a count of requests. An estimate is only a bound here; it never is a part of a sum.
"""

from typing import NamedTuple

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, minus, negated
from streamgauge.audit.cells import Cell, tokens_of, usd_of
from streamgauge.audit.hypotheses import Tools, attempts_of, is_cache_shift, minus_usd
from streamgauge.audit.ours import OurStream

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
    """What one or two hypotheses predict exactly."""
    for combination in tools.combinations(cell):
        if cell.rest == combination.tokens:
            combination.apply(cell)
            return


def explain_exact(cell: Cell, tools: Tools) -> None:
    """Missing streams, moved kinds of input, and billed retries, besides what a combination explains."""
    if cell.theirs.token_rows == 0 and not cell.explanations:
        streams = [one for one in cell.streams if one.has_usage]
        usd = ZERO_USD if cell.theirs.money_rows else minus_usd(cell.our_usd)
        cell.explain("missing_from_invoice", cell.rest, usd, streams)
        return
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        reported = [one for one in cell.streams if one.has_usage]
        chosen = [
            reported[place] for place in tools.search.subset([one.tokens for one in reported], negated(rest)) or ()
        ]
        if chosen:
            combination.apply(cell)
            cell.explain("missing_from_invoice", rest, minus_usd(usd_of(chosen)), chosen)
            return
        if is_cache_shift(rest) and not any(one.cause == "cache_counted_differently" for one in combination.parts):
            combination.apply(cell)
            streams = [one for one in cell.streams if one.tokens.input_cached or one.tokens.input_cache_write]
            cell.explain("cache_counted_differently", rest, None, streams)
            return
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        attempts = _attempts(cell, rest)
        if attempts and not any(one.cause == "retries_billed_twice" for one in combination.parts):
            combination.apply(cell)
            cell.explain("retries_billed_twice", rest, None, attempts)
            return


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
        if min(rest) < 0:
            continue
        aborted = _aborted(cell, rest)
        if aborted or _is_unseen(cell, rest):
            combination.apply(cell)
            cell.explain("aborted_without_usage" if aborted else "coverage", rest, None, aborted)
            return


def _aborted(cell: Cell, rest: Tokens) -> list[OurStream]:
    """Streams of the cell without final usage, if the surplus lies within their bounds."""
    streams = [one for one in cell.streams if not one.is_final and one.was_sent]
    bounds = [bounds_of(one) for one in streams]
    fits = rest.input <= sum(one.input for one in bounds) and rest.output <= sum(one.output for one in bounds)
    requests = cell.theirs.requests
    if not streams or not fits or (requests is not None and requests > cell.ours.streams):
        return []
    return streams


def _is_unseen(cell: Cell, rest: Tokens) -> bool:
    """Whether a surplus may be of requests that no tap saw: each has input, and is counted where requests are."""
    if cell.ours.streams == 0:
        return True
    requests = cell.theirs.requests
    return rest.input > 0 and (requests is None or requests > cell.ours.reported)


def explain_lack(cell: Cell, tools: Tools) -> None:
    """A lack without streams that add up to it, if the invoice also lacks requests."""
    requests = cell.theirs.requests
    for combination in tools.few(cell):
        rest = minus(cell.rest, combination.tokens)
        if rest != ZERO and max(rest) <= 0 and requests is not None and requests < cell.ours.reported:
            combination.apply(cell)
            cell.explain("missing_from_invoice", rest, None)
            return
