"""A provider that speaks WebSocket: OpenAI's Responses, as a script of what follows each message of the client."""

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from websockets.sync.server import Server, ServerConnection, serve

from tests.ports import free_port

Event = dict[str, Any]
Handler = Callable[[ServerConnection], None]

USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 18,
}


def response(number: int, status: str, **more: Any) -> Event:
    """The response object of an event."""
    return {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "gpt-5.6", "status": status,
            "output": [], "usage": None, **more}  # fmt: skip


def events(number: int = 1, *words: str, lane: str | None = None, ends: str = "completed", **more: Any) -> list[Event]:
    """The events of one response with these words of text."""
    words = words or ("Seine", " and", " Rhine")
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "in_progress", "content": []}
    text = "".join(words)
    delta = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    listed: list[Event] = [
        {"type": "response.created", "response": response(number, "in_progress", **more)},
        {"type": "response.in_progress", "response": response(number, "in_progress", **more)},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *[{"type": "response.output_text.delta", **delta, "delta": word} for word in words],
        {"type": "response.output_text.done", **delta, "text": text},
        {"type": f"response.{ends}", "response": response(number, ends, **{"usage": USAGE, **more})},
    ]
    numbered = [{**event, "sequence_number": place} for place, event in enumerate(listed)]
    return [event | {"stream_id": lane} for event in numbered] if lane is not None else numbered


def send(connection: ServerConnection, *listed: Event) -> None:
    """Sends events, each in a frame."""
    for event in listed:
        connection.send(json.dumps(event))


def asked(connection: ServerConnection) -> Event:
    """The client's next message."""
    message: Event = json.loads(connection.recv())
    return message


@contextlib.contextmanager
def websocket_server(handler: Handler, **options: Any) -> Iterator[str]:
    """A server that runs the handler for each connection: its URL, of http."""
    quiet = logging.getLogger("tests.websockets")
    quiet.disabled = True
    server: Server = serve(handler, "127.0.0.1", free_port(), logger=quiet, **options)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()
