"""The cost of a record: by the operator's own prices if one of them matches, else by the list.

A record may also bill parts apart from its tokens, or in place of them: the parts of its usage. A part with a price enters
the cost; any other is named in `Cost.lacks`. An input that is billed in place of the reported one (Cohere) is priced in its
place.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from streamgauge.core.modalities import NO_MODALITIES
from streamgauge.core.safe_values import whole_number
from streamgauge.ledger import Cost, LedgerRow
from streamgauge.ledger.cost import PROVIDER, Unpriced
from streamgauge.ledger.row import kinds_of
from streamgauge.prices.catalogue import Offer, rates_of
from streamgauge.prices.price_file import NO_PRICES, PriceFile
from streamgauge.prices.rates import Rates

Part = Mapping[str, object]

_BILLED_UNITS = "billed_units"
_SERVER_TOOL = "server_tool"
# Tools that cost nothing but tokens: platform.claude.com/docs/en/agents-and-tools/tool-use/web-fetch-tool, "Usage and
# pricing". Only Anthropic and OpenRouter count them, and OpenRouter reports the cost.
_FREE_TOOLS = frozenset({"web_fetch"})
# Members of a step's usage -> what `kinds_of` calls them. The input of a step does not include its cache.
_INPUT = {"input_tokens": "", "cache_read_input_tokens": "cached", "cache_creation_input_tokens": "cache_write"}


def billed(row: LedgerRow) -> LedgerRow:
    """The row with the tokens that are billed: Cohere bills units in place of the tokens that it reports."""
    units = next((part for part in row.parts if part.get("type") == _BILLED_UNITS), None)
    if units is None:
        return row
    input_tokens, output_tokens = whole_number(units.get("input_tokens")), whole_number(units.get("output_tokens"))
    if input_tokens is None and output_tokens is None:
        return row
    tokens = {"input": input_tokens or 0, "output": output_tokens or 0}
    return replace(
        row,
        input_tokens=tokens["input"],
        output_tokens=tokens["output"],
        input_cache_write_1h_tokens=None,
        modalities=NO_MODALITIES,
        **kinds_of(tokens),
    )


def with_parts(cost: Cost, row: LedgerRow, rates: Rates, rates_of: Callable[[LedgerRow], Rates | Unpriced]) -> Cost:
    """The cost of a record's tokens, with the cost of its parts. `rates`: of its model; `rates_of`: the rates of a row."""
    lacks = dict.fromkeys(cost.lacks)
    for part in row.parts:
        kind = part.get("type")
        if kind == _BILLED_UNITS:
            lacks |= dict.fromkeys(f"{_BILLED_UNITS}.{name}" for name in _other_units(part))
        elif kind == _SERVER_TOOL:
            searches = _searches(part)
            if part.get("name") in _FREE_TOOLS:
                continue
            if searches is None or rates.search is None:
                lacks[f"{_SERVER_TOOL}.{_name(part.get('name'))}"] = None
            else:
                cost = _plus(cost, rates.cost_of_searches(searches), 0)
        elif (step := _step(part, row, rates, rates_of)) is None:
            lacks[_name(kind)] = None
        else:
            cost = _plus(cost, step.input or 0, step.output or 0)
    return replace(cost, lacks=tuple(lacks)) if lacks else cost


def _plus(cost: Cost, input_cost: int, output_cost: int) -> Cost:
    """The cost with more on each side. A side that was not reported stays so unless something is added."""
    return replace(
        cost,
        input=cost.input if not input_cost else (cost.input or 0) + input_cost,
        output=cost.output if not output_cost else (cost.output or 0) + output_cost,
    )


def _other_units(part: Part) -> list[str]:
    return [
        name
        for name, count in part.items()
        if name not in ("type", "input_tokens", "output_tokens") and whole_number(count)
    ]


def _searches(part: Part) -> int | None:
    """The number of web searches; None if the part counts something else, or something besides."""
    counts = {name for name in part if name not in ("type", "name")}
    return whole_number(part.get("requests")) if part.get("name") == "web_search" and counts == {"requests"} else None


def _step(part: Part, row: LedgerRow, rates: Rates, rates_of: Callable[[LedgerRow], Rates | Unpriced]) -> Cost | None:
    """The cost of a step with tokens of its own, by its own model if it names one; None if it is not known."""
    tokens = {member: whole_number(part.get(member)) for member in (*_INPUT, "output_tokens")}
    if tokens["input_tokens"] is None or tokens["output_tokens"] is None:
        return None
    reported = {name: tokens[member] or 0 for member, name in _INPUT.items() if name and tokens[member] is not None}
    reported |= {"input": sum([tokens[member] or 0 for member in _INPUT]), "output": tokens["output_tokens"]}
    written = part.get("cache_creation")
    step = replace(
        row,
        input_tokens=reported["input"],
        output_tokens=reported["output"],
        input_cache_write_1h_tokens=(
            whole_number(written.get("ephemeral_1h_input_tokens")) if isinstance(written, Mapping) else None
        ),
        modalities=NO_MODALITIES,
        **kinds_of(reported),
    )
    model = part.get("model")
    if isinstance(model, str) and model != row.model:
        other = rates_of(replace(step, model=model, request_model=model))
        if isinstance(other, Unpriced):
            return None
        rates = other
    known = replace(rates, request=0).cost_of(step)
    return known if isinstance(known, Cost) else None


def _name(value: object) -> str:
    return value if isinstance(value, str) else "unknown"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_US = 60_000_000
# The answer for a kind that is not known yet.
_NOT_KNOWN = Rates("", None)
# Kinds of records whose rates are kept: clients choose models' names, so this is bounded.
_KEPT = 4_096


class Prices:
    """Computes the cost of records. `own`: the operator's prices; `report`: takes an error of the list, once."""

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
        """The cost of the tokens and parts of a record, by the rates of its model."""
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
        rates = self._known.get(kind, _NOT_KNOWN)  # one look: another thread may clear it
        if rates is not _NOT_KNOWN:
            return rates
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[kind] = rates = self._looked_up(offer, row, minute)
        return rates

    def _looked_up(self, offer: Offer, row: LedgerRow, minute: int | None) -> Rates | Unpriced:
        started = None if minute is None else _EPOCH + timedelta(minutes=minute)
        own = None if started is None else self._own.rates_of(offer, started)
        if own is not None:
            return own
        if self._own.has_no_price(row.upstream):
            return Unpriced.NO_SELLER
        listed = rates_of(offer, started)
        if isinstance(listed, Unpriced) or started is None:
            return listed
        return self._own.discounted(listed, offer, started)
