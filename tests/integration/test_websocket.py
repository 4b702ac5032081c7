"""Responses over WebSocket through `up`: the openai client sees what the server sends, and each response has its record."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.resources.responses.responses import ResponsesConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection

from tests.integration.test_up import child_of
from tests.running import PATIENCE_S, Running, start_up, wait_for
from tests.websockets import asked, events, send, websocket_server

pytestmark = [
    pytest.mark.slow,
    # How the openai client uses the websockets package.
    pytest.mark.filterwarnings(r"ignore:connect\(\) must be used as a context manager:DeprecationWarning"),
]
KEY = "sk-secret-7391"


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/one/v1", api_key=KEY, max_retries=0)


def without_close(connection: ServerConnection) -> None:
    """Ends the connection without a close frame (1006)."""
    connection.socket.shutdown(socket.SHUT_RDWR)


def kept_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def balance(up: Running) -> tuple[float, float]:
    """Responses seen, and those without a record."""
    page = up.metrics()
    totals = [
        sum(value for series, value in page.items() if series.startswith(f"streamgauge_tap_responses_{name}_total{{"))
        for name in ("seen", "not_captured")
    ]
    return totals[0], totals[1]


def test_the_client_gets_each_event_and_each_response_has_a_record(tmp_path: Path) -> None:
    """Two after one another, a warm-up, two lanes, and one that is steered; nothing of text or key is stored."""
    canary = "Canary7391"
    lanes = [events(3, canary, lane="a"), events(4, canary, " b", lane="b")]
    mixed = [event for pair in zip_longest(*lanes) for event in pair if event is not None]
    steered = events(5, ends="incomplete", incomplete_details={"reason": "steered"})
    script = [
        (1, events(1, canary)),
        (1, events(2, canary, canary)),
        (1, [events(9)[0], events(9)[-1]]),
        (2, mixed),
        (2, [*steered[:5], {"type": "response.steer.accepted", "previous_response_id": "resp_5", "sequence_number": 9},
             *steered[5:], *events(6, canary, previous_response_id="resp_5")]),
    ]  # fmt: skip

    def serve(connection: ServerConnection) -> None:
        for awaited, answered in script:
            for _ in range(awaited):
                asked(connection)
            send(connection, *answered)

    got: list[dict[str, Any]] = []
    expected = [event for _, answered in script for event in answered]

    def read(connection: ResponsesConnection, count: int) -> None:
        got.extend(json.loads(connection.recv_bytes()) for _ in range(count))

    with websocket_server(serve) as url, start_up({"one": url}, tmp_path / "data") as up:
        with client_of(up.url).responses.connect() as connection:
            create = partial(connection.response.create, model="gpt-5.6", input=canary)
            create()
            read(connection, len(script[0][1]))
            create(max_output_tokens=30)
            read(connection, len(script[1][1]))
            connection.send({"type": "response.create", "model": "gpt-5.6", "generate": False})
            read(connection, 2)
            create(stream_id="a")
            create(stream_id="b")
            read(connection, len(mixed))
            create()
            connection.response.steer(input=canary, previous_response_id="resp_5")
            read(connection, len(script[4][1]))
        records = up.wait_for_records(6)
        up.settled()
        assert balance(up) == (6, 0)
        kept = kept_in(up.data_dir)
        log = up.log
    assert got == expected
    by_id = {record["response_id"]: record for record in records}
    assert sorted(by_id) == [f"resp_{number}" for number in range(1, 7)]
    assert {record["outcome"] for record in records} == {"completed"}
    assert {record["usage"]["output_tokens"] for record in records} == {7}
    assert by_id["resp_2"]["request"]["max_tokens"] == 30
    assert by_id["resp_5"]["finish_reason_raw"] == "steered"
    assert [by_id[f"resp_{number}"]["request_model"] for number in (5, 6)] == ["gpt-5.6", None]
    assert len({record["credential_id"] for record in records}) == 1
    for secret in (canary, KEY):
        assert secret.encode() not in kept and secret not in log


@pytest.mark.parametrize(
    ("end", "outcome", "code"),
    [
        (lambda connection: connection.close(1012), "stream_error", "1012"),
        (lambda connection: connection.close(1011), "stream_error", "1011"),
        (without_close, "upstream_reset", "closed"),
    ],
    ids=["1012", "1011", "1006"],
)
def test_a_client_that_reconnects_after_a_close_has_a_record_of_both_attempts(
    tmp_path: Path, end: Callable[[ServerConnection], None], outcome: str, code: str
) -> None:
    attempts: list[int] = []

    def serve(connection: ServerConnection) -> None:
        asked(connection)
        attempts.append(1)
        if len(attempts) == 1:
            send(connection, *events(1)[:5])
            end(connection)
        else:
            send(connection, *events(2))

    with websocket_server(serve) as url, start_up({"one": url}, tmp_path / "data") as up:
        for _ in range(2):
            with suppress(ConnectionClosed), client_of(up.url).responses.connect() as connection:
                connection.response.create(model="gpt-5.6", input="a")
                while json.loads(connection.recv_bytes())["type"] != "response.completed":
                    pass
        found = up.wait_for_records(2)
        assert balance(up) == (2, 0)
    assert [record["outcome"] for record in found] == [outcome, "completed"]
    assert found[0]["error"]["code"] == code
    assert found[0]["counts"]["token_events"] > 0


def test_what_an_upstream_refuses_is_seen_by_the_client_and_recorded(tmp_path: Path) -> None:
    """A 401 has a record. A 426 has none: the client falls back to HTTP."""
    status = [401, 426]

    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(
            HTTPStatus(status.pop(0)), '{"error":{"type":"invalid_request_error","code":"bad_key"}}'
        )

    with (
        websocket_server(lambda _: None, process_request=refuse) as url,
        start_up({"one": url}, tmp_path / "data") as up,
    ):
        for expected in (401, 426):
            with pytest.raises(InvalidStatus) as refused, client_of(up.url).responses.connect():
                pass
            assert refused.value.response.status_code == expected
        (record,) = up.wait_for_records(1)
        wait_for(lambda: balance(up) == (2, 1), "balance")
    assert (record["outcome"], record["status_code"], record["endpoint"]) == ("http_error", 401, "/responses")


def test_a_collector_that_is_killed_costs_no_byte_and_later_responses_are_recorded(tmp_path: Path) -> None:
    """The response in progress is abandoned, or is in no count; the next one that the new collector sees has its record."""
    goes_on = threading.Event()

    def serve(connection: ServerConnection) -> None:
        asked(connection)
        send(connection, *events(0)[:4])
        goes_on.wait(PATIENCE_S)
        send(connection, *events(0)[4:])
        with suppress(ConnectionClosed):
            for number in range(1, 1_000):
                asked(connection)
                send(connection, *events(number))

    got: list[dict[str, Any]] = []
    with (
        websocket_server(serve) as url,
        start_up({"one": url}, tmp_path / "data") as up,
        client_of(up.url).responses.connect() as connection,
    ):

        def ask(count: int) -> None:
            connection.response.create(model="gpt-5.6", input="a")
            got.extend(json.loads(connection.recv_bytes()) for _ in range(count))

        ask(4)
        wait_for(lambda: up.reads()["seen"] > 0, "reads")
        os.kill(child_of(up, "streamgauge.cli.collector"), signal.SIGKILL)
        goes_on.set()
        got += [json.loads(connection.recv_bytes()) for _ in range(len(events(0)) - 4)]
        asked_more = 0

        def is_recorded() -> bool:
            nonlocal asked_more
            asked_more += 1
            ask(len(events(1)))
            return any(record["outcome"] == "completed" for record in up.records())

        wait_for(is_recorded, "a record of the same connection")
    assert got == [event for number in range(asked_more + 1) for event in events(number)]


def test_a_realtime_session_of_the_openai_client(tmp_path: Path) -> None:
    """Audio: its usage, and the time to its first delta. The session's own events have no record."""
    usage = {
        "input_tokens": 20,
        "output_tokens": 9,
        "total_tokens": 29,
        "input_token_details": {"text_tokens": 5, "audio_tokens": 15, "cached_tokens": 4},
        "output_token_details": {"text_tokens": 2, "audio_tokens": 7},
    }
    of_realtime = {"object": "realtime.response", "id": "resp_1", "status": "in_progress", "output": []}
    place = {"response_id": "resp_1", "item_id": "item_1", "output_index": 0, "content_index": 0}
    answered: list[dict[str, Any]] = [
        {"type": "response.created", "event_id": "e2", "response": of_realtime},
        {"type": "response.output_audio.delta", "event_id": "e3", **place, "delta": "aGk="},
        {"type": "response.done", "event_id": "e4", "response": {**of_realtime, "status": "completed", "usage": usage}},
    ]
    began: dict[str, Any] = {
        "type": "session.created",
        "event_id": "e1",
        "session": {"type": "realtime", "model": "gpt-realtime-2"},
    }

    def serve(connection: ServerConnection) -> None:
        send(connection, began)
        assert asked(connection)["type"] == "response.create"
        send(connection, answered[0])
        time.sleep(0.2)
        send(connection, *answered[1:])
        asked(connection)

    with websocket_server(serve) as url, start_up({"one": url}, tmp_path / "data") as up:
        with client_of(up.url).realtime.connect(model="gpt-realtime-2") as connection:
            got = [json.loads(connection.recv_bytes())]
            connection.response.create()
            got += [json.loads(connection.recv_bytes()) for _ in answered]
        (record,) = up.wait_for_records(1)
        up.settled()
        assert balance(up) == (1, 0)
    assert got == [began, *answered]
    assert (record["dialect"], record["outcome"], record["request_model"]) == (
        "openai-realtime",
        "completed",
        "gpt-realtime-2",
    )
    assert record["usage"]["audio_output_tokens"] == 7
    assert 0.15 < record["timing"]["first_token_s"] < 5
