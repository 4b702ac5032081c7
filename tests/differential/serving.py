"""A real server on 127.0.0.1 whose responses are the bytes of vectors, with the ending that the vector names."""

from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler

from tests.http_serving import LocalServer, Quiet, serving
from tests.vectors.load import Vector


class VectorServer(LocalServer):
    """Serves each vector at the paths below a URL of its own."""

    def __init__(self, vectors: list[Vector]) -> None:
        super().__init__(_Handler)
        self.vectors = {(vector.dialect, vector.name): vector for vector in vectors}

    def url_of(self, vector: Vector) -> str:
        """The base URL of this vector."""
        return f"{self.url}/{vector.dialect}/{vector.name}"


class _Handler(Quiet, BaseHTTPRequestHandler):
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


def served(vectors: list[Vector]) -> AbstractContextManager[VectorServer]:
    """Runs the server within the context."""
    return serving(VectorServer(vectors))
