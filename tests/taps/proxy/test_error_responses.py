"""The relay's own responses."""

import json
from http import HTTPStatus

import pytest

from streamgauge.spool.read_counters import Refusal
from streamgauge.taps.proxy.refusals import error_response, invalid, silent, unreachable
from streamgauge.taps.proxy.request import RefusedError


@pytest.mark.parametrize(
    ("refused", "line", "code"),
    [
        (unreachable("'openai'", "it refused the connection"), b"HTTP/1.1 502 Bad Gateway", "upstream_unreachable"),
        (invalid("'openai'", "not_http"), b"HTTP/1.1 502 Bad Gateway", "upstream_invalid"),
        (silent("'openai'", 900.0), b"HTTP/1.1 504 Gateway Timeout", "upstream_timeout"),
        (
            RefusedError(Refusal.HEADERS_TOO_LARGE, "x"),
            b"HTTP/1.1 431 Request Header Fields Too Large",
            "headers_too_large",
        ),
    ],
)
def test_each_is_json_in_the_format_that_clients_of_llms_read(refused: RefusedError, line: bytes, code: str) -> None:
    head, _, body = error_response(refused).partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == line
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head
    assert json.loads(body) == {"error": {"message": refused.message, "type": "streamgauge_relay_error", "code": code}}
    assert error_response(refused, head_only=True) == head + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("refusal", "status", "field"),
    [
        (Refusal.CLIENT_UNAUTHORIZED, HTTPStatus.UNAUTHORIZED, b"WWW-Authenticate: X-Streamgauge-Token "),
        (Refusal.UPGRADE_REFUSED, HTTPStatus.UPGRADE_REQUIRED, b"Upgrade: HTTP/1.1\r\n"),
    ],
)
def test_a_status_comes_with_the_field_that_it_requires(refusal: Refusal, status: HTTPStatus, field: bytes) -> None:
    head = error_response(RefusedError(refusal, "x"), head_only=True)
    assert head.startswith(b"HTTP/1.1 %d " % status) and b"\r\n" + field in head
    assert head.index(b"Connection: close") < head.index(field)  # some clients read the first Connection alone
