"""Finds the exchange to which an entry of the access log belongs, and ends the exchanges whose entry does not come. Pure.

An entry belongs to the exchange with its x-request-id and its start. Clients can repeat an id, but two requests with one id
do not start within the same microsecond. Where Envoy does not send the start (`request.time`), the id decides alone, if only
one open exchange has it. An entry that may belong to several exchanges belongs to none.
"""

from collections import OrderedDict
from collections.abc import Callable

from streamgauge.taps.envoy.exchange import EnvoyExchange, Unknown
from streamgauge.taps.envoy.messages import LogEntry

# How long an exchange waits for its entry, or with an entry for the end of Envoy's report (ns). By default, Envoy sends
# entries once a second (`buffer_flush_interval`), and ends its report 5 s after the exchange (`deferred_close_timeout`).
WAIT_NS = 10_000_000_000
# Entries without an exchange that are kept: they came before their request's head, or their request is not captured.
MAX_EARLY = 4_096

_Key = tuple[str, int | None]
Ended = Callable[[EnvoyExchange, Unknown | None], None]


class Joining:
    """The exchanges that are open. Times are the monotonic clock's (ns). It reads no clock: `tick` ends what is late."""

    def __init__(self, ended: Ended) -> None:
        """`ended`: called when the end of an exchange has been reported, with the reason if the log does not tell it."""
        self._ended = ended
        self._open: set[EnvoyExchange] = set()
        self._by_key: dict[_Key, list[EnvoyExchange]] = {}
        self._late_ns: OrderedDict[EnvoyExchange, int] = OrderedDict()  # when each is late; the earliest first
        self._early: OrderedDict[_Key, LogEntry] = OrderedDict()

    @property
    def open(self) -> int:
        """The number of open exchanges."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """The number of exchanges that are late after some time."""
        return len(self._late_ns)

    def begin(self, exchange: EnvoyExchange, now_ns: int) -> None:
        """Adds an exchange whose request's head has been read."""
        self._open.add(exchange)
        if not exchange.request_id:
            return
        key = _key_of(exchange)
        self._by_key.setdefault(key, []).append(exchange)
        if exchange.started_ns is not None and (entry := self._early.pop(key, None)) is not None:
            self.log(entry, now_ns)

    def update(self, exchange: EnvoyExchange, now_ns: int) -> None:
        """Ends the exchange if it is done or has no record. If Envoy's report of it has ended, it is late after WAIT_NS."""
        if exchange not in self._open:
            return
        if exchange.done or not exchange.captured:
            self._end(exchange, None)
        elif exchange.reported_ns is not None and exchange.ambiguous:
            self._end(exchange, Unknown.AMBIGUOUS)
        elif exchange.reported_ns is not None and not exchange.request_id:
            self._end(exchange, Unknown.NO_ID)
        elif exchange.reported_ns is not None or exchange.entry is not None:
            self._late_ns.setdefault(exchange, now_ns + WAIT_NS)

    def log(self, entry: LogEntry, now_ns: int) -> bool:
        """Takes an entry. Returns whether an exchange here has it, or several may have it."""
        if not entry.request_id:
            return True  # no exchange can have it
        key = entry.request_id, entry.started_ns
        found = [*(self._by_key.get(key) or self._by_key.get((entry.request_id, None)) or ())]
        if not found:
            self._early[key] = entry
            if len(self._early) > MAX_EARLY:
                self._early.popitem(last=False)
            return False
        if len(found) == 1 and not found[0].ambiguous and found[0].entry is None:
            found[0].entry = entry
        else:
            for exchange in found:
                exchange.entry, exchange.ambiguous = None, True
        for exchange in found:
            self.update(exchange, now_ns)
        return True

    def tick(self, now_ns: int) -> None:
        """Ends the exchanges that are late."""
        while self._late_ns:
            exchange, late_ns = next(iter(self._late_ns.items()))
            if late_ns > now_ns:
                return
            self._end(exchange, Unknown.MISSING if exchange.entry is None else None)

    def cut(self) -> None:
        """Ends all exchanges, since the tap stops."""
        for exchange in list(self._open):
            self._end(exchange, Unknown.STOPPED if exchange.entry is None else None)

    def _end(self, exchange: EnvoyExchange, unknown: Unknown | None) -> None:
        self._open.discard(exchange)
        self._late_ns.pop(exchange, None)
        key = _key_of(exchange)
        if (same := self._by_key.get(key)) is not None and exchange in same:
            same.remove(exchange)
            if not same:
                del self._by_key[key]
        exchange.finish(unknown)
        self._ended(exchange, unknown)


def _key_of(exchange: EnvoyExchange) -> _Key:
    return exchange.request_id, exchange.started_ns
