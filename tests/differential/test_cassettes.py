"""vcrpy itself records real exchanges, by several clients and serializers: replay gives what the raw body gives."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import httpx2
import pytest
import urllib3
import vcr

from tests.differential.serving import VectorServer, served
from tests.taps.replay.recordings import plain, records_in
from tests.vectors.load import Vector, vectors

ASKED = {"model": "m-1", "stream": True, "messages": [{"role": "user", "content": "A SECRET"}]}
HEADERS = {"authorization": "Bearer A SECRET"}
# Text and bytes that are no UTF-8, another dialect, an error in band, and an answer that is no event stream.
CHOSEN = {
    ("openai-chat", "happy"),
    ("openai-chat", "invalid-utf8"),
    ("openai-chat", "error-mid-stream"),
    ("anthropic-messages", "tools"),
}
PATHS = {"openai-chat": "/v1/chat/completions", "anthropic-messages": "/v1/messages"}
VECTORS = [one for one in vectors() if (one.dialect, one.name) in CHOSEN]
# What both must say: the rest is of the request, of the moment, or of the transport.
SAME = ("outcome", "dialect", "finish_reason", "choices", "usage", "counts", "error", "integrity", "response_model")


def by_httpx(url: str) -> object:
    return httpx.post(url, json=ASKED, headers=HEADERS).content


def by_httpx2(url: str) -> object:
    return httpx2.post(url, json=ASKED, headers=HEADERS).content


def by_urllib3(url: str) -> object:
    with urllib3.PoolManager(retries=False) as pool:
        return pool.request("POST", url, body=json.dumps(ASKED), headers=HEADERS).data


@pytest.fixture(scope="module")
def server() -> Iterator[VectorServer]:
    with served(VECTORS) as started:
        yield started


def is_text(vector: Vector) -> bool:
    try:
        return bool(vector.body.decode())
    except UnicodeDecodeError:
        return False


def test_the_vectors_are_there() -> None:
    assert len(VECTORS) == len(CHOSEN)


@pytest.mark.parametrize("serializer", ["yaml", "json"])
@pytest.mark.parametrize("client", [by_httpx, by_httpx2, by_urllib3], ids=lambda client: client.__name__)
@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: f"{one.dialect}/{one.name}")
def test_what_vcrpy_writes_is_read(
    vector: Vector, client: Callable[[str], object], serializer: str, server: VectorServer, tmp_path: Path
) -> None:
    if serializer == "json" and not is_text(vector):
        pytest.skip("vcrpy does not write bytes that are no text as JSON")
    cassette, raw = tmp_path / "cassette", tmp_path / "raw.sse"
    raw.write_bytes(vector.body)
    with vcr.VCR(serializer=serializer).use_cassette(str(cassette)):
        assert client(server.url(vector) + PATHS[vector.dialect]) == vector.body
    [record], [body] = records_in(cassette), records_in(raw)
    found, expected = plain(record), plain(body)
    assert {name: found[name] for name in SAME} == {name: expected[name] for name in SAME}
    assert (found["upstream"], found["status_code"], found["request_model"]) == ("127.0.0.1", 200, "m-1")
    assert found["request"]["stream"] is True
    assert "SECRET" not in str(found)
