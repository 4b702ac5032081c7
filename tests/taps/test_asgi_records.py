"""The ASGI tap's records: each vector that an application sends gives its expected record."""

import contextlib
import copy
import json
from collections.abc import Iterable
from typing import Any

import pytest

from streamgauge.taps.asgi import Message, Receive, Scope, Send
from tests.each import check_each
from tests.recorder.fake_client import FakeClient
from tests.taps.asgi_rig import (
    ASKED,
    END,
    GONE,
    ApplicationFault,
    Server,
    body,
    run,
    scope,
)
from tests.vectors.drive import as_json, encoded, in_pieces, record_of, segments_of
from tests.vectors.load import Vector, differences, vectors

SHOWN = [one for one in vectors() if one.ending in ("complete", "client", "reset") and not one.replay_only]


def through_asgi(
    vector: Vector, pieces: Iterable[bytes], client: FakeClient, coding: str | None = None
) -> dict[str, Any]:
    """The record of a vector that an application sends in these pieces."""
    request_body = b"" if vector.request is None else json.dumps(vector.request).encode()
    start: Message = {
        "type": "http.response.start",
        "status": vector.status,
        "headers": [
            (name.encode(), value.encode())
            for name, value in [("content-type", vector.content_type), *vector.response_headers]
        ],
    }
    if coding is not None:
        start["headers"] = [*start["headers"], (b"content-encoding", coding.encode())]

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        for message in (start, *map(body, pieces)):
            await send(message)
        if vector.ending == "client":
            await receive()
        elif vector.ending == "reset":
            raise ApplicationFault
        else:
            await send(END)

    path, _, query = vector.target.partition("?")
    headers = [(name.encode(), value.encode("latin-1")) for name, value in vector.headers]
    given = scope(path, vector.method, query_string=query.encode(), headers=headers)
    with contextlib.suppress(ApplicationFault):
        run(application, Server({**ASKED, "body": request_body}, GONE), given, upstream="test")
    return as_json(record_of(segments_of("full", client.messages)))


@pytest.mark.slow
def test_a_vector_gives_its_expected_record(client: FakeClient) -> None:
    def gives_its_record(vector: Vector) -> None:
        client.messages.clear()
        record = through_asgi(vector, in_pieces(vector.body, vector.name), client)
        assert list(differences(vector.record, record)) == []
        assert record["tap"] == "asgi"
        assert record["counts"]["bytes"] == len(vector.body)
        assert record["counts"]["client_bytes"] is None

    check_each(SHOWN, gives_its_record, lambda vector: f"{vector.dialect}/{vector.name}")


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_an_encoded_response_is_read(coding: str, client: FakeClient) -> None:
    """A middleware that compresses may be between the application and the tap."""
    [vector] = [one for one in SHOWN if (one.dialect, one.name) == ("openai-chat", "happy")]
    coded = encoded(vector.body, coding)
    record = through_asgi(vector, in_pieces(coded, coding), client, coding)
    assert record["content_encoding"] == coding
    assert record["counts"].pop("bytes") == len(coded)
    expected = copy.deepcopy(vector.record)
    expected["counts"].pop("bytes")
    assert list(differences(expected, record)) == []
