"""Causes of differences in money: what tokens explain, repeated and missing rows, a wrong unit, a tier, a new price; and the
prices that the ledger used, from the costs of streams.

Money is judged only where tokens agree, or are explained: else their difference has no price. A unit is never converted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import combinations

from streamgauge.audit.amounts import EXACT, KINDS, ZERO, ZERO_USD, Tokens, as_decimal, total_of, usd_total
from streamgauge.audit.cells import Cell, Explanation, Rate, ids_of
from streamgauge.audit.ours import GroupKey, OurStream
from streamgauge.audit.result import CHARGES
from streamgauge.audit.theirs import BATCH

# Streams that are read for one price list: five would do, the others confirm them.
MAX_PRICED_STREAMS = 200

Rates = tuple[Fraction | None, Fraction | None, Fraction | None, Fraction | None]
# Cents for dollars, or dollars for cents.
FACTOR = Decimal(100)
# Exports print amounts with five and more significant digits: two amounts that differ by less than this part are equal.
_RELATIVE = Decimal("0.000001")
# Decimal places of a price for a million tokens: providers use up to four.
_PLACES = 6
_PLAIN_PLACES = 4
_FACTOR_PLACES = 12
_MILLION = 1_000_000
# Later than each moment (microseconds).
_NEVER = 2**63

# Causes whose money is not that of our prices.
_APART = frozenset({"duplicate_lines", BATCH, *CHARGES})

RatesOf = Callable[[GroupKey], Rates | None]


def rates_of(streams: Iterable[OurStream]) -> Rates | None:
    """Dollars for a token of each kind, such that every stream costs what it costs; None if there are no such prices.

    A kind has None if the streams do not determine its price. Prices that depend on more than the kind (long contexts, two
    lives of a cache) make the equations disagree, and then none is known.
    """
    rows: list[list[Fraction]] = []  # in row echelon form, each with its cost last
    for count, stream in enumerate(streams):
        if stream.usd is None or count >= MAX_PRICED_STREAMS:
            break
        row = [Fraction(tokens) for tokens in stream.priced] + [Fraction(stream.usd)]
        for known in rows:
            lead = _lead(known)
            if row[lead]:
                factor = row[lead] / known[lead]
                row = [left - factor * right for left, right in zip(row, known, strict=True)]
        if any(row[:-1]):
            rows.append(row)
            rows.sort(key=_lead)
        elif row[-1]:
            return None
    return _solved(rows)


def _lead(row: list[Fraction]) -> int:
    return next(index for index, value in enumerate(row) if value)


def _solved(rows: list[list[Fraction]]) -> Rates:
    rates: list[Fraction | None] = [None] * 4
    for row in reversed(rows):
        lead = _lead(row)
        others = [index for index in range(lead + 1, 4) if row[index]]
        if all(rates[index] is not None for index in others):
            paid = row[-1] - sum((row[index] * (rates[index] or 0) for index in others), Fraction(0))
            rates[lead] = paid / row[lead]
    return rates[0], rates[1], rates[2], rates[3]


def folded(rates: Rates | None, splits: frozenset[str]) -> Rates | None:
    """The prices of the kinds that are compared: uncached input has one only if what it includes costs the same."""
    if rates is None:
        return None
    uncached, cached, written, output = rates
    included = [rate for rate, kind in ((cached, KINDS[1]), (written, KINDS[2])) if kind not in splits]
    return uncached if all(rate in (uncached, None) for rate in included) else None, cached, written, output


def cost_at(rates: Rates | None, tokens: Tokens) -> Fraction | None:
    """What tokens cost at these prices; None if a price that is needed is not known."""
    total = Fraction(0)
    for rate, count in zip(rates or (None,) * 4, tokens, strict=True):
        if count and rate is None:
            return None
        total += (rate or 0) * count
    return total


def explain_money(cell: Cell, rates: Rates | None) -> None:
    """Explain the money of a cell: price the explanations of tokens, then find a cause for what is left."""
    if cell.usd is None:
        return
    _price_explanations(cell, rates)
    if cell.rest != ZERO:
        return
    left = _left(cell)
    if _is_little(cell, left):
        return
    for extra in _extra_money(cell):
        if extra and _is_little(cell, EXACT.subtract(left, extra)):
            cell.explain("duplicate_lines", ZERO, extra, cell.billed)
            return
    if cell.theirs.money_rows == 0:
        cell.explain("missing_from_invoice", ZERO, left, cell.billed)
    elif cell.ours.streams == 0 and cell.theirs.token_rows == 0:
        cell.explain("coverage", ZERO, left)
    elif _is_wrong_unit(cell, left):
        cell.explain("wrong_unit", ZERO, left, cell.billed)
    elif cell.other_tiers and cell.tokens == ZERO:  # the invoice itself says that it has the price of another tier
        cell.explain("tier", ZERO, left, cell.billed)


def _extra_money(cell: Cell) -> Iterator[Decimal]:
    """The money of repeated rows without tokens: of all together, of each, and of each two."""
    repeated = cell.theirs.repeated
    yield repeated.money
    amounts = [
        EXACT.multiply(line.usd, Decimal(extra))
        for line, extra in repeated.different()
        if line.tokens is None and line.usd is not None
    ]
    yield from amounts
    for left, right in combinations(amounts, 2):
        yield EXACT.add(left, right)


def _price_explanations(cell: Cell, rates: Rates | None) -> None:
    """Price the explanations of tokens, and what is undecided, by the known prices; else the first of them gets what is left.

    Where tokens stay unexplained, so does the money that no price tells. Usage of the Batch API has another price: it gets
    what is left once all others have theirs.
    """
    for index, explanation in enumerate(cell.explanations):
        if explanation.usd is None and explanation.cause != BATCH:
            cell.explanations[index] = replace(explanation, usd=_money_of(cell, rates, explanation.tokens))
    for index, part in enumerate(cell.undecided):
        cell.undecided[index] = replace(part, usd=_money_of(cell, rates, part.tokens))
    for index, explanation in enumerate(cell.explanations):
        if explanation.usd is None:
            cell.explanations[index] = replace(explanation, usd=_left_or_nothing(cell))


def _money_of(cell: Cell, rates: Rates | None, tokens: Tokens) -> Decimal:
    cost = cost_at(rates, tokens)
    return _left_or_nothing(cell) if cost is None else as_decimal(cost, 24)


def _left_or_nothing(cell: Cell) -> Decimal:
    return _left(cell) if cell.rest == ZERO else ZERO_USD


def _left(cell: Cell) -> Decimal:
    return cell.usd_rest or ZERO_USD


def _is_little(cell: Cell, left: Decimal) -> bool:
    return abs(left) <= cell.theirs.slack + _RELATIVE * abs(cell.theirs.usd)


def _expected(cell: Cell) -> Decimal:
    """The cost of the billed tokens at our prices; without rows that have prices of their own."""
    apart = usd_total(explanation.usd for explanation in cell.explanations if explanation.cause in _APART) or ZERO_USD
    return EXACT.subtract(cell.theirs.usd, EXACT.add(apart, _left(cell)))


def _is_wrong_unit(cell: Cell, left: Decimal) -> bool:
    expected = _expected(cell)
    billed = EXACT.add(expected, left)
    if expected <= 0 or billed <= 0:
        return False
    larger, smaller = max(billed, expected), min(billed, expected)
    slack = cell.theirs.slack if billed == larger else FACTOR * cell.theirs.slack
    return abs(larger - FACTOR * smaller) <= slack + _RELATIVE * larger and larger > 2 * slack


def explain_prices(cells: Sequence[Cell], rates: RatesOf, tolerance: Decimal) -> None:
    """Explain what is left by prices that changed, for the cells of one provider, model and tier, by day."""
    changed = [
        cell
        for cell in cells
        if cell.usd is not None
        and cell.rest == ZERO
        and cell.theirs.tokens != ZERO
        and not _is_little(cell, _left(cell))
    ]
    if not changed or sum(abs(_left(cell)) for cell in changed) <= tolerance:
        return
    first_seen = min(cell.group.day for cell in changed)
    found = _changes(changed, rates, first_seen)
    if not found:  # the price may have changed during the first day: then that day is a mixture of both prices
        first = [cell for cell in changed if cell.group.day == first_seen]
        changed = [cell for cell in changed if cell.group.day != first_seen]
        found = _changes(changed, rates, first_seen)
        if mixed := [changes for changes in found if _is_mixture(first, changes)]:
            found, changed = mixed, [*first, *changed]
    for cell in changed if found else ():
        known = found[0] if len(found) == 1 else ()  # else it is not known which price changed
        cell.explanations.append(Explanation("price_changed", ZERO, _left(cell), ids_of(cell.billed), known))


def _changes(changed: Sequence[Cell], rates: RatesOf, first_seen: str) -> list[tuple[Rate, ...]]:
    """The changes of prices each of which explains all of these cells."""
    if not changed:
        return []
    by_kind = _by_kind(changed, rates, first_seen)
    if by_kind and all(change.old is not None for change in by_kind):
        return [by_kind]
    ways = [_by_ratio(changed, first_seen) or by_kind, *_by_one_kind(changed, rates, first_seen)]
    return [changes for changes in ways if changes]


def _is_mixture(cells: Sequence[Cell], changes: Sequence[Rate]) -> bool:
    """Whether there is a moment of the day from which on the new prices explain what is left of each of its cells."""
    common = [(-_NEVER, _NEVER)]
    for cell in cells:
        common = [
            (after, before)
            for left in common
            for right in _moments(cell, changes)
            if (after := max(left[0], right[0])) < (before := min(left[1], right[1]))
        ]
    return bool(common)


def _moments(cell: Cell, changes: Sequence[Rate]) -> Iterator[tuple[int, int]]:
    """The intervals in which the prices of a cell may have changed, latest first.

    Both ends are starts of streams (microseconds, the first one excluded). An interval spans several streams if the invoice
    rounds its amounts to more than each of them costs.
    """
    left, added = Fraction(_left(cell)), Fraction(0)
    slack = Fraction(cell.theirs.slack) + abs(left) / _MILLION
    previous = _NEVER
    before: int | None = None  # of the interval that contains the place between two streams, if any
    for stream in sorted(cell.billed, key=lambda stream: -stream.start_us):
        if abs(added - left) <= slack:
            before = before or previous
        elif before is not None:
            yield previous, before
            before = None
        previous = stream.start_us
        more = _more_by(changes, stream)
        if more is None:
            return
        added += more
    if abs(added - left) <= slack:
        yield -_NEVER, before or previous
    elif before is not None:
        yield previous, before


def _more_by(changes: Sequence[Rate], stream: OurStream) -> Fraction | None:
    """How much more a stream costs by the new prices; None if an old price is not known."""
    more = Fraction(0)
    for change in changes:
        if change.old is None or (change.kind == "total" and (stream.usd is None or not change.old)):
            return None
        if change.kind == "total":
            more += Fraction(stream.usd or 0) * (Fraction(change.new) / Fraction(change.old) - 1)
        else:
            more += stream.tokens[KINDS.index(change.kind)] * Fraction(change.new - change.old) / _MILLION
    return more


def _by_kind(changed: Sequence[Cell], rates: RatesOf, first_seen: str) -> tuple[Rate, ...]:
    """The changed prices, where money is billed by kind: one new price for each kind in all cells."""
    changes: list[Rate] = []
    for index, kind in enumerate(KINDS):
        priced = [cell.theirs for cell in changed if kind in cell.theirs.usd_by_kind and cell.theirs.tokens[index]]
        if not priced:
            continue
        news = [Fraction(theirs.usd_by_kind[kind]) / theirs.tokens[index] for theirs in priced]
        if not _are_equal(news, _slack_of(changed, index)):
            return ()
        old = (rates(changed[0].group) or (None,) * 4)[index]
        if old is None or not _are_equal([old, *news], _slack_of(changed, index)):
            paid = sum((Fraction(theirs.usd_by_kind[kind]) for theirs in priced), Fraction(0))
            changes.append(_rate(kind, old, paid / sum(theirs.tokens[index] for theirs in priced), first_seen))
    return tuple(changes)


def _slack_of(changed: Sequence[Cell], index: int) -> Fraction:
    """How far rounding may move the price of a kind."""
    return max(
        (Fraction(cell.theirs.slack) / cell.theirs.tokens[index] for cell in changed if cell.theirs.tokens[index]),
        default=Fraction(0),
    )


def _by_ratio(changed: Sequence[Cell], first_seen: str) -> tuple[Rate, ...]:
    """A change of all prices by one factor."""
    if any(_expected(cell) <= 0 for cell in changed):
        return ()
    ratios = [1 + Fraction(_left(cell)) / Fraction(_expected(cell)) for cell in changed]
    slack = max(Fraction(cell.theirs.slack) / Fraction(_expected(cell)) for cell in changed)
    if not _are_equal(ratios, slack) or (len(changed) == 1 and not _is_plain(ratios[0])):
        return ()
    expected = sum((Fraction(_expected(cell)) for cell in changed), Fraction(0))
    old = expected / total_of(cell.theirs.tokens for cell in changed).total
    rate = _rate("total", old, old, first_seen)
    if not rate.old:
        return ()
    # The factor has to stay exact: the first day may have cost it in part. All cells together have the least rounding.
    factor = 1 + sum((Fraction(_left(cell)) for cell in changed), Fraction(0)) / expected
    return (rate._replace(new=as_decimal(Fraction(rate.old) * factor, _FACTOR_PLACES)),)


def _by_one_kind(changed: Sequence[Cell], rates: RatesOf, first_seen: str) -> Iterator[tuple[Rate, ...]]:
    """Changes of the price of one kind, where money is not billed by kind."""
    for index, kind in enumerate(KINDS):
        if not all(cell.theirs.tokens[index] for cell in changed):
            continue
        added = [Fraction(_left(cell)) / cell.theirs.tokens[index] for cell in changed]
        if _are_equal(added, _slack_of(changed, index)) and (len(changed) > 1 or _is_plain(added[0] * _MILLION)):
            old = (rates(changed[0].group) or (None,) * 4)[index]
            more = sum((Fraction(_left(cell)) for cell in changed), Fraction(0)) / sum(
                cell.theirs.tokens[index] for cell in changed
            )
            if old is not None and old + more >= 0:
                yield (_rate(kind, old, old + more, first_seen),)


def _are_equal(values: Sequence[Fraction], slack: Fraction) -> bool:
    return max(values) - min(values) <= 2 * slack + max(map(abs, values)) / _MILLION


def _is_plain(value: Fraction) -> bool:
    """Whether a number has few decimal places, as a price has. The quotient of two unrelated amounts has not."""
    scaled: Fraction = value * 10**_PLAIN_PLACES
    return scaled.denominator == 1


def _rate(kind: str, old: Fraction | None, new: Fraction, first_seen: str) -> Rate:
    known = None if old is None else as_decimal(old * _MILLION, _PLACES)
    return Rate(kind, known, as_decimal(new * _MILLION, _PLACES), first_seen)
