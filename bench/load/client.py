"""The client of the load: sends requests, times reads, and checks that every event came. One thread, one epoll.

Each kind of load returns a Result. It raises BrokenError if a response is not complete, since a figure would be wrong.
"""

import array
import gc
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.load.answer import LAST_CHUNK, MARK, STAMP, marks, request

# Without any read for this long the load has failed (seconds).
_SILENCE_S = 20.0
_READ_BYTES = 262_144
# Paced streams may take _PATIENCE times as long as they should, plus _GRACE_S. Longer means that a queue grows.
_PATIENCE = 3
_GRACE_S = 2.0


class BrokenError(Exception):
    """A response differs from what the upstream sent."""


class TooSlowError(Exception):
    """The load is more than the peer can carry."""


@dataclass
class Result:
    """Times in ns. `late`: of each event from write to read; `widest`: gap of each stream; `first`: of first bytes."""

    streams: int = 0
    events: int = 0
    reads: int = 0
    seconds: float = 0.0
    late: "array.array[int]" = field(default_factory=lambda: array.array("q"))
    widest: "array.array[int]" = field(default_factory=lambda: array.array("q"))
    first: "array.array[int]" = field(default_factory=lambda: array.array("q"))


class _Stream:
    __slots__ = ("last_ns", "marks", "sock", "tail", "widest_ns")

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=_SILENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin()

    def begin(self) -> None:
        self.marks = self.last_ns = self.widest_ns = 0
        self.tail = b""

    def add(self, data: bytes) -> bool:
        """Counts a read. Returns whether the response has ended. Raises BrokenError if the connection was closed."""
        if not data:
            raise BrokenError("the connection was closed within a response")
        self.marks += data.count(MARK)
        self.tail = data[-5:] if len(data) >= 5 else (self.tail + data)[-5:]
        return self.tail == LAST_CHUNK

    def check(self, expected: int) -> None:
        if self.marks != expected:
            raise BrokenError(f"{self.marks} marks received, {expected} sent")


def burst(port: int, concurrent: int, streams: int, events: int, *, captured: bool = True, at_once: int = 1) -> Result:
    """Runs streams as fast as possible, `concurrent` at a time, one after the other on each connection. `at_once`: how many
    events the upstream puts into one write.
    """
    request_bytes, expected = request(0, events, captured=captured, at_once=at_once), marks(events)
    result = Result()
    with _streams(port, min(concurrent, streams)) as (epoll, opened):
        began = time.monotonic()
        for stream in opened.values():
            stream.sock.send(request_bytes)
        unsent = streams - len(opened)
        while result.streams < streams:
            for fd in _ready(epoll):
                stream = opened[fd]
                result.reads += 1
                if not stream.add(stream.sock.recv(_READ_BYTES)):
                    continue
                stream.check(expected)
                result.streams += 1
                stream.begin()
                if unsent:
                    unsent -= 1
                    stream.sock.send(request_bytes)
        result.seconds = time.monotonic() - began
    result.events = result.streams * events
    return result


def paced(port: int, concurrent: int, events: int, pace_s: float, *, captured: bool = True) -> Result:
    """Runs `concurrent` streams with an event every `pace_s` seconds. Raises TooSlowError."""
    request_bytes, expected = request(round(pace_s * 1e6), events, captured=captured), marks(events)
    result = Result(streams=concurrent, events=concurrent * events)
    with _streams(port, concurrent) as (epoll, streams):
        began = time.monotonic()
        for stream in streams.values():
            stream.sock.send(request_bytes)
        deadline = began + _PATIENCE * events * pace_s + _GRACE_S
        while streams:
            if time.monotonic() > deadline:
                raise TooSlowError(
                    f"{len(streams)} of {concurrent} streams did not end within {_PATIENCE} times their time"
                )
            for fd in _ready(epoll):
                stream = streams[fd]
                data = stream.sock.recv(_READ_BYTES)
                now = time.monotonic_ns()
                result.reads += 1
                _stamp(stream, data, now, result)
                if stream.add(data):
                    stream.check(expected)
                    result.widest.append(stream.widest_ns)
                    epoll.unregister(fd)
                    streams.pop(fd).sock.close()
        result.seconds = time.monotonic() - began
    return result


def _stamp(stream: _Stream, data: bytes, now: int, result: Result) -> None:
    """Adds the times of the events in a read. A stamp that is split between two reads is ignored."""
    stamps = STAMP.findall(data)
    if not stamps:
        return
    for stamp in stamps:
        result.late.append(now - int(stamp))
    if stream.last_ns and now - stream.last_ns > stream.widest_ns:
        stream.widest_ns = now - stream.last_ns
    stream.last_ns = now


def sequential(port: int, requests: int, *, captured: bool = True) -> Result:
    """Runs one request after the other on one connection. Times are from the request's write to the first byte's read."""
    request_bytes, expected = request(0, 1, captured=captured), marks(1)
    result = Result(streams=requests, events=requests)
    with _streams(port, 1) as (_, streams), _without_collector():
        (stream,) = streams.values()
        stream.sock.setblocking(True)
        for _ in range(requests):
            stream.begin()
            began = time.monotonic_ns()
            stream.sock.send(request_bytes)
            data = stream.sock.recv(_READ_BYTES)
            result.first.append(time.monotonic_ns() - began)
            while not stream.add(data):
                data = stream.sock.recv(_READ_BYTES)
            stream.check(expected)
    return result


def first_tokens(
    port: int, at_once: int, streams: int, events: int, pace_s: float, *, number: int = 1
) -> dict[str, int]:
    """The time of each stream's first token (ns since its request was written), by trace id, counted from `number`.

    Streams begin one by one at even distances, so that about `at_once` are open at any time.
    """
    expected, apart_ns = marks(events), round((events + 2) * pace_s / at_once * 1e9)
    times: dict[str, int] = {}
    with _streams(port, at_once + 1) as (epoll, opened):
        idle, sent = list(opened), dict.fromkeys(opened, ("", 0))
        early: dict[int, bytes] = {}  # the beginning of a response without a token so far
        begun = ended = 0
        due_ns = time.monotonic_ns()
        while ended < streams:
            begins = begun < streams and bool(idle)
            if begins and time.monotonic_ns() >= due_ns:
                fd, trace = idle.pop(), f"{number + begun:032x}"
                request_bytes = request(round(pace_s * 1e6), events, trace=trace)
                sent[fd], early[fd] = (trace, time.monotonic_ns()), b""
                opened[fd].sock.send(request_bytes)
                begun, due_ns = begun + 1, due_ns + apart_ns
                continue
            for fd in _ready(epoll, max(due_ns - time.monotonic_ns(), 0) / 1e9 if begins else None):
                stream = opened[fd]
                data = stream.sock.recv(_READ_BYTES)
                if fd in early:
                    now, (trace, began) = time.monotonic_ns(), sent[fd]
                    early[fd] += data
                    if STAMP.search(early[fd]):
                        times[trace] = now - began
                        del early[fd]
                if stream.add(data):
                    stream.check(expected)
                    stream.begin()
                    idle.append(fd)
                    ended += 1
    return times


def _ready(epoll: select.epoll, within_s: float | None = None) -> list[int]:
    """The sockets that are readable, possibly none after `within_s`. Without it raises BrokenError after _SILENCE_S."""
    events = epoll.poll(_SILENCE_S if within_s is None else within_s)
    if not events and within_s is None:
        raise BrokenError(f"nothing came for {_SILENCE_S:g} s")
    return [fd for fd, _ in events]


@contextmanager
def _streams(port: int, count: int) -> Iterator[tuple[select.epoll, dict[int, _Stream]]]:
    """Opens connections, without sending a request yet."""
    epoll, streams = select.epoll(), {}
    try:
        for _ in range(count):
            stream = _Stream(port)
            streams[stream.sock.fileno()] = stream
            epoll.register(stream.sock.fileno(), select.EPOLLIN)
        with _without_collector():
            yield epoll, streams
    finally:
        for stream in streams.values():
            stream.sock.close()
        epoll.close()


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keeps the pauses of the garbage collector out of the figures."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
