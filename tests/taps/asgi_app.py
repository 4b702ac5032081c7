"""A model server of the tests', as a user would write it: FastAPI, streams in the manner of vLLM, and the tap in one line.

What it does is asked by the model's name:

    plain           a whole stream, or a whole answer
    raises          begins, then raises
    fails           raises before it answers
    waits           begins, then waits for its client to leave
    stops           begins, and returns without an end
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from streamgauge.taps.asgi import TapMiddleware
from tests.integration.provider import BEGIN, REST
from tests.taps import anthropic_events

app = FastAPI()
app.add_middleware(TapMiddleware)


class Stops(Response):
    """Begins, and does not end."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": BEGIN, "more_body": True})


@app.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    body = await request.json()
    if body["model"] == "fails":
        raise RuntimeError("before it answered")
    if body["model"] == "stops":
        return Stops()
    if not body.get("stream"):
        return JSONResponse(whole(body["model"]), headers={"x-request-id": "request-1"})
    return StreamingResponse(
        pieces(body["model"]), media_type="text/event-stream", headers={"x-request-id": "request-1"}
    )


async def pieces(model: str) -> AsyncIterator[bytes]:
    for event in BEGIN.split(b"\n\n")[:-1]:
        yield event + b"\n\n"
        await asyncio.sleep(0.001)
    if model == "raises":
        raise RuntimeError("amid its answer")
    if model == "waits":
        await asyncio.sleep(600)
    for event in REST.split(b"\n\n")[:-1]:
        yield event + b"\n\n"
        await asyncio.sleep(0.001)


def whole(model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hello world"}
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


@app.post("/v1/messages")
async def messages(request: Request) -> Response:
    await request.body()

    async def events() -> AsyncIterator[str]:
        for name, data in anthropic_events.EVENTS:
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@app.get("/elsewhere")
async def elsewhere() -> Response:
    """A path that is no LLM's, which streams as one does."""
    return StreamingResponse(pieces("plain"), media_type="text/event-stream")


@app.get("/text")
async def text() -> Response:
    return PlainTextResponse("nothing to capture")
