"""Nothing passes unseen: of the responses that a tap sees, each has a record or counts as not captured, by upstream."""

import http.client
import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streamgauge_demo.provider import Exchange, Provider, whole
from tests.integration.provider import BEGIN, REST
from tests.running import PATIENCE_S, Running, start_up, wait_for
from tests.taps.proxy.rig import receive_all

JSON = "application/json"
SSE = "text/event-stream"
CHAT = BEGIN + REST
# By path: status, type and body of the answer.
ANSWERS = {
    "/v1/chat/completions": (200, SSE, CHAT),
    "/elsewhere/stream": (200, SSE, CHAT),  # a model's stream on a path that is no known endpoint
    "/v1/completions": (401, JSON, b'{"error":{"type":"invalid_request_error","code":"invalid_api_key"}}'),
    "/v1/models": (200, JSON, b'{"object":"list","data":[]}'),
    "/v1/audio/transcriptions": (200, SSE, b'data: {"type":"transcript.text.done","text":"a"}\n\n'),
    "/v1/audio/speech": (200, "audio/mpeg", b"ID3\x04"),
    "/v1/embeddings": (200, JSON, b'{"object":"list","usage":{"prompt_tokens":3,"total_tokens":3}}'),
    "/api/lines": (200, "application/x-ndjson", b'{"answer":"a"}\n{"ended":true}\n'),
    "/mcp": (200, SSE, b'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'),
    "/ticks": (200, SSE, b'data: {"time":1}\n\ndata: {"time":2}\n\n'),
}
# Method, path with the upstream's prefix, and why the response has no record; None: it has one.
REQUESTS: tuple[tuple[str, str, str | None], ...] = (
    ("POST", "/one/v1/chat/completions", None),
    ("POST", "/one/v1/chat/completions", None),
    ("POST", "/two/v1/chat/completions", None),
    ("POST", "/one/elsewhere/stream", None),
    ("POST", "/two/v1/completions", None),
    ("GET", "/one/v1/models", "not_llm"),
    ("OPTIONS", "/one/v1/chat/completions", "not_llm"),
    ("POST", "/two/mcp", "not_llm"),
    ("POST", "/two/v1/audio/transcriptions", None),
    ("POST", "/two/v1/audio/speech", "format"),
    ("POST", "/one/v1/embeddings", "format"),
    ("POST", "/two/api/lines", "format"),
    ("POST", "/one/ticks", "format"),
    ("POST", "/away/v1/chat/completions", None),  # the relay's 502, with a record of what failed
    ("GET", "/away/v1/models", "refused"),
    ("GET", "/one/a/../b", "refused"),
    ("GET", "/nowhere/v1/models", "refused"),
    ("WEBSOCKET", "/two/v1/responses", "refused"),
    ("GARBAGE", "/", "refused"),
)


async def play(exchange: Exchange) -> None:
    await exchange.read_body()
    request = exchange.request
    status, kind, body = ANSWERS[request.path] if request.method != "OPTIONS" else (200, "text/plain", b"")
    await whole(body, status, kind)(exchange)


@pytest.fixture
def upstream() -> Iterator[str]:
    with Provider(play) as server:
        yield server.url


def ask(up: Running, method: str, path: str) -> None:
    address = urlsplit(up.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
    if method in ("WEBSOCKET", "GARBAGE"):
        connection.connect()
        upgrade = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        connection.sock.sendall(upgrade.encode() if method == "WEBSOCKET" else b"\x16\x03\x01 no HTTP\r\n\r\n")
        assert receive_all(connection.sock).startswith(b"HTTP/1.1 4")
    else:
        body = json.dumps({"model": "m", "stream": True}) if method == "POST" else None
        connection.request(method, path, body, {"Content-Type": JSON})
        connection.getresponse().read()
    connection.close()


def counted(up: Running) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """The responses seen by upstream, and those without a record by upstream and reason, as the metrics have them."""
    seen, without = Counter[str](), Counter[tuple[str, str]]()
    for series, value in up.metrics().items():
        labels = dict(one.split("=") for one in series.partition("{")[2].rstrip("}").replace('"', "").split(",") if one)
        if series.startswith("streamgauge_tap_responses_seen_total"):
            seen[labels["upstream"]] += int(value)
        elif series.startswith("streamgauge_tap_responses_not_captured_total") and value:
            without[labels["upstream"], labels["reason"]] += int(value)
    return seen, without


def is_counted(up: Running, goal: object) -> bool:
    return counted(up) == goal


def expected(times: int) -> tuple[Counter[str], Counter[tuple[str, str]], Counter[str]]:
    """What `counted` gives after `times` rounds of REQUESTS, and the records by upstream."""
    seen, without, records = Counter[str](), Counter[tuple[str, str]](), Counter[str]()
    for _, path, reason in REQUESTS * times:
        prefix = path.split("/")[1]
        upstream = prefix if prefix in ("one", "two", "away") else "unknown"
        seen[upstream] += 1
        if reason is None:
            records[upstream] += 1
        else:
            without[upstream, reason] += 1
    return seen, without, records


@pytest.mark.parametrize(
    "options",
    [(), ("--capture", "full", "--full-share", "0.5"), ("--pump", "off")],
    ids=["masked", "sampled", "no pump"],
)
def test_each_response_has_a_record_or_counts_by_its_reason(
    tmp_path: Path, upstream: str, options: tuple[str, ...]
) -> None:
    upstreams = {"one": upstream, "two": upstream, "away": "http://127.0.0.1:1"}
    for times in (1, 2):  # the second time after a crash of everything
        with start_up(upstreams, tmp_path / "data", *options) as up:
            for method, path, _ in REQUESTS:
                ask(up, method, path)
            seen, without, records = expected(times)
            with suppress(AssertionError):  # the comparison below shows the difference
                wait_for(partial(is_counted, up, (seen, without)), "balance")
            assert counted(up) == (seen, without)
            by_upstream = Counter(record["upstream"] for record in up.wait_for_records(records.total()))
            assert by_upstream == records
            for name, number in seen.items():
                assert number == by_upstream[name] + sum(n for (other, _), n in without.items() if other == name)
            if times == 1:
                up.process.send_signal(signal.SIGKILL)
                up.process.wait(PATIENCE_S)
