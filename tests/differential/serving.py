"""A real server on 127.0.0.1 that answers each request with the bytes of a vector, and ends as the vector says."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.vectors.load import Vector

# How long the server's thread may take to stop (seconds); it takes a few milliseconds alone.
PATIENCE_S = 60.0


class VectorServer(ThreadingHTTPServer):
    """Serves a vector at each path below its URL."""

    daemon_threads = True

    def __init__(self, served: list[Vector]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.vectors = {(vector.dialect, vector.name): vector for vector in served}

    def url(self, vector: Vector) -> str:
        """The base URL at which this vector is the answer."""
        return f"http://127.0.0.1:{self.server_address[1]}/{vector.dialect}/{vector.name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: VectorServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        _, dialect, name, *_ = self.path.split("/")
        self._answer(self.server.vectors[dialect, name])

    def _answer(self, vector: Vector) -> None:
        self.send_response(vector.status)
        self.send_header("Content-Type", vector.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        if vector.body:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(vector.body), vector.body))
        if vector.ending == "complete":  # otherwise a body without its last chunk
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def served(vectors: list[Vector]) -> Iterator[VectorServer]:
    """The server, until the context is left."""
    with VectorServer(vectors) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)
