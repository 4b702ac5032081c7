"""Cassettes that vcrpy records, with several clients and serializers, give the same records as the raw bodies."""

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

REQUEST = {"model": "m-1", "stream": True, "messages": [{"role": "user", "content": "A SECRET"}]}
HEADERS = {"authorization": "Bearer A SECRET"}
# Text, bytes that are not UTF-8, an in-band error, and another dialect.
CHOSEN = {
    ("openai-chat", "happy"),
    ("openai-chat", "invalid-utf8"),
    ("openai-chat", "error-mid-stream"),
    ("anthropic-messages", "tools"),
}
PATHS = {"openai-chat": "/v1/chat/completions", "anthropic-messages": "/v1/messages"}
VECTORS = [vector for vector in vectors() if (vector.dialect, vector.name) in CHOSEN]
# The fields that must be equal. The others depend on the request, the time or the transport.
SAME = ("outcome", "dialect", "finish_reason", "choices", "usage", "counts", "error", "integrity", "response_model")


def by_httpx(url: str) -> object:
    return httpx.post(url, json=REQUEST, headers=HEADERS).content


def by_httpx2(url: str) -> object:
    return httpx2.post(url, json=REQUEST, headers=HEADERS).content


def by_urllib3(url: str) -> object:
    with urllib3.PoolManager(retries=False) as pool:
        return pool.request("POST", url, body=json.dumps(REQUEST), headers=HEADERS).data


@pytest.fixture(scope="module")
def server() -> Iterator[VectorServer]:
    with served(VECTORS) as started:
        yield started


def is_text(vector: Vector) -> bool:
    try:
        return bool(vector.body.decode())
    except UnicodeDecodeError:
        return False


def test_all_chosen_vectors_exist() -> None:
    assert len(VECTORS) == len(CHOSEN)


@pytest.mark.parametrize("serializer", ["yaml", "json"])
@pytest.mark.parametrize("client", [by_httpx, by_httpx2, by_urllib3], ids=lambda client: client.__name__)
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector.dialect}/{vector.name}")
def test_a_cassette_gives_the_record_of_the_raw_body(
    vector: Vector, client: Callable[[str], object], serializer: str, server: VectorServer, tmp_path: Path
) -> None:
    if serializer == "json" and not is_text(vector):
        pytest.skip("vcrpy cannot write bytes that are not text as JSON")
    cassette, raw = tmp_path / "cassette", tmp_path / "raw.sse"
    raw.write_bytes(vector.body)
    with vcr.VCR(serializer=serializer).use_cassette(str(cassette)):
        assert client(server.url_of(vector) + PATHS[vector.dialect]) == vector.body
    [record], [body] = records_in(cassette), records_in(raw)
    recorded, expected = plain(record), plain(body)
    assert {name: recorded[name] for name in SAME} == {name: expected[name] for name in SAME}
    assert (recorded["upstream"], recorded["status_code"], recorded["request_model"]) == ("127.0.0.1", 200, "m-1")
    assert recorded["request"]["stream"] is True
    assert "SECRET" not in str(recorded)
