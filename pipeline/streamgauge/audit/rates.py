"""The prices that the ledger used, from the costs of streams: exact, or not at all. Pure."""

from collections.abc import Iterable
from fractions import Fraction

from streamgauge.audit.amounts import KINDS, Tokens
from streamgauge.audit.ours import OurStream

# Streams that are read for one price list: five would do, the others confirm them.
MAX_STREAMS = 200

Rates = tuple[Fraction | None, Fraction | None, Fraction | None, Fraction | None]


def rates_of(streams: Iterable[OurStream]) -> Rates | None:
    """Dollars for a token of each kind, such that every stream costs what it costs; None if there are no such prices.

    A kind has None if the streams do not determine its price. Prices that depend on more than the kind (long contexts, two
    lives of a cache) make the equations disagree, and then none is known.
    """
    rows: list[list[Fraction]] = []  # in row echelon form, each with its cost last
    for count, stream in enumerate(streams):
        if stream.usd is None or count >= MAX_STREAMS:
            break
        row = [Fraction(one) for one in stream.priced] + [Fraction(stream.usd)]
        for known in rows:
            lead = _lead(known)
            if row[lead]:
                factor = row[lead] / known[lead]
                row = [one - factor * other for one, other in zip(row, known, strict=True)]
        if any(row[:-1]):
            rows.append(row)
            rows.sort(key=_lead)
        elif row[-1]:
            return None
    return _solved(rows)


def _lead(row: list[Fraction]) -> int:
    return next(place for place, one in enumerate(row) if one)


def _solved(rows: list[list[Fraction]]) -> Rates:
    found: list[Fraction | None] = [None] * 4
    for row in reversed(rows):
        lead = _lead(row)
        others = [place for place in range(lead + 1, 4) if row[place]]
        if all(found[place] is not None for place in others):
            paid = row[-1] - sum((row[place] * (found[place] or 0) for place in others), Fraction(0))
            found[lead] = paid / row[lead]
    return found[0], found[1], found[2], found[3]


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
