"""`--otlp`: sends each record that is new to the ledger as a span."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

from streamgauge.errors import MissingExtra, UsageFault
from streamgauge.ledger import LedgerRow
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.settings.declarations import Settings
from streamgauge.taps.proxy.request import route_of

# How long a command that stops goes on to send spans (seconds): enough for a receiver that answers.
_FINISH_S = 2.0

# Takes rows that are new to the ledger. Never waits, and raises nothing.
TakeRows = Callable[[Iterable[LedgerRow]], None]


def no_spans(rows: Iterable[LedgerRow]) -> None:
    """Without `--otlp`: takes rows and does nothing."""


@contextlib.contextmanager
def exported_spans(settings: Settings, metrics: Metrics) -> Iterator[TakeRows]:
    """Sends spans while the block runs, which gets a function that takes the ledger's new rows.

    Raises UsageFault, or MissingExtra.
    """
    if settings.otlp is None:
        if settings.otlp_header:
            raise UsageFault("--otlp-header requires --otlp URL: give the receiver, or leave out the header")
        yield no_spans
        return
    try:
        from streamgauge.spans.sender import RESULTS, SpanSender
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("streamgauge"):
            raise
        raise MissingExtra("--otlp", "otlp") from None
    for result in RESULTS:  # series of 0, so that the first loss is a growth
        metrics.add(table.SPANS.name, 0, result=result)
    sender = SpanSender(
        settings.otlp,
        {header.name: header.value for header in settings.otlp_header},
        lambda result, number: metrics.add(table.SPANS.name, number, result=result),
        _addresses(settings),
    )
    try:
        yield lambda rows: sender.put(row.record for row in rows)
    finally:
        sender.close(_FINISH_S)


def _addresses(settings: Settings) -> dict[str, tuple[str, int]]:
    """Host and port by the recorded name of each upstream. A worker knows none."""
    routes = [route_of(upstream.name, upstream.url) for upstream in settings.upstream]
    return {route.recorded_name: (route.host, route.port) for route in routes}
