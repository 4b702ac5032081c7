"""What a new user pastes: base URLs by the form of each provider, and curl lines that a shell reads."""

import json
import shlex
from dataclasses import replace

import pytest

from streamgauge.cli.first_request import clients_of, first_request, reachable
from streamgauge.runtime.listeners import Address
from streamgauge.settings.declarations import Settings
from streamgauge.settings.types import parse_upstream
from streamgauge.taps.proxy.request import route_of

PROXY = "http://127.0.0.1:8080"


def words(upstream: str, *, has_tokens: bool = False) -> list[str]:
    return shlex.split(first_request(parse_upstream(upstream), PROXY, has_tokens=has_tokens).curl)


@pytest.mark.parametrize(
    ("upstream", "base_url", "requested"),
    [
        ("openai=https://api.openai.com", "/openai/v1", "/v1/chat/completions"),
        ("openai=https://api.openai.com/v1", "/openai/v1", "/v1/chat/completions"),
        ("https://api.openai.com", "/v1", "/v1/chat/completions"),
        ("anthropic=https://api.anthropic.com", "/anthropic", "/v1/messages"),
        ("a=https://api.anthropic.com/v1", "/a", "/v1/messages"),
        ("gemini=https://generativelanguage.googleapis.com", "/gemini",
         "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("gemini=https://generativelanguage.googleapis.com/v1beta/openai", "/gemini", "/v1beta/openai/chat/completions"),
        ("azure=https://river.openai.azure.com", "/azure/openai/v1", "/openai/v1/chat/completions"),
        ("groq=https://api.groq.com/openai", "/groq/v1", "/openai/v1/chat/completions"),
        ("zai=https://api.z.ai/api/paas/v4", "/zai/v4", "/api/paas/v4/chat/completions"),
        ("vllm=http://10.0.0.5:8000", "/vllm/v1", "/v1/chat/completions"),
    ],
)  # fmt: skip
def test_the_base_url_and_the_path_that_the_upstream_gets(upstream: str, base_url: str, requested: str) -> None:
    named = parse_upstream(upstream)
    assert first_request(named, PROXY, has_tokens=False).base_url == PROXY + base_url
    target = words(upstream)[2].removeprefix(PROXY).removeprefix(f"/{named.name}" if named.name else "")
    route = route_of(named.name, named.url)
    assert route.base.decode() + route.without_version(target.encode()).decode() == requested


def test_a_curl_line_is_one_streaming_request() -> None:
    command, flags, url, *options = words("openai=https://api.openai.com")
    assert (command, flags, url) == ("curl", "-sN", f"{PROXY}/openai/v1/chat/completions")
    assert options[:4] == ["-H", "content-type: application/json", "-H", "authorization: Bearer $OPENAI_API_KEY"]
    body = json.loads(options[options.index("-d") + 1])
    assert (body["model"], body["stream"], body["stream_options"]) == ("gpt-4o-mini", True, {"include_usage": True})


def test_an_own_server_needs_no_key_and_another_one_does() -> None:
    for upstream in ("http://127.0.0.1:8000", "a=http://10.1.2.3", "a=http://vllm:8000", "a=http://[::1]:8000"):
        assert not any("authorization" in word for word in words(upstream))
    assert "authorization: Bearer $API_KEY" in words("a=https://llm.example.com")


def test_a_proxy_that_asks_for_a_token_gets_one() -> None:
    assert "x-streamgauge-token: $STREAMGAUGE_TOKEN" in words("a=http://vllm", has_tokens=True)


@pytest.mark.parametrize(
    ("listens", "written"),
    [
        ("0.0.0.0:8080", "127.0.0.1:8080"),
        ("[::]:8080", "[::1]:8080"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("[fe80::1]:80", "[fe80::1]:80"),
    ],
)
def test_all_addresses_are_reached_at_the_loopback(listens: str, written: str) -> None:
    assert reachable(listens) == written


def test_the_page_shows_what_the_start_prints() -> None:
    upstreams = (parse_upstream("openai=https://api.openai.com"), parse_upstream("own=http://10.0.0.4:8000"))
    settings = replace(Settings(), upstream=upstreams, listen=Address("0.0.0.0", 8081))
    asks = [first_request(upstream, "http://127.0.0.1:8081", has_tokens=False) for upstream in upstreams]
    assert [(one.base_url, one.curl) for one in clients_of(settings)] == asks
    assert [one.upstream for one in clients_of(settings)] == ["openai", "own"]


def test_a_port_that_is_not_known_is_not_shown() -> None:
    upstreams = (parse_upstream("openai=https://api.openai.com"),)
    assert clients_of(replace(Settings(), upstream=upstreams, listen=Address("127.0.0.1", 0))) == []
