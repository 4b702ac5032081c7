"""A URL of an upstream that ends in /v1, and clients whose base URL does, too: no request goes to /v1/v1."""

from pathlib import Path

import pytest

from streamgauge.settings.types import version_at_end
from streamgauge.taps.proxy.request import route_of
from tests.running import start_up
from tests.taps.proxy.rig import RawUpstream, RunningRelay, answering, receive_all, settings_for

ANSWER = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("url", "version"),
    [
        ("https://api.openai.com/v1", "/v1"),
        ("https://api.openai.com/v1/", "/v1"),
        ("https://host/openai/v1beta", "/v1beta"),
        ("https://host/v1alpha2", "/v1alpha2"),
        ("https://api.openai.com", ""),
        ("https://host/openai", ""),
        ("https://host/v1/openai", ""),
        ("https://host/v1x", ""),
        ("https://v1", ""),
    ],
)
def test_a_version_at_the_end_of_a_url(url: str, version: str) -> None:
    assert version_at_end(url) == version


@pytest.mark.parametrize(
    ("target", "forwarded"),
    [
        (b"/v1/models", b"/models"),
        (b"/v1/v1/models", b"/models"),
        (b"/v1", b""),
        (b"/v1/", b"/"),
        (b"/v1?a=b", b"?a=b"),
        (b"/v1beta/models", b"/v1beta/models"),
        (b"/v11", b"/v11"),
        (b"/models/v1", b"/models/v1"),
        (b"", b""),
    ],
)
def test_a_target_that_repeats_it(target: bytes, forwarded: bytes) -> None:
    assert route_of("a", "https://api.openai.com/v1").without_version(target) == forwarded
    for url in ("https://v1", "https://host/openai", "https://host/v1/openai"):
        assert route_of("a", url).without_version(target) == target


@pytest.mark.parametrize("single", [False, True])
def test_a_relay_requests_the_version_once(tmp_path: Path, single: bool) -> None:
    lines: list[str] = []
    paths: list[bytes] = []

    def note(one: object) -> None:
        head = one.recv(65536)  # type: ignore[attr-defined]
        paths.append(head.split(b" ")[1])
        one.sendall(ANSWER)  # type: ignore[attr-defined]

    prefix = b"" if single else b"/u0"
    with RawUpstream(note) as upstream:
        settings = settings_for(tmp_path, f"{upstream.url}/v1", single=single)
        with RunningRelay(settings, say=lines.append) as relay:
            for path in (b"/v1/models", b"/models", b"/v1/models?a=/v1", b"/v1"):
                with relay.connect() as client:
                    client.sendall(b"GET " + prefix + path + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    assert receive_all(client) == ANSWER
    assert paths == [b"/v1/models", b"/v1/models", b"/v1/models?a=/v1", b"/v1"]
    assert lines == []


@pytest.mark.slow
def test_up_says_it_at_the_start(tmp_path: Path) -> None:
    with (
        RawUpstream(answering(ANSWER)) as upstream,
        start_up({"a": f"{upstream.url}/v1", "b": upstream.url}, tmp_path / "data") as up,
    ):
        said = [line for line in up.log.splitlines() if "ends in /v1" in line]
        assert [line.partition("up: ")[2] for line in said] == [
            "that URL ends in /v1: clients may have /v1 in their base URL, too; no request goes to /v1/v1"
        ]
