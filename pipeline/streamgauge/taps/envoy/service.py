"""The gRPC services that Envoy calls: its external processor, and its access log service.

A call of Process reports one exchange. Envoy must wait for no answer (`observability_mode`), and gets none: a call in which
it would wait is ended at once, which Envoy takes as the end of its report. So is one that is not captured, so that Envoy
sends no more of it. A call of StreamAccessLogs lasts as long as Envoy's connection.
"""

import asyncio
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import Counters
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.envoy.exchange import EnvoyExchange, Reporting, Unknown
from streamgauge.taps.envoy.joining import Joining
from streamgauge.taps.envoy.messages import log_entries, log_entry_of, processing_of
from streamgauge.taps.envoy.protobuf import ProtobufFault

# Initial metadata of Envoy's `grpc_service` that names the upstream in records.
UPSTREAM_METADATA = "x-streamgauge-upstream"
# The largest message (bytes). Envoy sends a read of the upstream, at most `per_connection_buffer_limit_bytes` (1 MiB).
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
# Exchanges that one process has open at one time. Each needs some 10 KiB here and in gRPC.
MAX_OPEN = 20_000
# New exchanges are not captured while the event loop works for more than this share of the time, or is this late (seconds):
# Envoy then sends more messages than one core takes, and the rest waits in Envoy's memory.
BUSY_SHARE = 0.95
LATE_S = 1.0
# Interval at which late exchanges are ended, and the event loop is measured (seconds).
TICK_S = 1.0
# The largest entry of the access log that is passed to a sibling (bytes).
_MAX_DATAGRAM = 64 * 1024


class EnvoyServices:
    """Both services of one process. `inbox`: a socket from the other processes of this tap, `siblings`: sockets to them. An
    entry that belongs to no exchange here goes to them, since Envoy may log by another connection than it reports by.
    """

    def __init__(
        self,
        reporting: Reporting,
        counters: Counters,
        inbox: socket.socket | None = None,
        siblings: Sequence[socket.socket] = (),
    ) -> None:
        self.draining = False
        self._reporting, self._counters = reporting, counters
        self._joining = Joining(self._ended)
        self._inbox, self._siblings = inbox, siblings
        self._loop = asyncio.get_running_loop()
        self._is_behind = self._has_warned = False
        self._worked_s = time.thread_time()
        self._timer = self._loop.call_later(TICK_S, self._tick, self._loop.time() + TICK_S)
        if inbox is not None:
            self._loop.add_reader(inbox, self._take_from_siblings, inbox)

    @property
    def open(self) -> int:
        """The number of open exchanges."""
        return self._joining.open

    @property
    def waiting(self) -> int:
        """The number of exchanges that wait for the rest of what they need: their entry, or the end of Envoy's report."""
        return self._joining.waiting

    def handlers(self) -> tuple[Any, ...]:
        """The handlers for a server of grpc.aio. Messages are passed as bytes."""
        process = grpc.stream_stream_rpc_method_handler(self._process)
        log = grpc.stream_unary_rpc_method_handler(self._stream_access_logs)
        return (
            grpc.method_handlers_generic_handler("envoy.service.ext_proc.v3.ExternalProcessor", {"Process": process}),
            grpc.method_handlers_generic_handler(
                "envoy.service.accesslog.v3.AccessLogService", {"StreamAccessLogs": log}
            ),
        )

    def close(self) -> None:
        """Ends all exchanges."""
        self._timer.cancel()
        if self._inbox is not None:
            self._loop.remove_reader(self._inbox)
        self._joining.cut()

    async def _process(self, _: object, context: Any) -> None:
        exchange = EnvoyExchange(self._reporting, _upstream_of(context))
        if (reason := self._why_refused()) is not None:
            self._reporting.client.count_response(exchange.upstream, reason)
            return
        is_damaged = False
        try:
            is_damaged = not await self._read(exchange, context)
        except asyncio.CancelledError:
            if not exchange.begun:  # Envoy has given up its report, of which the tap was too late to read anything
                self._reporting.client.count_response(exchange.upstream, NotCaptured.RECORDER_BEHIND)
            raise
        finally:  # also if the handler was cancelled with its call
            now_ns = time.monotonic_ns()
            exchange.report_ended(now_ns, is_damaged=is_damaged)
            self._joining.update(exchange, now_ns)

    async def _read(self, exchange: EnvoyExchange, context: Any) -> bool:
        """Reads Envoy's report as far as it is needed. Returns False if a message of it cannot be read."""
        while (data := await context.read()) is not grpc.aio.EOF:
            at_ns, wall_ns = time.monotonic_ns(), time.time_ns()
            try:
                message = processing_of(data)
            except ProtobufFault:
                return False
            if message is None:
                continue
            if not message.observed:
                self._warn(exchange)
                return True
            try:
                self._receive(exchange, at_ns, wall_ns, message)
            except Exception as error:  # noqa: BLE001 - a bug of ours: capture fails open, with an incomplete record
                exchange.fail(error)
                return True
            if not exchange.captured or exchange.reported_ns is not None:
                return True
        return True  # or the call was cancelled: Envoy does that after broken streams, and if the connection breaks

    def _receive(self, exchange: EnvoyExchange, at_ns: int, wall_ns: int, message: Any) -> None:
        had_begun = exchange.begun
        exchange.receive(at_ns, wall_ns, message)
        if exchange.begun and not had_begun:
            self._joining.begin(exchange, at_ns)

    def _why_refused(self) -> NotCaptured | None:
        if self.draining:
            return NotCaptured.STOPPING
        if self.open >= MAX_OPEN:
            return NotCaptured.LIMIT
        return NotCaptured.RECORDER_BEHIND if self._is_behind else None

    def _warn(self, exchange: EnvoyExchange) -> None:
        """Says, once, that Envoy waits for answers; what it reports so is not captured."""
        self._reporting.client.count_response(exchange.upstream, NotCaptured.PROTOCOL)
        if not self._has_warned:
            self._has_warned = True
            sys.stderr.write(
                "the Envoy tap: Envoy waits for an answer to each message, and this tap gives none: set"
                " observability_mode: true in the filter ext_proc\n"
            )

    async def _stream_access_logs(self, _: object, context: Any) -> bytes:
        while (data := await context.read()) is not grpc.aio.EOF:
            try:
                for entry in log_entries(data):
                    self._log(entry, passes_on=True)
            except ProtobufFault:
                break
        return b""

    def _log(self, data: bytes, *, passes_on: bool) -> None:
        """Takes an entry, encoded. Raises ProtobufFault."""
        entry = log_entry_of(data)
        if entry is None:
            return
        try:
            is_ours = self._joining.log(entry, time.monotonic_ns())
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the log
            report_fault("the Envoy tap, at an entry of the access log", error)
            return
        if passes_on and not is_ours and len(data) <= _MAX_DATAGRAM:
            for sibling in self._siblings:
                try:
                    sibling.send(data)
                except OSError:  # its buffer is full, or it is gone: the exchange's outcome stays unknown
                    continue

    def _take_from_siblings(self, inbox: socket.socket) -> None:
        try:
            self._log(inbox.recv(_MAX_DATAGRAM), passes_on=False)
        except (OSError, ProtobufFault):
            return

    def _ended(self, exchange: EnvoyExchange, unknown: Unknown | None) -> None:
        if unknown is not None and unknown.value is not None:
            self._counters.happened(unknown.value)
        entry, head_ns = exchange.entry, exchange.head_wall_ns
        if entry is not None and entry.first_rx_ns is not None and head_ns is not None:
            self._counters.arrived(max(head_ns - entry.started_ns - entry.first_rx_ns, 0))

    def _tick(self, due_s: float) -> None:
        now_s = self._loop.time()
        worked_s, took_s = time.thread_time(), now_s - due_s + TICK_S
        self._is_behind = now_s - due_s > LATE_S or worked_s - self._worked_s > BUSY_SHARE * took_s
        self._worked_s = worked_s
        self._timer = self._loop.call_later(TICK_S, self._tick, now_s + TICK_S)
        self._joining.tick(time.monotonic_ns())


def _upstream_of(context: Any) -> str | None:
    """The upstream's name in the call's metadata; None if it names none."""
    for name, value in context.invocation_metadata() or ():
        if name == UPSTREAM_METADATA and isinstance(value, str) and value:
            return value
    return None


def server_of(services: EnvoyServices) -> Any:
    """A server of these services, which several processes may bind to one port. Start it after adding its port."""
    return grpc.aio.server(
        handlers=services.handlers(),
        options=[
            ("grpc.so_reuseport", 1),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ],
    )
