"""Requests and responses on one captured connection, and the messages that report them."""

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    RequestBody,
    RequestSent,
    ResponseRead,
)
from tests.taps.packets.wire import by_stream
from tests.taps.talk import EVENTS, SSE, chunked, head

BODY = b'{"model":"m","stream":true}'
CHUNKED = ("transfer-encoding", "chunked")
STREAM = head(SSE, CHUNKED)
CHUNKS = [chunked(event)[:-5] for event in EVENTS]
WHOLE = [STREAM, *CHUNKS, b"0\r\n\r\n"]
JSON = head(("content-type", "application/json"), ("content-length", "2")) + b"{}"


def asking(body: bytes = BODY, path: str = "/v1/chat/completions", *fields: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def only(messages: list[Message]) -> list[Message]:
    (one,) = by_stream(messages)
    return one


def ended(messages: list[Message]) -> ExchangeEnding:
    last = messages[-1]
    assert isinstance(last, ExchangeEnding)
    return last


def endings(messages: list[Message]) -> list[Ending]:
    return [ended(one).ending for one in by_stream(messages)]


def arrived(messages: list[Message]) -> bytes:
    return b"".join(message.data for message in messages if isinstance(message, ResponseRead))


def request_body_of(messages: list[Message]) -> bytes:
    return b"".join(message.data for message in messages if isinstance(message, RequestBody))


def sent(messages: list[Message]) -> RequestSent | None:
    return next((message for message in messages if isinstance(message, RequestSent)), None)


def names(messages: list[Message]) -> list[str]:
    return [type(message).__name__ for message in messages]
