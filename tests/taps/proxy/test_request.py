"""Requests: their upstream, the head that is sent there, and what is refused."""

import contextlib
import time

import httpx
import pytest

from streamgauge.taps.proxy.request import Outgoing, RefusedError, Request, Routes, check_target, route_of

ROUTES = Routes([("openai", "https://api.openai.com"), ("local", "http://[::1]:8000/base/")], single=False)


def request(
    target: bytes = b"/openai/v1/x",
    *headers: tuple[bytes, bytes],
    method: bytes = b"POST",
    minor: int = 1,
    keep: bool = True,
) -> Request:
    return Request(method, target, minor, [(b"Host", b"client:1"), *headers], keep, 0)


def refusal(one: Request, routes: Routes = ROUTES) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        routes.outgoing(one)
    return caught.value


@pytest.mark.parametrize(
    ("target", "line", "kept"),
    [
        (
            b"/openai/v1/chat/completions?a=%2f&b=//c",
            b"/v1/chat/completions?a=%2f&b=//c",
            b"/v1/chat/completions?a=%2f&b=//c",
        ),
        (b"/openai", b"/", b""),
        (b"/openai/", b"/", b"/"),
        (b"/openai?x=1", b"/?x=1", b"?x=1"),
        (b"/openai//evil.example/x", b"//evil.example/x", b"//evil.example/x"),
        (b"/openai/..local/x/...", b"/..local/x/...", b"/..local/x/..."),
        (b"/openai/./x?/../y", b"/./x?/../y", b"/./x?/../y"),
        (b"/local/v1/y", b"/base/v1/y", b"/v1/y"),
        (b"/local", b"/base", b""),
        (b"/local?q", b"/base?q", b"?q"),
        (b"/openai/@evil.example", b"/@evil.example", b"/@evil.example"),
    ],
)
def test_the_prefix_names_the_upstream_and_the_rest_stays_byte_for_byte(
    target: bytes, line: bytes, kept: bytes
) -> None:
    outgoing = ROUTES.outgoing(request(target))
    assert outgoing.head.split(b"\r\n")[0] == b"POST " + line + b" HTTP/1.1"
    assert outgoing.target == kept


def test_a_single_upstream_takes_paths_as_they_are() -> None:
    routes = Routes([("", "http://127.0.0.1:9/v1")], single=True)
    outgoing = routes.outgoing(request(b"//evil.example/openai?x"))
    assert outgoing.head.startswith(b"POST /v1//evil.example/openai?x HTTP/1.1\r\nHost: 127.0.0.1:9\r\n")
    assert outgoing.route.name is None
    assert outgoing.route.label == "server", "clients must not learn the upstream's address"


@pytest.mark.parametrize(
    ("name", "url", "recorded"),
    [
        ("openai", "https://api.openai.com", "openai"),
        ("", "https://api.openai.com", "api.openai.com"),
        ("", "https://API.openai.com:443/v1", "api.openai.com"),
        ("", "http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("", "http://[::1]:8000/base", "[::1]:8000"),
        ("", "http://[::1]", "[::1]"),
        ("", "https://host:80", "host:80"),
    ],
)
def test_an_upstream_without_a_name_is_recorded_by_its_host_and_port(name: str, url: str, recorded: str) -> None:
    assert route_of(name, url).recorded_name == recorded
    if not name:  # the httpx tap uses the same name for it
        assert httpx.URL(url).netloc.decode() == recorded


@pytest.mark.parametrize("target", [b"/other/x", b"/", b"/OPENAI/x", b"/openai%2f/x", b"//openai/x", b"/openaix/y"])
def test_an_unknown_name_is_refused_with_the_known_ones(target: bytes) -> None:
    refused = refusal(request(target))
    assert refused.status == 404 and refused.code == "unknown_upstream"
    assert "/local/, /openai/" in refused.message


@pytest.mark.parametrize(
    "target",
    [
        *(
            b"http://169.254.169.254/openai/x",
            b"*",
            b"openai/x",
            b"",
            b"/openai/a b",
            b"/openai/\x7f",
            b"/openai/\xc3\xa9",
        ),
        *(b"/openai/../x", b"/openai/..", b"/openai/.%2E/x", b"/openai%2f..%5Cx", b"/openai/..;a/x", b"/openai/a\\b"),
        b"/openai#",
    ],
)
def test_only_a_plain_path_is_a_target(target: bytes) -> None:
    assert refusal(request(target)).status == 400


CLIMBS = [
    # Encoded once, twice and more often; with each character of an encoding encoded.
    *(b"%2e%2E", b".%2e", b"%252e%252e", b"%25252e.", b"%2525252525252e.", b"%%32%65.", b"%25%32%65%2e"),
    # %u (IIS), overlong UTF-8, and characters that Unicode calls compatible.
    *(
        b"%u002e%u002E",
        b"%c0%ae%c0%ae",
        b"%c0%2e.",
        b"%e0%80%ae.",
        b"%f0%80%80%ae.",
        b"%ef%bc%8e%ef%bc%8e",
        b"%e2%80%a5",
    ),
    # Parameters, and what some servers cut off or remove.
    *(
        b"..;",
        b"..;a=b",
        b"..%3b",
        b"..%253bx",
        b"..%00",
        b"..%00.html",
        b"..%20",
        b"..%09",
        b".%09.",
        b"..%3f",
        b"..%23",
    ),
]
SLASHES = [
    *(b"/", b"%2f", b"%5C", b"%252f", b"%255c", b"%c0%af", b"%c1%9c", b"%e0%80%af", b"%u005c"),
    *(b"%ef%bc%8f", b"%ef%bc%bc"),
]


@pytest.mark.parametrize("step", [b"..", *CLIMBS])
def test_a_step_upwards_is_refused_in_each_encoding(step: bytes) -> None:
    for target in (b"/openai/%b/x", b"/openai/%b", b"/openai/a/%b/", b"/%b/openai/x", b"/openai/%b?x"):
        assert refusal(request(target % step)).code == "target_refused"
    for slash in SLASHES:
        for target in (b"/openai%b%b/x", b"/openai/a%b%b"):
            assert refusal(request(target % (slash, step))).code == "target_refused"


@pytest.mark.parametrize(
    "target",
    [
        *(
            b"/x",
            b"/v1/models/org%2Fname",
            b"/v1/models/a%252Fb",
            b"/...",
            b"/..a/b..",
            b"/.%2Ee",
            b"/a.b",
            b"/./x",
            b"/%2e/",
        ),
        *(b"/x?a=/../b", b"/x?%2e%2e", b"/gpt-4..1", b"/%E2%80%A6", b"/%", b"/%zz", b"/%u12", b"/a;x=../b"),
        *(b"/;..", b"/%C3%A9..", b"/v1beta/models/g:streamGenerateContent?alt=sse", b"/%25252f"),
    ],
)
def test_a_path_without_a_step_upwards_is_passed_on_as_it_is(target: bytes) -> None:
    assert ROUTES.outgoing(request(b"/openai" + target)).target == target


def test_a_path_of_the_largest_size_is_checked_in_little_time() -> None:
    began = time.process_time()
    for unit in (b"%25", b"%2", b"/.", b"%2e/", b"/%c0", b"%u002e/", b"%ef%bc%8ea", b"."):
        with contextlib.suppress(RefusedError):
            check_target(b"/" + unit * (65_000 // len(unit)))
    assert time.process_time() - began < 4


@pytest.mark.parametrize(
    "fields",
    [
        *(
            [(b"Host", host)]
            for host in (b"a.example", b"a.example:80", b"1.2.3.4.example", b"", b"127.0.0.1.", b"[::1].a.b")
        ),
        [(b"Host", b"localhost"), (b"Origin", b"https://a.example")],
        [(b"Host", b"localhost"), (b"Origin", b"null")],
        [(b"Host", b"localhost"), (b"Sec-Fetch-Site", b"cross-site")],
        [(b"Host", b"localhost"), (b"Sec-Fetch-Site", b"same-origin")],
    ],
)
def test_a_web_page_does_not_learn_the_names_of_upstreams(fields: list[tuple[bytes, bytes]]) -> None:
    refused = refusal(Request(b"GET", b"/x", 1, fields, True, 0))
    assert refused.code == "unknown_upstream"
    assert "openai" not in refused.message and "--upstream" in refused.message


@pytest.mark.parametrize("host", [b"127.0.0.1:8080", b"LOCALHOST", b"[::1]:8080", b"streamgauge:8080", b"x.localhost"])
def test_a_client_that_is_no_web_page_gets_the_names_of_upstreams(host: bytes) -> None:
    fields = [(b"Host", host), (b"Sec-Fetch-Site", b"none")]
    assert "/local/, /openai/" in refusal(Request(b"GET", b"/x", 1, fields, True, 0)).message


@pytest.mark.parametrize("method", [b"CONNECT", b"PRI", b"DESCRIBE", b"SOURCE"])
def test_methods_of_other_protocols(method: bytes) -> None:
    assert refusal(request(method=method)).code == "method_refused"


def head_of(*headers: tuple[bytes, bytes], minor: int = 1, keep: bool = True) -> Outgoing:
    return ROUTES.outgoing(request(b"/openai/x", *headers, minor=minor, keep=keep))


def test_fields_of_one_connection_are_removed_and_all_else_stays_in_place() -> None:
    outgoing = head_of(
        (b"aUTHorization", b"Bearer sk  x"),
        (b"Connection", b"close, X-Named"),
        (b"connection", b"host, content-length"),
        (b"X-Named", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Proxy-Connection", b"keep-alive"),
        (b"Proxy-Authorization", b"Basic eA=="),
        (b"TE", b"trailers"),
        (b"Trailer", b"X"),
        (b"Upgrade", b"h2c"),
        (b"X-Odd", b""),
        (b"Content-LENGTH", b"3"),
        (b"X-Odd", b"\xe9 twice"),
    )
    assert outgoing.framing == "length"
    assert outgoing.head == (
        b"POST /x HTTP/1.1\r\nHost: api.openai.com\r\naUTHorization: Bearer sk  x\r\nX-Odd: \r\nContent-LENGTH: 3\r\n"
        b"X-Odd: \xe9 twice\r\n\r\n"
    )


def test_chunked_framing_is_the_relays_own() -> None:
    outgoing = head_of((b"transfer-encoding", b" Chunked "), (b"Expect", b"100-continue"))
    assert outgoing.framing == "chunked"
    assert outgoing.head.endswith(b"\r\ntransfer-encoding: chunked\r\nExpect: 100-continue\r\n\r\n")


def test_http_1_0_is_kept() -> None:
    bare = Request(b"GET", b"/local/x", 0, [(b"A", b"b")], False, 0)
    assert ROUTES.outgoing(bare).head == b"GET /base/x HTTP/1.0\r\nHost: [::1]:8000\r\nA: b\r\n\r\n"
    assert head_of(minor=0).head.endswith(b"\r\nConnection: keep-alive\r\n\r\n")


LENGTH = b"Content-Length"
TRANSFER = b"Transfer-Encoding"


@pytest.mark.parametrize(
    "headers",
    [
        [(LENGTH, b"3"), (TRANSFER, b"chunked")],
        [(LENGTH, b"3"), (b"content-length", b"4")],
        [(LENGTH, b"+3")],
        [(LENGTH, b"3, 3")],
        [(LENGTH, b"")],
        [(TRANSFER, b"gzip, chunked")],
        [(TRANSFER, b"identity")],
        [(TRANSFER, b"chunked"), (TRANSFER, b"chunked")],
        [(TRANSFER, b"xchunked")],
    ],
)
def test_an_ambiguous_end_of_a_body_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    assert refusal(request(b"/openai/x", *headers)).code == "ambiguous_framing"


def test_http_1_0_has_no_chunks() -> None:
    assert refusal(request(b"/openai/x", (TRANSFER, b"chunked"), minor=0)).code == "ambiguous_framing"


def test_one_host_and_no_line_ends_in_values() -> None:
    assert refusal(request(b"/openai/x", (b"host", b"b"))).status == 400
    assert refusal(Request(b"GET", b"/openai/x", 1, [], True, 0)).status == 400
    for evil in (b"a\r\nX: y", b"a\ny", b"a\ry", b"a\0y"):
        assert refusal(request(b"/openai/x", (b"A", evil))).status == 400
        assert refusal(request(b"/openai/x", (evil, b"a"))).status == 400


@pytest.mark.parametrize(
    ("url", "authority", "tls", "base"),
    [
        ("https://Api.Example.com", b"api.example.com", True, b""),
        ("https://api.example.com:443/", b"api.example.com", True, b""),
        ("http://h:443/a/b/", b"h:443", False, b"/a/b"),
        ("http://bücher.example", b"xn--bcher-kva.example", False, b""),
    ],
)
def test_a_url_becomes_a_route(url: str, authority: bytes, tls: bool, base: bytes) -> None:
    route = route_of("n", url)
    assert (route.authority, route.tls, route.base) == (authority, tls, base)


@pytest.mark.parametrize("url", ["ftp://a", "http://", "a.example", "http://u:p@a", "http://a?x", "http://a/#f"])
def test_a_url_that_is_not_a_route(url: str) -> None:
    with pytest.raises(ValueError, match="upstream"):
        route_of("n", url)


def test_invalid_upstreams() -> None:
    for upstreams, single in (([], True), ([], False), ([("a", "http://a"), ("b", "http://b")], True)):
        with pytest.raises(ValueError, match="upstream"):
            Routes(upstreams, single)


def test_stripped_fields_are_not_passed_on_and_all_others_are() -> None:
    fields = [(b"X-AGENT", b"a"), (b"x-agents", b"b"), (b"x-agent", b"c"), (b"Authorization", b"k")]
    given = request(b"/v1/messages", *fields)
    for stripped, kept in ((frozenset({b"x-agent"}), fields[1::2]), (frozenset[bytes](), fields)):
        head = Routes([("", "http://127.0.0.1:9")], single=True, stripped=stripped).outgoing(given).head
        written = [line for line in head.split(b"\r\n")[1:-2] if not line.lower().startswith(b"host")]
        assert written == [name + b": " + value for name, value in kept]
