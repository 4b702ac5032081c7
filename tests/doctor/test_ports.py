"""The addresses of clients and of the admin port: free, taken by another process, or by a running tap."""

import socket
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from streamgauge.doctor.ports import reached_at
from streamgauge.runtime.listeners import Address
from tests.doctor.examined import FAIL, OK, WARN, found, installation
from tests.doctor.test_upstreams import tls
from tests.http_serving import LocalServer, Quiet, serving
from tests.running import start_up
from tests.taps.proxy.pki import make_pki

pytestmark = pytest.mark.slow


class _Nothing(Quiet, BaseHTTPRequestHandler):
    """A server that knows no page."""


class _Other(Quiet, BaseHTTPRequestHandler):
    """A server of others, with a health page as short as ours."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")


class _Unready(Quiet, BaseHTTPRequestHandler):
    """As an admin port of a worker that is not ready."""

    server_version, sys_version = "streamgauge", ""

    def version_string(self) -> str:
        return self.server_version

    def do_GET(self) -> None:
        ready = self.path == "/health/ready"
        content = b"not ready: the broker does not answer\n" if ready else b"ok\n"
        self.send_response(503 if ready else 200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def levels(command: str, folder: Path, **options: str) -> list[str]:
    return [f"{one.level} {one.says}" for one in found("ports", installation(command, folder, **options))]


def test_free_and_taken_addresses(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        options = {"upstream": "a=http://a", "listen": taken, "admin": "127.0.0.1:0"}
        assert levels("up", tmp_path, **options) == [
            f"fail --listen {taken} is in use by another process",
            "ok --admin 127.0.0.1:0 is free",
        ]
    assert levels("up", tmp_path, **options)[0] == f"ok --listen {taken} is free"
    assert levels("worker", tmp_path, admin="127.0.0.1:0") == ["ok --admin 127.0.0.1:0 is free"]


def test_an_address_of_another_host(tmp_path: Path) -> None:
    [one] = found("ports", installation("worker", tmp_path, admin="192.0.2.1:9464"))
    assert (one.level, "cannot be used" in one.says, "--admin" in one.cure) == (FAIL, True, True)


def test_a_running_tap_has_its_ports_and_another_server_has_not(tmp_path: Path) -> None:
    with start_up({"a": "http://127.0.0.1:1"}, tmp_path / "running") as running:
        options = {"upstream": "a=http://a", "listen": running.url[7:], "admin": running.admin[7:]}
        seen = found("ports", installation("up", tmp_path, **options))
    assert [one.level for one in seen] == [OK, OK]
    assert all("in use by a running Streamgauge" in one.says for one in seen)
    with serving(LocalServer(_Unready)) as other:
        [one, why] = found("ports", installation("worker", tmp_path, admin=other.url[7:]))
    assert (one.level, why.level) == (OK, WARN)
    assert why.says == "the running process is not ready: the broker does not answer"
    for handler in (_Nothing, _Other):
        with serving(LocalServer(handler)) as other:
            [one] = found("ports", installation("worker", tmp_path, admin=other.url[7:]))
        assert one.level is FAIL, handler


def test_an_admin_port_with_tls_is_known_too(tmp_path: Path) -> None:
    content = b"HTTP/1.1 200 OK\r\nServer: streamgauge\r\nContent-Length: 3\r\n\r\nok\n"
    with tls(make_pki(tmp_path).other, content) as server:
        [one] = found("ports", installation("worker", tmp_path, admin=f"127.0.0.1:{server.port}"))
    assert one.level is OK, one


def test_an_address_of_all_interfaces_is_reached_on_this_host() -> None:
    assert str(reached_at(Address(host="0.0.0.0", port=1))) == "127.0.0.1:1"
    assert str(reached_at(Address(host="::", port=1))) == "[::1]:1"
    assert str(reached_at(Address(host="10.0.0.1", port=1))) == "10.0.0.1:1"
