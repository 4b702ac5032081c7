"""Requests of clients: framing, connections, upstreams; and which are refused."""

import asyncio
import json
import uuid
from pathlib import Path

from streamgauge_demo import provider
from streamgauge_demo.provider import stream
from tests.blackbox.compare import Exchange
from tests.blackbox.rig import Rig, judged
from tests.client import Line, Received, request, talk
from tests.events import STREAMS, chat, responses

PATH = "/fake/v1/chat/completions"
BODY = b'{"stream":true,"model":"gpt-ask","n":1,"max_tokens":9,"stream_options":{"include_usage":true}}'
FACTS = {"stream": True, "n": 1, "max_tokens": 9, "include_usage": True, "body_bytes": len(BODY), "host": "127.0.0.1"}
# A prompt with pictures in it (bytes).
LARGE = 20 * 1024 * 1024


def test_many_requests_on_one_connection(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        async with Line(rig.running.url) as line:
            for number in range(24):
                dialect = list(STREAMS)[number % 4]
                events = STREAMS[dialect]("k")
                length = provider.head(framing=sum(map(len, events)))
                script = stream(*events) if number % 3 else provider.answer(length, *events)
                await rig.run(f"{number}", dialect, script, line=line)
        assert await rig.findings() == []

    judged(tmp_path, work)


def test_pipelined_requests(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        names, sent, only = (
            [f"{n}" for n in range(6)],
            Received(),
            frozenset({"outcome", "response_id", "counts.bytes"}),
        )
        traces = {name: uuid.uuid4().hex for name in names}
        for name in names:
            rig.scripts[name] = stream(*chat(name), pause_s=0.005)
        async with Line(rig.running.url) as line:
            await line.send(sent, [b"".join(request(PATH, case=name, trace=traces[name]) for name in names)])
            for name in names:
                received = await line.read_answer(Received(sent_at=sent.sent_at))
                rig.keep(Exchange(name, traces[name], "openai-chat", received, None, only=only))
        assert await rig.findings() == []

    judged(tmp_path, work)


def test_a_chunked_request_one_with_expect_and_a_large_one(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        await asyncio.gather(in_chunks(rig), asks_first(rig), large(rig))
        assert await rig.findings() == []
        records = await rig.records()
        for case in ("chunks", "asks"):
            record = records[rig.exchanges[case].trace][0]
            assert (record["request"], record["request_model"]) == (FACTS, "gpt-ask")

    judged(tmp_path, work)


async def in_chunks(rig: Rig) -> None:
    trace = uuid.uuid4().hex
    rig.scripts["chunks"] = stream(*chat("t"))
    head = request(PATH, BODY, case="chunks", trace=trace).removesuffix(BODY)
    head = head.replace(b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked")
    pieces = [provider.chunk(BODY[at : at + 10]) for at in range(0, len(BODY), 10)]
    received = await talk(rig.running.url, [head, *pieces, provider.LAST_CHUNK], pause_s=0.003)
    one = rig.keep(Exchange("chunks", trace, "openai-chat", received, None, request_body=BODY))
    assert one.played is not None
    assert one.played.request.body == BODY


async def asks_first(rig: Rig) -> None:
    """Expect: 100-continue: after the upstream's 100 the client gets one, before the body was sent."""
    trace, received = uuid.uuid4().hex, Received()

    async def script(exchange: provider.Exchange) -> None:
        await exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await exchange.read_body()
        await exchange.play([provider.head(), *map(provider.chunk, chat("t")), provider.LAST_CHUNK], 0.003)

    rig.scripts["asks"] = script
    head = request(PATH, BODY, case="asks", trace=trace, headers="Expect: 100-continue\r\n").removesuffix(BODY)
    async with Line(rig.running.url) as line:
        await line.send(received, [head])
        line.pending = await asyncio.get_running_loop().sock_recv(line.sock, 1000)
        assert line.pending == b"HTTP/1.1 100 Continue\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(line.sock, BODY)
        await line.read_answer(received)
    rig.keep(Exchange("asks", trace, "openai-chat", received, None, asks=True, request_body=BODY))


async def large(rig: Rig) -> None:
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": "x" * LARGE}]}).encode()
    one = await rig.run("large", "openai-chat", stream(*chat("t"), pause_s=0.003), body=body)
    assert one.played is not None
    assert one.played.request.body == body


def ask(
    headers: str = "Content-Length: 2", body: str = "{}", line: str = f"POST {PATH} HTTP/1.1", host: str = "x"
) -> bytes:
    return f"{line}\r\nHost: {host}\r\nx-case: abuse\r\n{headers}\r\n\r\n{body}".encode("latin-1")


CHUNKED = "Transfer-Encoding: chunked"
REFUSED = {
    "unknown upstream": (404, ask(line="POST /nope/v1/chat/completions HTTP/1.1")),
    "no upstream": (404, ask(line="GET / HTTP/1.1")),
    "longer name": (404, ask(line="POST /fakex/v1 HTTP/1.1")),
    "encoded name": (404, ask(line="POST /%66ake/v1 HTTP/1.1")),
    "two slashes": (404, ask(line="POST //evil.test/v1 HTTP/1.1")),
    "user part": (404, ask(line="POST /fake@evil.test/v1 HTTP/1.1")),
    "absolute": (400, ask(line="POST http://evil.test/fake/v1/chat/completions HTTP/1.1")),
    "metadata address": (400, ask(line="GET http://169.254.169.254/latest HTTP/1.1")),
    "connect": (400, ask(line="CONNECT evil.test:443 HTTP/1.1")),
    "both framings": (400, ask(f"{CHUNKED}\r\nContent-Length: 5", "0\r\n\r\n")),
    "two lengths": (400, ask("Content-Length: 2\r\nContent-Length: 3")),
    "list of lengths": (400, ask("Content-Length: 2, 2")),
    "signed length": (400, ask("Content-Length: +2")),
    "negative length": (400, ask("Content-Length: -2")),
    "hex length": (400, ask("Content-Length: 0x2")),
    "other coding": (400, ask("Transfer-Encoding: xchunked", "2\r\n{}\r\n0\r\n\r\n")),
    "chunked in 1.0": (400, ask(CHUNKED, "2\r\n{}\r\n0\r\n\r\n", f"POST {PATH} HTTP/1.0")),
    "space before colon": (400, ask("Transfer-Encoding : chunked", "2\r\n{}\r\n0\r\n\r\n")),
    "folded line": (400, ask("X-A: b\r\n c\r\nContent-Length: 2")),
    "bare lf": (400, ask().replace(b"\r\n", b"\n")),
    "bare lf in a header": (400, ask("X-A: b\nX-B: c\r\nContent-Length: 2")),
    "bare cr": (400, ask("X-A: b\rX-B: c\r\nContent-Length: 2")),
    "nul": (400, ask("X-A: b\0c\r\nContent-Length: 2")),
    "no colon": (400, ask("garbage\r\nContent-Length: 2")),
    "no host": (400, ask().replace(b"Host: x\r\n", b"")),
    "two hosts": (400, ask("Host: y\r\nContent-Length: 2")),
    "signed chunk": (400, ask(CHUNKED, "-2\r\n{}\r\n0\r\n\r\n")),
    "prefixed chunk": (400, ask(CHUNKED, "0x2\r\n{}\r\n0\r\n\r\n")),
    "huge chunk": (400, ask(CHUNKED, "fffffffffffffffff\r\n{}\r\n0\r\n\r\n")),
    "tls": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50) + b"\r\n\r\n"),
    "http/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "long target": (431, ask(line=f"POST /fake/{'a' * 200_000} HTTP/1.1")),
    "long header": (431, ask(f"X-A: {'a' * 300_000}\r\nContent-Length: 2")),
}  # fmt: skip


def test_h1_refused_requests_reach_no_upstream(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        rig.scripts["abuse"] = provider.whole(b"{}")
        received = {name: (await talk(rig.running.url, [sent])).status for name, (_, sent) in REFUSED.items()}
        assert received == {name: status for name, (status, _) in REFUSED.items()}
        # A proxy may begin to forward before a body turns out malformed; it never completes such a request.
        assert [one.request.line for one in rig.provider.played("abuse") if one.sent] == []

    judged(tmp_path, work)


def test_one_upstream_without_a_name_takes_paths_as_they_are(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        one = await rig.run("chat", "openai-chat", stream(*chat("t"), pause_s=0.003))
        await rig.run("responses", "openai-responses", stream(*responses("t"), pause_s=0.003))
        assert one.played is not None
        assert one.played.request.line == "POST /v1/chat/completions HTTP/1.1"
        assert await rig.findings() == []

    judged(tmp_path, work, name=None)
