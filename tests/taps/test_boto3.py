"""The boto3 tap on real sockets: callers get what they get without it, and a recorder gets every attempt with its bytes."""

import contextlib
import gc
import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.response import StreamingBody

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.taps import boto3
from streamgauge.taps.boto3 import tap
from streamgauge.taps.inprocess import background_senders
from streamgauge.taps.inprocess.background_sender import BackgroundSender
from tests.core.formats import aws_messages
from tests.ports import free_port
from tests.taps import bedrock
from tests.taps.asking import WHOLE, pausing
from tests.taps.bedrock import ANSWER, CANARY, CONVERSED, INVOKED, MODEL, SHORT_TIMEOUT_S, ask, client
from tests.taps.contract.written import written
from tests.taps.proxy.rig import (
    PATIENCE_S,
    Handler,
    RawRecorder,
    RawUpstream,
    answering,
    arrived,
    kinds,
    only,
    receive_all,
    receive_request,
    reset,
)

pytestmark = pytest.mark.slow

Use = Callable[[Any], Any]


def result_of(use: Use, made: Any) -> tuple[Any, tuple[str, str] | None]:
    """What a caller got: values, and the error by name and text."""
    try:
        return use(made), None
    except Exception as error:  # noqa: BLE001 - whatever the caller gets
        return None, (type(error).__name__, str(error))


def both_ways(tmp_path: Path, use: Use, *handlers: Handler, **how: Any) -> tuple[Any, tuple[str, str] | None]:
    """What the caller gets through the tap; asserts that it gets the same without, and sends as many requests."""
    results, requests = [], []
    for data_dir in (None, tmp_path):
        with RawUpstream(*handlers) as upstream, client(upstream.url, data_dir, **how) as made:
            result, error = result_of(use, made)
            results.append((result, error and (error[0], error[1].replace(str(upstream.port), "PORT"))))
            requests.append(upstream.connections)
    assert results[0] == results[1]
    assert requests[0] == requests[1]
    return results[1]


def events_of(operation: str = "converse_stream") -> Use:
    def use(made: Any) -> list[Any]:
        response = ask(made, operation)
        return list(response["stream" if operation == "converse_stream" else "body"])

    return use


def exchanges(messages: list[Message]) -> list[list[Message]]:
    """The messages of each exchange, in the order of their beginnings."""
    found: dict[int, list[Message]] = {}
    for message in messages:
        found.setdefault(getattr(message, "stream"), []).append(message)  # noqa: B009 - not all messages have one
    return list(found.values())


def ended(recorder: RawRecorder, count: int) -> list[list[Message]]:
    return exchanges(recorder.ended(count))


def test_a_stream_in_order(tmp_path: Path, recorder: RawRecorder) -> None:
    begun = time.monotonic_ns()
    seen, error = both_ways(tmp_path, events_of(), answering(bedrock.stream(*CONVERSED)))
    assert error is None
    assert [next(iter(part)) for part in seen] == [
        "messageStart", "contentBlockDelta", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata",
    ]  # fmt: skip
    messages = recorder.ended()
    assert kinds(messages) == WHOLE
    opened, answered, end = only(messages, RequestStarted), only(messages, ResponseHead), only(messages, ExchangeEnding)
    assert (opened.tap, opened.method, opened.host) == ("boto3", "POST", "127.0.0.1")
    assert opened.target == "/model/eu.amazon.nova-lite-v1%3A0/converse-stream"
    assert opened.upstream is not None
    assert opened.upstream.startswith("127.0.0.1:")
    asked = json.loads(only(messages, RequestBody).data)
    assert asked["messages"][0]["content"] == [{"text": CANARY}]
    assert only(messages, RequestSent).whole
    assert answered.status == 200
    assert answered.headers == [
        ("content-type", "application/vnd.amazon.eventstream"),
        ("x-amzn-requestid", "aws-req-7"),
    ]
    assert arrived(messages) == b"".join(CONVERSED)
    assert (end.ending, end.client_gone_ns) == (Ending.COMPLETE, None)
    reads = [message.at_ns for message in messages if isinstance(message, ResponseRead)]
    stamps = [begun, opened.at_ns, answered.at_ns, *reads, end.at_ns, time.monotonic_ns()]
    assert stamps == sorted(stamps)  # type: ignore[type-var]


def test_each_read_has_its_time(tmp_path: Path, recorder: RawRecorder) -> None:
    whole = bedrock.stream(*CONVERSED)
    has_begun = threading.Event()
    sent_ns: list[int] = []

    def handler(one: socket.socket) -> None:
        if receive_request(one):
            one.sendall(whole[:-40])
            assert has_begun.wait(PATIENCE_S)
            sent_ns.append(time.monotonic_ns())
            one.sendall(whole[-40:])
            receive_all(one)

    def use(made: Any) -> list[Any]:
        has_begun.clear()
        seen = []
        for number, event in enumerate(ask(made, "converse_stream")["stream"], 1):
            seen.append(event)
            if number == len(CONVERSED) - 1:
                has_begun.set()
        return seen

    both_ways(tmp_path, use, handler)
    stamps = [message.at_ns for message in recorder.ended() if isinstance(message, ResponseRead)]
    assert len(stamps) == len(CONVERSED)  # one a chunk, as urllib3 gives them
    assert stamps == sorted(stamps)  # type: ignore[type-var]
    assert stamps[-2] < sent_ns[-1] < stamps[-1]  # type: ignore[operator]


def record_of(messages: list[Message]) -> dict[str, Any]:
    [record] = written(messages, "full").records
    return record


def test_the_record_is_the_one_of_the_stream(tmp_path: Path, recorder: RawRecorder) -> None:
    both_ways(tmp_path, events_of(), answering(bedrock.stream(*CONVERSED)))
    record = record_of(recorder.ended())
    assert (record["tap"], record["dialect"], record["outcome"], record["finish_reason"]) == (
        "boto3", "bedrock-converse", "completed", "stop",
    )  # fmt: skip
    assert (record["request_model"], record["provider_request_id"], record["attempt"]) == (MODEL, "aws-req-7", 1)
    assert (record["usage"]["input_tokens"], record["usage"]["output_tokens"]) == (12, 4)
    assert (record["credential_id"] is not None, record["timing"]["first_token_s"] > 0) == (True, True)
    masked = written(recorder.ended(), "masked")
    for secret in (CANARY, bedrock.KEY_ID, bedrock.KEY, "Signature="):
        assert secret.encode() not in masked.bundles


def test_an_invoked_models_stream(tmp_path: Path, recorder: RawRecorder) -> None:
    seen, error = both_ways(
        tmp_path, events_of("invoke_model_with_response_stream"), answering(bedrock.stream(*INVOKED))
    )
    assert error is None
    assert [json.loads(part["chunk"]["bytes"])["outputText"] for part in seen] == ["Riv", CANARY]
    record = record_of(recorder.ended())
    assert (record["dialect"], record["outcome"], record["counts"]["token_events"]) == ("bedrock-text", "completed", 2)


def test_an_exception_in_the_stream(tmp_path: Path, recorder: RawRecorder) -> None:
    def use(made: Any) -> list[Any]:
        with contextlib.closing(ask(made)["stream"]) as stream:
            return list(stream)

    broken = aws_messages.exception("throttlingException", {"message": CANARY})
    _, error = both_ways(tmp_path, use, answering(bedrock.stream(*CONVERSED[:3], broken)))
    assert error is not None
    assert error[0] == "EventStreamError"
    record = record_of(recorder.ended())
    assert (record["status_code"], record["outcome"], record["error"]["type"]) == (
        200, "stream_error", "throttlingException",
    )  # fmt: skip


def test_retries_are_exchanges_of_their_own(tmp_path: Path, recorder: RawRecorder) -> None:
    refused = bedrock.answer({"message": "slow down"}, 429, "x-amzn-ErrorType: ThrottlingException\r\n")
    answers = (refused, refused, bedrock.stream(*CONVERSED))
    seen, error = both_ways(tmp_path, events_of(), answering(*answers), attempts=3)
    assert (error, len(seen)) == (None, len(CONVERSED))
    found = [record_of(one) for one in ended(recorder, 3)]
    assert [(record["attempt"], record["status_code"], record["outcome"]) for record in found] == [
        (1, 429, "http_error"), (2, 429, "http_error"), (3, 200, "completed"),
    ]  # fmt: skip
    assert len({record["credential_id"] for record in found}) == 1  # though each signature differs


@pytest.mark.parametrize("status", [400, 403, 500])
def test_an_error_before_the_stream(tmp_path: Path, recorder: RawRecorder, status: int) -> None:
    _, error = both_ways(tmp_path, events_of(), answering(bedrock.answer({"message": CANARY}, status)))
    assert error is not None
    assert error[0] == "ClientError"
    record = record_of(recorder.ended())
    assert (record["status_code"], record["outcome"], record["timing"]["headers_s"]) == (status, "http_error", None)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["close", "drop", "break and close"])
def test_a_caller_that_leaves(tmp_path: Path, recorder: RawRecorder, how: str) -> None:
    def leave(made: Any) -> str:
        stream = ask(made)["stream"]
        if how == "close":
            stream.close()
            return ""
        part = next(iter(stream))
        if how == "drop":
            del stream
            gc.collect()
        else:
            stream.close()
        return next(iter(part))

    begun = bedrock.stream(*CONVERSED)[:-60]
    both_ways(tmp_path, leave, pausing(begun))
    messages = recorder.ended()
    end = only(messages, ExchangeEnding)
    assert (end.ending, end.client_gone_ns) == (Ending.CLIENT, end.at_ns)
    assert record_of(messages)["outcome"] == "client_abort"


@pytest.mark.parametrize(
    ("end", "ending", "fault"),
    [
        (reset, Ending.RESET, TransportFault.RESET),
        (socket.socket.close, Ending.RESET, TransportFault.CLOSED),
        (receive_all, Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT),
    ],
)
@pytest.mark.parametrize("kept", [0, 10, 400], ids=["nothing", "half a head", "half a body"])
def test_an_upstream_that_breaks_off(
    tmp_path: Path, recorder: RawRecorder, end: Any, ending: Ending, fault: TransportFault, kept: int
) -> None:
    how = {"timeout_s": SHORT_TIMEOUT_S if end is receive_all else 20.0}
    _, error = both_ways(tmp_path, events_of(), pausing(bedrock.stream(*CONVERSED)[:kept], end=end), **how)
    assert error is not None
    messages = recorder.ended()
    said = only(messages, ExchangeEnding)
    half_a_line = end is socket.socket.close and kept == 10  # urllib3 says that it is no status line, and not why
    assert (said.ending, said.fault) == (ending, None if half_a_line else fault)
    assert (kinds(messages) == WHOLE) == (kept == 400)


def test_an_answer_that_is_shorter_than_announced(tmp_path: Path, recorder: RawRecorder) -> None:
    """botocore does not compare the length of a body that it reads at once."""
    cut = bedrock.answer({"message": CANARY}, 500)[:-5]
    _, error = both_ways(tmp_path, events_of(), pausing(cut, end=socket.socket.close))
    assert error is not None
    said = only(recorder.ended(), ExchangeEnding)
    assert (said.ending, said.fault) == (Ending.RESET, TransportFault.CLOSED)


def test_a_stream_that_is_shorter_than_announced(tmp_path: Path, recorder: RawRecorder) -> None:
    """urllib3 raises nothing."""
    sent = b"".join(CONVERSED)
    cut = bedrock.head(more=f"Content-Length: {len(sent)}\r\n\r\n") + sent[:-40]
    _, error = both_ways(tmp_path, events_of(), pausing(cut, end=socket.socket.close))
    assert error is None
    messages = recorder.ended()
    said = only(messages, ExchangeEnding)
    assert (said.ending, said.fault, arrived(messages)) == (Ending.RESET, TransportFault.CLOSED, sent[:-40])


def test_an_error_whose_body_breaks_off(tmp_path: Path, recorder: RawRecorder) -> None:
    """botocore reads it before any handler hears of it: no more is known than that the call is over."""
    cut = bedrock.head(500, "application/json", "Transfer-Encoding: chunked\r\n\r\n") + b"20\r\n{"
    _, error = both_ways(tmp_path, events_of(), pausing(cut, end=socket.socket.close))
    assert error is not None
    gc.collect()
    messages = recorder.ended()
    assert only(messages, ExchangeEnding).ending is Ending.CUT
    assert record_of(messages)["outcome"] == "abandoned"


def test_no_server_listens(tmp_path: Path, recorder: RawRecorder) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with client(url, None) as plain, client(url, tmp_path) as tapped:
        assert result_of(events_of(), plain) == result_of(events_of(), tapped)
    said = only(recorder.ended(), ExchangeEnding)
    assert (said.ending, said.fault) == (Ending.RESET, TransportFault.REFUSED)


def test_a_whole_answer(tmp_path: Path, recorder: RawRecorder) -> None:
    seen, error = both_ways(tmp_path, lambda made: ask(made, "converse")["output"], answering(bedrock.answer(ANSWER)))
    assert (seen, error) == (ANSWER["output"], None)
    record = record_of(recorder.ended())
    assert (record["streaming"], record["outcome"], record["endpoint"]) == (False, "completed", "/model/{id}/converse")
    assert record["usage"]["output_tokens"] == 4


INVOKED_WHOLE = {
    "inputTextTokenCount": 5,
    "results": [{"tokenCount": 2, "outputText": CANARY, "completionReason": "FINISH"}],
}


def into(body: Any) -> bytes:
    buffer, parts = bytearray(16), []
    while size := body.readinto(buffer):
        parts.append(bytes(buffer[:size]))
    return b"".join(parts)


READERS: dict[str, Callable[[Any], bytes]] = {
    "read": lambda body: body.read(),
    "read in pieces": lambda body: b"".join(iter(lambda: body.read(7), b"")),
    "iterate": b"".join,
    "iter_chunks": lambda body: b"".join(body.iter_chunks(9)),
    "iter_lines": lambda body: b"\n".join(body.iter_lines()),
    "readlines": lambda body: b"".join(body.readlines()),
    "readinto": into,
}


@pytest.mark.parametrize("way", READERS)
def test_an_invoked_models_answer(tmp_path: Path, recorder: RawRecorder, way: str) -> None:
    def use(made: Any) -> tuple[bytes, bool]:
        body = ask(made, "invoke_model")["body"]
        return READERS[way](body), isinstance(body, StreamingBody)

    seen, error = both_ways(tmp_path, use, answering(bedrock.answer(INVOKED_WHOLE)))
    assert error is None
    assert (json.loads(seen[0]), seen[1]) == (INVOKED_WHOLE, True)
    messages = recorder.ended()
    assert arrived(messages) == seen[0]
    record = record_of(messages)
    assert (record["dialect"], record["outcome"], record["usage"]["output_tokens"]) == ("bedrock-text", "completed", 2)


def test_the_body_of_urllib3_itself_is_not_seen(tmp_path: Path, recorder: RawRecorder) -> None:
    def use(made: Any) -> bytes:
        with ask(made, "invoke_model")["body"] as raw:
            return bytes(raw.read())

    both_ways(tmp_path, use, answering(bedrock.answer(INVOKED_WHOLE)))
    messages = recorder.ended()
    assert (only(messages, ExchangeEnding).ending, arrived(messages)) == (Ending.CUT, b"")


def test_a_session_hooks_the_clients_that_it_makes(tmp_path: Path, recorder: RawRecorder) -> None:
    session = botocore.session.Session()
    session.set_credentials(bedrock.KEY_ID, bedrock.KEY)
    assert tap(session, data_dir=tmp_path, upstream="aws") is session
    with RawUpstream(answering(bedrock.stream(*CONVERSED))) as upstream:
        made: Any = session.create_client("bedrock-runtime", "eu-central-1", endpoint_url=upstream.url)
        assert len(events_of()(made)) == len(CONVERSED)
        made.close()
    assert only(recorder.ended(), RequestStarted).upstream == "aws"


def test_a_second_hook_adds_nothing(tmp_path: Path, recorder: RawRecorder) -> None:
    with (
        RawUpstream(answering(bedrock.stream(*CONVERSED))) as upstream,
        client(upstream.url, tmp_path) as made,
    ):
        tap(made, data_dir=tmp_path)
        events_of()(made)
    assert kinds(recorder.ended()) == WHOLE
    assert len([one for one in recorder.ended() if isinstance(one, RequestStarted)]) == 1


@pytest.mark.parametrize("other", [None, 5, "bedrock", object()])
def test_what_is_no_client_is_returned_with_a_warning(other: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "streamgauge"):
        assert tap(other) is other
    assert "is no client or session of boto3" in caplog.text


def test_threads_that_share_a_client(tmp_path: Path, recorder: RawRecorder) -> None:
    each = answering(*[bedrock.stream(*CONVERSED)] * 4)  # a thread may use the connection of one that has ended
    with RawUpstream(each) as upstream, client(upstream.url, tmp_path) as made:
        threads = [threading.Thread(target=events_of(), args=(made,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for one in ended(recorder, 4):
        assert kinds(one) == WHOLE
        assert arrived(one) == b"".join(CONVERSED)


BROKEN_PLACES = ["start_capture", "sender_of", "is_llm", "_captured", "urlsplit", "_bytes_of", "report_ending"]


@pytest.mark.parametrize("place", BROKEN_PLACES)
def test_a_bug_of_the_hook_reaches_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise type(f"BugIn_{place}", (RuntimeError,), {})  # of each kind the first one is logged

    monkeypatch.setattr(boto3, place, broken)
    how = bedrock.stream(*CONVERSED)
    seen, error = both_ways(tmp_path, events_of(), answering(how))
    assert (error, len(seen)) == (None, len(CONVERSED))
    _, error = both_ways(tmp_path, lambda made: ask(made)["stream"].close(), answering(how))
    assert error is None
    assert f"BugIn_{place}" in caplog.text


def test_a_read_that_cannot_be_captured_reaches_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExchangeCapture, "_read_unsteady", None)
    monkeypatch.setattr(BackgroundSender, "put_read", None)
    seen, error = both_ways(tmp_path, events_of(), answering(bedrock.stream(*CONVERSED)))
    assert (error, len(seen)) == (None, len(CONVERSED))


def test_without_an_agent_the_caller_does_not_wait(tmp_path: Path) -> None:
    seen, error = both_ways(tmp_path / "nobody", events_of(), answering(bedrock.stream(*CONVERSED)))
    assert (error, len(seen)) == (None, len(CONVERSED))
    background_senders.end()
