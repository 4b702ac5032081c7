"""One exchange on a raw socket: every read with its stamp, and how it ended. It does not use the scenarios'
expectations.
"""

import json
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import h11

from streamgauge_demo.asking import arguments
from streamgauge_demo.scenario import Finale, Scenario

READ_BYTES = 65_536

# A read that takes longer is a hanging test (seconds).
PATIENCE_S = 60.0

# If the server sends nothing, the client leaves after this time without a byte (seconds).
LEAVES_AFTER_S = 1.0

# Fields that belong to one connection or request, and not to the response.
_OWN = {b"connection", b"keep-alive", b"date", b"x-request-id", b"request-id", b"transfer-encoding", b"content-length"}

# Arguments of the clients that do not go into the body.
_NOT_IN_BODY = {"extra_headers", "timeout"}


@dataclass
class Raw:
    """`body` is after transfer framing and before content decoding; `framing` is how its end is announced."""

    asked_ns: int = 0
    sent_ns: int = 0
    request: bytes = b""
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    framing: str | None = None
    body: bytes = b""
    end: Literal["complete", "early_eof", "reset", "left"] = "left"
    ended_ns: int = 0
    request_id: str | None = None

    @property
    def comparable(self) -> tuple[object, ...]:
        """What must be the same with any proxy in between."""
        return self.status, sorted(self.headers), self.framing, self.body, self.end


def request_bytes(scenario: Scenario, prefix: str) -> tuple[bytes, bytes]:
    """Head and body of a scenario's request. `prefix`: the path before the endpoint."""
    options = arguments(scenario)
    headers = options.get("extra_headers", {})
    assert isinstance(headers, dict)
    body = json.dumps({name: value for name, value in options.items() if name not in _NOT_IN_BODY}).encode()
    lines = [f"POST {prefix}{scenario.endpoint} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
    lines += [
        "accept-encoding: gzip",
        "connection: close",
        f"content-length: {len(body)}",
        "authorization: Bearer demo",
    ]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode(), body


def exchange(scenario: Scenario, root: str) -> Raw:
    """Asks as `scenario` says at `root` and reads to the end, or leaves where its client would."""
    address, raw = urlsplit(root), Raw()
    parser = h11.Connection(h11.CLIENT)
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S) as sock:
        head, body = request_bytes(scenario, f"{address.path}/{scenario.upstream}")
        parser.send(
            h11.Request(method="POST", target=scenario.endpoint, headers=[("host", "x"), ("content-length", "0")])
        )
        parser.send(h11.EndOfMessage())
        raw.request, raw.asked_ns = body, time.monotonic_ns()
        sock.sendall(head + body)
        raw.sent_ns = time.monotonic_ns()
        leaves = scenario.answer.finale is Finale.SILENT
        size = sum(len(piece.data) for piece in scenario.answer.pieces)
        while not _read(sock, parser, raw, leaves):
            if scenario.answer.finale is Finale.COMMENTS and len(raw.body) >= size:
                raw.body = raw.body[:size]
                break
    raw.ended_ns = time.monotonic_ns()
    return raw


def _read(sock: socket.socket, parser: h11.Connection, raw: Raw, leaves: bool) -> bool:
    """One read; returns True if it was the last."""
    if leaves and not select.select([sock], [], [], LEAVES_AFTER_S)[0]:
        return True
    try:
        data = sock.recv(READ_BYTES)
    except ConnectionResetError:
        raw.end = "reset"
        return True
    if data:
        raw.reads.append((time.monotonic_ns(), data))
    try:
        parser.receive_data(data)
        return _parse(parser, raw) or not data
    except h11.RemoteProtocolError:
        raw.end = "early_eof"
        return True


def _parse(parser: h11.Connection, raw: Raw) -> bool:
    while True:
        event = parser.next_event()
        if isinstance(event, h11.Response):
            names = dict(event.headers)
            raw.status, raw.request_id = event.status_code, names.get(b"x-request-id", b"").decode() or None
            raw.headers = [(name, value) for name, value in event.headers if name not in _OWN]
            framings = (name for name in (b"transfer-encoding", b"content-length") if name in names)
            raw.framing = next(framings, b"close").decode()
        elif isinstance(event, h11.Data):
            raw.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            raw.end = "complete"
            return True
        else:
            return False
