"""All connections of a capture, within limits: passes each segment to its connection. An error ends one connection only."""

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from streamgauge.recorder.budget import Budget
from streamgauge.runtime.faults import report_fault
from streamgauge.taps.packets.connection import Connection, begins_request
from streamgauge.taps.packets.decode import ACK, SYN, Segment, address_of, port_of
from streamgauge.taps.packets.exchange import Reporting

# Limit of followed connections: at about 3 KiB each they take 50 MiB. Servers rarely have more open. Beyond it, those
# without a captured exchange that have been quiet for longest are dropped.
MAX_CONNECTIONS = 16_384
# How many connections are checked to find one without a captured exchange.
_CHECKED = 64
# Limit of bytes that wait after holes, over all connections: eight connections that lost a packet in the largest window.
MAX_WAITING_BYTES = 64 * 1024 * 1024
# A connection without an open exchange is removed after this time (ns); its next request adds it again.
FORGET_NS = 300 * 1_000_000_000


class CaptureScope(msgspec.Struct, frozen=True):
    """Which connections are followed. `ports`: the servers' ports, each with the name of its upstream; None: every HTTP/1
    server. `idle_ns`: a silent exchange ends after this time.

    An upstream without a name is named by the server's address and port. Metrics limit the number of names: see the budget
    of the label `upstream` in metrics/declarations.py.
    """

    ports: Mapping[int, str | None] | None
    idle_ns: int = 900 * 1_000_000_000


class Connections:
    """All followed connections. `faults`: connections that an internal error ended; the caller resets it."""

    def __init__(self, scope: CaptureScope, reporting: Reporting) -> None:
        self.faults = 0
        self._scope, self._reporting = scope, reporting
        self._budget = Budget(MAX_WAITING_BYTES)
        self._table: OrderedDict[tuple[bytes, bytes], Connection] = OrderedDict()  # (client, server), by last use

    def __len__(self) -> int:
        return len(self._table)

    @property
    def open(self) -> int:
        """Connections with a captured exchange that has not ended."""
        return sum(connection.open for connection in self._table.values())

    def take(self, segment: Segment) -> None:
        """Passes a segment to its connection, which it may begin. Never raises."""
        key, from_client = (segment.source, segment.target), True
        connection = self._table.get(key)
        if connection is None:
            key, from_client = (segment.target, segment.source), False
            connection = self._table.get(key)
        if connection is None or segment.flags & (SYN | ACK) == SYN:
            key, from_client = (segment.source, segment.target), True
            connection = self._begun(key, segment)
            if connection is None:
                return
        self._table.move_to_end(key)
        try:
            connection.take(segment, from_client=from_client)
        except Exception as error:  # noqa: BLE001 - capture fails open: an internal error ends this connection only
            self._fail(connection, segment.at_ns, error)
        if connection.closed:
            del self._table[key]

    def tick(self, now_ns: int) -> None:
        """Ends exchanges and connections that are overdue; call it about once a second of the packets' time."""
        for key, connection in list(self._table.items()):
            try:
                connection.tick(now_ns, self._scope.idle_ns)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(connection, now_ns, error)
            if connection.closed or (now_ns - connection.last_ns > FORGET_NS and not connection.open):
                self._forget(key, now_ns)

    def cut(self, now_ns: int) -> None:
        """Ends the capture: cuts all open exchanges."""
        for key in list(self._table):
            self._forget(key, now_ns)

    def _begun(self, key: tuple[bytes, bytes], segment: Segment) -> Connection | None:
        """The connection that this segment starts, or whose first segment it repeats; None if it is not followed."""
        opening = segment.flags & (SYN | ACK) == SYN
        known = self._table.get(key)
        if known is not None and known.first == segment.sequence:
            return known
        if not opening and not begins_request(segment.payload):
            return None
        server = port_of(segment.target)
        ports = self._scope.ports
        if ports is not None and server not in ports:
            return None
        for used in (key, key[::-1]):  # the ports are reused: the end of the earlier connection was not captured
            if used in self._table:
                self._forget(used, segment.at_ns)
        if len(self._table) >= MAX_CONNECTIONS:
            self._make_room(segment.at_ns)
        name = ports.get(server) if ports is not None else None
        facts = (segment.source, segment.target, segment.sequence)
        connection = Connection(name or address_of(segment.target), self._reporting, self._budget, facts)
        self._table[key] = connection
        return connection

    def _make_room(self, now_ns: int) -> None:
        for _ in range(_CHECKED):
            key, connection = next(iter(self._table.items()))
            if not connection.open:
                break
            self._table.move_to_end(key)
        self._forget(next(iter(self._table)), now_ns)

    def _forget(self, key: tuple[bytes, bytes], now_ns: int) -> None:
        connection = self._table.pop(key)
        try:
            connection.cut(now_ns)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(connection, now_ns, error)

    def _fail(self, connection: Connection, now_ns: int, error: Exception) -> None:
        """Reports an internal error, and ends the connection's streams as incomplete."""
        report_fault("the packet tap", error)
        self.faults += 1
        connection.fail(now_ns)
