"""What a record costs: by the operator's own prices if one of them matches, else by the list."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from streamgauge.ledger import Cost, LedgerRow
from streamgauge.prices.catalogue import Offer, rates_of
from streamgauge.prices.price_file import NO_PRICES, PriceFile
from streamgauge.prices.rates import Rates

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_US = 60_000_000


class Prices:
    """Says what records cost. `own`: the operator's prices; `report`: takes an error of the list, once."""

    def __init__(self, own: PriceFile = NO_PRICES, report: Callable[[Exception], None] = lambda _: None) -> None:
        self._own = own
        self._report = report
        self._failed = False

    def cost_of(self, row: LedgerRow) -> Cost | None:
        """See Pricing.cost_of. A record without a model or a start has no price."""
        if row.model is None or row.started_us is None or (row.input_tokens is None and row.output_tokens is None):
            return None
        try:
            rates = self._rates_of(row, row.model, row.started_us)
        except Exception as error:  # noqa: BLE001 - a fault in the list must not keep records from being stored
            if not self._failed:
                self._report(error)
            self._failed = True
            return None
        return None if rates is None else rates.cost_of(row)

    def _rates_of(self, row: LedgerRow, model: str, started_us: int) -> Rates | None:
        offer = Offer(
            row.upstream, self._own.provider_of(row.upstream), row.dialect, model, row.service_tier, row.inference_geo
        )
        own = self._own.rates_of(offer, row.day or "")
        if own is not None:
            return own
        if self._own.has_no_price(row.upstream):
            return None
        return rates_of(offer, _EPOCH + timedelta(minutes=started_us // _MINUTE_US))
