"""The ASGI tap by the messages of its specification: what passes, what is reported, and that no fault of the tap is
noticed.
"""

import asyncio
from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.taps import asgi
from streamgauge.taps.asgi import Message, Receive, Scope, Send
from tests.integration.provider import BEGIN, REST
from tests.recorder.fake_client import FakeClient
from tests.taps.asgi_rig import (
    ASKED,
    END,
    GONE,
    SSE,
    START,
    ApplicationFault,
    Server,
    answers,
    body,
    ending,
    run,
    scope,
)

# --- what passes ----------------------------------------------------------------------------------------------------


def test_messages_pass_unchanged_and_are_reported(client: FakeClient) -> None:
    sent = [START, body(BEGIN), body(b""), body(REST), END]
    server = Server()
    run(answers(*sent), server)
    assert all(passed_on is given for passed_on, given in zip(server.sent, sent, strict=True))
    messages = client.messages
    assert [type(message) for message in messages] == [
        RequestStarted,
        RequestBody,
        RequestSent,
        ResponseHead,
        ResponseRead,
        ResponseRead,
        ExchangeEnding,
    ]
    assert b"".join(message.data for message in messages if isinstance(message, ResponseRead)) == BEGIN + REST
    stamps = [message.at_ns for message in messages if not isinstance(message, RequestBody)]  # type: ignore[union-attr]
    assert stamps == sorted(stamps)  # type: ignore[type-var]
    assert ending(client).ending is Ending.COMPLETE


def test_the_application_gets_the_scope_and_the_servers_messages_unchanged(client: FakeClient) -> None:
    seen: list[Any] = []
    given = scope()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend((scope, await receive()))

    before = dict(given)
    run(application, Server(), given)
    assert seen[0] is given
    assert given == before
    assert seen[1] is ASKED


@pytest.mark.parametrize("kind", ["websocket", "something new"])
def test_other_protocols_are_not_touched(kind: str, client: FakeClient) -> None:
    server, given = Server(), {"type": kind}
    seen: list[Any] = []

    async def application(*arguments: Any) -> None:
        seen.extend(arguments)

    run(application, server, given)
    assert seen[0] is given
    assert seen[1:] == [server.receive, server.send]
    assert client.messages == []


def test_a_lifespan_passes_and_its_end_waits_for_what_was_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[object] = []
    monkeypatch.setattr(asgi, "finish", order.append)
    sent: list[Message] = [{"type": f"lifespan.{what}.complete"} for what in ("startup", "shutdown")]
    server = Server({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})

    async def send(message: Message) -> None:
        order.append(message)

    server.send = send  # type: ignore[method-assign]
    run(answers(*sent, reads=2), server, {"type": "lifespan"})
    assert order == [sent[0], asgi.FINISH_S, sent[1]]


def test_a_fault_at_the_end_of_a_lifespan_does_not_reach_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asgi, "finish", None)
    server = Server({"type": "lifespan.shutdown"})
    run(answers({"type": "lifespan.shutdown.complete"}), server, {"type": "lifespan"})
    assert server.sent == [{"type": "lifespan.shutdown.complete"}]
    assert "was not sent to the agent" in caplog.text


# --- the request ----------------------------------------------------------------------------------------------------


def test_a_request_in_pieces(client: FakeClient) -> None:
    pieces: list[Message] = [
        {"type": "http.request", "body": b'{"model"', "more_body": True},
        {"type": "http.request", "more_body": True},
        {"type": "http.request", "body": b':"m"}'},
    ]
    run(answers(START, END, reads=3), Server(*pieces))
    messages = client.messages
    assert [message.data for message in messages if isinstance(message, RequestBody)] == [b'{"model"', b':"m"}']
    [sent] = [message for message in messages if isinstance(message, RequestSent)]
    assert (sent.body_bytes, sent.whole) == (13, True)


def test_a_request_that_the_application_does_not_read(client: FakeClient) -> None:
    run(answers(START, END, reads=0), Server())
    assert not [message for message in client.messages if isinstance(message, RequestSent)]
    assert ending(client).ending is Ending.COMPLETE


def test_headers_are_reported_by_the_allowlist(client: FakeClient) -> None:
    headers = [(b"authorization", b"Bearer key"), (b"cookie", b"secret"), (b"x-tenant", b"red"), (b"host", b"h")]
    start = {**START, "headers": [*SSE, (b"set-cookie", b"secret"), (b"x-request-id", b"r")]}
    named: Any = {"tenant_header": "X-Tenant", "attributes": {"agent": "X-Agent"}}
    run(answers(start, END), Server(), scope(headers=[*headers, (b"x-agent", b"planner")]), **named)
    opened, answered = client.messages[0], client.messages[-2]
    assert isinstance(opened, RequestStarted)
    assert isinstance(answered, ResponseHead)
    assert opened.headers == [("authorization", "Bearer key"), ("x-tenant", "red")]
    assert opened.attributes == [("agent", "planner")]
    assert answered.headers == [("content-type", "text/event-stream; charset=utf-8"), ("x-request-id", "r")]


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"path": "/v1/messages", "raw_path": b"/v1/messages"}, "/v1/messages"),
        ({"path": "/v1/messages", "query_string": b"beta=true"}, "/v1/messages?beta=true"),
        ({"path": "/models/ü:streamGenerateContent", "raw_path": None}, "/models/%C3%BC:streamGenerateContent"),
        ({"path": "/a b/v1/messages", "raw_path": b"/a%20b/v1/messages"}, "/a%20b/v1/messages"),
    ],
)
def test_the_target_is_the_requests_own(given: dict[str, Any], target: str, client: FakeClient) -> None:
    run(answers(START, END), Server(), {"type": "http", "method": "POST", "headers": [], **given})
    opened = client.messages[0]
    assert isinstance(opened, RequestStarted)
    assert (opened.target, opened.tap) == (target, "asgi")


@pytest.mark.parametrize(
    ("environment", "options", "name"),
    [
        ({}, {}, "app"),
        ({"STREAMGAUGE_TAP_NAME": "llama"}, {}, "llama"),
        ({"STREAMGAUGE_TAP_NAME": "llama"}, {"upstream": "gpt"}, "gpt"),
        ({"STREAMGAUGE_TAP_NAME": ""}, {}, "app"),
        ({"STREAMGAUGE_TAP_NAME": "no name"}, {}, "app"),
    ],
)
def test_the_upstreams_name(
    environment: dict[str, str],
    options: dict[str, str],
    name: str,
    client: FakeClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    run(answers(START, END), Server(), **options)  # type: ignore[arg-type]
    opened = client.messages[0]
    assert isinstance(opened, RequestStarted)
    assert opened.upstream == name
    assert bool(caplog.records) == ("no name" in environment.values())


# --- what is captured -----------------------------------------------------------------------------------------------


def test_other_paths_are_captured_by_the_responses_head(client: FakeClient) -> None:
    server = Server(ASKED)
    run(answers(START, body(BEGIN), body(REST, more=False)), server, scope("/elsewhere"))
    messages = client.messages
    assert [type(message) for message in messages] == [
        RequestStarted,
        RequestSent,
        ResponseHead,
        ResponseRead,
        ResponseRead,
        ExchangeEnding,
    ]
    sent = messages[1]
    assert isinstance(sent, RequestSent)
    assert (sent.body_bytes, sent.whole) == (len(ASKED["body"]), False), "not kept: the head was not yet known"
    zero = messages[0]
    assert isinstance(zero, RequestStarted)
    assert zero.at_ns is not None
    assert sent.at_ns is not None
    assert zero.at_ns <= sent.at_ns


def test_other_paths_without_an_event_stream_are_not_captured(client: FakeClient) -> None:
    start = {**START, "headers": [(b"content-type", b"text/html")]}
    run(answers(start, body(b"<html>"), END), Server(ASKED), scope("/elsewhere"))
    assert client.messages == []


def test_other_types_of_bytes_are_copied(client: FakeClient) -> None:
    piece = bytearray(b"data: 1\n\n")
    run(answers(START, body(memoryview(piece)), END), Server())  # type: ignore[arg-type]
    piece[:] = b"overwritten"[: len(piece)]
    assert [message.data for message in client.messages if isinstance(message, ResponseRead)] == [b"data: 1\n\n"]


# --- how it ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [ApplicationFault(), asyncio.CancelledError()])
def test_an_exception_of_the_application_is_passed_on_as_a_break(fault: BaseException, client: FakeClient) -> None:
    with pytest.raises(type(fault)) as raised:
        run(answers(START, body(BEGIN), raises=fault), Server())
    assert raised.value is fault or isinstance(fault, asyncio.CancelledError)
    assert ending(client).ending is Ending.RESET


@pytest.mark.parametrize("sent", [(), (START,), (START, body(BEGIN))])
def test_a_response_that_is_not_completed_is_a_break(sent: tuple[Message, ...], client: FakeClient) -> None:
    run(answers(*sent), Server())
    assert ending(client).ending is Ending.RESET


def test_an_exception_after_the_end_changes_nothing(client: FakeClient) -> None:
    with pytest.raises(ApplicationFault):
        run(answers(START, body(BEGIN), END, raises=ApplicationFault()), Server())
    assert ending(client).ending is Ending.COMPLETE


def test_a_disconnect_message_ends_the_stream(client: FakeClient) -> None:
    """What the application sends after it does not count."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        await send(body(BEGIN))
        assert await receive() is GONE
        await send(body(REST, more=False))

    server = Server(ASKED, GONE)
    run(application, server)
    assert len(server.sent) == 3
    end = ending(client)
    assert (end.ending, end.client_gone_ns) == (Ending.CLIENT, end.at_ns)
    assert [message.data for message in client.messages if isinstance(message, ResponseRead)] == [BEGIN]


def test_an_error_of_send_ends_the_stream_as_left_by_the_client(client: FakeClient) -> None:
    gone = OSError("the client is gone")
    with pytest.raises(OSError) as raised:
        run(answers(START, body(BEGIN), body(REST)), Server(refuses=(2, gone)))
    assert raised.value is gone
    assert ending(client).ending is Ending.CLIENT


def test_a_disconnect_after_the_end_is_ignored(client: FakeClient) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        for message in (START, body(BEGIN), END):
            await send(message)
        await receive()

    run(application, Server(GONE))
    assert ending(client).ending is Ending.COMPLETE
    assert len([one for one in client.messages if isinstance(one, ExchangeEnding)]) == 1


# --- faults of ours -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["sender_of", "is_llm", "is_event_stream", "start_capture", "SeenRequest", "quote"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/elsewhere"])
def test_a_fault_of_the_tap_reaches_neither_server_nor_application(
    what: str, path: str, client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, what, None)
    server = Server(ASKED)
    run(answers(START, body(BEGIN), END), server, scope(path, raw_path=None))
    assert server.sent == [START, body(BEGIN), END]


@pytest.mark.parametrize("method", ["request_body", "request_sent", "response_head", "read"])
def test_a_fault_in_the_reporting_marks_the_stream(
    method: str, client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ApplicationFault

    monkeypatch.setattr(ExchangeCapture, method, fails)
    server = Server(ASKED)
    run(answers(START, body(BEGIN), END), server)
    assert server.sent == [START, body(BEGIN), END]
    assert ending(client).ending is Ending.CUT
    assert client.faults == 1


def test_invalid_messages_are_left_to_the_server(client: FakeClient) -> None:
    odd: list[Any] = [{}, {"type": "http.response.start"}, {"type": "http.response.body", "body": 7}, {"type": None}]
    for message in odd:
        server = Server(message)
        run(answers(message), server)
        assert server.sent == [message]


def test_without_an_agent_streams_are_served(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMGAUGE_KAFKA", raising=False)
    server = Server(ASKED)
    run(answers(START, body(BEGIN), body(REST), END), server, data_dir=tmp_path / "data")
    assert len(server.sent) == 4
