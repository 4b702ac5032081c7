"""All TCP connections of a capture, within limits: passes each segment to its connection. An error ends one connection only.

A connection reassembles the segments of both sides and passes their bytes in order to its conversation. The client's side
is followed from its SYN, or from a segment that clearly begins a request; the server's side then begins at that segment's
acknowledgement number. A side that was lost is resumed in the same way. Segments carry the times.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from streamgauge.recorder.budget import Budget
from streamgauge.runtime.faults import report_fault
from streamgauge.taps.packets.conversation import Conversation
from streamgauge.taps.packets.decode import ACK, FIN, RST, SYN, Segment, address_of, port_of
from streamgauge.taps.packets.exchange import Reporting
from streamgauge.taps.packets.reassembly import MAX_GAP_BYTES, Direction, OutOfRangeError, Piece

# Limit of followed connections: at about 3 KiB each they take 50 MiB. Servers rarely have more open. Beyond it, those
# without a captured exchange that have been quiet for longest are dropped.
MAX_CONNECTIONS = 16_384
# How many connections are checked to find one without a captured exchange.
_CHECKED = 64
# Limit of bytes that wait after holes, over all connections: eight connections that lost a packet in the largest window.
MAX_WAITING_BYTES = 64 * 1024 * 1024
# A connection without an open exchange is removed after this time (ns); its next request adds it again.
FORGET_NS = 300 * 1_000_000_000
# How long a hole may stay open (ns). TCP retransmits within some seconds, and a hole that the other side has
# acknowledged is skipped at once. So this limit matters only if acknowledgements are not captured.
HOLE_NS = 30_000_000_000
# The whole first line of a request, with the methods of LLM requests and of others whose response may be an event
# stream.
_REQUEST = re.compile(rb"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) /[\x21-\x7e]* HTTP/1\.[01]\r?\n")
# Limit of that line (bytes): one packet of the largest common size.
_MAX_LINE = 9 * 1024


def begins_request(payload: bytes) -> bool:
    """Whether a segment's payload begins with the whole first line of a request."""
    return _REQUEST.match(payload, 0, _MAX_LINE) is not None


class Connection:
    """Both sides of one connection. `last_ns`: time of the latest segment; `closed`: no more segments are expected."""

    __slots__ = ("_acknowledged", "_budget", "_client", "_client_over", "_conversation", "_fin_seen", "_server",
                 "_server_over", "closed", "first", "last_ns")  # fmt: skip

    def __init__(
        self, upstream: str | None, reporting: Reporting, budget: Budget, facts: tuple[bytes | int, ...] = ()
    ) -> None:
        """`facts`: what identifies the connection in a file."""
        self.closed = False
        self.last_ns = 0
        self.first: int | None = None  # the sequence number of the client's SYN
        self._conversation = Conversation(upstream, reporting, facts)
        self._budget = budget
        self._client: Direction | None = None
        self._server: Direction | None = None
        self._acknowledged: int | None = None  # by the client
        self._fin_seen = False  # a FIN was seen
        self._client_over = self._server_over = False

    @property
    def open(self) -> bool:
        """Whether a captured exchange has not ended."""
        return self._conversation.open

    def take(self, segment: Segment, *, from_client: bool) -> None:
        """Applies a segment of either side. Its time is raised to that of the segment before, if a clock went back."""
        at_ns = self.last_ns = segment.at_ns if segment.at_ns > self.last_ns else self.last_ns
        flags = segment.flags
        if flags & RST:
            self._reset(segment, at_ns, from_client=from_client)
            return
        if self._conversation.ignored:
            self._note_end(flags, from_client=from_client)
            return
        if flags & SYN:
            self._begin(segment, from_client=from_client)
        try:
            self._follow(segment, at_ns, from_client=from_client)
        except OutOfRangeError:
            self._lose(at_ns)

    def tick(self, now_ns: int, idle_ns: int) -> None:
        """Skips holes that are older than HOLE_NS, and ends exchanges that were idle longer than `idle_ns`."""
        for side, report in ((self._client, self._request_pieces), (self._server, self._response_pieces)):
            if side is not None and side.hole_ns is not None and now_ns - side.hole_ns > HOLE_NS:
                report(self.last_ns, side.skip_holes())
        self._conversation.tick(now_ns, idle_ns)
        self._drop_lost()

    def fail(self, at_ns: int) -> None:
        """Ends open exchanges as incomplete, after an internal error."""
        self._conversation.fail(max(at_ns, self.last_ns))
        self._close()

    def cut(self, at_ns: int) -> None:
        """Ends the capture of this connection: cuts its open exchanges."""
        self._flush(at_ns)
        self._conversation.cut(max(at_ns, self.last_ns))
        self._close()

    # Inside.

    def _begin(self, segment: Segment, *, from_client: bool) -> None:
        first = segment.sequence + 1
        if from_client:
            self.first = segment.sequence
            self._client = self._client or Direction(first, self._budget)
        elif self._server is None:
            self._server = Direction(first, self._budget)

    def _follow(self, segment: Segment, at_ns: int, *, from_client: bool) -> None:
        """Applies the segment's acknowledgement before its payload."""
        sequence, acknowledged = segment.sequence, segment.acknowledged
        flags, payload = segment.flags, segment.payload
        if flags & SYN:
            sequence += 1
        if flags & ACK:
            if from_client:
                self._acknowledged = acknowledged
                if self._server is not None and (pieces := self._server.acknowledge(acknowledged)):
                    self._response_pieces(at_ns, pieces)
            elif self._client is not None and (pieces := self._client.acknowledge(acknowledged)):
                self._request_pieces(at_ns, pieces)
        if payload:
            if from_client:
                self._from_client(sequence, acknowledged if flags & ACK else None, payload, at_ns)
            elif self._server is not None:
                self._response_pieces(at_ns, self._server.add(sequence, payload, at_ns))
        if flags & FIN:
            self._finish(sequence + len(payload), from_client=from_client)
        if self._fin_seen:
            self._notice_ends(at_ns)

    def _from_client(self, sequence: int, acknowledged: int | None, payload: bytes, at_ns: int) -> None:
        if self._client is None:
            if acknowledged is None or not begins_request(payload):
                return
            self._conversation.restart(at_ns)
            self._client, self._server = Direction(sequence, self._budget), self._at(acknowledged)
        conversation = self._conversation
        if self._server is None and not conversation.responses_lost and acknowledged is not None:
            self._server = Direction(acknowledged, self._budget)
        self._request_pieces(at_ns, self._client.add(sequence, payload, at_ns))
        if conversation.responses_restart and acknowledged is not None:
            self._server, conversation.responses_restart = self._at(acknowledged), False

    def _at(self, sequence: int) -> Direction:
        """A new server side that begins at this sequence number."""
        if self._server is not None:
            self._server.discard()
        return Direction(sequence, self._budget)

    def _request_pieces(self, at_ns: int, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                self._conversation.request_bytes(at_ns, piece)
            else:
                self._conversation.request_bytes_lost(at_ns, piece)
        self._drop_lost()

    def _response_pieces(self, at_ns: int, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                self._conversation.response_bytes(at_ns, piece)
            else:
                self._conversation.response_bytes_lost(at_ns, piece)
        self._drop_lost()

    def _finish(self, sequence: int, *, from_client: bool) -> None:
        """Handles a FIN. If the side is not followed, bytes before the FIN are unknown, so it counts at once."""
        side = self._client if from_client else self._server
        self._fin_seen = True
        if side is not None:
            side.finish(sequence)
        else:
            self._report_end(self.last_ns, from_client=from_client)

    def _notice_ends(self, at_ns: int) -> None:
        if self._client is not None and self._client.over:
            self._report_end(at_ns, from_client=True)
        if self._server is not None and self._server.over:
            self._report_end(at_ns, from_client=False)

    def _report_end(self, at_ns: int, *, from_client: bool) -> None:
        if from_client and not self._client_over:
            self._client_over = True
            self._conversation.client_ended(at_ns)
        elif not from_client and not self._server_over:
            self._server_over = True
            self._conversation.server_ended(at_ns)
        if self._client_over and self._server_over:
            self._close()

    def _note_end(self, flags: int, *, from_client: bool) -> None:
        """Handles the flags of an ignored connection: only its end matters."""
        if flags & FIN:
            self._report_end(self.last_ns, from_client=from_client)

    def _reset(self, segment: Segment, at_ns: int, *, from_client: bool) -> None:
        """Handles an RST. One with a sequence number that cannot be this connection's is stale, and ignored (RFC 9293,
        3.10.7.4).
        """
        side, server = (self._client if from_client else self._server), self._server
        if side is not None and abs(side.position_of(segment.sequence) - side.position) > MAX_GAP_BYTES:
            return
        self._flush(at_ns)
        unsent = 0
        if server is not None and self._acknowledged is not None:
            unsent = max(server.position - server.position_of(self._acknowledged), 0)
        self._conversation.reset(at_ns, by_client=from_client, unsent_bytes=unsent)
        self._close()

    def _flush(self, at_ns: int) -> None:
        """Stops waiting for holes on both sides."""
        if self._client is not None:
            self._request_pieces(at_ns, self._client.skip_holes())
        if self._server is not None:
            self._response_pieces(at_ns, self._server.skip_holes())

    def _lose(self, at_ns: int) -> None:
        """Marks both sides as lost, because the sequence numbers do not fit."""
        self._flush(at_ns)
        self._conversation.lose_both_sides()
        self._drop_lost()

    def _drop_lost(self) -> None:
        """Stops the reassembly of a side that the conversation cannot follow."""
        conversation = self._conversation
        if not (conversation.requests_lost or conversation.responses_lost or conversation.ignored):
            return
        if self._client is not None and (conversation.requests_lost or conversation.ignored):
            self._client.discard()
            self._client = None
        if self._server is not None and (conversation.responses_lost or conversation.ignored):
            self._server.discard()
            self._server = None

    def _close(self) -> None:
        for side in (self._client, self._server):
            if side is not None:
                side.discard()
        self._client = self._server = None
        self._conversation.close()
        self.closed = True


class CaptureScope(msgspec.Struct, frozen=True):
    """The scope of a capture: which connections are followed. `ports`: the servers' ports, each with the name of its
    upstream; None: every HTTP/1 server. `idle_ns`: a silent exchange ends after this time.

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
