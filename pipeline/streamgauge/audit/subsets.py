"""Finds the streams whose tokens add up to a difference, exactly. Pure.

An answer is given only if chance is an unlikely explanation: the ways to choose so many of the streams have to be few
against the values that a sum may take (CHANCE). Otherwise some choice would fit almost any difference.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb, prod

from streamgauge.audit.amounts import ZERO, Tokens, minus, plus

# A sum may take so many times more values than there are ways to choose: one difference in so many is then met by chance.
CHANCE = 100
# Streams among which three or four are searched: their pairs are held in memory.
MAX_FOR_FOUR = 300
# Streams among which any number is searched.
MAX_FOR_ANY = 18
# Streams whose every choice is tried where some came and others went.
MAX_SIGNED = 12
# Streams and pairs of streams that an audit looks at: some twenty seconds.
MAX_EFFORT = 15_000_000


class Search:
    """Searches for streams, with a limit of effort for all searches of an audit: it ends in time whatever the invoice says.

    effort: streams and pairs of streams that may be looked at. When it is used up, only searches in linear time are done.
    """

    def __init__(self, effort: int = MAX_EFFORT) -> None:
        self._effort = effort

    @property
    def is_spent(self) -> bool:
        """Whether the effort is used up."""
        return self._effort <= 0

    def subset(self, streams: Sequence[Tokens], target: Tokens, tried: int = 1, count: int = 0) -> list[int] | None:
        """The indexes of the streams that add up to `target`, which has no negative count; None if no choice does.

        All of them, else one, two, a run without a break, up to four, or any: the first that fits, the earliest of its
        size. `tried`: how many targets were tried for one difference, this one included; each needs more evidence.
        `count`: how many streams are looked for, if that is known: one or two need no other evidence then.
        """
        if target == ZERO or min(target) < 0:
            return None
        self._effort -= len(streams)
        indexes = [
            index for index, stream in enumerate(streams) if stream != ZERO and all(map(int.__le__, stream, target))
        ]
        values = [streams[index] for index in indexes]
        chosen = _all(values, target) or _few(values, target, tried, count) or _run(values, target, tried)
        if chosen is None and len(values) <= MAX_FOR_FOUR and not self.is_spent:
            self._effort -= len(values) ** 2
            chosen = _more(values, target, tried)
        return None if chosen is None else [indexes[index] for index in sorted(chosen)]


def is_decidable(ways: int, target: Tokens) -> bool:
    """Whether chance is an unlikely explanation of a difference that one of so many ways predicts."""
    return ways * CHANCE <= prod(abs(count) + 1 for count in target)


def _all(values: list[Tokens], target: Tokens) -> list[int] | None:
    total = ZERO
    for value in values:
        total = plus(total, value)
    return list(range(len(values))) if total == target else None


def _few(values: list[Tokens], target: Tokens, tried: int, count: int) -> list[int] | None:
    """One or two streams that add up to the target."""
    may_be_one = count == 1 or is_decidable(tried * len(values), target)
    may_be_two = count == 2 or is_decidable(tried * comb(len(values), 2), target)
    first: dict[Tokens, int] = {}
    pair: list[int] | None = None
    for index, value in enumerate(values):
        if may_be_one and value == target:
            return [index]
        other = first.get(minus(target, value))
        if pair is None and other is not None:
            pair = [other, index]
        first.setdefault(value, index)
    return pair if may_be_two else None


def _run(values: list[Tokens], target: Tokens, tried: int) -> list[int] | None:
    """Streams that follow each other without a break, as those of an outage."""
    if not is_decidable(tried * len(values) ** 2, target):
        return None
    before: dict[Tokens, int] = {ZERO: 0}
    total = ZERO
    for index, value in enumerate(values):
        total = plus(total, value)
        start = before.get(minus(total, target))
        if start is not None:
            return list(range(start, index + 1))
        before.setdefault(total, index + 1)
    return None


def _more(values: list[Tokens], target: Tokens, tried: int) -> list[int] | None:
    count = len(values)
    if is_decidable(tried * comb(count, 3), target):
        pairs: dict[Tokens, list[tuple[int, int]]] = {}
        for first, second in combinations(range(count), 2):
            pairs.setdefault(plus(values[first], values[second]), []).append((first, second))
        for index, value in enumerate(values):
            for pair in pairs.get(minus(target, value), ()):
                if index not in pair:
                    return [index, *pair]
        if is_decidable(tried * comb(count, 4), target):
            for total, left_pairs in pairs.items():
                for pair in pairs.get(minus(target, total), ()):
                    if left_pairs[0] != pair and not set(left_pairs[0]) & set(pair):
                        return [*left_pairs[0], *pair]
    if count <= MAX_FOR_ANY and is_decidable(tried * 2**count, target):
        return _any(values, target)
    return None


def _any(values: list[Tokens], target: Tokens) -> list[int] | None:
    half = len(values) // 2
    first = _sums(values[:half])
    for total, chosen in _sums(values[half:]).items():
        other = first.get(minus(target, total))
        if other is not None:
            return [*other, *(half + index for index in chosen)]
    return None


def _sums(values: Sequence[Tokens]) -> dict[Tokens, tuple[int, ...]]:
    """Every sum of some of the values, with the indexes of the first choice that makes it."""
    sums: dict[Tokens, tuple[int, ...]] = {ZERO: ()}
    for index, value in enumerate(values):
        for total, chosen in list(sums.items()):
            sums.setdefault(plus(total, value), (*chosen, index))
    return sums


def signed_subsets(
    added: Sequence[Tokens], removed: Sequence[Tokens], target: Tokens, tried: int = 1
) -> tuple[list[int], list[int]] | None:
    """Streams of `added` and of `removed` whose difference is `target`; None if none fits. `tried`: as above."""
    if len(added) + len(removed) > MAX_SIGNED or target == ZERO:
        return None
    largest = Tokens(*(sum(tokens[kind] for tokens in (*added, *removed)) for kind in range(4)))
    if not is_decidable(tried * 2 ** (len(added) + len(removed)), largest):
        return None
    outs = _sums(removed)
    for total, chosen in sorted(_sums(added).items(), key=lambda item: (len(item[1]), item[1])):
        out = outs.get(minus(total, target))
        if out is not None:
            return list(chosen), list(out)
    return None
