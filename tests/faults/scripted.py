"""Responses of a simulated provider as whole bodies, and clients of `streamgauge up` that keep a digest of what they receive.

Clients keep at most 64 KiB of a response. The provider keeps every piece that it sends: a response of gigabytes repeats the
same bytes object. A request's path begins with the name of its script: `/NAME/v1/chat/completions`.
"""

import asyncio
import contextlib
import hashlib
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec

from streamgauge_demo.provider import End, Exchange, Provider, Script, answer
from tests.client import Received, request, talk
from tests.running import PATIENCE_S, Running, wait_for

MIB = 1024 * 1024
_PIECE_BYTES = 1 << 16
CHAT = "/v1/chat/completions"
BODY = b'{"model":"m-1","stream":true}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
# The end of the connection ends the body.
UNFRAMED = HEAD + b"Connection: close\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

Json = dict[str, Any]


def event(content: str | None = None, *, usage: object = None, finish: str | None = None) -> bytes:
    """One event of a chat completion."""
    choice = {"index": 0, "delta": {} if content is None else {"content": content}, "finish_reason": finish}
    body = {"id": "c-1", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice]}
    return b"data: " + msgspec.json.encode(body if usage is None else {**body, "usage": usage}) + b"\n\n"


DONE = b"data: [DONE]\n\n"
ORDINARY = event("one") + event(" two") + event(finish="stop") + DONE


def whole(body: bytes, head: bytes = UNFRAMED, end: End = "close") -> Script:
    """A response of these bytes, and the end of its connection."""
    return answer(head + body, end=end)


def connect(up: Running) -> socket.socket:
    address = urlsplit(up.url)
    assert address.hostname and address.port
    return socket.create_connection((address.hostname, address.port), PATIENCE_S)


def ask(
    up: Running,
    name: str,
    *,
    prefix: str = "",
    body: bytes = BODY,
    headers: str = "",
    leave_after: int | None = None,
) -> Received:
    """One request on a connection of its own, and its response to the connection's end. `leave_after`: resets the connection
    after these bytes.
    """
    received = Received(uuid.uuid4().hex, kept=_PIECE_BYTES)
    path, headers = f"{prefix}/{name}{CHAT}", f"Connection: close\r\n{headers}"
    asked = [request(path, body, trace=received.trace, headers=headers)]
    return asyncio.run(talk(up.url, asked, received=received, to_close=True, leave_after=leave_after))


def exchange(up: Running, raw: bytes) -> bytes:
    """Sends these bytes, and gives all that comes back until the other side ends the connection."""
    parts = []
    with connect(up) as client, contextlib.suppress(ConnectionResetError):
        client.sendall(raw)
        while data := client.recv(_PIECE_BYTES):
            parts.append(data)
    return b"".join(parts)


def last(provider: Provider, name: str) -> Exchange:
    """The last exchange of a script."""
    return provider.played(name)[-1]


def same_bytes(received: Received, provider: Provider, name: str) -> bool:
    """Whether a client received exactly what the provider sent, head included."""
    digest = hashlib.sha256()
    for piece in last(provider, name).sent:
        digest.update(piece.data)
    return received.digest == digest.hexdigest()


def with_records(up: Running, asked: Iterable[Received]) -> None:
    """Gives each exchange its record, once all are there; each has exactly one."""
    wanted = {one.trace: one for one in asked}
    earlier = 0

    def all_there() -> list[Json]:
        nonlocal earlier
        if up.recorded() < earlier + len(wanted):
            return []
        records = up.records()
        found = [record for record in records if record["trace_id"] in wanted]
        earlier = len(records) - len(found)
        return found if len(found) >= len(wanted) else []

    found = wait_for(all_there, f"{len(wanted)} records")
    assert sorted(record["trace_id"] for record in found) == sorted(wanted)
    for record in found:
        wanted[record["trace_id"]].record = record


def judge(up: Running, *, drops: bool = False) -> None:
    """What holds whatever the traffic was: reads are in balance, and nothing failed inside. `drops`: whether any may be
    dropped.
    """
    reads = up.reads()
    assert drops or set(reads) == {"seen", "delivered", "waiting"}, reads
    assert up.metrics()['streamgauge_tap_incidents_total{kind="capture_fault"}'] == 0, up.log
    assert "internal error" not in up.log and "Traceback" not in up.log, up.log
    assert up.process.poll() is None


def in_parallel(work: Iterable[Callable[[], None]], at_once: int = 16) -> None:
    """Runs each, `at_once` at a time; raises the first error."""
    waiting, errors = iter(list(work)), list[BaseException]()
    lock = threading.Lock()

    def run() -> None:
        while not errors:
            with lock:
                one = next(waiting, None)
            if one is None:
                return
            try:
                one()
            except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
                errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def repeated(data: bytes, size: int) -> Iterator[bytes]:
    """`size` bytes of `data`, in pieces."""
    piece = data * (_PIECE_BYTES // len(data))
    yield from map(partial(lambda of, _: of, piece), range(size // len(piece)))
    yield piece[: size % len(piece)]
