"""A check of buffering proxies before or after the tap: a slow stream then arrives in pieces, and token times are wrong.

The doctor serves a slow stream of its own, at the address of the upstream that is named `doctor`, and requests it through
the running tap and through --through. Without such an upstream --through must lead to the stream itself.
The stream has a path and events of no LLM, so a tap forwards it and records nothing.
"""

import asyncio
import contextlib
import http.client
import itertools
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from streamgauge.doctor.contract import DOCTOR, Finding, Installation, fail, in_thread, ok, warn
from streamgauge.doctor.ports import reached_at
from streamgauge.runtime.listeners import Address
from streamgauge.runtime.redaction import redacted_value

# How many events, and the time between two of them (seconds): long beside any network's jitter, short beside a check's limit.
EVENTS = 12
GAP_S = 0.1

PATH = "/slow-stream"
_TIMEOUT_S = 10.0
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nConnection: close\r\n"
# What clients of LLMs accept: a proxy that compresses may buffer only then.
_HEADERS = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}


class StreamFailedError(Exception):
    """The stream did not arrive. `status`: of the answer; None without an answer."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class SlowStream:
    """The server of the slow stream.

    `sent`: the time at which each event was written (monotonic seconds), by the number in a request's query; `open`: the
    connections that are being answered.
    """

    sent: dict[str, list[float]] = field(default_factory=dict)
    open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)
    _numbers: Any = field(default_factory=itertools.count)

    def next_number(self) -> str:
        """A number for one request."""
        return str(next(self._numbers))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request."""
        task = asyncio.current_task()
        assert task is not None
        self.open[task] = writer
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            _, target, version = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            times = self.sent.setdefault(target.partition("?")[2], [])
            # As servers of LLMs do. Of a body that only the end of the connection ends, a proxy may wait for more.
            chunked = version != "HTTP/1.0"
            writer.write(_HEAD + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
            for number in range(EVENTS):
                event = b"data: event %d of the doctor's slow stream\n\n" % number
                writer.write(b"%x\r\n%b\r\n" % (len(event), event) if chunked else event)
                await writer.drain()
                times.append(time.monotonic())
                await asyncio.sleep(GAP_S)
            writer.write(b"0\r\n\r\n" if chunked else b"")
            await writer.drain()
        writer.close()
        del self.open[task]


@asynccontextmanager
async def serving(host: str, port: int) -> AsyncIterator[SlowStream]:
    """The stream at this address, as a context; at its end all connections are closed. Raises OSError if the address
    cannot be used.
    """
    stream = SlowStream()
    server = await asyncio.start_server(stream.serve, host, port)
    try:
        yield stream
    finally:
        server.close()
        for client in stream.open.values():
            client.transport.abort()
        await asyncio.gather(*stream.open)


def arrivals(url: str, tls: ssl.SSLContext | None) -> list[float]:
    """Requests the stream at `url`. Returns the arrival time of each event (monotonic seconds). Raises StreamFailedError."""
    parts = urlsplit(url)
    try:
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=tls)
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        )
        with contextlib.closing(connection):
            connection.request("GET", f"{parts.path}?{parts.query}", headers=_HEADERS)
            with connection.getresponse() as answer:
                if answer.status != 200:
                    raise StreamFailedError(f"the answer is {answer.status}", answer.status)
                compressed = answer.getheader("Content-Encoding", "") == "gzip"
                return _times(answer, zlib.decompressobj(wbits=31).decompress if compressed else bytes)
    except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        raise StreamFailedError(why) from error


def _times(answer: http.client.HTTPResponse, decode: Callable[[bytes], bytes]) -> list[float]:
    times: list[float] = []
    text = b""
    while piece := answer.read1():
        text += decode(piece)
        now = time.monotonic()
        times += [now] * (text.count(b"\n\n") - len(times))
    return times


# The address of the stream if no upstream has it.
DEFAULT_URL = "http://127.0.0.1:9469"

# Two events that arrive within this share of the time between their writes came together.
_TOGETHER = 0.25
# From which share of events that came together a proxy buffers. A busy host delays some.
_BUFFERED = 0.5

_UNBUFFER = "turn buffering off in the proxy (nginx: proxy_buffering off; gzip off), for event streams at least"
_ADD = f"start the tap with --upstream {DOCTOR}={DEFAULT_URL}, and give the doctor the same"


async def check_buffering(installation: Installation) -> Sequence[Finding]:
    """One finding for the way through the tap, one for the way through --through."""
    upstream = installation.doctor_upstream
    if upstream is None and not installation.through:
        return [
            warn("whether a proxy buffers was not tested", f"{_ADD}; give --through URL for proxies before the tap")
        ]
    served = urlsplit(upstream.url if upstream is not None else DEFAULT_URL)
    base = f"{served.path}{PATH}"
    at = installation.serve or Address(host=served.hostname or "", port=served.port or 80)
    try:
        async with serving(at.host, at.port) as stream:
            findings = []
            if upstream is not None:
                findings.append(await _through_tap(installation, stream))
            if installation.through:
                path = f"/{DOCTOR}{PATH}" if upstream is not None else base
                findings.append(await _through(installation.through, path, stream))
            return findings
    except OSError as error:
        cure = (
            f"let the upstream {DOCTOR} have a free port of this host, as in {DOCTOR}={DEFAULT_URL}, or give"
            " --serve HOST:PORT if it leads here through a proxy"
        )
        return [warn(f"the slow stream cannot be served at {at} ({error.strerror or error})", cure)]


async def _through_tap(installation: Installation, stream: SlowStream) -> Finding:
    settings = installation.settings
    scheme, tls = "http", None
    if settings.client_token_file is not None or settings.tls_client_ca is not None:
        return warn(
            f"the tap at {settings.listen} authenticates its clients, so that no stream was sent through it",
            "see with one of its clients whether the events of a stream arrive one by one",
        )
    if settings.tls_certificate is not None:
        # The address is this host's own, for which the certificate need not be.
        scheme, tls = "https", ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    at = reached_at(settings.listen)
    where = f"the tap at {settings.listen}"
    try:
        return await _measured(where, f"{scheme}://{at}/{DOCTOR}{PATH}", tls, stream)
    except StreamFailedError as error:
        if isinstance(error.__cause__, ConnectionRefusedError):
            return warn(f"{where} does not run, so that no stream was sent through it", "start it, and run this again")
        if error.status == 404:
            return warn(f"{where} runs without the upstream {DOCTOR}", _ADD)
        return fail(f"the slow stream does not arrive through {where}: {error}", "see the tap's log")


async def _through(url: str, path: str, stream: SlowStream) -> Finding:
    shown = redacted_value(url)
    if urlsplit(url).scheme not in ("http", "https"):
        return fail(f"--through {shown} is no address of HTTP", "write http://HOST[:PORT] or https://HOST[:PORT]")
    tls = ssl.create_default_context() if url.startswith("https:") else None
    try:
        return await _measured(shown, f"{url.rstrip('/')}{path}", tls, stream)
    except StreamFailedError as error:
        cure = f"check the address: {shown.rstrip('/')}{path} must lead to the doctor's stream"
        return fail(f"the slow stream does not arrive through {shown}: {error}", cure)


async def _measured(route: str, url: str, tls: ssl.SSLContext | None, stream: SlowStream) -> Finding:
    """Compares the gaps between arrivals with the gaps between writes. Raises StreamFailedError."""
    number = stream.next_number()
    arrived = await in_thread(arrivals, f"{url}?{number}", tls)
    sent = stream.sent.get(number, [])
    if len(arrived) != EVENTS or len(sent) != EVENTS:
        raise StreamFailedError(f"{len(arrived)} of {EVENTS} events arrived")
    together = sum(
        later - earlier < _TOGETHER * (sent[number + 1] - sent[number])
        for number, (earlier, later) in enumerate(pairwise(arrived))
    )
    late_s = max(arrived_s - sent_s for arrived_s, sent_s in zip(arrived, sent, strict=True))
    if together >= _BUFFERED * (EVENTS - 1):
        pieces = "one piece" if together == EVENTS - 1 else f"{EVENTS - together} pieces"
        says = f"{EVENTS} events, sent every {GAP_S:g} s, arrive through {route} in {pieces}, {late_s:.1f} s late"
        return fail(f"a proxy buffers: {says}", _UNBUFFER)
    return ok(f"events that are sent every {GAP_S:g} s arrive through {route} one by one, {late_s:.2f} s late at most")
