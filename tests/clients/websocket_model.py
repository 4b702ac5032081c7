"""The scripted model over WebSocket, as the Responses and the Realtime API of OpenAI."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

from tests.clients.model import INPUT_TOKENS, OUTPUT_TOKENS, STATUS, WORDS, Step, halves, responses
from tests.websockets import websocket_server

Event = dict[str, Any]


class WebSocketModel:
    """The server. `requests`: handshakes and messages so far. `turns`: how many tool calls come before the text."""

    def __init__(self, turns: int = 1) -> None:
        self.turns = turns
        self.requests = 0
        self.url = ""

    def serve(self, connection: ServerConnection) -> None:
        """One connection, until the client leaves."""
        assert connection.request is not None
        self.requests += 1
        target = urlsplit(connection.request.path)
        with contextlib.suppress(ConnectionClosed):
            if target.path.endswith("/realtime"):
                model = parse_qs(target.query)["model"][0]
                connection.send(json.dumps({"type": "session.created", "event_id": "e", "session": session(model)}))
                self._talk(connection, lambda asked, number: realtime(asked, number, model))
            else:
                self._talk(connection, self._respond)

    def _talk(self, connection: ServerConnection, respond: Any) -> None:
        number = 0
        while True:
            asked: Event = json.loads(connection.recv())
            self.requests += 1
            if asked["type"] == "response.create":
                for event in respond(asked, number):
                    connection.send(json.dumps(event))
                number += 1

    def _respond(self, asked: Event, _number: int) -> list[Event]:
        model = asked["model"]
        if error := error_event(model):
            return [{"type": "error", "status": STATUS[model], "error": error}]
        # A response that follows another one has only the new results in its input.
        previous = asked.get("previous_response_id")
        step = Step(asked, self.turns, int(previous.rpartition("_")[2]) if previous else 0)
        events = responses(step, model)
        # A warm-up has no output.
        return events if asked.get("generate", True) else [events[0], {**events[0], "type": "response.completed"}]


def error_event(model: str) -> Event | None:
    if model not in STATUS:
        return None
    return {"type": "scripted_error", "code": model, "message": f"This model is {model}.", "param": None}


def session(model: str) -> Event:
    return {"type": "realtime", "object": "realtime.session", "id": "sess_1", "model": model}


def realtime(_asked: Event, number: int, model: str) -> list[Event]:
    """The events of one response of the Realtime API: a call first, then text."""
    if error := error_event(model):
        return [{"type": "error", "event_id": "e", "error": error}]
    names = itertools.count()
    response: Event = {"id": f"resp_{number}", "object": "realtime.response", "status": "in_progress", "output": []}
    position = {"response_id": response["id"], "item_id": f"item_{number}", "output_index": 0}
    events: list[Event] = []

    def add(kind: str, **members: Any) -> None:
        events.append({"type": f"response.{kind}", "event_id": f"e_{number}_{next(names)}", **members})

    add("created", response=response)
    if number == 0:
        item: Event = {"id": position["item_id"], "type": "function_call", "call_id": "call_0", "name": "level"}
        arguments = '{"river":"Seine"}'
        add("output_item.added", **position, item={**item, "arguments": ""})
        for piece in halves(arguments):
            add("function_call_arguments.delta", **position, call_id="call_0", delta=piece)
        add("function_call_arguments.done", **position, call_id="call_0", name="level", arguments=arguments)
        item["arguments"] = arguments
    else:
        part = {"content_index": 0}
        item = {"id": position["item_id"], "type": "message", "role": "assistant", "content": []}
        add("output_item.added", **position, item=item)
        for word in WORDS:
            add("output_text.delta", **position, **part, delta=word)
        add("output_text.done", **position, **part, text="".join(WORDS))
        item = {**item, "content": [{"type": "output_text", "text": "".join(WORDS)}]}
    add("output_item.done", **position, item=item)
    usage = {
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        "input_tokens": INPUT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
    }
    add("done", response={**response, "status": "completed", "output": [item], "usage": usage})
    return events


@contextlib.contextmanager
def websocket_model(turns: int = 1) -> Iterator[WebSocketModel]:
    """Serves within the context."""
    model = WebSocketModel(turns)
    with websocket_server(model.serve) as model.url:
        yield model
