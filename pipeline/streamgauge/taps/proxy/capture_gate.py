"""Decides when the capture of an exchange on the wire starts: at the request for LLM endpoints; otherwise only if the
response is an event stream. The handshake of a WebSocket is captured once it is answered. A call of JSON-RPC is measured: its
response has no record. The relay and the packet tap use it.
"""

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.dialects import WEBSOCKET, endpoint_of, model_in_form, names_model_alone, names_model_in_form
from streamgauge.core.formats.json_rpc import MCP_HEADERS, Call, call_of, call_of_headers
from streamgauge.core.http1.head import media_types, names_stream
from streamgauge.recorder.call_capture import CallCapture
from streamgauge.recorder.exchange_capture import CaptureClient, ConnectedClient, ExchangeCapture, kept_headers
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import REQUEST_HEADERS, RESPONSE_HEADERS, RequestStarted
from streamgauge.recorder.uncaptured import why_not_captured
from streamgauge.recorder.websocket_capture import WebSocketCapture
from streamgauge.runtime.faults import report_fault
from streamgauge.settings.attributes import Attribute
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.proxy.request import Outgoing, Request
from streamgauge.taps.proxy.response import MAX_RESPONSE_HEAD, ResponseFraming

# How much of a request's body is kept until its response shows whether it is captured, or until it is whole and shows a call
# of JSON-RPC (bytes): a prompt, and its parameters.
MAX_HELD_BODY = 64 * 1024

# The status with which a server refuses the protocol of a WebSocket (RFC 9110, 15.5.22).
_NO_WEBSOCKET = 426

_JSON = "application/json"
_CREDENTIALS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")
# Gemini takes the API key as a parameter, too, and so do Azure's WebSockets.
_KEY_IN_QUERY = re.compile(rb"[?&](?:api-)?key=([^&]+)")
_WANTED = frozenset(name.encode() for name in REQUEST_HEADERS)
# How many bytes of a tenant tell it from others: a name has at most 256 characters in a record.
_TENANT_BYTES = 256


class NamedHeaders(NamedTuple):
    """The request headers that the settings name, in lower case: that of the tenant, and those of attributes."""

    tenant: bytes | None = None
    attributes: tuple[tuple[str, bytes], ...] = ()


NO_NAMED_HEADERS = NamedHeaders()


def named_headers(tenant_header: str | None, attributes: Sequence[Attribute]) -> NamedHeaders:
    """The headers of these settings."""
    tenant = tenant_header.lower().encode() if tenant_header else None
    return NamedHeaders(tenant, tuple((attribute.name, attribute.header.encode()) for attribute in attributes))


class CapturedRequest(NamedTuple):
    """A request as its capture reports it. `target`: without the upstream's prefix; `wall_ns`: UTC when it began;
    `stream_id`: the id derived from the file that holds the exchange; None: a new id. `party`: see fair_shares.py. `host`: of
    the upstream, without its port.
    """

    request: Request
    target: bytes
    upstream: str | None
    named: NamedHeaders
    wall_ns: int
    tap: str
    stream_id: bytes | None = None
    party: Party | None = None
    host: str | None = None


class CaptureGate:
    """Reports one exchange, once its capture has started.

    `capture`: None before that. `waits`: the response's head will decide whether the capture starts. `counted`: the response
    counts as captured, or as not captured by a reason. `websocket`: the capture of a WebSocket that the upstream accepted.
    `call`: that of a call of JSON-RPC.
    """

    __slots__ = ("_body", "_call", "_client", "_early", "_early_bytes", "_held", "_hides_body", "_is_cut", "_is_form",
                 "_may_hold", "_request", "_sent", "call", "capture", "counted", "waits", "websocket")  # fmt: skip

    def __init__(self, client: ConnectedClient, request: CapturedRequest) -> None:
        self.capture: ExchangeCapture | None = None
        self.websocket: WebSocketCapture | None = None
        self.call: CallCapture | None = None
        self.waits = self.counted = False
        self._client = client
        self._request = request
        self._body: list[bytes] | None = []  # unreported pieces of the request's body; None after `begin`
        self._held: list[bytes] = []  # pieces of the request's body, while `waits`
        self._may_hold = 0  # bytes
        self._is_cut = False  # bytes of the body are not in `_held`
        self._hides_body = False  # the request is to no LLM endpoint: its body is not reported
        self._is_form = False  # the first bytes of the body may have the model
        self._call: Call | None = None  # what the request's body makes, while `waits`
        self._early: list[tuple[int, bytes]] = []
        self._early_bytes = 0
        self._sent: tuple[int, int | None, int] | None = None

    def request_body(self, data: bytes) -> None:
        """Reports a piece of the request's body, which may be empty; keeps it before `begin`."""
        if self._body is not None:
            self._body += [data] if data else []
        elif self.capture is not None and not self._hides_body:
            self.capture.request_body(data)
        elif self.waits:
            self._hold(data)

    def _hold(self, data: bytes) -> None:
        """Keeps a piece while `waits`. A body that is too long is discarded: its capture then has none. Of a form, the first
        bytes are kept.
        """
        left, self._may_hold = self._may_hold, max(self._may_hold - len(data), 0)
        self._is_cut |= len(data) > left
        if not self._is_cut:
            self._held.append(data)
        elif not self._is_form:
            self._held = []
        elif left:
            self._held.append(data[:left])

    def lose_request_body(self) -> None:
        """Reports that a piece of the request's body was not captured."""
        self._held, self._may_hold, self._is_cut = [], 0, True
        if self.capture is not None:
            self.capture.lose_request_body()

    def begin(self) -> None:
        """Reports the request as far as it has come, once. On a path that is no LLM endpoint, the capture `waits` instead."""
        if self._body is None:
            return
        body, self._body = self._body, None
        method, target = self._method_and_target()
        if self._request.request.is_handshake or endpoint_of(method, target) is None:
            self.waits = True
            self._is_form = names_model_in_form(method, target)
            may_hold = self._is_form or self._may_be_call or names_model_alone(method, target)
            self._may_hold = MAX_HELD_BODY if may_hold else 0
            for piece in body:
                self._hold(piece)
            if self._sent is not None:
                self._find_call()
            return
        capture = self._start(method, target)
        for piece in body:
            capture.request_body(piece)
        if self._sent is not None:
            capture.request_sent(*self._sent)

    def request_sent(self, at_ns: int, connected_ns: int | None, body_bytes: int) -> None:
        """Reports that the request's last byte was written to the upstream's connection."""
        self._sent = (at_ns, connected_ns, body_bytes)
        if self.capture is not None:
            self.capture.request_sent(*self._sent)
        elif self.waits:
            self._find_call()

    @property
    def _may_be_call(self) -> bool:
        """Whether the request's head is that of a call of JSON-RPC."""
        request = self._request.request
        fields = [value.decode("latin-1") for value in request.values(b"content-type")]
        return request.method == b"POST" and _JSON in media_types(fields)

    @property
    def _is_mcp(self) -> bool:
        return any(self._request.request.values(name) for name in MCP_HEADERS)

    def _first(self, name: bytes) -> str | None:
        """The first value of a header of the request."""
        return next((value.decode("latin-1") for value in self._request.request.values(name)), None)

    def _find_call(self) -> None:
        """Reads the call of JSON-RPC that the body makes, if it is whole. Never raises. Then only a body that names the model
        is kept.
        """
        try:
            if self._may_be_call and self._call is None:
                method = self._first(b"mcp-method")
                if not self._is_cut:
                    self._call = call_of(b"".join(self._held), is_mcp=self._is_mcp)
                elif method is not None:
                    self._call = call_of_headers(method, self._first(b"mcp-name"))
        except Exception as error:  # noqa: BLE001 - a bug of ours must not reach the traffic
            report_fault("the search for a call", error)
        if not self._names_model:
            self._held = []

    @property
    def _names_model(self) -> bool:
        """Whether the held bytes of the body may have the model of a stream that is the response."""
        return self._is_form or names_model_alone(*self._method_and_target())

    def other_read(self, at_ns: int, data: bytes, framing: ResponseFraming) -> None:
        """Reports a read of a response whose capture has not started."""
        if self.waits:
            self.read_early(at_ns, data, framing)
        elif self.call is not None:
            self.call.read(at_ns, data)

    def read_early(self, at_ns: int, data: bytes, framing: ResponseFraming) -> None:
        """Keeps a read while `waits`, until the response's head is complete or invalid, or too many interim heads came before
        it. If the response is an event stream, the capture starts with the kept reads.
        """
        self._early.append((at_ns, data))
        self._early_bytes += len(data)
        if framing.status is None and framing.fault is None and self._early_bytes < MAX_RESPONSE_HEAD:
            return
        early, self._early, self.waits = self._early, [], False
        held, self._held = self._held, []
        if self._request.request.is_handshake:
            self._decide_handshake(early, framing)
        elif self._call is not None:
            is_open = self._measure(self._call, early)
            self.count_uncaptured(NotCaptured.NOT_LLM if is_open else NotCaptured.RECORDER_BEHIND)
        elif self._is_mcp and self._request.request.method == b"GET":  # what a server sends by itself
            self.count_uncaptured(NotCaptured.NOT_LLM)
        elif names_stream((framing.content_type,)):
            self._start_late(early, held)
        elif framing.status is not None or framing.fault is None:
            self.count_uncaptured(why_not_captured(self._method_and_target()[1], (framing.content_type,)))

    def _decide_handshake(self, early: list[tuple[int, bytes]], framing: ResponseFraming) -> None:
        """Starts the capture of a WebSocket, or of the error with which the upstream answered its handshake.

        A 426 is no error of a model: the upstream has no WebSocket, and its client falls back to HTTP.
        """
        method, target = self._method_and_target()
        is_llm = endpoint_of(method, target) is not None
        if framing.switched and is_llm:
            self.counted = True
            self.websocket = WebSocketCapture(self._client, self._request.upstream)
            self.websocket.open(self._started(method, target), kept_headers(framing.headers, RESPONSE_HEADERS))
        elif not is_llm and not framing.switched:
            self.count_uncaptured(why_not_captured(target, (framing.content_type,)))
        elif framing.switched or framing.status in (None, _NO_WEBSOCKET):
            self.count_uncaptured(NotCaptured.PROTOCOL)
        else:
            self._start_late(early)

    def _measure(self, call: Call, early: Sequence[tuple[int, bytes]]) -> bool:
        """Starts to report the answer to a call, which has no record. Returns whether the recorder takes it."""
        request = self._request
        self.call = CallCapture(self._client)
        self.call.open(request.request.began_ns, request.upstream, call, request.party)
        for read in early:
            self.call.read(*read)
        return self.call.is_open

    def _end_without_head(self) -> None:
        """Reports a call that was not answered. Its request may have reached no upstream."""
        if self._call is None:
            self._find_call()
        if self._call is not None:
            self._measure(self._call, self._early)

    def begin_unanswered(self) -> None:
        """Starts the capture of the handshake of a WebSocket that gets no answer."""
        method, target = self._method_and_target()
        if self.waits and endpoint_of(method, target) is not None:
            self.waits = False
            self._start_late([])

    def _start_late(self, early: list[tuple[int, bytes]], held: Sequence[bytes] = ()) -> None:
        """Starts the capture with what has come so far."""
        method, target = self._method_and_target()
        form_model = model_in_form(b"".join(held)) if self._is_form else None
        capture = self._start(method, target, form_model)
        self._hides_body = not names_model_alone(method, target)
        for piece in () if self._hides_body else held:
            capture.request_body(piece)
        if self._sent is not None:
            capture.request_sent(*self._sent)
        for read in early:
            capture.read(*read)

    def count_uncaptured(self, reason: NotCaptured) -> None:
        """Counts the response as not captured, unless it is counted. Never raises."""
        if not self.counted:
            self.counted = True
            count_uncaptured(self._client, self._request.upstream, reason)

    def lose_read(self, reason: DropReason) -> None:
        """Reports that a read was not captured. While `waits`, the capture then never starts: the head is incomplete."""
        if self.waits:
            self.count_uncaptured(NotCaptured.PACKETS_LOST)
        self.waits, self._early = False, []
        if self.capture is not None:
            self.capture.lose_read(reason)
        elif self.call is not None:
            self.call.lose_read()

    @property
    def stream(self) -> int | None:
        """The stream's number, if it is captured."""
        return None if self.capture is None else self.capture.stream

    @property
    def may_be_pumped(self) -> bool:
        """Whether the pump may report the reads from here on; also true if the exchange is not captured."""
        if self.capture is not None:
            return self.capture.steady
        return not self.waits and (self.call is None or not self.call.reads)

    def reads_dropped(self, reads: int) -> None:
        """Reports reads that the pump dropped and has counted, but not reported."""
        if self.capture is not None:
            self.capture.reads_dropped(reads)

    def end(
        self,
        at_ns: int,
        ending: Ending,
        fault: TransportFault | None,
        gone_ns: int | None,
        blocked_ns: int | None,
        unsent_bytes: int,
    ) -> None:
        """Reports the end of the exchange, if it is captured."""
        if self.capture is not None:
            self.capture.end(at_ns, ending, fault, gone_ns=gone_ns, blocked_ns=blocked_ns, unsent_bytes=unsent_bytes)
        elif self.waits:
            self._end_without_head()
        if self.websocket is not None:
            self.websocket.end(at_ns, ending, fault, gone_ns)
        elif self.call is not None:
            self.call.end(at_ns, ending, fault)

    def _method_and_target(self) -> tuple[str, str]:
        request = self._request.request
        method = WEBSOCKET if request.is_handshake else request.method.decode("latin-1")
        return method, self._request.target.decode("latin-1")

    def _start(self, method: str, target: str, form_model: str | None = None) -> ExchangeCapture:
        of = self._request
        self.capture, self.counted = ExchangeCapture(self._client), True
        self.capture.start(
            of.request.began_ns,
            of.wall_ns,
            of.upstream,
            method,
            target,
            _reported_headers(of.request, of.named.tenant),
            tap=of.tap,
            stream_id=of.stream_id,
            attributes=_attributes(of.request, of.named.attributes),
            client_name=of.request.client_name,
            party=of.party,
            host=of.host,
            form_model=form_model,
        )
        return self.capture

    def _started(self, method: str, target: str) -> RequestStarted:
        """The handshake of a WebSocket, as a request."""
        of = self._request
        return RequestStarted(
            0,
            of.request.began_ns,
            of.wall_ns,
            of.upstream,
            method,
            target,
            _reported_headers(of.request, of.named.tenant),
            of.tap,
            attributes=_attributes(of.request, of.named.attributes),
            client_name=of.request.client_name,
            party=of.party,
            host=of.host,
        )


def count_uncaptured(client: CaptureClient, upstream: str | None, reason: NotCaptured) -> None:
    """Counts a response that is not captured. Never raises."""
    try:
        client.count_response(upstream, reason)
    except Exception as error:  # noqa: BLE001 - a bug in counting must not reach the traffic
        report_fault("the counters of a tap", error)


def relayed_request(request: Request, outgoing: Outgoing, named: NamedHeaders, address: str) -> CapturedRequest:
    """The capture of a request that the relay forwards. Its wall time is computed from the present time."""
    wall_ns = time.time_ns() - (time.monotonic_ns() - request.began_ns)
    party = Party(address, _identity(request, named.tenant))
    route = outgoing.route
    return CapturedRequest(
        request, outgoing.target, route.recorded_name, named, wall_ns, "proxy", party=party, host=route.host
    )


def _identity(request: Request, tenant_header: bytes | None) -> str:
    """Who sent the request, besides its address: its authenticated client, else its credential and its tenant.

    Not the tenant alone: a client can write any tenant's name into the header, and would use up that tenant's share. It does
    not have the tenant's credential.
    """
    if request.client_name is not None:
        return request.client_name
    credential = next((values[0] for name in _CREDENTIALS if (values := request.values(name))), b"")
    if not credential and request.is_handshake:  # a browser's key is in it: then it differs by the credential
        credential = b",".join(request.values(b"sec-websocket-protocol"))
    if not credential and (key := _KEY_IN_QUERY.search(request.target)):
        credential = key[1]
    tenants = request.values(tenant_header) if tenant_header is not None else []
    # The credential itself stays here; the hash differs in each process.
    known = f"{hash(credential):x}" if credential else ""
    tenant = tenants[0][:_TENANT_BYTES].decode("latin-1") if tenants else ""
    return f"{known} {tenant}" if known or tenant else ""


def _reported_headers(request: Request, tenant_header: bytes | None) -> list[tuple[str, str]]:
    """The headers that a recorder needs. No other header leaves the tap's process."""
    return [
        (name.decode(), value.decode("latin-1"))
        for name, (_, value) in zip(request.names, request.headers, strict=True)
        if name in _WANTED or name == tenant_header
    ]


def _attributes(request: Request, attributes: tuple[tuple[str, bytes], ...]) -> list[tuple[str, str]]:
    """The request's attributes, by name: of each header the first field counts."""
    values = ((name, request.values(header)) for name, header in attributes)
    return [(name, values[0].decode("latin-1")) for name, values in values if values]
