"""A canary in every place of a request, and of a response outside its events: headers, query, path, body, comments,
errors.

Each is one exchange with its own number, like the places of events in canaries.py.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.faults.canaries import figure, word
from tests.integration.provider import BEGIN, REST

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m-1", "stream": True, "messages": [{"role": "user", "content": "x"}]}
OK = "HTTP/1.1 200 OK"
SSE = ("content-type", "text/event-stream")
JSON = ("content-type", "application/json")

REQUEST_HEADERS = (
    "authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "user-agent", "referer",
    "origin", "x-forwarded-for", "forwarded", "openai-organization", "openai-project", "anthropic-beta", "anthropic-version",
    "idempotency-key", "traceparent", "tracestate", "baggage", "last-event-id", "x-stainless-retry-count", "x-tenant",
    "x-request-id", "accept", "accept-language", "x-any",
)  # fmt: skip
RESPONSE_HEADERS = (
    "x-request-id", "request-id", "apim-request-id", "x-generation-id", "openai-organization", "anthropic-organization-id",
    "openai-project", "openai-model", "openai-version", "openai-processing-ms", "set-cookie", "server", "via", "location",
    "retry-after", "x-ratelimit-remaining-tokens", "www-authenticate", "etag", "content-language", "cf-ray", "x-any",
)  # fmt: skip
QUERIES = ("key", "api-key", "api-version", "alt", "starting_after", "stream", "token", "x")
BODY_WORDS: tuple[tuple[str | int, ...], ...] = (
    ("model",), ("service_tier",), ("user",), ("stop",), ("prompt",), ("system",), ("input",), ("instructions",),
    ("previous_response_id",), ("messages", 0, "role"), ("messages", 0, "content"), ("messages", 0, "name"), ("stream",),
    ("n",), ("max_tokens",), ("tool_choice",), ("safety_identifier",), ("prompt_cache_key",), ("any",),
)  # fmt: skip
BODY_NUMBERS = ("n", "max_tokens", "max_completion_tokens", "seed", "temperature", "top_logprobs")
BODY_VALUES: dict[str, Callable[[str], Any]] = {
    "tools": lambda word: [{"type": word, "function": {"name": word, "description": word, "parameters": {word: word}}}],
    "metadata": lambda word: {word: word},
    "response_format": lambda word: {"type": word, "json_schema": {"name": word, "schema": {word: word}}},
    "stream_options": lambda word: {"include_usage": True, word: word},
    "logit_bias": lambda word: {word: 1},
    "content": lambda word: [{"type": "text", "text": word}, {"type": "image_url", "image_url": {"url": word}}],
}
ERROR_FIELDS = ("message", "type", "code", "param", "any")


@dataclass
class Exchange:
    """A request and its response."""

    number: int
    place: str
    target: str = PATH
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = json.dumps(BODY).encode()
    status_line: str = OK
    response_headers: list[tuple[str, str]] = field(default_factory=lambda: [SSE])
    answer: bytes = BEGIN + REST


def exchanges(first: int) -> Iterator[Exchange]:
    """All of them, numbered from `first`."""
    for number, (place, changed) in enumerate(_places(), first):
        yield Exchange(number, place, **changed(number))


Made = Iterator[tuple[str, Callable[[int], dict[str, Any]]]]


def _places() -> Made:
    yield from _asked()
    yield from _bodies()
    yield from _answered()
    yield from _errors()
    yield from _lines()


def _asked() -> Made:
    for name in REQUEST_HEADERS:
        yield f"request header {name}", lambda number, name=name: {"headers": [(name, word(number))]}  # type: ignore[misc]
    yield (
        "request header authorization Bearer",
        lambda number: {"headers": [("authorization", f"Bearer {word(number)}")]},
    )
    yield "request header name", lambda number: {"headers": [(word(number), "x")]}
    for name in QUERIES:
        yield f"query {name}", lambda number, name=name: {"target": f"{PATH}?{name}={word(number)}"}  # type: ignore[misc]
    yield "query name", lambda number: {"target": f"{PATH}?{word(number)}=1"}
    yield "path before", lambda number: {"target": f"/{word(number)}{PATH}"}
    yield "path deployment", lambda number: {"target": f"/openai/deployments/{word(number)}/chat/completions"}
    yield "path model", lambda number: {"target": f"/v1beta/models/{word(number)}:streamGenerateContent"}


def _bodies() -> Made:
    def with_value(path: tuple[str | int, ...], value: Any) -> bytes:
        body: Any = json.loads(json.dumps(BODY))
        inside = body
        for part in path[:-1]:
            inside = inside[part]
        inside[path[-1]] = value
        return json.dumps(body).encode()

    for path in BODY_WORDS:
        name = ".".join(map(str, path))
        yield f"body {name}", lambda number, path=path: {"body": with_value(path, word(number))}  # type: ignore[misc]
    for name in BODY_NUMBERS:
        yield f"body {name} #", lambda number, name=name: {"body": with_value((name,), figure(number))}  # type: ignore[misc]
    for name, made in BODY_VALUES.items():
        yield (
            f"body {name}",
            lambda number, name=name, made=made: {"body": with_value((name,), made(word(number)))},  # type: ignore[misc]
        )
    yield "body key", lambda number: {"body": with_value((word(number),), 1)}
    yield "body no JSON", lambda number: {"body": f"model={word(number)}&stream=true".encode()}
    yield "body list", lambda number: {"body": json.dumps([word(number)]).encode()}


def _answered() -> Made:
    for name in RESPONSE_HEADERS:
        yield (
            f"response header {name}",
            lambda number, name=name: {"response_headers": [SSE, (name, word(number))]},  # type: ignore[misc]
        )
    yield "response header name", lambda number: {"response_headers": [SSE, (word(number), "x")]}
    yield (
        "response header content-type parameter",
        lambda number: {"response_headers": [("content-type", f"text/event-stream; x={word(number)}")]},
    )
    yield "reason phrase", lambda number: {"status_line": f"HTTP/1.1 200 {word(number)}"}


def _errors() -> Made:
    for status in (400, 429, 500):
        for name in ERROR_FIELDS:
            yield (
                f"error {status} {name}",
                lambda number, name=name, status=status: {  # type: ignore[misc]
                    "status_line": f"HTTP/1.1 {status} Error",
                    "response_headers": [JSON],
                    "answer": json.dumps({"error": {"message": "m", name: word(number)}}).encode(),
                },
            )
    for kind in ("text/html", "text/plain", "application/json", "text/event-stream"):
        for line in (OK, "HTTP/1.1 502 Bad Gateway"):
            yield (
                f"{line[9:12]} {kind} page",
                lambda number, kind=kind, line=line: {  # type: ignore[misc]
                    "status_line": line,
                    "response_headers": [("content-type", kind)],
                    "answer": f"<html>{word(number)}</html>".encode(),
                },
            )
    yield (
        "whole answer content",
        lambda number: {
            "response_headers": [JSON],
            "answer": json.dumps({"choices": [{"index": 0, "message": {"content": word(number)}}]}).encode(),
        },
    )


def _lines() -> Made:
    lines = {
        "comment": ": {}\n",
        "comment alone": ": {}\n\n",
        "event name": "event: {}\n",
        "id": "id: {}\n",
        "retry": "retry: {}\n",
        "unknown field": "{}: 1\n\n",
        "data no JSON": "data: {}\n\n",
        "data half JSON": 'data: {{"choices":[{{"delta":"{}\n\n',
        "field without colon": "{}\n\n",
    }
    for name, line in lines.items():
        yield f"line {name}", lambda number, line=line: {"answer": line.format(word(number)).encode() + BEGIN + REST}  # type: ignore[misc]
    yield "line half event at the end", lambda number: {"answer": BEGIN + f'data: {{"x":"{word(number)}'.encode()}
