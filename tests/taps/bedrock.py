"""A client of Amazon Bedrock's runtime, signed, and a scripted server that speaks the event stream."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config

from streamgauge.taps.boto3 import tap
from tests.core.formats import aws_messages
from tests.taps.proxy.rig import chunked

CANARY = "Canary7391"
MODEL = "eu.amazon.nova-lite-v1:0"
KEY_ID = "AKIAIOSFODNN7EXAMPLE"
KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TIMEOUT_S, SHORT_TIMEOUT_S = 20.0, 0.3
USAGE = {"inputTokens": 12, "outputTokens": 4, "totalTokens": 16}


def event(kind: str, **members: object) -> bytes:
    return aws_messages.event(kind, json.dumps(members).encode())


def text(said: str) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=0, delta={"text": said}, p="abc")


CONVERSED = [
    event("messageStart", role="assistant"),
    text("Riv"),
    text(CANARY),
    event("contentBlockStop", contentBlockIndex=0),
    event("messageStop", stopReason="end_turn"),
    event("metadata", usage=USAGE, metrics={"latencyMs": 850}),
]
INVOKED = [
    aws_messages.chunk(json.dumps({"outputText": said, "completionReason": reason}).encode())
    for said, reason in (("Riv", None), (CANARY, "FINISH"))
]
ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": CANARY}]}},
    "stopReason": "end_turn",
    "usage": USAGE,
    "metrics": {"latencyMs": 850},
}


def head(status: int = 200, kind: str = "application/vnd.amazon.eventstream", more: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", "x-amzn-RequestId: aws-req-7", "Set-Cookie: secret"]
    return ("\r\n".join(lines) + "\r\n" + more).encode()


def stream(*messages: bytes) -> bytes:
    return head(more="Transfer-Encoding: chunked\r\n\r\n") + chunked(*messages)


def answer(value: object, status: int = 200, more: str = "") -> bytes:
    body = json.dumps(value).encode()
    return head(status, "application/json", f"{more}Content-Length: {len(body)}\r\n\r\n") + body


@contextlib.contextmanager
def client(
    url: str, data_dir: Path | None, *, attempts: int = 1, timeout_s: float = TIMEOUT_S, **more: Any
) -> Iterator[Any]:
    """A signing client; with the tap if it has a data directory. `attempts`: of each call."""
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        proxies={},
        read_timeout=timeout_s,
        connect_timeout=timeout_s,
    )
    session = botocore.session.Session()
    session.set_credentials(KEY_ID, KEY)
    made: Any = session.create_client("bedrock-runtime", "eu-central-1", endpoint_url=url, config=config)
    if data_dir is not None:
        assert tap(made, data_dir=data_dir, **more) is made
    with contextlib.closing(made):
        yield made


def ask(made: Any, operation: str = "converse_stream") -> dict[str, Any]:
    """The response of a call."""
    if operation.startswith("converse"):
        messages = [{"role": "user", "content": [{"text": CANARY}]}]
        response = getattr(made, operation)(modelId=MODEL, messages=messages)
    else:
        response = getattr(made, operation)(modelId=MODEL, body=json.dumps({"inputText": CANARY}))
    return dict(response)
