"""What a record costs: by the operator's own prices if one of them matches, else by the list."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from streamgauge.ledger import Cost, LedgerRow
from streamgauge.prices.catalogue import Offer, rates_of
from streamgauge.prices.price_file import NO_PRICES, PriceFile
from streamgauge.prices.rates import Rates

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_US = 60_000_000
# The answer for a kind that is not known yet: None is the answer for one without rates.
_NOT_KNOWN = Rates("", None)
# Kinds of records whose rates are kept: clients choose models' names, so this is bounded.
_KEPT = 4_096


class Prices:
    """Says what records cost. `own`: the operator's prices; `report`: takes an error of the list, once."""

    def __init__(self, own: PriceFile = NO_PRICES, report: Callable[[Exception], None] = lambda _: None) -> None:
        self._own = own
        self._report = report
        self._failed = False
        self._known: dict[tuple[str | int | None, ...], Rates | None] = {}

    def cost_of(self, row: LedgerRow) -> Cost | None:
        """See Pricing.cost_of. A record without a model or a start has no price."""
        if row.input_tokens is None and row.output_tokens is None:
            return None
        rates = self.rates_of(row)
        return None if rates is None else rates.cost_of(row)

    def has_no_price(self, upstream: str | None) -> bool:
        """Whether the operator says that this upstream has no prices: it is not one whose prices are missing."""
        return self._own.has_no_price(upstream)

    def rates_of(self, row: LedgerRow) -> Rates | None:
        """The prices of the model that answered, on the day of the record; None if none are known. Raises nothing."""
        if row.model is None or row.started_us is None:
            return None
        try:
            return self._rates_of(row, row.model, row.started_us)
        except Exception as error:  # noqa: BLE001 - a fault in the list must not keep records from being stored
            if not self._failed:
                self._report(error)
            self._failed = True
            return None

    def _rates_of(self, row: LedgerRow, model: str, started_us: int) -> Rates | None:
        """The rates, looked up once for all records of the same kind and minute: prices change at whole minutes at most."""
        minute = started_us // _MINUTE_US
        kind = (row.upstream, row.dialect, model, row.service_tier, row.inference_geo, row.speed, minute)
        found = self._known.get(kind, _NOT_KNOWN)  # one look: another thread may clear it
        if found is not _NOT_KNOWN:
            return found
        if len(self._known) >= _KEPT:
            self._known.clear()
        provider = self._own.provider_of(row.upstream)
        offer = Offer(row.upstream, provider, row.dialect, model, row.service_tier, row.inference_geo, row.speed)
        found = self._own.rates_of(offer, row.day or "")
        if found is None and not self._own.has_no_price(row.upstream):
            found = rates_of(offer, _EPOCH + timedelta(minutes=minute))
        self._known[kind] = found
        return found
