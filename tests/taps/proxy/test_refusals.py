"""The relay's own responses are counted by code, logged at a limited rate, and not readable by a page of another site."""

from pathlib import Path

import pytest

from streamgauge.spool.read_counters import Counters, Refusal, read_refusals
from streamgauge.taps.proxy.refusals import LINE_S, Refusals
from streamgauge.taps.proxy.request import RefusedError
from tests.taps.proxy.rig import RawUpstream, RunningRelay, answering, receive_all, settings_for

HOST = b" HTTP/1.1\r\nHost: a\r\n"
REQUESTS = {
    Refusal.UNKNOWN_UPSTREAM: b"GET /nobody/x" + HOST + b"\r\n",
    Refusal.MALFORMED_REQUEST: b"GET /u0/x HTTP/1.1\r\nno colon\r\n\r\n",
    Refusal.METHOD_REFUSED: b"CONNECT example:443" + HOST + b"\r\n",
    Refusal.TARGET_REFUSED: b"GET /u0/../x" + HOST + b"\r\n",
    Refusal.AMBIGUOUS_FRAMING: b"POST /u0/x" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    Refusal.UPGRADE_REFUSED: b"GET /u0/x" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    Refusal.HEADERS_TOO_LARGE: b"GET /u0/x" + HOST + b"A: " + b"a" * 70_000 + b"\r\n\r\n",
    Refusal.BODY_TOO_LARGE: b"POST /u0/x" + HOST + b"Content-Length: 10000\r\n\r\n",
    Refusal.HEADER_TIMEOUT: b"GET /u0/x HTT",
    Refusal.UPSTREAM_UNREACHABLE: b"GET /u1/x" + HOST + b"\r\n",
    Refusal.UPSTREAM_INVALID: b"GET /u0/x" + HOST + b"\r\n",
    Refusal.UPSTREAM_TIMEOUT: b"GET /u2/x" + HOST + b"\r\n",
}


@pytest.mark.parametrize("refusal", REQUESTS)
def test_f12_each_is_counted_by_its_code_and_logged_once(tmp_path: Path, refusal: Refusal) -> None:
    lines: list[str] = []
    with RawUpstream(answering(b"SMTP\r\n\r\n")) as wrong, RawUpstream(lambda one: receive_all(one) and None) as mute:  # type: ignore[arg-type]
        settings = settings_for(
            tmp_path,
            wrong.url,
            "http://127.0.0.1:1",
            mute.url,
            max_request_body=1000,
            header_timeout_s=0.5,
            upstream_idle_timeout=0.5,
        )
        with RunningRelay(settings, say=lines.append) as relay:
            for _ in range(3):
                with relay.connect() as client:
                    client.sendall(REQUESTS[refusal])
                    answer = receive_all(client)
                    assert answer.startswith(b"HTTP/1.1 %d " % refusal.status)
                    assert b'"code":"%b"' % refusal.value.encode() in answer
                    assert b"access-control-" not in answer.lower()
            assert {one: times for one, times in read_refusals(tmp_path / "counters").items() if times} == {refusal: 3}
    assert [
        line for line in lines if line.startswith(f"answered a request with {refusal.status} {refusal.value}: ")
    ] == lines
    assert len(lines) == 1


def test_a_line_a_minute_gives_the_number_of_further_ones(tmp_path: Path) -> None:
    lines: list[str] = []
    now = [0.0]
    with Counters(tmp_path / "counters", "relay-0") as counters:
        refusals = Refusals(counters, lines.append, lambda: now[0])
        for _ in range(10):
            refusals.add(RefusedError(Refusal.RELAY_BUSY, "Try again."))
        now[0] = LINE_S
        refusals.add(RefusedError(Refusal.RELAY_BUSY, "Try again."))
        refusals.add(RefusedError(Refusal.UNKNOWN_UPSTREAM, "No."))
        refusals.add(RefusedError(Refusal.UPSTREAM_INVALID, "Odd."), reset=True)
    assert lines == [
        "answered a request with 503 relay_busy: Try again.",
        "answered a request with 503 relay_busy: Try again. (9 more with this code since the last such line)",
        "answered a request with 404 unknown_upstream: No.",
        "reset a response (upstream_invalid): Odd.",
    ]
    assert read_refusals(tmp_path / "counters")[Refusal.RELAY_BUSY] == 11
