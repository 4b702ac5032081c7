"""What cells show of a provider: whether it bills streams that ended without usage, whether it counts them as requests, and
which ways to count do not hold. Pure.

A provider has habits, so what other cells show decides what one cell cannot (decision 53). Cells of the model come first;
those of the provider's other models count where the model shows nothing else.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb, prod
from typing import NamedTuple

from streamgauge.audit.amounts import ZERO, Tokens
from streamgauge.audit.causes import Hypothesis, attempts_of, holds_on, ways_of, without_usage
from streamgauge.audit.cells import Cell
from streamgauge.audit.ours import GroupKey, OurStream
from streamgauge.audit.subsets import CHANCE
from streamgauge.audit.theirs import BATCH

# So many streams that are not billed in other cells show that such streams are not billed.
ENOUGH = 5
# Streams with usage whose sizes show how much input a request of some size has.
ENOUGH_SIZES = 20
# Streams without usage of a cell, of which every choice is tried.
MAX_CHOSEN = 8

# Kinds of streams of which it is not known what is billed: those of `unknown_streams`, and ways to count as causes have them.
ABSENT, PARTIAL, UNREPORTED, ATTEMPT = "absent", "partial", "unreported", "attempt"


def unknown_streams(cell: Cell) -> dict[str, list[OurStream]]:
    """The streams of a cell of which it is not known what is billed, by kind."""
    quiet = without_usage(cell)
    return {
        ABSENT: [stream for stream in quiet if not stream.is_completed],
        PARTIAL: [
            stream
            for stream in cell.streams
            if stream.has_usage and not stream.is_final and not stream.is_completed and not stream.is_refused
        ],
        UNREPORTED: [stream for stream in quiet if stream.is_completed],
        ATTEMPT: [attempt for attempt, _ in attempts_of(cell) if not attempt.is_refused],
    }


def is_part(tokens: Tokens, rest: Tokens) -> bool:
    """Whether tokens may be a part of a rest: of the same sign in each kind, and not more."""
    return all(0 <= one <= left or left <= one <= 0 for one, left in zip(tokens, rest, strict=True))


class Sizes(NamedTuple):
    """How much input a request has by the size of its body: a straight line through the streams with usage of a model.

    spread: how far the farthest of these streams is off the line (tokens). inputs: their tokens of input, in order.
    """

    constant: Fraction
    per_byte: Fraction
    spread: Fraction
    inputs: Sequence[int]

    def span(self, sizes: Sequence[int]) -> tuple[Fraction, Fraction]:
        """The least and the most input of requests of these sizes (bytes), if they are like those with usage."""
        middle, reach = len(sizes) * self.constant + self.per_byte * sum(sizes), len(sizes) * self.spread
        return middle - reach, middle + reach

    def alike(self, count: int) -> Fraction:
        """How likely two requests have equal input, as exactly as `count` sizes tell it: the share of all pairs of streams.

        So likely, at most, unseen requests have the input of aborted ones, however many they are: sums of independent numbers
        are equal no more often than two of the numbers.
        """
        width, first, pairs = 2 * count * self.spread, 0, 0
        for place, number in enumerate(self.inputs):
            while number - self.inputs[first] > width:
                first += 1
            pairs += place - first
        return Fraction(pairs + 1, comb(len(self.inputs), 2) + 1)


def sizes_of(cells: Iterable[Cell]) -> Sizes | None:
    """How input follows from size in the cells of a model, by least squares; None if too few streams show it."""
    seen = [
        (stream.body_bytes, stream.tokens.input)
        for cell in cells
        for stream in cell.streams
        if stream.is_final and stream.body_bytes is not None
    ]
    count, total, tokens = len(seen), sum(size for size, _ in seen), sum(number for _, number in seen)
    scale = count * sum(size * size for size, _ in seen) - total * total
    if count < ENOUGH_SIZES or not scale:
        return None
    slope = count * sum(size * number for size, number in seen) - total * tokens
    start = tokens * scale - slope * total
    # Whole numbers, count * scale times as large: fractions of many streams take long.
    farthest = max(abs(count * (scale * number - slope * size) - start) for size, number in seen)
    inputs = sorted(number for _, number in seen)
    return Sizes(Fraction(start, count * scale), Fraction(slope, scale), Fraction(farthest, count * scale), inputs)


class Surplus(NamedTuple):
    """What is left of a cell with streams that ended without usage.

    is_unseen: requests that no tap saw are certain to be a part of it. chance: how likely unseen requests have as many tokens
    of input as these streams by their sizes; None if it is not what all of them have.
    """

    group: GroupKey
    is_unseen: bool
    chance: Fraction | None


class ModelHabits:
    """What the cells of a model show, after all that is predicted exactly was explained."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.unbilled: dict[object, Counter[str]] = {}
        self.held: Counter[object] = Counter()
        self.is_counted: set[bool] = set()
        self.surplus: dict[GroupKey, Surplus] = {}
        self.has_unseen = False
        sizes = (
            sizes_of(cells) if any(cell.is_read and min(cell.rest) >= 0 and cell.rest.input for cell in cells) else None
        )
        for cell in cells:
            if cell.billed_day and cell.ours.streams and min(cell.rest) >= 0 and not cell.undecided:
                self._learn_ways(cell)
                if cell.rest == ZERO and cell.is_read and _is_plain(cell):
                    self._learn_unbilled(cell)
            if cell.is_read and min(cell.rest) >= 0 and cell.rest.input:
                self._learn_surplus(cell, sizes)

    def _learn_ways(self, cell: Cell) -> None:
        """Learn the ways to count that do not hold: what they add is not even a part of what is left; and those that may."""
        known = {explanation.cause for explanation in cell.explanations}
        for part in ways_of(cell):
            if part.cause in known or is_part(part.tokens, cell.rest):
                self.held[part.cause, part.way] += 1
            else:
                self._add((part.cause, part.way), cell, ENOUGH)

    def _learn_unbilled(self, cell: Cell) -> None:
        unknown = unknown_streams(cell)
        for kind, streams in unknown.items():
            self._add(kind, cell, len(streams))
        if unknown[ABSENT] and not unknown[UNREPORTED] and cell.requests_rest is not None:
            self.is_counted.add(cell.requests_rest >= len(unknown[ABSENT]))

    def _learn_surplus(self, cell: Cell, sizes: Sizes | None) -> None:
        unknown = unknown_streams(cell)
        if unknown[ABSENT]:
            self.surplus[cell.group] = surplus = _surplus_of(cell, sizes)
            self.has_unseen |= surplus.is_unseen
        elif not unknown[UNREPORTED] and not unknown[ATTEMPT]:
            self.has_unseen = True

    def _add(self, what: object, cell: Cell, count: int) -> None:
        self.unbilled.setdefault(what, Counter())[cell.group.day] += count


class ProviderHabits:
    """What the cells of all models of a provider show of streams that ended without usage."""

    def __init__(self, models: Iterable[ModelHabits]) -> None:
        found = list(models)
        self.unbilled: Counter[str] = Counter()
        for model in found:
            self.unbilled += model.unbilled.get(ABSENT, Counter())
        self.has_unseen = any(model.has_unseen for model in found)
        self.is_sized = _is_sized([one for model in found for one in model.surplus.values()])
        self.is_counted = {is_counted for model in found for is_counted in model.is_counted}


class Habits:
    """What decides a cell of a model: what its other cells show, and those of the provider's other models.

    A habit may begin or end with a day, so the day itself has to show it, or days before and after it.
    """

    def __init__(self, of_model: ModelHabits, of_provider: ProviderHabits) -> None:
        self._model = of_model
        self._provider = of_provider

    def exclude(self, what: object, cell: Cell) -> bool:
        """Whether streams of a kind, or tokens that a way to count adds, are not billed on the day of a cell."""
        days = +self._model.unbilled.get(what, Counter())
        if days.total() >= ENOUGH and holds_on(days, cell.group.day):
            return True
        return what == ABSENT and self._exclude_absent(cell)

    def _exclude_absent(self, cell: Cell) -> bool:
        """Whether the other models show that streams without usage are not billed, where unseen requests are certain to be.

        In no cell of this model are they not: such a surplus could be of streams that are billed for this model alone.
        """
        days = +self._provider.unbilled
        return (
            days.total() >= ENOUGH
            and holds_on(days, cell.group.day)
            and cell.group in self._model.surplus
            and all(one.is_unseen for one in self._model.surplus.values())
        )

    def bill_absent(self, cell: Cell) -> bool:
        """Whether a surplus is that of all streams without usage: their sizes predict it, there and in the other cells.

        Not where a cell of the provider shows requests that no tap saw: a client that left may have sent its request again
        past the taps, and both have one size.
        """
        own = self._model.surplus.get(cell.group)
        if own is None or own.chance is None or self._provider.has_unseen:
            return False
        is_habit = self._provider.is_sized and not self._provider.unbilled
        return is_habit or _is_sized(self._model.surplus.values())

    def may_hold(self, part: Hypothesis) -> bool:
        """Whether a hypothesis may be a part of a rest. A way to count concerns a model: one cell alone does not show it."""
        return part.change is None or self._model.held[part.cause, part.way] > 1

    @property
    def counts_aborted(self) -> bool:
        """Whether streams that are not billed are counted as requests."""
        return (self._model.is_counted or self._provider.is_counted) == {True}


def _surplus_of(cell: Cell, sizes: Sizes | None) -> Surplus:
    absent, rest = unknown_streams(cell)[ABSENT], cell.rest.input
    silent = sum(not stream.has_usage and not stream.is_refused for stream in cell.streams)
    is_unseen = cell.requests_rest is not None and cell.requests_rest > silent
    own = [stream.body_bytes for stream in absent if stream.body_bytes is not None]
    if sizes is None or len(own) != silent or silent > MAX_CHOSEN:  # what other streams have is not known
        return Surplus(cell.group, is_unseen, None)
    spans = (sizes.span(some) for number in range(1, silent + 1) for some in combinations(own, number))
    if not any(least <= rest <= most for least, most in spans):
        return Surplus(cell.group, True, None)
    least, most = sizes.span(own)
    if not least <= rest <= most:
        return Surplus(cell.group, is_unseen, None)
    return Surplus(cell.group, is_unseen, min(Fraction(1), max((most - least + 1) / rest, sizes.alike(silent))))


def _is_sized(surplus: Collection[Surplus]) -> bool:
    """Whether it is no chance that so many of these cells have as much as their streams without usage have by size."""
    chances = [one.chance for one in surplus if one.chance is not None]
    return bool(chances) and CHANCE * comb(len(surplus), len(chances)) * prod(chances) <= 1


def _is_plain(cell: Cell) -> bool:
    """Whether a cell agrees but for the Batch API. Where streams are billed elsewhere or nowhere, aborted ones are, too."""
    return all(explanation.tokens == ZERO or explanation.cause == BATCH for explanation in cell.explanations)
