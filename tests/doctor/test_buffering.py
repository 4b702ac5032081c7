"""A slow stream through a real tap, and through a real nginx that buffers or does not."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.peers.peer import MissingError, started
from bench.peers.servers import program_of

from streamgauge.doctor.buffering import serving
from streamgauge.doctor.contract import Finding
from streamgauge.settings.types import parse_address
from tests.doctor.examined import FAIL, OK, WARN, found, installation, only
from tests.ports import free_port
from tests.running import start, start_up, wait_until_ready
from tests.runtime.test_certificates import Locked

pytestmark = pytest.mark.slow

_NGINX = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    gzip {gzip};
    gzip_types text/event-stream;
    gzip_proxied any;
    gzip_min_length 0;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{upstream};
            # By default nginx speaks HTTP/1.0 to a server. It holds back bodies that the end of the connection ends.
            proxy_http_version {version};
            proxy_buffering {buffering};
        }}
    }}
}}
"""


@contextmanager
def nginx(
    folder: Path, upstream: int, *, version: str = "1.0", buffering: str = "on", gzip: str = "off"
) -> Iterator[str]:
    """nginx in front of a port of this host; gives its address."""
    folder.mkdir()
    port, configuration = free_port(), folder / "nginx.conf"
    configuration.write_text(
        _NGINX.format(folder=folder, port=port, upstream=upstream, version=version, buffering=buffering, gzip=gzip)
    )
    try:
        program = program_of("nginx")
    except MissingError as why:
        pytest.skip(str(why))
    command = [program, "-e", "stderr", "-p", str(folder), "-c", str(configuration)]
    with started(command, port, folder / "log", processes=2):
        yield f"http://127.0.0.1:{port}"


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def through(url: str, folder: Path, **options: str) -> list[Finding]:
    return list(found("buffering", installation("tap", folder, through=url, **options)))


def test_a_tap_does_not_buffer_and_a_proxy_before_it_may(tmp_path: Path) -> None:
    doctor = f"http://127.0.0.1:{free_port()}"
    with start_up({"doctor": doctor}, tmp_path / "running") as running:
        options = {"upstream": f"doctor={doctor}", "listen": running.url[7:]}
        alone = only("buffering", installation("up", tmp_path, **options))
        assert (alone.level, "through the tap at 127.0.0.1:" in alone.says) == (OK, True), alone
        for number, (settings, level) in enumerate(
            [
                ({}, FAIL),
                ({"buffering": "off"}, OK),
                ({"version": "1.1"}, OK),
                ({"buffering": "off", "gzip": "on"}, OK),
            ]
        ):
            with nginx(tmp_path / f"nginx-{number}", port_of(running.url), **settings) as url:
                tap, proxy = through(url, tmp_path, **options)
            assert (tap.level, proxy.level) == (OK, level), (settings, proxy)
            assert url in proxy.says
        assert running.recorded() == 0, "the doctor's stream is no LLM's"
    assert "proxy_buffering off" in FAIL_CURE


FAIL_CURE = "turn buffering off in the proxy (nginx: proxy_buffering off; gzip off), for event streams at least"


def test_a_proxy_after_the_tap(tmp_path: Path) -> None:
    served = free_port()
    with (
        nginx(tmp_path / "nginx", served) as proxy,
        start_up({"doctor": proxy}, tmp_path / "running") as running,
    ):
        options = {"upstream": f"doctor={proxy}", "listen": running.url[7:]}
        seen = only("buffering", installation("up", tmp_path, **options, serve=parse_address(f"127.0.0.1:{served}")))
        assert (seen.level, "through the tap at " in seen.says, seen.cure) == (FAIL, True, FAIL_CURE)
        seen = only("buffering", installation("up", tmp_path, **options))
        assert (seen.level, "--serve HOST:PORT" in seen.cure) == (WARN, True)


def test_a_proxy_without_a_tap(tmp_path: Path) -> None:
    with nginx(tmp_path / "nginx", 9469) as url:
        [seen] = through(url, tmp_path)
    assert (seen.level, seen.cure) == (FAIL, FAIL_CURE)
    assert "12 events, sent every 0.1 s, arrive through" in seen.says
    assert "in one piece" in seen.says


def test_a_tap_with_tls_whose_key_has_a_password(tmp_path: Path) -> None:
    locked = Locked(tmp_path)
    doctor = f"http://127.0.0.1:{free_port()}"
    files = dict(zip(("tls_certificate", "tls_key", "tls_key_password_file"), map(str, locked.files), strict=True))
    certificate = [word for name, file in files.items() for word in (f"--{name.replace('_', '-')}", file)]
    places = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "running")]
    with start("up", ["--upstream", f"doctor={doctor}", *places, *certificate], tmp_path / "running") as running:
        wait_until_ready(running)
        [listen] = re.findall(r": https://([^/\s]+)\S* -> ", running.log)
        options = {"upstream": f"doctor={doctor}", "listen": listen, **files}
        assert only("buffering", installation("up", tmp_path, **options)).level is OK


@pytest.mark.parametrize("required", ["client_token_file", "tls_client_ca"])
def test_a_tap_that_authenticates_its_clients_is_not_tested(tmp_path: Path, required: str) -> None:
    options = {"upstream": f"doctor=http://127.0.0.1:{free_port()}", "listen": "127.0.0.1:1", required: "/f"}
    seen = only("buffering", installation("up", tmp_path, **options))
    assert (seen.level, "authenticates its clients" in seen.says) == (WARN, True)


def test_connections_of_other_clients_are_closed_at_the_end() -> None:
    """One that sends no request, and one that does not read its answer to the end."""
    port = free_port()

    async def ask() -> list[bytes]:
        async with serving("127.0.0.1", port) as stream:
            silent, early = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            early[1].write(b"GET /slow-stream?1 HTTP/1.1\r\n\r\n")
            head = await early[0].readuntil(b"\n\n\r\n")
            assert len(stream.open) == 2
        rests = []
        for reader, writer in (silent, early):
            try:
                rests.append(await reader.read())
            except ConnectionResetError:
                rests.append(b"")
            writer.close()
        return [head[:15], *rests]

    assert asyncio.run(ask()) == [b"HTTP/1.1 200 OK", b"", b""]


def test_what_cannot_be_tested_is_told(tmp_path: Path) -> None:
    doctor = f"doctor=http://127.0.0.1:{free_port()}"
    nothing = f"127.0.0.1:{free_port()}"
    seen = only("buffering", installation("up", tmp_path, upstream="a=http://a"))
    assert (seen.level, "--upstream doctor=http://127.0.0.1:9469" in seen.cure) == (WARN, True)
    seen = only("buffering", installation("up", tmp_path, upstream=doctor, listen=nothing))
    assert (seen.level, "does not run" in seen.says) == (WARN, True)
    with start_up({"a": "http://127.0.0.1:1"}, tmp_path / "running") as running:
        seen = only("buffering", installation("up", tmp_path, upstream=doctor, listen=running.url[7:]))
        assert (seen.level, "runs without the upstream doctor" in seen.says) == (WARN, True)
        taken = f"doctor={running.url}"
        seen = only("buffering", installation("up", tmp_path, upstream=taken, listen=running.url[7:]))
        assert (seen.level, "cannot be served" in seen.says) == (WARN, True)
    for url, says in {f"http://{nothing}": "Connection refused", "nowhere": "is no address of HTTP"}.items():
        [seen] = through(url, tmp_path)
        assert (seen.level, says in seen.says) == (FAIL, True), seen
