"""Hostile requests through whole commands: which upstream they reach, what they leave in logs and metrics; what listens."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streamgauge.metrics.declarations import LABELS, PAGE_SERIES
from streamgauge.settings.declarations import WORKER_ADMIN, Settings
from streamgauge_demo.provider import Provider, answer, chunk
from tests.faults.scripted import (
    BODY,
    CHAT,
    CHUNKED,
    MIB,
    ORDINARY,
    ask,
    connect,
    event,
    exchange,
    in_parallel,
    judge,
    whole,
    with_records,
)
from tests.metrics.pages import lines_of, read_page
from tests.processes import children
from tests.running import Running, start, start_tap, start_up, start_worker, wait_for, wait_until_ready

ANY_ADMIN = ("--admin", "127.0.0.1:0")
UNREACHABLE = "127.0.0.1:1"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@contextlib.contextmanager
def running(folder: Path, *options: str, named: bool = True) -> Iterator[tuple[Provider, Running]]:
    with Provider({"ordinary": whole(ORDINARY)}) as provider:
        upstreams: dict[str, str] | str = {"p": provider.url} if named else provider.url
        with start_up(upstreams, folder / "data", *options) as up:
            yield provider, up
            assert up.stop() == 0, up.log


# What a header's value may hold, to HTTP: any byte but control characters. Encoded surrogates, invalid UTF-8, and escapes
# that a terminal, a log viewer or a template would act on.
VALUES = (
    b"\xed\xa0\x80\xed\xbf\xbf",
    b"\xff\xfe\x80",
    b"\xc3\xa9",
    b"%0d%0aX-Injected: 1",
    b"${jndi:ldap://x}",
    b"{{7*7}}",
)
# What it may not hold.
REFUSED = (b"a\rX-Injected: 1", b"a\nX-Injected: 1", b"a\r\n X-Injected: 1", b"a\0b", b"\x1b[31m", b"a\x7f")
SIGN = b"CaNaRy"
CARRIERS = (
    b"X-Any",
    b"X-Tenant",
    b"X-Team",
    b"Traceparent",
    b"User-Agent",
    b"Authorization",
    b"Last-Event-ID",
    b"Cookie",
)


def test_h2_values_of_headers_add_no_line_upstream_and_never_reach_a_log(tmp_path: Path) -> None:
    options = ("--tenant-header", "X-Tenant", "--attribute", "team=X-Team", "--metric-attribute", "team")
    with running(tmp_path, *options) as (provider, up):
        first = f"POST /p/ordinary{CHAT} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n".encode()
        passed = [(name, SIGN + value) for name in CARRIERS for value in VALUES]
        for name, value in passed:
            received = exchange(up, first + name + b": " + value + b"\r\n\r\n{}")
            assert received.endswith(ORDINARY), (name, value)
            assert provider.exchanges[-1].request.head.count(b"\r\n" + name + b": " + value + b"\r\n") == 1
            assert b"\nX-Injected" not in provider.exchanges[-1].request.head
        for value in REFUSED:
            for line in (b"X-Any: " + SIGN + value, SIGN + value + b": 1"):
                assert exchange(up, first + line + b"\r\n\r\n{}").startswith(b"HTTP/1.1 400 "), line
        for target in (SIGN + b"\x80", SIGN + b"\x1b[31m", SIGN + b"\r", SIGN + b"\0"):
            assert exchange(up, b"GET /p/" + target + b" HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        assert len(provider.exchanges) == len(passed), "a refused request reached the upstream"
        records = up.wait_for_records(len(passed))
        kept = {str(record[name]) for record in records for name in ("tenant", "trace_id", "last_event_id")}
        kept |= {value for record in records for value in record["attributes"].values()}
        assert all(value.isascii() and value.isprintable() for value in kept), kept
        page = up.get("/metrics")[1]
        read_page(page.encode())
        assert "jndi" not in up.log and SIGN.decode() not in up.log
        assert all(character.isprintable() or character == "\n" for character in up.log)
        assert "\x1b" not in page
        judge(up)


def attempts(victim: str) -> dict[str, bytes]:
    """Requests that ask for another server than the upstream. `victim`: its authority."""
    host, _, port = victim.partition(":")
    number = sum(int(part) << shift for part, shift in zip(host.split("."), (24, 16, 8, 0), strict=True))
    paths = {
        "two slashes": f"//{victim}/x",
        "an @": f"/p@{victim}/x",
        "an @ after a slash": f"/p/@{victim}/x",
        "a port": f"/p:{port}/x",
        "a host": f"/{victim}/x",
        "a URL": f"/http://{victim}/x",
        "a decimal address": f"/{number}:{port}/x",
        "two slashes after the name": f"/p//{victim}/x",
        "a backslash": f"/p/\\\\{victim}/x",
        "an encoded @": f"/p%40{victim}/x",
        "steps upwards": f"/p/../../{victim}/x",
        "a fragment": f"/p#@{victim}/x",
    }
    last = "Connection: close\r\n\r\n"
    raw = {name: f"GET {path} HTTP/1.1\r\nHost: a\r\n{last}" for name, path in paths.items()}
    for form in (victim, f"{number}:{port}", f"0x7f000001:{port}", f"127.1:{port}", f"[::ffff:127.0.0.1]:{port}"):
        raw[f"absolute {form}"] = f"GET http://{form}/p/ordinary HTTP/1.1\r\nHost: {form}\r\n{last}"
        raw[f"Host {form}"] = f"GET /p/ordinary/x HTTP/1.1\r\nHost: {form}\r\n{last}"
    raw["credentials in a URL"] = f"GET http://a@{victim}/p/ordinary HTTP/1.1\r\nHost: a\r\n{last}"
    raw["CONNECT"] = f"CONNECT {victim} HTTP/1.1\r\nHost: {victim}\r\n{last}"
    raw["metadata service"] = (
        f"GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\n{last}"
    )
    for field in ("X-Forwarded-Host", "X-Host", "X-Original-URL", "X-Rewrite-URL", "Forwarded", "Destination", "Via"):
        value = f"host={victim}" if field == "Forwarded" else f"http://{victim}/x" if "URL" in field else victim
        raw[field] = f"GET /p/ordinary/x HTTP/1.1\r\nHost: a\r\n{field}: {value}\r\n{last}"
    return {name: text.encode() for name, text in raw.items()}


@pytest.mark.parametrize("named", [True, False], ids=["named", "single"])
def test_s2_nothing_in_a_request_or_response_selects_another_server(tmp_path: Path, named: bool) -> None:
    with Provider({"": whole(b"reached")}) as victim:
        authority = urlsplit(victim.url).netloc
        moved = (
            f"HTTP/1.1 307 Moved\r\nLocation: {victim.url}/x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        scripts = {"ordinary": whole(ORDINARY), "moved": whole(b"", moved), "p": whole(ORDINARY)}
        with Provider(scripts) as provider:
            upstreams: dict[str, str] | str = {"p": provider.url} if named else provider.url
            with start_up(upstreams, tmp_path / "data") as up:
                for name, raw in attempts(authority).items():
                    received = exchange(up, raw)
                    assert received[:12] in {b"HTTP/1.1 200", b"HTTP/1.1 400", b"HTTP/1.1 404"}, (name, received)
                    assert not received.endswith(b"reached"), name
                prefix = "/p" if named else ""
                received = exchange(
                    up, f"GET {prefix}/moved/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
                )
                assert received == moved
                hosts = {
                    line
                    for one in provider.exchanges
                    for line in one.request.head.split(b"\r\n")
                    if line[:5].lower() == b"host:"
                }
                assert {host.split(b" ", 1)[1].decode() for host in hosts} == {urlsplit(provider.url).netloc}
                judge(up)
                assert up.stop() == 0, up.log
        assert victim.connections == 0


def test_s2_a_page_of_another_site_cannot_read_the_admin_port_by_a_name_of_its_own(tmp_path: Path) -> None:
    """DNS rebinding: the browser connects to this address and sends the other site's name."""
    with running(tmp_path) as (_, up):
        admin = urlsplit(up.admin)
        assert admin.hostname and admin.port

        async def status(path: str, host: str) -> bytes:
            reader, writer = await asyncio.open_connection(admin.hostname, admin.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            received = await reader.read()
            writer.close()
            return received[9:12]

        for path in ("/", "/metrics", "/streams", "/health/ready"):
            for host in ("evil.example", f"evil.example:{admin.port}", "127.0.0.1.evil.example", "169.254.169.254"):
                assert asyncio.run(status(path, host)) == b"403", (path, host)
            assert asyncio.run(status(path, admin.netloc)) == b"200", path


_LISTENING = "0A"
_UNCONNECTED_UDP = "07"


def tree_of(pid: int) -> set[int]:
    """A process and all that it and its children started."""
    return {pid}.union(*(tree_of(child) for child in children(pid)))


def listening(pid: int) -> set[str]:
    """`tcp 127.0.0.1:8080` for each socket of the process and of its children that accepts connections or datagrams."""
    inodes = {inode for one in tree_of(pid) for inode in _sockets_of(one)}
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            waits = _LISTENING if table.startswith("tcp") else _UNCONNECTED_UDP
            if fields[3] == waits and fields[9] in inodes:
                found.add(f"{table[:3]} {_address(fields[1])}")
    return found


def _sockets_of(pid: int) -> Iterator[str]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _address(text: str) -> str:
    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    if len(words) == 1:
        return ".".join(map(str, words[0])) + f":{int(port, 16)}"
    return f"[{b''.join(words).hex(':', 2)}]:{int(port, 16)}"


SECRET = "CaNaRy-of-the-settings"


def health(command: Running) -> str:
    return "".join(command.get(path)[1] for path in ("/health/live", "/health/ready"))


@linux
def test_s3_a_tap_listens_on_its_two_ports_of_this_host_alone(tmp_path: Path) -> None:
    assert {Settings().listen.host, Settings().admin.host, WORKER_ADMIN.host} == {"127.0.0.1"}
    environment = {"STREAMGAUGE_KAFKA_PASSWORD": SECRET}
    kafka = ("--kafka", UNREACHABLE, "--kafka-security", "SASL_PLAINTEXT", "--kafka-mechanism", "PLAIN")
    login = (*kafka, "--kafka-username", "user", "--drain-timeout", "3")
    for name, options in (("up", ()), ("tap", ("--workers", "2", *login))):
        upstreams = {"p": f"http://{UNREACHABLE}"}
        with start_tap(name, upstreams, tmp_path / name, *options, environment=environment) as tap:
            expected = {f"tcp {urlsplit(url).netloc}" for url in (tap.url, tap.admin)}
            assert listening(tap.process.pid) == expected
            shown = health(tap)
            assert all(word not in shown for word in (SECRET, UNREACHABLE, str(tmp_path), "kafka")), shown
            assert SECRET not in tap.get("/metrics")[1] + tap.log
            assert tap.stop() == 0, tap.log


@linux
def test_s3_an_agent_listens_on_its_admin_port_alone(tmp_path: Path) -> None:
    with start("up", ["--agent", *ANY_ADMIN, "--data-dir", str(tmp_path / "data")], tmp_path / "data") as agent:
        wait_until_ready(agent)
        assert listening(agent.process.pid) == {f"tcp {urlsplit(agent.admin).netloc}"}
        assert agent.stop() == 0, agent.log


@linux
@pytest.mark.kafka
def test_s3_a_worker_listens_on_its_admin_port_alone(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Faust's own web server, which listens on all addresses by default, is off."""
    with start_worker(kafka, prefix, tmp_path / "data") as worker:
        wait_until_ready(worker)
        assert listening(worker.process.pid) == {f"tcp {urlsplit(worker.admin).netloc}"}
        shown = health(worker)
        assert kafka not in shown and str(tmp_path) not in shown
        assert worker.stop() == 0, worker.log


NAMES = 1_600  # 5 of 12 are printable ASCII, and so names of their own: more than a page has room for
DELTA = {"index": 0, "delta": {"content": "x"}}
ODD = ('"', "\\", '{a="b"}', "\n", "\r\n# HELP x\n", "é", "\u2028", "\ud800", "\0", " ", "'", "🦀" * 50)


def test_l1_hostile_model_names_stay_within_the_page(tmp_path: Path) -> None:
    """From requests and from responses: quotes, line ends, a MB, and more names than a label may have."""

    def model(number: int) -> str:
        return f"m-{number}-{ODD[number % len(ODD)]}{'x' * 1_000_000 if number % 100 == 99 else ''}"

    answers = {
        f"{number}": whole(
            chunk(b"data: " + json.dumps({"choices": [DELTA], "model": model(number)}).encode() + b"\n\n")
            + chunk(ORDINARY) + b"0\r\n\r\n",
            CHUNKED,
        )
        for number in range(NAMES)
    }  # fmt: skip
    with Provider(answers) as provider, start_up(provider.url, tmp_path / "data", "--capture", "full") as up:

        def one(number: int) -> None:
            body = json.dumps({"stream": True, "model": model(number)}).encode()
            ask(up, f"{number}", body=body)

        in_parallel((lambda number=number: one(number)) for number in range(NAMES))  # type: ignore[misc]
        up.wait_for_records(NAMES)
        page = wait_for(
            lambda: (body := up.get("/metrics")[1]) and _streams(body) == NAMES and body, "streams in the metrics"
        )
        assert lines_of(page.encode()) < PAGE_SERIES
        read = read_page(page.encode())
        models = read.label_values("model")
        assert len(models) <= LABELS["model"].budget
        assert {"other", "masked"} <= models
        assert all(len(value) <= 80 for value in models)
        judge(up)
        assert up.stop() == 0, up.log


def _streams(page: str) -> float:
    return read_page(page.encode()).total("streamgauge_streams_total")


def test_l1_a_scrape_beside_many_names_is_valid_openmetrics(tmp_path: Path) -> None:
    with Provider({"ordinary": whole(ORDINARY)}) as provider, start_up(provider.url, tmp_path / "data") as up:
        asked = [ask(up, "ordinary", body=json.dumps({"model": f'"{n}\\'}).encode()) for n in range(20)]
        with_records(up, asked)
        admin = urlsplit(up.admin)

        async def openmetrics() -> bytes:
            reader, writer = await asyncio.open_connection(admin.hostname, admin.port)
            accept = "application/openmetrics-text;version=1.0.0"
            writer.write(
                f"GET /metrics HTTP/1.1\r\nHost: {admin.netloc}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode()
            )
            received = await reader.read()
            writer.close()
            return received.partition(b"\r\n\r\n")[2]

        wait_for(
            lambda: read_page(asyncio.run(openmetrics()), openmetrics=True).total("streamgauge_streams_total") == 20,
            "streams in the metrics",
        )
        assert up.stop() == 0, up.log


# Clients of one wave, and what each sends after its first request (bytes): together less than the relay's limit for all.
WAVE, PIPELINED_BYTES = 100, 200_000
# By how much a wave may raise the peak of all processes: twice its bytes; and a second wave the peak of the first.
FIRST_WAVE_BYTES, NEXT_WAVE_BYTES = 2 * WAVE * PIPELINED_BYTES, 12 * MIB


def test_h5_what_clients_pipeline_after_a_slow_response_is_bounded_and_freed_when_they_leave(tmp_path: Path) -> None:
    first = f"POST /slow{CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    more = first * (PIPELINED_BYTES // len(first))
    part = chunk(event("one"))
    slow = answer(CHUNKED, part, end="stay")
    with Provider({"slow": slow}) as provider, start_up(provider.url, tmp_path / "data") as up:

        def wave(number: int) -> None:
            with contextlib.ExitStack() as stack:
                clients = [stack.enter_context(connect(up)) for _ in range(WAVE)]
                for client in clients:
                    client.sendall(first)
                for client in clients:
                    received = b""
                    while not received.endswith(part):
                        received += client.recv(65_536)
                    client.sendall(more)
                wait_for(lambda: up.metrics()["streamgauge_open_streams"] == WAVE, "open streams")
            records = up.wait_for_records(number * WAVE)
            assert len(records) == number * WAVE
            assert {record["outcome"] for record in records} == {"client_abort"}

        before = up.peak_memory()
        wave(1)
        after = up.peak_memory()
        assert after - before < FIRST_WAVE_BYTES
        wave(2)
        assert up.peak_memory() - after < NEXT_WAVE_BYTES, "the first wave was not freed"
        assert len(provider.exchanges) == 2 * WAVE, (
            "a request was sent before the response of the one before it had ended"
        )
        judge(up)
        assert up.stop() == 0, up.log
