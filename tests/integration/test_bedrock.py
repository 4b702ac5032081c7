"""AWS's own client through `streamgauge up`, in front of a provider that sends Bedrock's event stream: the real framing.

The client signs nothing here. A signature covers host and path, which a proxy in front of AWS changes; and botocore sends a
bearer key (AWS_BEARER_TOKEN_BEDROCK) to an https address only.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import botocore.exceptions
import botocore.session
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from streamgauge_demo.provider import LAST_CHUNK, Provider, answer, chunk, head
from tests.core.formats import aws_messages
from tests.running import Running, start_up, wait_for

CANARY = "Canary7391"
MODEL = "eu.amazon.nova-lite-v1:0"
METRICS = {"inputTokenCount": 5, "outputTokenCount": 2, "invocationLatency": 215, "firstByteLatency": 81}


def event(kind: str, **members: object) -> bytes:
    return aws_messages.event(kind, json.dumps(members).encode())


def text(said: str) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=0, delta={"text": said}, p="abc")


def own(**members: object) -> bytes:
    return aws_messages.chunk(json.dumps(members).encode())


BEGIN = [event("messageStart", role="assistant"), text("Riv"), text(CANARY)]
USAGE = {"inputTokens": 12, "outputTokens": 4, "totalTokens": 116, "cacheReadInputTokens": 100}
CONVERSED = [
    *BEGIN,
    event("messageStop", stopReason="end_turn"),
    event("metadata", usage=USAGE, metrics={"latencyMs": 850}, serviceTier={"type": "flex"}),
]
INVOKED = [
    own(
        type="message_start",
        message={"id": "m1", "type": "message", "role": "assistant", "model": "claude-x", "usage": {}},
    ),
    own(type="content_block_delta", index=0, delta={"type": "text_delta", "text": CANARY}),
    own(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
    own(type="message_stop", **{"amazon-bedrock-invocationMetrics": METRICS}),
]
STREAMS = {
    "converse-stream": CONVERSED,
    "invoke-with-response-stream": INVOKED,
    "throttled": [*BEGIN, aws_messages.exception("throttlingException", {"message": CANARY})],
    "damaged": [*BEGIN[:2], BEGIN[2][:-1] + b"\0"],
}
SCRIPTS = {
    name: answer(head(kind="application/vnd.amazon.eventstream"), *map(chunk, sent), LAST_CHUNK, pause_s=0.03)
    for name, sent in STREAMS.items()
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data_dir = tmp_path_factory.mktemp("up") / "data"
    with (
        Provider(SCRIPTS) as provider,
        start_up({name: f"{provider.url}/{name}" for name in SCRIPTS}, data_dir) as running,
    ):
        yield running


@contextlib.contextmanager
def client(up: Running, upstream: str) -> Iterator[Any]:
    config = Config(retries={"max_attempts": 0}, proxies={}, signature_version=UNSIGNED)
    session = botocore.session.get_session()
    made: Any = session.create_client(
        "bedrock-runtime", "eu-central-1", endpoint_url=f"{up.url}/{upstream}", config=config
    )
    with contextlib.closing(made):
        yield made


def converse(up: Running, upstream: str) -> list[Any]:
    messages = [{"role": "user", "content": [{"text": CANARY}]}]
    with (
        client(up, upstream) as made,
        contextlib.closing(made.converse_stream(modelId=MODEL, messages=messages)["stream"]) as stream,
    ):
        return list(stream)


def next_record(up: Running, before: int) -> dict[str, Any]:
    wait_for(lambda: up.recorded() > before, "record")
    return up.records()[-1]


def test_a_converse_stream_has_its_first_token_usage_and_tier(up: Running) -> None:
    before = up.recorded()
    seen = converse(up, "converse-stream")
    assert [next(iter(part)) for part in seen][-2:] == ["messageStop", "metadata"]
    record = next_record(up, before)
    assert (record["dialect"], record["endpoint"]) == ("bedrock-converse", "/model/{id}/converse-stream")
    assert (record["request_model"], record["outcome"], record["finish_reason"]) == (MODEL, "completed", "stop")
    timing, usage = record["timing"], record["usage"]
    assert 0 < timing["first_token_s"] < timing["last_token_s"] < timing["end_s"]
    assert (usage["input_tokens"], usage["input_cached_tokens"], usage["output_tokens"]) == (112, 100, 4)
    assert (usage["identity_failed"], record["service_tier"], record["provider_timing"]["total_s"]) == (
        None,
        "flex",
        0.85,
    )


def test_an_invoked_model_has_its_vendors_dialect(up: Running) -> None:
    before, upstream = up.recorded(), "invoke-with-response-stream"
    with client(up, upstream) as made:
        answered = made.invoke_model_with_response_stream(modelId=MODEL, body=json.dumps({"max_tokens": 9}))
        with contextlib.closing(answered["body"]) as stream:
            parts = [json.loads(part["chunk"]["bytes"]) for part in stream]
    assert parts[-1]["type"] == "message_stop"
    record = next_record(up, before)
    assert (record["dialect"], record["outcome"], record["response_model"]) == (
        "anthropic-messages",
        "completed",
        "claude-x",
    )
    assert (record["request"]["max_tokens"], record["request_model"]) == (9, MODEL)
    assert (record["provider_timing"]["first_token_s"], record["provider_timing"]["total_s"]) == (0.081, 0.215)


def test_an_exception_in_the_stream_is_an_error_after_200(up: Running) -> None:
    before = up.recorded()
    with pytest.raises(botocore.exceptions.EventStreamError, match="throttlingException"):
        converse(up, "throttled")
    record = next_record(up, before)
    assert (record["status_code"], record["outcome"]) == (200, "stream_error")
    assert record["error"] == {"phase": "in_stream", "type": "throttlingException", "code": None, "status": None}


def test_a_damaged_message_is_a_decode_error(up: Running) -> None:
    before = up.recorded()
    with pytest.raises(Exception, match="Checksum mismatch"):
        converse(up, "damaged")
    record = next_record(up, before)
    # The client leaves at once; the stream may have ended by then.
    assert record["outcome"] in ("client_abort", "truncated")
    assert record["counts"]["token_events"] == 1
    assert record["integrity"]["decode_error"] == "bad_event_framing"


def test_no_text_is_kept(up: Running) -> None:
    before = up.recorded()
    converse(up, "converse-stream")
    next_record(up, before)
    up.settled()
    stored = [file for file in up.data_dir.rglob("*") if file.is_file()]
    assert any(file.name == "ledger.sqlite" for file in stored)
    assert [file.name for file in stored if CANARY.encode() in file.read_bytes()] == []
