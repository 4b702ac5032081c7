"""A small provider: responds to a chat with an event stream, in pieces that the test releases."""

import json
import threading

from streamgauge_demo import provider as simulated


def event(**choice: object) -> bytes:
    chunk = {"id": "chat-1", "object": "chat.completion.chunk", "model": "small-1", "choices": [{"index": 0, **choice}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


BEGIN = event(delta={"role": "assistant", "content": ""}) + event(delta={"content": "Hello"})
REST = (
    event(delta={"content": " world"})
    + event(delta={}, finish_reason="stop")
    + b'data: {"id":"chat-1","object":"chat.completion.chunk","model":"small-1","choices":[],'
    + b'"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\ndata: [DONE]\n\n'
)


class Provider(simulated.Provider):
    """`go_on`: while it is cleared, streams stop after their beginning; once set, they end. `headers`: further headers of
    responses.
    """

    def __init__(self) -> None:
        super().__init__(self._play)
        self.go_on = threading.Event()
        self.go_on.set()
        self.headers: dict[str, str] = {}

    @property
    def asked(self) -> list[dict[str, str]]:
        """The headers of each request, in lower case."""
        return [exchange.request.headers for exchange in self.exchanges]

    async def _play(self, exchange: simulated.Exchange) -> None:
        await exchange.read_body()
        await exchange.play([simulated.head(headers=self.headers), simulated.chunk(BEGIN)])
        if await exchange.until(self.go_on):
            await exchange.play([simulated.chunk(REST), simulated.LAST_CHUNK])


def provider() -> Provider:
    """A provider that serves within its context."""
    return Provider()
