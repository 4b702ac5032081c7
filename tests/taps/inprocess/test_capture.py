"""How the capture of a request in an application starts, and that it reports only what a recorder needs."""

from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.settings.attributes import Attribute
from streamgauge.taps.inprocess.capture import attributes_of, is_event_stream, is_llm, start_capture
from tests.recorder.fake_client import BugError, FakeClient
from tests.taps.inprocess.rig import report_stream, seen_request
from tests.taps.talk import EVENTS


def test_a_stream_in_order() -> None:
    client = FakeClient(first=7)
    report_stream(client)
    started = client.messages[0]
    assert isinstance(started, RequestStarted)
    assert (started.stream, started.at_ns, started.tap, started.upstream) == (7, 1_000, "httpx", "up")
    assert (started.method, started.target) == ("POST", "/v1/chat/completions")
    assert client.messages[1:4] == [
        RequestBody(7, b'{"model":"m"}'),
        RequestSent(7, 1_500, None, 13, True),
        ResponseHead(7, 2_000, 200, [("content-type", "text/event-stream"), ("x-request-id", "req_7")]),
    ]
    assert client.messages[4:-1] == [ResponseRead(7, 3_000 + at, event) for at, event in enumerate(EVENTS)]
    assert client.messages[-1] == ExchangeEnding(7, 9_000, Ending.COMPLETE)


def test_headers_by_allowlist_as_text_or_bytes() -> None:
    secret = [(b"Cookie", b"c"), ("Host", "h")]
    headers = [("Authorization", "Bearer k"), (b"X-API-Key", b"\xfc"), *secret, ("X-Tenant", "t")]
    for tenant, kept in (("x-TENANT", [("x-tenant", "t")]), (None, [])):
        client = FakeClient()
        start_capture(client, seen_request(headers=headers), tenant)
        [started] = client.messages
        assert isinstance(started, RequestStarted)
        assert started.headers == [("authorization", "Bearer k"), ("x-api-key", "\xfc"), *kept]
        assert started.tenant_header == (tenant and tenant.lower())


def test_a_stream_that_cannot_begin_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising() -> int:
        raise BugError

    client = FakeClient()
    monkeypatch.setattr(client, "new_stream", raising)
    report_stream(client, *EVENTS * 100)
    assert (client.messages, client.faults) == ([], 1)


@pytest.mark.parametrize("headers", [[("a", "b", "c")], 5, [(None, "b")]])
def test_malformed_requests_do_not_raise(headers: Any) -> None:
    client = FakeClient()
    capture = start_capture(client, seen_request(headers=headers))
    capture.read(4, b"d")
    capture.end(5, Ending.COMPLETE)
    assert (client.messages, client.faults, client.seen) == ([], 1, 1)


def test_what_is_captured() -> None:
    assert is_llm("POST", "/v1/chat/completions?a=b")
    assert not is_llm("GET", "/v1/chat/completions")
    assert not is_llm("POST", "/v1/embeddings")
    assert is_event_stream([(b"Content-Type", b"Text/Event-Stream; charset=utf-8")])
    assert not is_event_stream([("content-type", "application/json"), ("x", "text/event-stream")])


def test_attributes_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_ATTRIBUTE", "agent=X-Agent, session=x-session")
    from_environment, given = attributes_of(None), attributes_of({"agent": "X-Agent"})
    assert given == (Attribute("agent", "x-agent"),)
    assert from_environment == (*given, Attribute("session", "x-session"))
    client = FakeClient()
    headers = iter([(b"X-Agent", b"planner"), (b"Authorization", b"Bearer k"), (b"Cookie", b"c")])
    start_capture(client, seen_request(headers=headers), attributes=from_environment)
    [started] = client.messages
    assert isinstance(started, RequestStarted)
    assert started.attributes == [("agent", "planner")]
    assert started.headers == [("authorization", "Bearer k")]


@pytest.mark.parametrize("given", [{"Agent": "x"}, {"agent": "authorization"}, {"agent": ""}, 5])
def test_invalid_attributes_are_reported_and_raise_nothing(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert attributes_of(given) == ()
    assert "no attributes are captured" in caplog.text


def test_without_attributes_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMGAUGE_ATTRIBUTE", raising=False)
    assert attributes_of(None) == attributes_of({}) == ()
