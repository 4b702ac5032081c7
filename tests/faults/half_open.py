"""A TCP proxy in front of a broker that stops passing bytes on, in one or both directions, and keeps every connection
open.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class HalfOpen:
    """Listens at `address`. `asking` and `answering`: whether bytes to the broker, and from it, are passed on."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._broker = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self.asking = self.answering = True
        self.connections = 0
        self.swallowed = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def heal(self) -> None:
        """New connections work; swallowed bytes are lost, so the old connections stay as they are."""
        self.asking = self.answering = True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
                broker = socket.create_connection(self._broker)
            except OSError:
                return
            self.connections += 1
            self._sockets += [client, broker]
            broken = threading.Event()
            threading.Thread(target=self._pass, args=(client, broker, "asking", broken), daemon=True).start()
            threading.Thread(target=self._pass, args=(broker, client, "answering", broken), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, way: str, broken: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not getattr(self, way):
                    broken.set()  # a stream with a gap is useless: this connection passes nothing more on
                if broken.is_set():
                    self.swallowed += len(data)
                else:
                    sink.sendall(data)
        if not broken.is_set():
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in (self._listening, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def half_open(bootstrap: str) -> Iterator[HalfOpen]:
    proxy = HalfOpen(bootstrap)
    try:
        yield proxy
    finally:
        proxy.close()
