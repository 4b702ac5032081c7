"""Simulated providers as HTTP servers: what their handlers and their threads have in common."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

# How long a server's thread may take to stop (seconds). On an idle machine it takes a few milliseconds.
PATIENCE_S = 60.0


class Quiet:
    """Makes a handler speak HTTP/1.1 and log nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return


class LocalServer(ThreadingHTTPServer):
    """A server on a free port of 127.0.0.1."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


Server = TypeVar("Server", bound=LocalServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Runs the server in a thread within the context."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)
