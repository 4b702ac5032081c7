"""The admin port over real sockets: what it serves, what it refuses, what it never shows, and how much it holds."""

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable

import pytest

from streamgauge.metrics import http_server
from streamgauge.metrics.http_server import AdminAddressError, AdminServer, host_name, split_address
from streamgauge.metrics.prometheus import Metrics
from tests.metrics.pages import read_page
from tests.metrics.records import make_record

Ask = Callable[..., Awaitable["Answer"]]


class Answer:
    """A whole HTTP answer, read until the server closes."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def ask(address: str, target: str, *, host: str | None = "", method: str = "GET", extra: str = "") -> Answer:
    """One request to the server at `address`; `host` "" is the address itself, None sends no Host at all."""
    name, port = split_address(address)
    reader, writer = await asyncio.open_connection(name, port)
    line = "" if host is None else f"Host: {host or address}\r\n"
    writer.write(f"{method} {target} HTTP/1.1\r\n{line}Connection: close\r\n{extra}\r\n".encode("latin-1"))
    answer = Answer(await asyncio.wait_for(reader.read(), 20))
    writer.close()
    await writer.wait_closed()
    return answer


def serving(test: Callable[[AdminServer], Awaitable[None]], *, listen: str = "127.0.0.1:0", **settings: object) -> None:
    """Run `test` against an admin port with one observed stream."""

    async def run() -> None:
        metrics = Metrics()
        metrics.observe(make_record())
        given: dict[str, object] = {"ready": lambda: True, **settings}
        async with AdminServer(metrics, **given) as server:  # type: ignore[arg-type]
            await server.start(listen)
            await test(server)

    asyncio.run(run())


def test_metrics_parse_and_hold_the_stream() -> None:
    async def test(server: AdminServer) -> None:
        answer = await ask(server.address, "/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert read_page(answer.body).total("streamgauge_streams_total") == 1

    serving(test)


def test_openmetrics_if_accepted() -> None:
    async def test(server: AdminServer) -> None:
        answer = await ask(server.address, "/metrics", extra="Accept: application/openmetrics-text; version=1.0.0\r\n")
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert read_page(answer.body, openmetrics=True).total("streamgauge_streams_total") == 1

    serving(test)


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
def test_ready_is_the_state_of_the_process(ready: bool, status: int) -> None:
    async def test(server: AdminServer) -> None:
        assert (await ask(server.address, "/health/ready")).status == status
        assert (await ask(server.address, "/health/live")).status == 200
        assert (await ask(server.address, "/health/ready", method="HEAD")).status == status

    serving(test, ready=lambda: ready)


def test_live_may_be_denied() -> None:
    async def test(server: AdminServer) -> None:
        assert (await ask(server.address, "/health/live")).status == 503

    serving(test, live=lambda: False)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/metrics/"),
        ("GET", "/health"),
        ("GET", "/health/live/x"),
        ("GET", "/config"),
        ("GET", "/..%2fmetrics"),
        ("POST", "/metrics"),
        ("PUT", "/health/ready"),
        ("DELETE", "/health/live"),
        ("OPTIONS", "/metrics"),
    ],
)
def test_everything_else_is_not_found(method: str, target: str) -> None:
    async def test(server: AdminServer) -> None:
        assert (await ask(server.address, target, method=method, extra="Content-Length: 0\r\n")).status == 404

    serving(test)


def test_hosts_of_its_own_are_served() -> None:
    async def test(server: AdminServer) -> None:
        port = split_address(server.address)[1]
        for host in (
            f"127.0.0.1:{port}",
            "localhost",
            f"LOCALHOST:{port}",
            "localhost.",
            f"[::1]:{port}",
            "127.0.0.1:80",
        ):
            assert (await ask(server.address, "/metrics", host=host)).status == 200, host

    serving(test)


def test_hosts_of_others_are_refused_on_every_path() -> None:
    async def test(server: AdminServer) -> None:
        port = split_address(server.address)[1]
        others = (f"evil.example:{port}", "evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example",
                  "evil.example@127.0.0.1", "2130706433", "[::2]", ":", "admin.internal",
                  # What follows a name must be a port.
                  "[localhost]evil.example", "[::1]evil.example", "[::1]:80@evil.example", "[::1", "localhost:x@evil.example",
                  "localhost:80@evil.example", "localhost:", "localhost:80:evil.example", "localhost:-1", "localhost:123456",
                  "[localhost]", "[127.0.0.1]:80", "127.0.0.1:80 evil.example")  # fmt: skip
        for host in others:
            for path in ("/metrics", "/health/live", "/health/ready", "/nothing"):
                answer = await ask(server.address, path, host=host)
                assert answer.status == 403, host
                assert b"streamgauge_" not in answer.body

    serving(test)


def test_no_host_and_two_hosts_are_refused() -> None:
    async def test(server: AdminServer) -> None:
        assert (await ask(server.address, "/metrics", host=None)).status in (400, 403)
        twice = await ask(server.address, "/metrics", extra="Host: evil.example\r\n")
        assert twice.status in (400, 403)

    serving(test)


def test_hosts_that_the_operator_named_are_served() -> None:
    async def test(server: AdminServer) -> None:
        for host in ("tap", "tap:9464", "Admin.Internal:1"):
            assert (await ask(server.address, "/metrics", host=host)).status == 200, host
        refused = await ask(server.address, "/metrics", host="worker:9464")
        assert refused.status == 403
        assert b"start with --admin-host NAME" in refused.body

    serving(test, hosts=["tap", "admin.internal"])


def test_the_first_refused_host_is_logged_without_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: AdminServer) -> None:
        for name in ("worker", "CANARY"):
            assert (await ask(server.address, "/metrics", host=name)).status == 403

    serving(test)
    sentence = "the admin port rejected a request because of its Host header (403): allow it with --admin-host NAME"
    assert caplog.messages == [sentence]


def test_bound_to_all_addresses_the_one_that_was_connected_to_is_its_own() -> None:
    async def test(server: AdminServer) -> None:
        port = split_address(server.address)[1]
        assert (await ask(f"127.0.0.2:{port}", "/health/live", host=f"127.0.0.2:{port}")).status == 200
        assert (await ask(f"127.0.0.2:{port}", "/health/live", host="127.0.0.3")).status == 403

    serving(test, listen="0.0.0.0:0")


def test_a_port_that_is_taken_is_said_in_one_sentence() -> None:
    async def test(server: AdminServer) -> None:
        with pytest.raises(AdminAddressError, match="is in use") as taken:
            await AdminServer(Metrics(), lambda: True).start(server.address)
        assert server.address in str(taken.value)
        assert "\n" not in str(taken.value)
        assert (await ask(server.address, "/health/live")).status == 200

    serving(test)


def test_after_stop_nothing_listens() -> None:
    async def run() -> None:
        server = AdminServer(Metrics(), lambda: True)
        await server.start("127.0.0.1:0")
        host, port = split_address(server.address)
        await server.stop()
        with pytest.raises(ConnectionRefusedError), socket.create_connection((host, port), timeout=5):
            pass

    asyncio.run(run())


@pytest.mark.parametrize("address", ["", "9464", ":9464", "localhost", "localhost:", "a:b", "::1:80", "h:-1", "[]:1"])
def test_invalid_addresses(address: str) -> None:
    with pytest.raises(AdminAddressError, match="HOST:PORT"):
        split_address(address)


@pytest.mark.parametrize("port", ["65536", "80850", "9" * 20])
def test_a_port_that_is_too_large_is_said_to_be(port: str) -> None:
    with pytest.raises(AdminAddressError, match="its port is above 65535"):
        split_address(f"127.0.0.1:{port}")


def test_addresses_and_hosts_are_taken_apart() -> None:
    assert split_address("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert split_address("[::1]:0") == ("::1", 0)
    assert [host_name(host) for host in ("A:1", "[::1]:2", "::1", "b.")] == ["a", "::1", "::1", "b"]
    assert [host_name(host) for host in ("a:b", "[a]:1", "[::1]a", "[::1", "a:", "a:1@b")] == [None] * 6


# --- what a hostile client sends ------------------------------------------------------------------------------------

CANARY = "canary"
MALFORMED = (
    b"GET / HTTP/1.1\r\n\x1b[31mcanary: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer canary\x00\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: canary\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: canary\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\ncanary\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\ncanar",
    b"canary\r\n\r\n",
    b"\x16\x03\x01canary\r\n\r\n",
    b"GET http://[canary/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://localhost:canary/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /canary HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"canary" * 5_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"canary: y\r\n" * 1_000 + b"\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUpgrade: canary\r\nConnection: upgrade\r\n\r\n" + b"canary" * 9,
)


async def say(address: str, raw: bytes, patience_s: float = 2) -> bytes:
    """Send raw bytes; gives what comes back until the server closes, or waits for more of the request."""
    reader, writer = await asyncio.open_connection(*split_address(address))
    answer = b""
    try:
        writer.write(raw)
        while piece := await asyncio.wait_for(reader.read(65_536), patience_s):
            answer += piece
    except (ConnectionError, TimeoutError):
        pass
    writer.close()
    return answer


def altered(raw: bytes, chance: random.Random) -> bytes:
    """The request with some bytes replaced."""
    data = bytearray(raw)
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.slow
def test_nothing_of_a_malformed_request_is_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    chance = random.Random(1)
    valid = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer canary\r\n\r\n"

    async def test(server: AdminServer) -> None:
        answers = await asyncio.gather(*(say(server.address, raw) for raw in MALFORMED))
        for answer in filter(None, answers):
            assert b"\r\nServer: streamgauge\r\n" in answer
            assert b"\r\nX-Content-Type-Options: nosniff\r\n" in answer
            assert b"\r\nContent-Security-Policy: default-src 'none'" in answer
            assert b"aiohttp" not in answer.lower()
            assert CANARY.encode() not in answer
        assert sum(answer.startswith(b"HTTP/1.0 400") for answer in answers) > len(MALFORMED) // 2
        for _ in range(5):
            some = [altered(chance.choice((*MALFORMED[:6], valid)), chance) for _ in range(50)]
            await asyncio.gather(*(say(server.address, raw, patience_s=0.3) for raw in some))  # no answer is asked for
        assert (await ask(server.address, "/health/live")).status == 200

    serving(test)
    lines = [
        record.getMessage() for record in caplog.records if record.name != "asyncio" or record.levelno > logging.DEBUG
    ]
    assert [
        sentence
        for sentence in lines
        if not sentence.startswith("the admin port rejected a request because of its Host")
    ] == []
    written = capfd.readouterr()
    assert written.out + written.err == ""


def test_a_fault_of_ours_is_logged_once_and_the_port_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> bool:
        raise ValueError("a prompt")  # a parser's error quotes what it read

    async def test(server: AdminServer) -> None:
        for _ in range(3):
            assert (await ask(server.address, "/health/ready")).status == 500
        assert (await ask(server.address, "/health/live")).status == 200

    serving(test, ready=broken)
    [record] = [record for record in caplog.records if record.name == "streamgauge.runtime.faults"]
    first, *frames = record.getMessage().splitlines()
    assert first == "internal error in the admin port: ValueError"
    assert frames[-1].endswith(" broken")
    assert "a prompt" not in caplog.text


async def is_open(reader: asyncio.StreamReader, within_s: float) -> bool:
    """Whether the server still holds a connection on which it has nothing to say."""
    try:
        return bool(await asyncio.wait_for(reader.read(1), within_s))
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_a_scrape_is_answered_beside_more_connections_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 8)

    async def test(server: AdminServer) -> None:
        name, port = split_address(server.address)
        scraper, sending = await asyncio.open_connection(name, port)
        idle = []
        for number in range(40):
            idle.append(await asyncio.open_connection(name, port))
            if number % 4 == 0:  # a connection that is used is not the one that is closed
                sending.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await asyncio.wait_for(scraper.readuntil(b"ok\n"), 20)).startswith(b"HTTP/1.1 200")
        assert (await ask(server.address, "/metrics")).status == 200
        still = [await is_open(reader, 0.2) for reader, _ in idle]
        assert still[:32] == [False] * 32, "the oldest were closed"
        assert sum(still) <= 8
        assert await is_open(scraper, 0.2)
        for _, writer in (*idle, (scraper, sending)):
            writer.close()

    serving(test)


@pytest.mark.parametrize(
    "sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: loc", b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"]
)
def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """Also one that began a request, and one that sent its request and then nothing."""
    monkeypatch.setattr(http_server, "KEEPALIVE_S", 0.3)

    async def test(server: AdminServer) -> None:
        reader, writer = await asyncio.open_connection(*split_address(server.address))
        writer.write(sent)
        await asyncio.wait_for(reader.read(), 20)
        writer.close()

    serving(test)


def test_a_client_that_does_not_read_its_answers_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_S", 0.5)
    requests = 2_000  # many times what the kernel's buffers take

    async def test(server: AdminServer) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, split_address(server.address))
            request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
            with pytest.raises(ConnectionError):
                async with asyncio.timeout(60):
                    while True:
                        await loop.sock_sendall(client, request * requests)
        assert (await ask(server.address, "/metrics")).status == 200

    serving(test)
