"""Admin ports: what they answer, and what is said of an address that is none."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.errors import Unavailable, UsageFault
from streamgauge.metrics.admin_access import Access, Token
from streamgauge.runtime.certificates import ServerCertificate
from streamgauge.spool.read_counters import Refusal
from streamgauge.taps.proxy.refusals import error_response
from streamgauge.taps.proxy.request import RefusedError
from streamgauge.top.ports import MEMBERS, AdminPort, NoSuchStreamError, port_at
from tests.live.serving import serving
from tests.live.shown import FAILED, busy_process, id_of
from tests.taps.proxy.pki import make_pki

TOKEN = "0123456789abcdef-secret"
GIVE = "give the admin port of a running process (--admin; 127.0.0.1:9464, of a worker 127.0.0.1:9465 by default)"


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[AdminPort]:
    """A port of another program, which answers one request."""

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield port_at(f"127.0.0.1:{server.server_port}", None, None)
        thread.join()


def said(status: int, body: bytes) -> str:
    """What is said of such an answer, without the address."""
    with answering(status, body) as port, pytest.raises(Unavailable) as fault:
        port.answer(port.streams(1))
    return str(fault.value).replace(port.address, "HERE")


def test_streams_and_a_stream() -> None:
    with serving(busy_process()) as served:
        port = port_at(served.url, None, None)
        assert port.address == served.url.removeprefix("http://")
        answer = port.answer(port.streams(1, "tokens"))
        assert [row["token_events"] for row in answer["open"]["streams"]] == [259]
        assert port.stream(id_of(FAILED))["stream"]["id"] == id_of(FAILED)
        with pytest.raises(
            NoSuchStreamError, match="not among those that are kept; run streamgauge ledger show 00002710"
        ):
            port.stream(id_of(10_000))


def test_a_stream_that_the_ledger_lacks_is_not_looked_for_there_again() -> None:
    sentence = "this process has no such stream: its ledger has none"
    with answering(404, json.dumps({"error": sentence}).encode()) as port, pytest.raises(NoSuchStreamError) as fault:
        port.stream(id_of(1))
    assert str(fault.value) == sentence


def test_the_port_for_clients_is_named_as_such() -> None:
    refused = error_response(RefusedError(Refusal.UNKNOWN_UPSTREAM, "No upstream has this name."))
    body = refused.partition(b"\r\n\r\n")[2]
    assert said(404, body) == f"HERE is the port for clients: {GIVE}"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b'{"error":{"message":"Invalid URL (GET /streams)","type":"invalid_request_error","code":null}}'),
        (404, b'{"detail":"Not Found"}'),
        (405, b'{"error":{"code":405}}'),
        (404, b"[]"),
        (404, b"<html>not here</html>"),
        (404, b"[" * 100_000),
    ],
)
def test_an_upstream_s_error_is_never_printed_raw(status: int, body: bytes) -> None:
    """A port for clients with a single upstream sends the request on."""
    if body[:2] == b"[[":  # nested too deep to be parsed, so it is a text
        assert "{" not in said(status, body)
    else:
        assert said(status, body) == f"HERE answered {status}, and not as an admin port does: {GIVE}"


@pytest.mark.parametrize(
    "body",
    [
        b"<html>hello</html>",
        b"[]",
        b"{}",
        b'{"open": 1}',
        b'{"process":1,"version":1,"open":{},"hour":{},"worst":{}}',
        b"[" * 100_000,
    ],
)
def test_another_program_s_answer_is_one_sentence(body: bytes) -> None:
    assert said(200, body) == f"the port HERE belongs to another program: {GIVE}"


def test_errors_of_an_admin_port_keep_their_sentence() -> None:
    assert said(503, b'{"error":"the assembler did not answer within 5 s"}') == (
        "HERE answered 503: the assembler did not answer within 5 s"
    )
    assert said(500, b"internal error\n") == "HERE answered 500: internal error"
    assert said(404, b"not found\n") == f"HERE answered 404: not found: {GIVE}"


def test_what_does_not_speak_http_or_is_not_there() -> None:
    with pytest.raises(Unavailable, match=r"^nothing answers at 127.0.0.1:1 \(Connection refused\)$"):
        port_at("127.0.0.1:1", None, None).streams(1)
    with serving(busy_process()) as served:
        port = port_at(served.url.replace("http:", "https:"), None, None)
        with pytest.raises(Unavailable, match="does not speak https"):
            port.streams(1)
    assert "does not speak http" in said(200, b"\xff\xfe")
    with pytest.raises(Unavailable, match="give the admin port"):
        port_at(f"{'a' * 64}:1", None, None).streams(1)  # no name of a host is so long


def test_an_answer_cannot_move_the_cursor() -> None:
    """A port that another program serves may answer anything."""
    for body in (b'{"error": "\\u001b[2Jno\\u202e"}', "\x1b[2Jno\u202e".encode()):
        assert said(500, body) == r"HERE answered 500: \u001b[2Jno\u202e"
    port = port_at("127.0.0.1:1", None, None)
    answer = port.answer(
        json.dumps({**dict.fromkeys(MEMBERS), "open": [{"model": "a\x1b]0;x\x07\u202e"}], "hour": {"\x1b": 1}})
    )
    assert answer["open"] == [{"model": r"a\u001b]0;x\u0007\u202e"}]
    assert answer["hour"] == {r"\u001b": 1}


def test_a_token_and_tls(tmp_path: Path) -> None:
    pki = make_pki(tmp_path)
    access = Access(Token(TOKEN), ServerCertificate(pki.server, None))
    with serving(busy_process(), access) as served:
        assert port_at(served.url, pki.ca, Token(TOKEN)).streams(1)
        with pytest.raises(
            Unavailable, match=r"answered 401: the admin port requires its token.*--admin-token-file FILE"
        ):
            port_at(served.url, pki.ca, None).streams(1)
        with pytest.raises(Unavailable, match="does not speak https") as untrusted:
            port_at(served.url, None, Token(TOKEN)).streams(1)
        assert TOKEN not in str(untrusted.value)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ftp://127.0.0.1:1", "write HOST:PORT or https://HOST:PORT"),
        ("nowhere", "HOST:PORT"),
        ("127.0.0.1:80850", "127.0.0.1:80850"),
        ("https://127.0.0.1", "HOST:PORT"),
        ("a\x1b[2J:99999", "\\x1b"),
    ],
)
def test_wrong_addresses(address: str, says: str) -> None:
    with pytest.raises(UsageFault) as fault:
        port_at(address, None, None)
    assert says in str(fault.value)


def test_an_address_is_shown_and_not_obeyed() -> None:
    assert port_at("a\x1b[2J:1", None, None).address == r"a\u001b[2J:1"


def test_authorities_that_cannot_be_read() -> None:
    with pytest.raises(UsageFault, match=r"--admin-ca: the CA file /nowhere.pem cannot be used"):
        port_at("https://127.0.0.1:1", Path("/nowhere.pem"), None)
