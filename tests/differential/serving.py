"""A real server on 127.0.0.1 whose responses are the bytes of vectors, with the ending that the vector names."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.vectors.load import Vector

# How long the server's thread may take to stop (seconds). On an idle machine it takes a few milliseconds.
PATIENCE_S = 60.0


class VectorServer(ThreadingHTTPServer):
    """Serves each vector at the paths below a URL of its own."""

    daemon_threads = True

    def __init__(self, vectors: list[Vector]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.vectors = {(vector.dialect, vector.name): vector for vector in vectors}

    def url(self, vector: Vector) -> str:
        """The base URL of this vector."""
        return f"http://127.0.0.1:{self.server_address[1]}/{vector.dialect}/{vector.name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: VectorServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        _, dialect, name, *_ = self.path.split("/")
        self._respond(self.server.vectors[dialect, name])

    def _respond(self, vector: Vector) -> None:
        self.send_response(vector.status)
        self.send_header("Content-Type", vector.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        if vector.body:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(vector.body), vector.body))
        if vector.ending == "complete":  # otherwise the last chunk is missing
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def served(vectors: list[Vector]) -> Iterator[VectorServer]:
    """Runs the server within the context."""
    with VectorServer(vectors) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)
