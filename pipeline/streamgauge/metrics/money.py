"""What a finished stream adds to the metrics of money. Prices are another part's: it gives a `CostOf`."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from streamgauge.core.record import Record


class StreamCost(NamedTuple):
    """Amounts in USD. `input`, `output`: None for a side that was not reported.

    `cache_saved`: what reading input from a prompt cache saved; `cache_added`: what writing it there cost above the price
    of input.
    """

    input: float | None
    output: float | None
    cache_saved: float | None
    cache_added: float | None

    @property
    def total(self) -> float:
        """Both sides together (USD)."""
        return (self.input or 0.0) + (self.output or 0.0)


# Of an upstream that has no prices: its streams cost nothing, and are not counted as streams whose price is missing.
NO_PRICE = StreamCost(None, None, None, None)

# What a record adds, given the tokens that its stream and those that resume it reported without and with it (by the names
# of `core/token_kinds.REPORTED`); None if no price is known.
CostOf = Callable[[Record, Mapping[str, int], Mapping[str, int]], StreamCost | None]
