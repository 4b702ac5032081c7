"""The client of the load: asks, reads, checks that every event came, and stamps what it reads. One thread, one epoll.

Each mode gives a Result. `BrokenError` where an answer is not whole: a figure of half an answer means nothing.
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

# Nothing for so long is no load but a fault (seconds).
_SILENCE_S = 20.0
_READ_BYTES = 262_144
# Paced streams that take so many times as long as they should, and some seconds, are given up: what is seen then is a
# queue that grows.
_PATIENCE = 3
_GRACE_S = 2.0


class BrokenError(Exception):
    """An answer that is not what the upstream sent."""


class TooSlowError(Exception):
    """The load is more than whoever answers can carry."""


@dataclass
class Result:
    """What was seen. Times in ns: `late` of each event since it was written, `widest` gap of each stream, `first` bytes."""

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

    def took(self, data: bytes) -> bool:
        """Whether the answer has ended."""
        if not data:
            raise BrokenError("the connection was closed amid an answer")
        self.marks += data.count(MARK)
        self.tail = data[-5:] if len(data) >= 5 else (self.tail + data)[-5:]
        return self.tail == LAST_CHUNK

    def check(self, expected: int) -> None:
        if self.marks != expected:
            raise BrokenError(f"{self.marks} marks where {expected} were sent")


def burst(port: int, concurrent: int, streams: int, events: int, *, captured: bool = True) -> Result:
    """So many streams, `concurrent` at a time, one after the other on each connection, as fast as they go."""
    asking, expected = request(0, events, captured=captured), marks(events)
    result = Result()
    with _streams(port, min(concurrent, streams)) as (epoll, opened):
        began = time.monotonic()
        for one in opened.values():
            one.sock.send(asking)
        unasked = streams - len(opened)
        while result.streams < streams:
            for fd in _ready(epoll):
                one = opened[fd]
                result.reads += 1
                if not one.took(one.sock.recv(_READ_BYTES)):
                    continue
                one.check(expected)
                result.streams += 1
                one.begin()
                if unasked:
                    unasked -= 1
                    one.sock.send(asking)
        result.seconds = time.monotonic() - began
    result.events = result.streams * events
    return result


def paced(port: int, concurrent: int, events: int, pace_s: float, *, captured: bool = True) -> Result:
    """So many streams side by side, an event each `pace_s` seconds. Raises TooSlowError."""
    asking, expected = request(round(pace_s * 1e6), events, captured=captured), marks(events)
    result = Result(streams=concurrent, events=concurrent * events)
    with _streams(port, concurrent) as (epoll, streams):
        began = time.monotonic()
        for one in streams.values():
            one.sock.send(asking)
        patience = began + _PATIENCE * events * pace_s + _GRACE_S
        while streams:
            if time.monotonic() > patience:
                raise TooSlowError(
                    f"{len(streams)} of {concurrent} streams were not over in {_PATIENCE} times their time"
                )
            for fd in _ready(epoll):
                one = streams[fd]
                data = one.sock.recv(_READ_BYTES)
                now = time.monotonic_ns()
                result.reads += 1
                _stamp(one, data, now, result)
                if one.took(data):
                    one.check(expected)
                    result.widest.append(one.widest_ns)
                    epoll.unregister(fd)
                    streams.pop(fd).sock.close()
        result.seconds = time.monotonic() - began
    return result


def _stamp(one: _Stream, data: bytes, now: int, result: Result) -> None:
    """An event's time is that of the read which brought its stamp; one that was cut in two is left out."""
    stamps = STAMP.findall(data)
    if not stamps:
        return
    for stamp in stamps:
        result.late.append(now - int(stamp))
    if one.last_ns and now - one.last_ns > one.widest_ns:
        one.widest_ns = now - one.last_ns
    one.last_ns = now


def sequential(port: int, requests: int, *, captured: bool = True) -> Result:
    """One request after the other on one connection: from its last byte written to the answer's first byte read."""
    asking, expected = request(0, 1, captured=captured), marks(1)
    result = Result(streams=requests, events=requests)
    with _streams(port, 1) as (_, streams), _collecting_nothing():
        (one,) = streams.values()
        one.sock.setblocking(True)
        for _ in range(requests):
            one.begin()
            began = time.monotonic_ns()
            one.sock.send(asking)
            data = one.sock.recv(_READ_BYTES)
            result.first.append(time.monotonic_ns() - began)
            while not one.took(data):
                data = one.sock.recv(_READ_BYTES)
            one.check(expected)
    return result


def first_tokens(
    port: int, at_once: int, streams: int, events: int, pace_s: float, *, number: int = 1
) -> dict[str, int]:
    """When each stream's first token was there (ns since its request was written), by its trace id: `number` and up.

    They begin one by one, so evenly that about `at_once` of them are open at any time.
    """
    expected, apart_ns = marks(events), round((events + 2) * pace_s / at_once * 1e9)
    found: dict[str, int] = {}
    with _streams(port, at_once + 1) as (epoll, opened):
        idle, asked = list(opened), dict.fromkeys(opened, ("", 0))
        early: dict[int, bytes] = {}  # what has come of an answer without a token so far
        begun = ended = 0
        due_ns = time.monotonic_ns()
        while ended < streams:
            begins = begun < streams and bool(idle)
            if begins and time.monotonic_ns() >= due_ns:
                fd, trace = idle.pop(), f"{number + begun:032x}"
                asking = request(round(pace_s * 1e6), events, trace=trace)
                asked[fd], early[fd] = (trace, time.monotonic_ns()), b""
                opened[fd].sock.send(asking)
                begun, due_ns = begun + 1, due_ns + apart_ns
                continue
            for fd in _ready(epoll, max(due_ns - time.monotonic_ns(), 0) / 1e9 if begins else None):
                one = opened[fd]
                data = one.sock.recv(_READ_BYTES)
                if fd in early:
                    now, (trace, began) = time.monotonic_ns(), asked[fd]
                    early[fd] += data
                    if STAMP.search(early[fd]):
                        found[trace] = now - began
                        del early[fd]
                if one.took(data):
                    one.check(expected)
                    one.begin()
                    idle.append(fd)
                    ended += 1
    return found


def _ready(epoll: select.epoll, within_s: float | None = None) -> list[int]:
    """Who has something to read; nobody may have, `within_s`."""
    found = epoll.poll(_SILENCE_S if within_s is None else within_s)
    if not found and within_s is None:
        raise BrokenError(f"nothing came for {_SILENCE_S:g} s")
    return [fd for fd, _ in found]


@contextmanager
def _streams(port: int, count: int) -> Iterator[tuple[select.epoll, dict[int, _Stream]]]:
    """Connections that are open, before anything is asked."""
    epoll, streams = select.epoll(), {}
    try:
        for _ in range(count):
            one = _Stream(port)
            streams[one.sock.fileno()] = one
            epoll.register(one.sock.fileno(), select.EPOLLIN)
        with _collecting_nothing():
            yield epoll, streams
    finally:
        for one in streams.values():
            one.sock.close()
        epoll.close()


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Without the collector's pauses in what is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
