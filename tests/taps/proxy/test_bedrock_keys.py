"""What a relay does to the two kinds of keys of Amazon Bedrock: a bearer key passes, a signature no longer fits.

The signature is checked as AWS does: it is computed again from what arrived, with the same key.
"""

import re
import socket
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from streamgauge.recorder.protocol import RequestStarted
from tests.taps import bedrock
from tests.taps.proxy.pki import Pki, make_pki
from tests.taps.proxy.rig import (
    Handler,
    RawRecorder,
    RawUpstream,
    RunningRelay,
    only,
    receive_request,
    settings_for,
)

BEARER = "bedrock-api-key-SECRET"
PATH = "/model/eu.amazon.nova-lite-v1%3A0/converse-stream"


def noting(arrived: list[bytes]) -> Handler:
    """A handler that notes a request, and answers with a stream."""

    def handler(one: socket.socket) -> None:
        while request := receive_request(one):
            arrived.append(request)
            one.sendall(bedrock.stream(*bedrock.CONVERSED))

    return handler


def head_of(request: bytes) -> tuple[str, dict[str, str], bytes]:
    """The target, the headers by their lower-case names, and the body."""
    head, _, body = request.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    pairs = (field.partition(": ") for field in fields)
    return line.split(" ")[1], {name.lower(): value for name, _, value in pairs}, body


def fits(request: bytes, *, host: str | None = None, target: str | None = None) -> bool:
    """Whether the signature fits what arrived. `host`, `target`: taken instead of those that arrived."""
    path, headers, body = head_of(request)
    signed = re.search(r"SignedHeaders=([^,]+), Signature=([0-9a-f]+)", headers["authorization"])
    assert signed
    names = signed[1].split(";")
    assert "host" in names
    given = {name: headers[name] for name in names} | {"host": host or headers["host"]}
    again = AWSRequest("POST", f"http://{given['host']}{target or path}", data=body, headers=given)
    again.context["timestamp"] = headers["x-amz-date"]
    auth: Any = SigV4Auth(Credentials(bedrock.KEY_ID, bedrock.KEY), "bedrock", "eu-central-1")
    text = auth.string_to_sign(again, auth.canonical_request(again))
    return bool(auth.signature(text, again) == signed[2])


def test_a_signature_fits_without_a_relay() -> None:
    """Otherwise the next test would show nothing."""
    arrived: list[bytes] = []
    with RawUpstream(noting(arrived)) as upstream, bedrock.client(upstream.url, None) as made:
        list(bedrock.ask(made)["stream"])
    [request] = arrived
    assert fits(request)
    assert not fits(request, host="other.example")


@pytest.mark.parametrize("named", [False, True], ids=["one upstream", "an upstream with a name in the path"])
def test_a_signature_does_not_fit_behind_a_relay(tmp_path: Path, named: bool) -> None:
    """The relay sends the upstream's Host. The path arrives byte for byte, without the name of the upstream."""
    arrived: list[bytes] = []
    with (
        RawUpstream(noting(arrived)) as upstream,
        RawRecorder(tmp_path / "recorder.sock"),
        RunningRelay(settings_for(tmp_path, *[upstream.url] * (1 + named))) as relay,
    ):
        prefix = "/u0" * named
        host = f"127.0.0.1:{relay.port}"
        with bedrock.client(f"http://{host}{prefix}", None) as made:
            list(bedrock.ask(made)["stream"])
        [request] = arrived
        target, headers, _ = head_of(request)
        assert (target, headers["host"]) == (PATH, f"127.0.0.1:{upstream.port}")
        assert not fits(request)
        # Host, and the prefix, are all that is missing.
        assert fits(request, host=host, target=prefix + PATH)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def test_a_bearer_key_passes(tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", BEARER)
    arrived: list[bytes] = []
    with (
        RawUpstream(noting(arrived)) as upstream,
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        RunningRelay(settings_for(tmp_path, upstream.url, upstream.url, tls_certificate=pki.server)) as relay,
    ):
        config = Config(retries={"total_max_attempts": 1}, proxies={})
        made: Any = botocore.session.Session().create_client(
            "bedrock-runtime",
            "eu-central-1",
            endpoint_url=f"https://127.0.0.1:{relay.port}/u0",
            config=config,
            verify=str(pki.ca),
        )
        parts = list(bedrock.ask(made)["stream"])
        made.close()
        assert len(parts) == len(bedrock.CONVERSED)
        [request] = arrived
        target, headers, _ = head_of(request)
        assert (target, headers["authorization"]) == (PATH, f"Bearer {BEARER}")
        assert only(recorder.ended(), RequestStarted).target == PATH
