"""What a finished stream adds to the metrics of money. Prices are another part's: it gives a `CostOf`."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from streamgauge.core.record import Record


class StreamCost(NamedTuple):
    """Amounts in USD. `input`, `output`: None for a side that was not reported; `undivided`: a cost that the provider
    reported, which it does not divide into sides.

    `cache_saved`: what reading input from a prompt cache saved; `cache_added`: what writing it there cost above the price
    of input. `unknown`: why the cost is not known (`ledger/cost.Unpriced`); None if it is. All amounts are None then.
    """

    input: float | None = None
    output: float | None = None
    cache_saved: float | None = None
    cache_added: float | None = None
    undivided: float | None = None
    unknown: str | None = None

    @property
    def total(self) -> float:
        """All amounts together (USD)."""
        return (self.input or 0.0) + (self.output or 0.0) + (self.undivided or 0.0)


# What a record adds, given the tokens that its stream and those that resume it reported without and with it (by the names
# of `core/token_kinds.REPORTED`); None if it reports neither tokens nor a cost.
CostOf = Callable[[Record, Mapping[str, int], Mapping[str, int]], StreamCost | None]
