"""A real server on 127.0.0.1 whose responses are the bytes of vectors, with the ending that the vector names."""

from streamgauge_demo.provider import LAST_CHUNK, Exchange, Provider, answer, chunk, head
from tests.vectors.framings import as_sent
from tests.vectors.load import Vector


class VectorServer(Provider):
    """Serves each vector at the paths below a URL of its own."""

    def __init__(self, vectors: list[Vector]) -> None:
        super().__init__(self._play, keeps=False)
        self.vectors = {(vector.dialect, vector.name): as_sent(vector) for vector in vectors}

    def url_of(self, vector: Vector) -> str:
        """The base URL of this vector."""
        return f"{self.url}/{vector.dialect}/{vector.name}"

    async def _play(self, exchange: Exchange) -> None:
        _, dialect, name, *_ = exchange.request.path.split("/")
        vector = self.vectors[dialect, name]
        opening = head(vector.status, vector.content_type, headers={"connection": "close"})
        body = chunk(vector.body) if vector.body else b""
        last = LAST_CHUNK if vector.ending == "complete" else b""
        await answer(opening + body + last, end="close")(exchange)


def served(vectors: list[Vector]) -> VectorServer:
    """Serves within the context."""
    return VectorServer(vectors)
