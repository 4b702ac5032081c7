"""mitmproxy's flows: the names of members in each version, what its times mean, how a flow ended."""

import io
from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.taps.replay.contract import RecordedExchange, Tally, Times
from streamgauge.taps.replay.flows import exchanges
from tests.taps.replay import recordings
from tests.taps.replay.recordings import START, Sample, flow, netstring
from tests.taps.talk import BODY

SAMPLE = Sample(BODY)


def read(*flows: dict[str, Any], tally: Tally | None = None) -> list[RecordedExchange]:
    return list(exchanges(io.BytesIO(b"".join(map(netstring, flows))), tally or Tally()))


def changed(part: str, **members: Any) -> dict[str, Any]:
    one = flow(SAMPLE)
    return {**one, part: {**one[part], **members}}


def test_an_exchange() -> None:
    [one] = read(flow(Sample(BODY, url=recordings.URL + "?a=1")))
    assert (one.method, one.host, one.target) == ("POST", "api.example.com", "/v1/chat/completions?a=1")
    assert (one.request_body, one.body, one.status, one.ending) == (SAMPLE.request_body, BODY, 200, Ending.COMPLETE)
    assert one.headers == [("content-type", "text/event-stream; charset=utf-8")]
    assert one.stamps == []


def test_old_versions_give_the_same() -> None:
    assert list(exchanges(io.BytesIO(recordings.old_flows(SAMPLE)), Tally())) == read(flow(SAMPLE))


def test_times_are_relative_to_the_request_and_the_time_of_sending_is_unknown() -> None:
    [one] = read(flow(SAMPLE))
    assert one.times == Times(
        started_ns=1_700_000_000_250_000_000, connected_ns=20_000_000, head_ns=500_000_000, end_ns=2_000_000_000
    )
    [tls] = read(changed("server_conn", timestamp_tls_setup=START + 0.25))
    assert tls.times.connected_ns == 250_000_000


@pytest.mark.parametrize(
    "server",
    [
        {"timestamp_tcp_setup": START - 1},  # made for an earlier request
        {"timestamp_tcp_setup": START + 1},  # made again for a later one
        {"timestamp_tcp_setup": None},
        {"timestamp_tcp_setup": b"x"},
    ],
)
def test_a_connection_that_was_made_for_another_request_has_no_time(server: dict[str, Any]) -> None:
    [one] = read(changed("server_conn", **server))
    assert one.times.connected_ns is None


@pytest.mark.parametrize("start", [None, "x", float("inf"), 0, -5.0, 1e300, 10**38, True])
def test_without_a_start_there_are_no_times(start: object) -> None:
    [one] = read(changed("request", timestamp_start=start))
    assert one.times.started_ns is None
    assert one.times.end_ns is None


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        ("Client disconnected.", Ending.CLIENT),
        ("stream reset by client (CANCEL)", Ending.CLIENT),
        ("server closed connection", Ending.RESET),
        ("Connection killed.", Ending.RESET),
    ],
)
def test_an_error_gives_the_side_that_broke_and_the_time(error: str, ending: Ending) -> None:
    broken = changed("response", content=None, timestamp_end=None)
    [one] = read({**broken, "error": {"msg": error, "timestamp": START + 3}})
    assert (one.ending, one.body, one.times.end_ns) == (ending, None, 3_000_000_000)


def test_a_flow_without_a_response_has_an_unknown_end() -> None:
    [one] = read({**flow(SAMPLE), "response": None})
    assert (one.status, one.ending) == (None, Ending.CUT)
    [unfinished] = read(changed("response", timestamp_end=None))
    assert unfinished.ending is Ending.CUT


def test_other_protocols_are_skipped_and_malformed_flows_counted() -> None:
    tally = Tally()
    dns = {"type": "dns", "version": 21}
    odd: list[Any] = [{}, {"type": "http"}, {"type": "http", "request": {"path": b""}}]
    exchanges = read(dns, *odd, flow(SAMPLE), tally=tally)
    assert len(exchanges) == 1
    assert (tally.broken_exchanges, tally.first_broken) == (3, "flow 2: it contains no request")


@pytest.mark.parametrize("headers", [None, b"x", [b"x"], [[b"a"]], [[b"a", None]], [[None, b"b"]]])
def test_malformed_headers_are_none(headers: object) -> None:
    [one] = read(changed("response", headers=headers))
    assert one.headers == []
