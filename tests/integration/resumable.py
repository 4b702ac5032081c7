"""A provider whose streams break and can be resumed, like OpenAI's Responses and Nimbus's messages."""

import json
from urllib.parse import parse_qs, urlsplit

from streamgauge_demo.provider import Exchange, Provider, Request, Script, stream, whole
from tests.events import DONE, chat_chunk, chat_usage, named

# Where streams break: the last event before it, by sequence number and by event id.
LAST_SEQUENCE = 5
LAST_EVENT = 4


def _typed(kind: str, event_id: int | None = None, **members: object) -> bytes:
    numbered = b"" if event_id is None else b"id: %d\n" % event_id
    return numbered + named({"type": kind, **members})


def _response(status: str, usage: object = None) -> dict[str, object]:
    return {"id": "resp_1", "object": "response", "status": status, "model": "big-1", "output": [], "usage": usage}


def _delta(number: int) -> bytes:
    kind = "response.output_text.delta"
    return _typed(kind, sequence_number=number, output_index=0, content_index=0, item_id="m", delta="x" * number)


def _text(number: int) -> bytes:
    return _typed("content_block_delta", number, index=0, delta={"type": "text_delta", "text": "x" * number})


# Ten events of a response (0 to 9), its usage on the last one.
RESPONSE = [
    _typed("response.created", sequence_number=0, response=_response("in_progress")),
    _typed("response.in_progress", sequence_number=1, response=_response("in_progress")),
    *(_delta(number) for number in range(2, 9)),
    _typed(
        "response.completed",
        sequence_number=9,
        response=_response("completed", {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}),
    ),
]
_START: dict[str, object] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-1",
    "content": [],
    "stop_reason": None,
}
# Events of a message, with ids from 1 on: its input is reported at the start, its output near the end.
MESSAGE = [
    _typed("message_start", 1, message={**_START, "usage": {"input_tokens": 41, "output_tokens": 1}}),
    _typed("content_block_start", 2, index=0, content_block={"type": "text", "text": ""}),
    *(_text(number) for number in range(3, 7)),
    _typed("content_block_stop", 7, index=0),
    _typed("message_delta", 8, delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 20}),
    _typed("message_stop", 9),
]


# A chat whose id is the same for every request, as some gateways give it.
CHAT = [
    chat_chunk("same", role="assistant", content="Hi"),
    chat_chunk("same", finish="stop"),
    chat_usage("same", 3, 2),
    DONE,
]
REFUSED = {"error": {"type": "invalid_request_error", "code": "resume_not_supported", "message": "not for this model"}}
BUSY = {"error": {"type": "server_error", "code": "overloaded", "message": "later"}}


# Before a refused request is repeated.
_LATER = {"retry-after-ms": "1"}


class Resumable(Provider):
    """`busy`: how many further requests for the model `busy-1` get a 503. A stream that breaks has no last chunk."""

    def __init__(self) -> None:
        super().__init__(self._play)
        self.busy = 1

    async def _play(self, exchange: Exchange) -> None:
        body = await exchange.read_body()
        await self._script(exchange.request, json.loads(body or b"{}"))(exchange)

    def _script(self, request: Request, body: dict[str, object]) -> Script:
        resumed = request.headers.get("last-event-id")
        if request.method == "GET":
            return _rest_of_response(request)
        if request.path == "/v1/responses":
            return stream(*RESPONSE[: LAST_SEQUENCE + 1], end="close")
        if request.path == "/v1/messages":
            return stream(*MESSAGE[:LAST_EVENT], end="close") if resumed is None else stream(*MESSAGE[int(resumed) :])
        if resumed is not None:
            return whole(json.dumps(REFUSED).encode(), 400, headers=_LATER)
        if body["model"] == "busy-1" and self.busy:
            self.busy -= 1
            return whole(json.dumps(BUSY).encode(), 503, headers=_LATER)
        return stream(*CHAT)


def _rest_of_response(request: Request) -> Script:
    """The rest of a stored response, with the event before it repeated, like upstreams with coarse offsets. Without a
    position, all of it.
    """
    assert request.path == "/v1/responses/resp_1"
    after = int(parse_qs(urlsplit(request.target).query).get("starting_after", ["0"])[0])
    return stream(*RESPONSE[after:])
