"""Upstreams: names, ports and certificates, with real TLS servers."""

import socket
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.doctor.examined import FAIL, OK, WARN, found, installation, only
from tests.ports import free_port
from tests.taps.proxy.pki import Pki, make_pki, write
from tests.taps.proxy.rig import RawUpstream, receive_head


def answer(at_s: float | None = None) -> bytes:
    date = formatdate(time.time() if at_s is None else at_s, usegmt=True)
    return f"HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n".encode()


def plain(content: bytes) -> Callable[[socket.socket], None]:
    def talk(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(content)

    return talk


def tls(certificate: Path, content: bytes | None = None) -> RawUpstream:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    def talk(one: socket.socket) -> None:
        try:
            with context.wrap_socket(one, server_side=True) as secure:
                receive_head(secure)
                secure.sendall(content or answer())
        except OSError:  # the client has refused the certificate
            return

    return RawUpstream(talk)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def test_an_upstream_that_answers_is_ok_whatever_it_says(tmp_path: Path) -> None:
    with RawUpstream(plain(answer())) as upstream:
        seen = only("upstreams", installation("up", tmp_path, upstream=f"a={upstream.url}/base"))
    assert (seen.level, seen.says) == (OK, "upstream a: reached, answers with 404")


def test_what_becomes_of_a_version_at_the_end_of_a_url_is_said(tmp_path: Path) -> None:
    with RawUpstream(plain(answer())) as upstream:
        reached, version = found("upstreams", installation("up", tmp_path, upstream=f"a={upstream.url}/v1"))
    assert (reached.level, version.level) == (OK, OK)
    assert version.says == (
        "upstream a: its URL ends in /v1; clients reach it with the base URL /a/v1 and with /a, and no request goes to /v1/v1"
    )


@pytest.mark.parametrize(("status", "says"), [(308, "answers with a redirect (308)"), (503, "answers with 503")])
def test_a_redirect_or_an_unavailable_server_is_a_warning(status: int, says: str, tmp_path: Path) -> None:
    content = f"HTTP/1.1 {status} Other\r\nContent-Length: 0\r\n\r\n".encode()
    with RawUpstream(plain(content)) as upstream:
        seen = only("upstreams", installation("up", tmp_path, upstream=f"a={upstream.url}"))
    assert (seen.level, seen.says) == (WARN, f"upstream a: {says}")


def test_a_name_with_several_addresses_is_reached_at_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def addresses(host: str, port: int, **_: object) -> list[object]:
        assert host == "two.example"
        family = socket.AF_INET, socket.SOCK_STREAM, 6, ""
        return [(*family, ("127.0.0.2", port)), (*family, ("127.0.0.1", port))]

    with RawUpstream(plain(answer())) as upstream:
        monkeypatch.setattr(socket, "getaddrinfo", addresses)
        seen = only("upstreams", installation("up", tmp_path, upstream=f"a=http://two.example:{upstream.port}"))
    assert seen.level is OK, seen


def test_a_valid_certificate_is_ok_with_its_days(tmp_path: Path, pki: Pki) -> None:
    with tls(pki.server) as upstream:
        url = f"a=https://127.0.0.1:{upstream.port}"
        seen = only("upstreams", installation("tap", tmp_path, upstream=url, upstream_ca=str(pki.ca)))
    assert seen.level is OK
    assert "reached over TLS, answers with 404; its certificate is valid for " in seen.says


def signed(pki: Pki, folder: Path, name: str, *names: str, days: float, begins: float = -9) -> Path:
    now = datetime.now(UTC)
    times: dict[str, Any] = {"not_before": now + timedelta(days=begins), "not_after": now + timedelta(days=days)}
    return write(folder, name, pki.authority.issue_cert(*names, **times))


@pytest.mark.parametrize(
    ("case", "level", "says", "cure"),
    [
        ("expired", FAIL, "has expired", "renew it on the upstream"),
        ("early", FAIL, "is not valid yet", "check the clocks"),
        ("soon", WARN, "expires in 3 days", "renew it"),
        ("elsewhere", FAIL, "is for another host", "use a host name of the certificate"),
        ("foreign", FAIL, "is not signed by a trusted CA", "give the CA file with --upstream-ca"),
    ],
)
def test_a_wrong_certificate_is_told_with_its_cure(
    case: str, level: str, says: str, cure: str, tmp_path: Path, pki: Pki
) -> None:
    certificate = {
        "expired": lambda: signed(pki, tmp_path, "c.pem", "127.0.0.1", days=-2),
        "early": lambda: signed(pki, tmp_path, "c.pem", "127.0.0.1", days=9, begins=2),
        "soon": lambda: signed(pki, tmp_path, "c.pem", "127.0.0.1", days=3.2),
        "elsewhere": lambda: pki.other,
        "foreign": lambda: write(tmp_path, "c.pem", trustme.CA().issue_cert("127.0.0.1")),
    }[case]()
    with tls(certificate) as upstream:
        url = f"a=https://127.0.0.1:{upstream.port}"
        seen = only("upstreams", installation("tap", tmp_path, upstream=url, upstream_ca=str(pki.ca)))
    assert (seen.level, says in seen.says, cure in seen.cure) == (level, True, True), seen


@pytest.mark.slow
def test_servers_that_cannot_be_used(tmp_path: Path) -> None:
    def closes(one: socket.socket) -> None:
        receive_head(one)

    with (
        RawUpstream(plain(b"+PONG\r\n\r\n")) as redis,
        RawUpstream(closes) as silent,
        RawUpstream(plain(answer())) as no_tls,
    ):
        urls = [
            f"refused=http://127.0.0.1:{free_port()}",
            "unknown=https://no-such-host.invalid",
            f"redis={redis.url}",
            f"silent={silent.url}",
            f"plain=https://127.0.0.1:{no_tls.port}",
        ]
        seen = found("upstreams", installation("up", tmp_path, upstream=urls))
    assert {one.level for one in seen} == {FAIL}
    for one, says in zip(
        seen,
        [
            "refuses connections",
            "cannot be resolved",
            "does not answer in HTTP",
            "gives no HTTP answer",
            "TLS handshake",
        ],
        strict=True,
    ):
        assert says in one.says
        assert one.cure


def test_the_doctors_own_upstream_is_not_asked(tmp_path: Path) -> None:
    assert found("upstreams", installation("up", tmp_path, upstream="doctor=http://127.0.0.1:9469")) == []
