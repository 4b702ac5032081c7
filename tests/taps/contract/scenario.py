"""One exchange as data: the request, what the upstream answers read by read, how it ends, and what the record contains."""

import threading
from typing import Any, Literal

import msgspec

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    REQUEST_HEADERS,
    ExchangeEnding,
    Message,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.settings.attributes import Attribute

# Part of every generated text and message: must not occur in anything that a masked capture writes.
CANARY = "CANARY"
# Part of every prompt, key, cookie, unknown header and query value: must not occur in anything that any capture writes.
SECRET = "SECRET"
TENANT_HEADER = "x-tenant"
ATTRIBUTES = (Attribute("agent", "x-agent"),)
UPSTREAM = "up"
SSE = ("Content-Type", "text/event-stream; charset=utf-8")
JSON = ("Content-Type", "application/json")

# Set by an upstream once it has a request that it will not answer: then the client may leave.
heard = threading.Event()

# complete: complete by HTTP's framing; fin, rst: the upstream breaks off this way; client: the client leaves after all reads.
End = Literal["complete", "fin", "rst", "client"]
Framing = Literal["chunked", "length", "close"]
ENDINGS = {"complete": Ending.COMPLETE, "fin": Ending.RESET, "rst": Ending.RESET, "client": Ending.CLIENT}

FAULTS = {"fin": TransportFault.CLOSED, "rst": TransportFault.RESET}


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`reads`: the body as the upstream writes it, encoded, before framing. `reported`: whether a tap reports the exchange
    at all; `early`: from the request on, not only from the response's head on. `answers`: the upstream sends a head.
    `gap_s`: between two reads (seconds). Only on the wire: `before` the head, `extension` of each chunk, `trailer` after
    the last chunk. `record`: the part of the record that is written out by hand; None: there is no record.
    """

    name: str
    record: dict[str, Any] | None
    reads: tuple[bytes, ...]
    target: str = "/v1/chat/completions"
    method: str = "POST"
    request_body: bytes = b'{"model":"m-1","stream":true,"messages":[{"role":"user","content":"SECRET"}]}'
    asked_headers: tuple[tuple[str, str], ...] = (("Authorization", f"Bearer {SECRET}"), ("Cookie", SECRET))
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (SSE,)
    framing: Framing = "chunked"
    end: End = "complete"
    reported: bool = True
    early: bool = True
    answers: bool = True
    before: bytes = b""
    extension: bytes = b""
    trailer: bytes = b""
    gap_s: float = 0.002

    @property
    def body(self) -> bytes:
        return b"".join(self.reads)

    @property
    def path(self) -> str:
        """The target; its query names the scenario, which is how the upstream finds it."""
        return f"{self.target}{'&' if '?' in self.target else '?'}case={self.name}"

    @property
    def all_headers(self) -> list[tuple[str, str]]:
        """The response's headers with those of its framing; a response that breaks off announces a longer body."""
        more: list[tuple[str, str]] = []
        if self.framing == "length":
            more = [("Content-Length", str(len(self.body) + (0 if self.end == "complete" else 1000)))]
        elif self.framing == "chunked":
            more = [("Transfer-Encoding", "chunked")]
        return [*self.headers, ("Set-Cookie", SECRET), *more]

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {SECRET}", *(f"{name}: {value}" for name, value in self.all_headers), "", ""]
        return self.before + "\r\n".join(lines).encode("latin-1")

    def wire(self) -> list[bytes]:
        """What the upstream writes, write by write."""
        if not self.answers:
            return []
        if self.method == "HEAD":
            return [self.head()]
        if self.framing != "chunked":
            return [self.head(), *self.reads]
        chunks = [b"%x%b\r\n%b\r\n" % (len(read), self.extension, read) for read in self.reads]
        return [self.head(), *chunks, *([b"0\r\n%b\r\n" % self.trailer] if self.end == "complete" else [])]

    def request(self) -> bytes:
        """What a raw client sends."""
        sizes = [("Content-Length", str(len(self.request_body)))] if self.request_body else []
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: up"]
        lines += [f"{name}: {value}" for name, value in (*self.asked_headers, *sizes)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.request_body


# Time stamps of the reference: its start, and the distance of two messages (ns).
T0, STEP = 7_000_000_000, 1_000_000


def reference(scenario: Scenario) -> list[Message]:
    """What an ideal tap would report: each read of the wire, and the whole request. It uses no tap's code."""
    if not scenario.reported:
        return []
    wanted = REQUEST_HEADERS | {TENANT_HEADER}
    headers = [(name.lower(), value) for name, value in scenario.asked_headers if name.lower() in wanted]
    found = [("agent", value) for name, value in scenario.asked_headers if name.lower() == "x-agent"]
    opened = RequestStarted(
        1, T0, T0, UPSTREAM, scenario.method, scenario.path, headers, tap="reference", attributes=found, host=UPSTREAM
    )
    whole = scenario.early and len(scenario.request_body) <= MAX_REQUEST_BODY
    reported: list[Message] = [
        opened,
        *([RequestBody(1, scenario.request_body)] if whole and scenario.request_body else []),
    ]
    size = len(scenario.request_body)
    reported.append(RequestSent(1, T0 + STEP, T0 + STEP // 2, size, whole or not size))
    reported += [ResponseRead(1, T0 + STEP * at, read) for at, read in enumerate(scenario.wire(), 2)]
    end_ns = T0 + STEP * (len(reported) + 2)
    gone_ns = end_ns if scenario.end == "client" else None
    return [*reported, ExchangeEnding(1, end_ns, ENDINGS[scenario.end], gone_ns, 0, fault=FAULTS.get(scenario.end))]
