"""The prices of a process, and what finished streams add to the metrics of money by them."""

from collections.abc import Mapping
from dataclasses import replace

from streamgauge.cli.settings_files import SettingsFiles
from streamgauge.core.record import Record
from streamgauge.core.resumption import is_resumed
from streamgauge.ledger import LedgerRow, unstored_row_of
from streamgauge.ledger.cost import COST_DIGITS, Unpriced
from streamgauge.ledger.row import kinds_of
from streamgauge.metrics.observe import CostOf, StreamCost
from streamgauge.prices import Prices
from streamgauge.runtime.faults import report_fault
from streamgauge.settings.declarations import Settings

_USD = 10.0**-COST_DIGITS


def prices_of(settings: Settings, files: SettingsFiles | None = None) -> Prices:
    """List prices and the operator's own, of `files`. Raises UsageFault for a file of prices that cannot be read."""
    own = (files or SettingsFiles(settings)).prices()
    return Prices(own, lambda error: report_fault("the prices", error))


def stream_costs(prices: Prices) -> CostOf:
    """The function that says what a record adds. See `CostOf`."""

    def added(record: Record, before: Mapping[str, int], after: Mapping[str, int]) -> StreamCost | None:
        row = unstored_row_of(record)
        has_tokens = "input" in after or "output" in after
        if row.reported_usd is not None:
            # What has reported output before has reported its cost with it.
            return StreamCost(undivided=0.0 if "output" in before else row.reported_usd * _USD)
        if not has_tokens:
            return None
        rates = prices.rates_of(row)
        if isinstance(rates, Unpriced):
            return StreamCost(unknown=rates.value)
        whole = row if not is_resumed(record) and not before else _with_tokens(row, after)
        cost = prices.cost_by(rates, whole)
        if isinstance(cost, Unpriced):
            return StreamCost(unknown=cost.value)
        amounts = [cost.input, cost.output, *rates.cache_effect_of(whole)]
        if before:
            earlier = _with_tokens(row, before)
            earlier_cost = prices.cost_by(rates, earlier)
            sides = (None, None) if isinstance(earlier_cost, Unpriced) else (earlier_cost.input, earlier_cost.output)
            counted = (*sides, *rates.cache_effect_of(earlier))
            amounts = [
                None if amount_now is None else max(amount_now - (amount_before or 0), 0)
                for amount_now, amount_before in zip(amounts, counted, strict=True)
            ]
        input_usd, output_usd, saved_usd, added_usd = (None if amount is None else amount * _USD for amount in amounts)
        return StreamCost(input_usd, output_usd, saved_usd, added_usd)

    return added


def _with_tokens(row: LedgerRow, reported: Mapping[str, int]) -> LedgerRow:
    return replace(row, input_tokens=reported.get("input"), output_tokens=reported.get("output"), **kinds_of(reported))
