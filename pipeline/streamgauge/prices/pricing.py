"""What a record costs: by the operator's own prices if one of them matches, else by the list."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from streamgauge.ledger import Cost, LedgerRow
from streamgauge.ledger.cost import PROVIDER, Unpriced
from streamgauge.prices.apart import billed, with_parts
from streamgauge.prices.catalogue import Offer, rates_of
from streamgauge.prices.price_file import NO_PRICES, PriceFile
from streamgauge.prices.rates import Rates

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_US = 60_000_000
# The answer for a kind that is not known yet.
_NOT_KNOWN = Rates("", None)
# Kinds of records whose rates are kept: clients choose models' names, so this is bounded.
_KEPT = 4_096


class Prices:
    """Says what records cost. `own`: the operator's prices; `report`: takes an error of the list, once."""

    def __init__(self, own: PriceFile = NO_PRICES, report: Callable[[Exception], None] = lambda _: None) -> None:
        self._own = own
        self._report = report
        self._failed = False
        self._known: dict[tuple[Offer, int | None], Rates | Unpriced] = {}

    def cost_of(self, row: LedgerRow) -> Cost | Unpriced:
        """See Pricing.cost_of: what the provider reported comes first, but for the fee beside a key of the caller's own."""
        by_prices = self._by_prices(row)
        reported = row.reported_usd
        if reported is None:
            return by_prices
        listed = by_prices.total if isinstance(by_prices, Cost) else None
        return Cost(reported, None, PROVIDER, None, listed)

    def _by_prices(self, row: LedgerRow) -> Cost | Unpriced:
        if row.input_tokens is None and row.output_tokens is None:
            return Unpriced.NO_USAGE
        rates = self.rates_of(row)
        return rates if isinstance(rates, Unpriced) else self.cost_by(rates, row)

    def cost_by(self, rates: Rates, row: LedgerRow) -> Cost | Unpriced:
        """What the tokens and parts of a record cost by the rates of its model."""
        cost = rates.cost_of(billed(row) if row.parts else row)
        return with_parts(cost, row, rates, self.rates_of) if row.parts and isinstance(cost, Cost) else cost

    def rates_of(self, row: LedgerRow) -> Rates | Unpriced:
        """The prices of the model that answered, at the start of the record, or why none are known. Raises nothing."""
        try:
            return self._rates_of(row)
        except Exception as error:  # noqa: BLE001 - a fault in the list must not keep records from being stored
            if not self._failed:
                self._report(error)
            self._failed = True
            return Unpriced.NO_LIST

    def _rates_of(self, row: LedgerRow) -> Rates | Unpriced:
        """The rates, looked up once for all records of the same kind and minute: prices change at whole minutes at most."""
        minute = None if row.started_us is None else row.started_us // _MINUTE_US
        offer = Offer(
            row.upstream,
            row.upstream_host,
            self._own.provider_of(row.upstream),
            row.model,
            row.service_tier,
            row.inference_geo,
            row.speed,
            row.request_model,
            # An application that serves by itself has no host, and is no seller whatever its name is.
            is_named=row.upstream_host is None and row.tap != "asgi",
        )
        kind = (offer, minute)
        found = self._known.get(kind, _NOT_KNOWN)  # one look: another thread may clear it
        if found is not _NOT_KNOWN:
            return found
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[kind] = found = self._looked_up(offer, row, minute)
        return found

    def _looked_up(self, offer: Offer, row: LedgerRow, minute: int | None) -> Rates | Unpriced:
        own = None if row.day is None else self._own.rates_of(offer, row.day)
        if own is not None:
            return own
        if self._own.has_no_price(row.upstream):
            return Unpriced.NO_SELLER
        return rates_of(offer, None if minute is None else _EPOCH + timedelta(minutes=minute))
