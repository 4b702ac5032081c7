"""A URL of an upstream that ends in /v1, and clients whose base URL does, too: said at the start, and when requests come.
They are forwarded as they are, since an upstream may have such a path.
"""

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


def test_a_target_that_repeats_it() -> None:
    route = route_of("a", "https://api.openai.com/v1")
    repeats = (b"/v1/models", b"/v1", b"/v1?a=b")
    assert [
        target for target in (*repeats, b"/v1beta/models", b"/models", b"/v11") if route.is_repeated_in(target)
    ] == [*repeats]
    assert not route_of("a", "https://v1").is_repeated_in(b"/v1/models")
    assert not route_of("a", "https://host/openai").is_repeated_in(b"/openai/models")


def test_a_relay_says_it_once_and_forwards_the_path(tmp_path: Path) -> None:
    lines: list[str] = []
    paths: list[bytes] = []

    def note(one: object) -> None:
        head = one.recv(65536)  # type: ignore[attr-defined]
        paths.append(head.split(b" ")[1])
        one.sendall(ANSWER)  # type: ignore[attr-defined]

    with RawUpstream(note) as upstream:
        settings = settings_for(tmp_path, f"{upstream.url}/v1", upstream.url)
        with RunningRelay(settings, say=lines.append) as relay:
            for path in (b"/u0/v1/models", b"/u0/v1/models", b"/u0/models", b"/u1/v1/models"):
                with relay.connect() as client:
                    client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    assert receive_all(client) == ANSWER
    assert paths == [b"/v1/v1/models", b"/v1/v1/models", b"/v1/models", b"/v1/models"]
    [line] = lines
    assert line.startswith("a request to the upstream 'u0' goes to /v1/v1/...: ")
    assert line.endswith("if the upstream answers 404, leave it out of one of them")


@pytest.mark.slow
def test_up_says_it_at_the_start(tmp_path: Path) -> None:
    with (
        RawUpstream(answering(ANSWER)) as upstream,
        start_up({"a": f"{upstream.url}/v1", "b": upstream.url}, tmp_path / "data") as up,
    ):
        said = [line for line in up.log.splitlines() if "ends in /v1" in line]
        assert [line.partition("up: ")[2] for line in said] == [
            f"that URL ends in /v1, so clients' base URL is {up.url}/a, without /v1: with it, requests go to /v1/v1"
        ]
