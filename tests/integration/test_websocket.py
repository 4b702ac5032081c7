"""Responses over WebSocket through `up`: the openai client sees what the server sends, and each response has its record."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from websockets.sync.server import ServerConnection

from tests.running import start_up
from tests.websockets import asked, events, send, websocket_server

pytestmark = [
    pytest.mark.slow,
    # How the openai client uses the websockets package.
    pytest.mark.filterwarnings(r"ignore:connect\(\) must be used as a context manager:DeprecationWarning"),
]
KEY = "sk-secret-7391"


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/one/v1", api_key=KEY, max_retries=0)


def test_two_responses_of_one_connection_have_a_record_each(tmp_path: Path) -> None:
    def serve(connection: ServerConnection) -> None:
        for number in (1, 2):
            assert asked(connection)["type"] == "response.create"
            send(connection, *events(number, "Seine", " Rhine"))

    got: list[dict[str, Any]] = []
    with websocket_server(serve) as url, start_up({"one": url}, tmp_path / "data") as up:
        with client_of(up.url).responses.connect() as connection:
            for _ in range(2):
                connection.response.create(model="gpt-5.6", input="Name rivers.", max_output_tokens=30)
                for event in connection:
                    got.append(json.loads(event.to_json()))
                    if event.type == "response.completed":
                        break
        records = up.wait_for_records(2)
    assert got == [*events(1, "Seine", " Rhine"), *events(2, "Seine", " Rhine")]
    print(json.dumps(records[0], indent=1))
    assert [record["outcome"] for record in records] == ["completed"] * 2
