"""The upstream of the load: `python -m bench.load.upstream [PEM]`

It writes its port to stdout, and ends when its stdin does. PEM: a file with a certificate and
its key. All connections then use TLS.

One thread on one epoll with plain sockets keeps its cost low. Each event is one write, unless the request asks for several
at once. Streams without a pace send their
events by turns, as fast as possible. Paced streams send each event when it is due, with their phases spread evenly. A
full socket throttles its stream: its events are then late, and none is left out.
"""

import gc
import heapq
import select
import socket
import ssl
import sys
import time
from itertools import count

from bench.load.answer import AFTER, BEFORE, BEGINNING, END, OTHER_BEGINNING, parse_request, stamped

# Connections that may wait to be accepted: all of a load's arrive together.
_BACKLOG = 2048
# A longer wait is left to epoll, which waits for whole milliseconds (ns).
_EPOLL_NS = 2_000_000
# How late the kernel wakes a sleeping thread, about (ns).
_SLACK_NS = 40_000
# Even phases for any number of streams: multiples of the golden ratio, modulo 1.
_GOLDEN = 0.618033988749895
# Deltas of streams without a pace, prebuilt with different texts.
_PREBUILT = [b"%b%019d%b" % (BEFORE, place, AFTER) for place in range(256)]


class _Connection:
    """A client's connection, and the stream that is sent on it."""

    __slots__ = ("at_once", "interval_ns", "left", "pending", "received", "sock", "throttled")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = b""
        self.pending = b""
        self.left = self.interval_ns = 0
        self.at_once = 1
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
        """Serves until stdin ends."""
        while True:
            for fd, mask in self._epoll.poll(self._sleep_until_due()):
                if fd == sys.stdin.fileno():
                    return
                if fd == self._listening.fileno():
                    self._accept()
                elif mask & select.EPOLLOUT:
                    self._unblocked(self._connections[fd])
                else:
                    self._readable(self._connections[fd])
            for connection in list(self._fast.values()):
                self._next(connection, _PREBUILT[connection.left & 255])
            self._send_due()

    def _sleep_until_due(self) -> float | None:
        """Sleeps for a time too short for epoll. Returns how long epoll may wait (seconds; None: without limit)."""
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

    def _readable(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(65536)
        except ssl.SSLWantReadError:  # a part of a TLS record, or of the handshake
            return
        except (BlockingIOError, ConnectionResetError, ssl.SSLError):
            data = b""
        if not data:
            self._forget(connection)
            return
        connection.received += data
        head, found, body = connection.received.partition(b"\r\n\r\n")
        if found and _whole(head, body):
            connection.received = b""
            self._begin(connection, head)

    def _begin(self, connection: _Connection, head: bytes) -> None:
        interval_us, connection.left, connection.at_once, llm = parse_request(head)
        connection.interval_ns = interval_us * 1000
        self._write(connection, BEGINNING if llm else OTHER_BEGINNING)
        if connection.interval_ns:
            number = next(self._numbers)
            phase = (number * _GOLDEN) % 1
            # All streams share one beat, so their phases are even whenever requests come, and each load is alike.
            beat = time.monotonic_ns() // connection.interval_ns * connection.interval_ns
            due = beat + int(connection.interval_ns * (2 + phase))
            heapq.heappush(self._due, (due, number, connection))
        elif not connection.throttled:
            self._fast[connection.sock.fileno()] = connection

    def _send_due(self) -> None:
        due = self._due
        now = time.monotonic_ns()
        while due and due[0][0] <= now:
            at, number, connection = due[0]
            if not connection.throttled and connection.sock.fileno() >= 0:
                self._next(connection, stamped(now))
                now = time.monotonic_ns()
            if (connection.left >= 0 or connection.throttled) and connection.sock.fileno() >= 0:
                heapq.heapreplace(due, (at + connection.interval_ns, number, connection))
            else:
                heapq.heappop(due)

    def _next(self, connection: _Connection, delta: bytes) -> None:
        """Sends one more event, or as many as the request asked for at once, or the end after the last one."""
        if connection.left > 0:
            events = min(connection.at_once, connection.left)
            connection.left -= events
            self._write(connection, delta if events == 1 else delta * events)
        else:
            connection.left = -1
            self._fast.pop(connection.sock.fileno(), None)
            self._write(connection, END)

    def _write(self, connection: _Connection, data: bytes) -> None:
        try:
            sent = connection.sock.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        except OSError:
            self._forget(connection)
            return
        if sent < len(data):
            connection.pending, connection.throttled = data[sent:], True
            self._fast.pop(connection.sock.fileno(), None)
            self._epoll.modify(connection.sock.fileno(), select.EPOLLOUT)

    def _unblocked(self, connection: _Connection) -> None:
        data, connection.pending, connection.throttled = connection.pending, b"", False
        self._epoll.modify(connection.sock.fileno(), select.EPOLLIN)
        self._write(connection, data)
        if not connection.throttled and not connection.interval_ns and connection.left >= 0:
            self._fast[connection.sock.fileno()] = connection

    def _forget(self, connection: _Connection) -> None:
        fd = connection.sock.fileno()
        if fd >= 0:
            self._epoll.unregister(fd)
            self._fast.pop(fd, None)
            del self._connections[fd]
            connection.sock.close()


def _whole(head: bytes, body: bytes) -> bool:
    """Whether the request's body is complete, by its length or its last chunk: a proxy may change the framing."""
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
