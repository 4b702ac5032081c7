"""Real clients. Each asks the hostile upstream, then the good one, on one kept connection if the client keeps it.

A client is a function of the relay's port and the numbers of cases. It returns for each case the bodies that it took for the
two responses; None for an error.
"""

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import aiohttp
import httpx
import urllib3

from tests.ports import free_port
from tests.running import wait_for
from tests.taps.proxy.rig import receive_all

Bodies = tuple[bytes | None, bytes | None]
Client = Callable[[int, Sequence[int]], dict[int, Bodies]]
HERE = Path(__file__).parent
# Generous, since the machine is shared. Only wget waits for so long: for the body of a 304 that has a length.
_TIMEOUT_S = 10.0
_AT_A_TIME = 16
# Each server of nginx has an own pool with one connection to the relay.
_POOLS = 16


def _in_threads(ask: Callable[[int, int], Bodies]) -> Client:
    def client(port: int, numbers: Sequence[int]) -> dict[int, Bodies]:
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            return dict(zip(numbers, pool.map(lambda number: ask(port, number), numbers), strict=True))

    return client


def _both(ask: Callable[[str, str], bytes], number: int) -> Bodies:
    bodies: list[bytes | None] = []
    for method, path in (("GET", f"/u0/{number}"), ("POST", f"/u1/{number}")):
        try:
            bodies.append(ask(method, path))
        except (OSError, http.client.HTTPException, httpx.HTTPError, urllib3.exceptions.HTTPError):
            bodies.append(None)
    return bodies[0], bodies[1]


def _by_http_client(port: int, number: int) -> Bodies:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)

    def ask(method: str, path: str) -> bytes:
        try:
            connection.request(method, path, b"{}" if method == "POST" else None)
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise

    try:
        return _both(ask, number)
    finally:
        connection.close()


def _by_urllib3(port: int, number: int) -> Bodies:
    with urllib3.HTTPConnectionPool(
        "127.0.0.1", port, maxsize=1, block=True, retries=False, timeout=_TIMEOUT_S
    ) as pool:
        return _both(lambda method, path: pool.request(method, path, body=b"{}").data, number)


def _by_httpx(port: int, number: int) -> Bodies:
    limits = httpx.Limits(max_connections=1)
    with httpx.Client(
        base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=_TIMEOUT_S, trust_env=False, verify=False
    ) as client:
        return _both(lambda method, path: client.request(method, path).content, number)


def by_aiohttp(port: int, numbers: Sequence[int]) -> dict[int, Bodies]:
    """aiohttp's client, which reads by llhttp."""

    async def ask_both(number: int, slots: asyncio.Semaphore) -> Bodies:
        bodies: list[bytes | None] = []
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with slots, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), timeout=timeout) as session:
            for method, upstream in (("GET", "u0"), ("POST", "u1")):
                url = f"http://127.0.0.1:{port}/{upstream}/{number}"
                try:
                    async with session.request(method, url) as response:
                        bodies.append(await response.read())
                except (aiohttp.ClientError, OSError, ValueError):
                    bodies.append(None)
        return bodies[0], bodies[1]

    async def ask_all() -> list[Bodies]:
        slots = asyncio.Semaphore(_AT_A_TIME)
        return await asyncio.gather(*(ask_both(number, slots) for number in numbers))

    return dict(zip(numbers, asyncio.run(ask_all()), strict=True))


def _by_program(command: list[str], port: int, numbers: Sequence[int]) -> dict[int, Bodies]:
    base = f"http://127.0.0.1:{port}"
    lines = "".join(f"{number} {base}/u0/{number} {base}/u1/{number}\n" for number in numbers)
    ended = subprocess.run(command, input=lines.encode(), capture_output=True, check=True, timeout=300)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    bodies = {number: (first and first.encode(), second and second.encode()) for number, first, second in rows}
    assert bodies.keys() == set(numbers), ended.stderr
    return bodies


def by_node(port: int, numbers: Sequence[int]) -> dict[int, Bodies]:
    """Node's http module."""
    return _by_program(["node", str(HERE / "client.js")], port, numbers)


def by_go(port: int, numbers: Sequence[int]) -> dict[int, Bodies]:
    """Go's net/http."""
    return _by_program([go_program()], port, numbers)


def by_java(port: int, numbers: Sequence[int]) -> dict[int, Bodies]:
    """Java's HttpClient."""
    return _by_program(["java", str(HERE / "Client.java")], port, numbers)


def _by_wget(port: int, number: int) -> Bodies:
    base = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="streamgauge-wget-") as folder:
        tries = ["-t2", "--waitretry=0", f"-T{_TIMEOUT_S}", "--max-redirect=0"]
        options = [*tries, "-q", "-xnH", "--content-on-error", "--no-proxy"]
        urls = [f"{base}/u0/{number}", f"{base}/u1/{number}"]
        subprocess.run(["wget", *options, f"-P{folder}", *urls], check=False, capture_output=True)
        files = [Path(f"{folder}/u{upstream}/{number}") for upstream in range(2)]
        first, second = (file.read_bytes() if file.exists() else None for file in files)
        return first, second


@cache
def go_program() -> str:
    """The path of client.go's program, which is built once in a process."""
    folder = tempfile.mkdtemp(prefix="streamgauge-isolation-")
    program = f"{folder}/client"
    subprocess.run(
        ["go", "build", "-o", program, str(HERE / "client.go")], check=True, env={**os.environ, "GOFLAGS": ""}
    )
    return program


def by_nginx(port: int, numbers: Sequence[int]) -> dict[int, Bodies]:
    """nginx in front, with a pool of one connection for each server: the two requests come from two users."""
    with _nginx(port) as ports, ThreadPoolExecutor(_POOLS) as pool:

        def ask_in_turn(own: int) -> list[tuple[int, Bodies]]:
            return [(number, _two_users(ports[own], number)) for number in numbers[own::_POOLS]]

        return dict(row for rows in pool.map(ask_in_turn, range(_POOLS)) for row in rows)


def _two_users(port: int, number: int) -> Bodies:
    def ask(method: str, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, b"{}" if method == "POST" else None, {"Connection": "close"})
            answer = connection.sock
            assert answer is not None
            return receive_all(answer)  # as nginx sent it: head and body
        finally:
            connection.close()

    return _both(ask, number)


@contextlib.contextmanager
def _nginx(port: int) -> Iterator[list[int]]:
    ports = [free_port() for _ in range(_POOLS)]
    with tempfile.TemporaryDirectory(prefix="streamgauge-nginx-") as folder:
        temporary = " ".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        servers = "".join(
            f"""
            upstream pool{number} {{ server 127.0.0.1:{port}; keepalive 1; }}
            server {{ listen 127.0.0.1:{own}; location / {{
                proxy_pass http://pool{number}; proxy_http_version 1.1; proxy_set_header Connection "";
                proxy_buffering off; proxy_next_upstream off; proxy_read_timeout {_TIMEOUT_S:.0f}s;
                proxy_ignore_headers X-Accel-Redirect; }} }}"""
            for number, own in enumerate(ports)
        )
        Path(f"{folder}/nginx.conf").write_text(
            f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors warn; events {{}}\n"
            f"http {{ access_log off; {temporary} {servers} }}\n"
        )
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        started = subprocess.Popen([program, "-p", folder, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/errors"])
        try:
            wait_for(lambda: Path(f"{folder}/pid").exists(), "nginx to start")
            yield ports
        finally:
            started.terminate()
            started.wait(30)


CLIENTS: dict[str, Client] = {
    "http.client": _in_threads(_by_http_client),
    "urllib3": _in_threads(_by_urllib3),
    "httpx": _in_threads(_by_httpx),
    "aiohttp": by_aiohttp,
    "node": by_node,
    "go": by_go,
    "java": by_java,
    "wget": _in_threads(_by_wget),
    "nginx": by_nginx,
}
