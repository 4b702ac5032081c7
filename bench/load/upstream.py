"""The upstream of the load: `python -m bench.load.upstream [PEM]`. Writes its port to stdout; ends when its stdin does.

PEM: a certificate and its key; all connections are TLS then.

One thread on one epoll and plain sockets, since it must not be what is measured. Streams that go as fast as they can get
an event each by turns, each event its own write. Streams at a pace get theirs when it is due, their phases spread evenly.
A socket that takes no more throttles its stream: then events come later, and none is left out.
"""

import gc
import heapq
import select
import socket
import ssl
import sys
import time
from itertools import count

from bench.load.answer import AFTER, BEFORE, BEGINNING, END, OTHER_BEGINNING, asked, stamped

# Connections that wait to be accepted: all of a load's come at once.
_BACKLOG = 2048
# A sleep that is longer than this is one of epoll's, in whole milliseconds (ns).
_EPOLL_NS = 2_000_000
# The kernel wakes a sleeper about so late (ns).
_SLACK_NS = 40_000
# Even phases for any number of streams: multiples of the golden ratio, modulo 1.
_GOLDEN = 0.618033988749895
# Deltas of streams without a pace: made before, each with another text.
_PREBUILT = [b"%b%019d%b" % (BEFORE, place, AFTER) for place in range(256)]


class _Connection:
    """A client's connection, and the stream that it is being answered."""

    __slots__ = ("heard", "interval_ns", "left", "pending", "sock", "throttled")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.heard = b""
        self.pending = b""
        self.left = self.interval_ns = 0
        self.throttled = False


class Upstream:
    """All connections of one listening socket."""

    def __init__(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._listening = listening
        self._tls = tls
        self._epoll = select.epoll()
        self._epoll.register(listening.fileno(), select.EPOLLIN)
        self._epoll.register(sys.stdin.fileno(), select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._fast: dict[int, _Connection] = {}
        self._due: list[tuple[int, int, _Connection]] = []
        self._numbers = count()

    def run(self) -> None:
        """Until stdin ends."""
        while True:
            for fd, mask in self._epoll.poll(self._nap()):
                if fd == sys.stdin.fileno():
                    return
                if fd == self._listening.fileno():
                    self._accept()
                elif mask & select.EPOLLOUT:
                    self._unblocked(self._connections[fd])
                else:
                    self._readable(self._connections[fd])
            for one in list(self._fast.values()):
                self._next(one, _PREBUILT[one.left & 255])
            self._send_due()

    def _nap(self) -> float | None:
        """Sleeps where epoll cannot for so short a time; gives the rest, in seconds."""
        if self._fast:
            return 0
        if not self._due:
            return None
        wait_ns = self._due[0][0] - time.monotonic_ns()
        if wait_ns > _EPOLL_NS:
            return (wait_ns - 1_000_000) / 1e9
        if wait_ns > _SLACK_NS:
            time.sleep((wait_ns - _SLACK_NS) / 1e9)
        return 0

    def _accept(self) -> None:
        try:
            while True:
                sock, _ = self._listening.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:  # the first reads do the handshake
                    sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                self._connections[sock.fileno()] = _Connection(sock)
                self._epoll.register(sock.fileno(), select.EPOLLIN)
        except BlockingIOError:
            return

    def _readable(self, one: _Connection) -> None:
        try:
            data = one.sock.recv(65536)
        except ssl.SSLWantReadError:  # a part of a TLS record, or of the handshake
            return
        except (BlockingIOError, ConnectionResetError, ssl.SSLError):
            data = b""
        if not data:
            self._forget(one)
            return
        one.heard += data
        head, found, body = one.heard.partition(b"\r\n\r\n")
        if found and _whole(head, body):
            one.heard = b""
            self._begin(one, head)

    def _begin(self, one: _Connection, head: bytes) -> None:
        interval_us, one.left, llm = asked(head)
        one.interval_ns = interval_us * 1000
        self._write(one, BEGINNING if llm else OTHER_BEGINNING)
        if one.interval_ns:
            number = next(self._numbers)
            phase = (number * _GOLDEN) % 1
            # Of a beat that all share: phases stay even whenever a request came, so that each load on each peer is alike.
            beat = time.monotonic_ns() // one.interval_ns * one.interval_ns
            due = beat + int(one.interval_ns * (2 + phase))
            heapq.heappush(self._due, (due, number, one))
        elif not one.throttled:
            self._fast[one.sock.fileno()] = one

    def _send_due(self) -> None:
        due = self._due
        now = time.monotonic_ns()
        while due and due[0][0] <= now:
            at, number, one = due[0]
            if not one.throttled and one.sock.fileno() >= 0:
                self._next(one, stamped(now))
                now = time.monotonic_ns()
            if (one.left >= 0 or one.throttled) and one.sock.fileno() >= 0:
                heapq.heapreplace(due, (at + one.interval_ns, number, one))
            else:
                heapq.heappop(due)

    def _next(self, one: _Connection, delta: bytes) -> None:
        """One more event; behind the last one the end."""
        one.left -= 1
        if one.left >= 0:
            self._write(one, delta)
        else:
            self._fast.pop(one.sock.fileno(), None)
            self._write(one, END)

    def _write(self, one: _Connection, data: bytes) -> None:
        try:
            sent = one.sock.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        except OSError:
            self._forget(one)
            return
        if sent < len(data):
            one.pending, one.throttled = data[sent:], True
            self._fast.pop(one.sock.fileno(), None)
            self._epoll.modify(one.sock.fileno(), select.EPOLLOUT)

    def _unblocked(self, one: _Connection) -> None:
        data, one.pending, one.throttled = one.pending, b"", False
        self._epoll.modify(one.sock.fileno(), select.EPOLLIN)
        self._write(one, data)
        if not one.throttled and not one.interval_ns and one.left >= 0:
            self._fast[one.sock.fileno()] = one

    def _forget(self, one: _Connection) -> None:
        fd = one.sock.fileno()
        if fd >= 0:
            self._epoll.unregister(fd)
            self._fast.pop(fd, None)
            del self._connections[fd]
            one.sock.close()


def _whole(head: bytes, body: bytes) -> bool:
    """Whether the request's body is there: by its length, or to its last chunk, as a proxy may frame it anew."""
    length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
    return len(body) >= int(length) if length else body.endswith(b"0\r\n\r\n")


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    listening.setblocking(False)
    tls = None
    if sys.argv[1:]:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(sys.argv[1])
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    gc.disable()
    Upstream(listening, tls).run()


if __name__ == "__main__":
    main()
