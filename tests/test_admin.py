"""The admin port over real sockets: what it serves, whom it refuses, what it never shows."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from streamgauge.admin import AdminAddressError, AdminServer, host_name, split_address
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


def test_openmetrics_if_asked() -> None:
    async def test(server: AdminServer) -> None:
        answer = await ask(server.address, "/metrics", extra="Accept: application/openmetrics-text; version=1.0.0\r\n")
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert read_page(answer.body, openmetrics=True).total("streamgauge_streams_total") == 1

    serving(test)


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
def test_ready_is_what_the_process_says(ready: bool, status: int) -> None:
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
                  "evil.example@127.0.0.1", "2130706433", "[::2]", ":", "admin.internal")  # fmt: skip
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
        assert (await ask(server.address, "/metrics", host="worker:9464")).status == 403

    serving(test, hosts=["tap", "admin.internal"])


def test_bound_to_all_addresses_the_one_that_was_connected_to_is_its_own() -> None:
    async def test(server: AdminServer) -> None:
        port = split_address(server.address)[1]
        assert (await ask(f"127.0.0.2:{port}", "/health/live", host=f"127.0.0.2:{port}")).status == 200
        assert (await ask(f"127.0.0.2:{port}", "/health/live", host="127.0.0.3")).status == 403

    serving(test, listen="0.0.0.0:0")


def test_a_port_that_is_taken_is_said_in_one_sentence() -> None:
    async def test(server: AdminServer) -> None:
        with pytest.raises(AdminAddressError, match="cannot be opened") as taken:
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


@pytest.mark.parametrize(
    "address", ["", "9464", ":9464", "localhost", "localhost:", "a:b", "::1:80", "h:70000", "h:-1", "[]:1"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(AdminAddressError, match="HOST:PORT"):
        split_address(address)


def test_addresses_and_hosts_are_taken_apart() -> None:
    assert split_address("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert split_address("[::1]:0") == ("::1", 0)
    assert [host_name(host) for host in ("A:1", "[::1]:2", "::1", "b.")] == ["a", "::1", "::1", "b"]
