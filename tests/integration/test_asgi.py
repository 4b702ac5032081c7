"""The ASGI tap as a user has it: a FastAPI server in its own process, the official clients, an agent, and its ledger."""

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.test_agent import agent
from tests.integration.provider import BEGIN, REST
from tests.running import CLEAN, PATIENCE_S, Running, wait_for

ASK: Any = [{"role": "user", "content": "Hello?"}]


@dataclass
class Server:
    """A running server. `log`: what it wrote."""

    process: "subprocess.Popen[bytes]"
    url: str
    place: Path

    @property
    def log(self) -> str:
        return self.place.read_text()

    @property
    def listens(self) -> bool:
        return "running on" in self.log and "startup complete" in self.log

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def server(folder: Path, environment: Mapping[str, str], *options: str) -> Iterator[Server]:
    """uvicorn with the tests' application, on a free port."""
    place = folder / "server.log"
    command = [sys.executable, "-m", "uvicorn", "tests.taps.asgi_app:app", "--port", "0", *options]
    with place.open("wb") as log:
        process = subprocess.Popen(
            command, stderr=log, stdout=log, env={**CLEAN, **environment}, start_new_session=True
        )
    with process:
        running = Server(process, "", place)
        try:
            # With several workers, the supervisor prints its address before the first worker listens.
            wait_for(lambda: running.listens or process.poll() is not None, "address")
            found = re.search(r"running on (http://\S+)", running.log)
            assert found, running.log
            running.url = found[1]
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(process.pid, signal.SIGKILL)  # its workers, too


@dataclass
class Rig:
    """A server, and the agent that receives its captures."""

    server: Server
    agent: Running

    def record_of(self, tenant: str) -> dict[str, Any]:
        """The one record of the request that named this tenant."""

        def found() -> list[dict[str, Any]]:
            return [record for record in self.agent.records() if record["tenant"] == tenant]

        [record] = wait_for(found, f"record of {tenant}")
        assert record["tap"] == "asgi"
        assert record["integrity"]["complete"] is True
        return dict(record)

    def openai(self, tenant: str) -> Any:
        import openai

        headers = {"x-tenant": tenant}
        return openai.OpenAI(base_url=f"{self.server.url}/v1", api_key="key", default_headers=headers, max_retries=0)

    def connection(self) -> http.client.HTTPConnection:
        address = urlsplit(self.server.url)
        assert address.hostname
        return http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("asgi")
    tenants = {"STREAMGAUGE_TENANT_HEADER": "x-tenant"}
    environment = {**tenants, "STREAMGAUGE_DATA_DIR": str(folder / "data"), "STREAMGAUGE_TAP_NAME": "models"}
    with agent(folder / "data", environment=tenants) as up, server(folder, environment) as running:
        yield Rig(running, up)
        assert "Traceback" not in up.log


def test_a_stream_of_the_openai_client(rig: Rig) -> None:
    with rig.openai("stream") as client:
        chunks = list(client.chat.completions.create(model="plain", messages=ASK, stream=True, n=1, max_tokens=7))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello world"
    record = rig.record_of("stream")
    assert record["outcome"] == "completed"
    assert record["upstream"] == "models"
    assert record["request"]["host"] is None, "the application is its own server"
    assert (record["dialect"], record["endpoint"]) == ("openai-chat", "/chat/completions")
    assert (record["status_code"], record["streaming"]) == (200, True)
    assert record["provider_request_id"] == "request-1"
    assert (record["request_model"], record["response_model"]) == ("plain", "small-1")
    assert {name: record["request"][name] for name in ("stream", "n", "max_tokens")} == {
        "stream": True, "n": 1, "max_tokens": 7,
    }  # fmt: skip
    assert record["request"]["body_bytes"] > 0
    assert record["request_digest"]
    assert record["credential_id"]
    assert record["usage"]["output_tokens"] == 2
    assert record["counts"]["token_events"] == 2
    assert record["counts"]["bytes"] == len(BEGIN + REST)
    timing = record["timing"]
    order = [timing[name] for name in ("request_sent_s", "headers_s", "first_byte_s", "first_token_s", "end_s")]
    assert order == sorted(order)
    assert timing["upstream_connect_s"] is None


def test_a_response_that_is_not_a_stream(rig: Rig) -> None:
    with rig.openai("whole") as client:
        assert client.chat.completions.create(model="plain", messages=ASK).choices[0].message.content == "Hello world"
    record = rig.record_of("whole")
    assert (record["outcome"], record["streaming"]) == ("completed", False)
    assert record["usage"]["total_tokens"] == 5
    assert record["timing"]["first_token_s"] is None


def test_a_stream_of_the_anthropic_client(rig: Rig) -> None:
    import anthropic

    with (
        anthropic.Anthropic(base_url=rig.server.url, api_key="key", default_headers={"x-tenant": "claude"}) as client,
        client.messages.stream(model="small-1", max_tokens=9, messages=ASK) as stream,
    ):
        assert stream.get_final_text() == "Hello world"
    record = rig.record_of("claude")
    assert (record["outcome"], record["dialect"]) == ("completed", "anthropic-messages")
    assert record["usage"]["output_tokens"] == 2


def test_a_client_that_leaves(rig: Rig) -> None:
    with rig.openai("leaves") as client:
        stream = client.chat.completions.create(model="waits", messages=ASK, stream=True)
        assert next(chunk for chunk in stream if chunk.choices[0].delta.content)  # the first has none
        stream.close()
    record = rig.record_of("leaves")
    assert record["outcome"] == "client_abort"
    assert record["timing"]["client_gone_s"] is not None
    assert record["counts"]["token_events"] == 1
    assert record["usage"]["output_tokens"] is None


@pytest.mark.parametrize(("model", "status"), [("raises", 200), ("stops", 200), ("fails", None)])
def test_an_application_that_breaks_off(rig: Rig, model: str, status: int | None) -> None:
    with rig.openai(model) as client, pytest.raises(Exception) as raised:
        for _ in client.chat.completions.create(model=model, messages=ASK, stream=True):
            pass
    assert raised.value is not None
    record = rig.record_of(model)
    assert record["outcome"] == "upstream_reset"
    assert record["error"]["phase"] == "transport"
    assert record["status_code"] == status
    assert record["counts"]["token_events"] == (1 if status else 0)


def test_a_response_of_the_server_itself_has_a_record(rig: Rig) -> None:
    """FastAPI's own response to an invalid request on an LLM's path."""
    connection = rig.connection()
    connection.request("POST", "/v2/chat", b"{}", {"x-tenant": "refused"})
    assert connection.getresponse().status == 404
    connection.close()
    record = rig.record_of("refused")
    assert (record["outcome"], record["status_code"]) == ("http_error", 404)


def test_an_event_stream_on_another_path_is_captured_and_nothing_else(rig: Rig) -> None:
    connection = rig.connection()
    for path in ("/text", "/openapi.json", "/elsewhere"):
        connection.request("GET", path, headers={"x-tenant": f"path{path.replace('/', '-')}"})
        content = connection.getresponse().read()
    connection.close()
    assert content == BEGIN + REST
    record = rig.record_of("path-elsewhere")
    assert record["outcome"] == "completed"
    assert record["dialect"] == "openai-chat"
    assert not [one for one in rig.agent.records() if one["tenant"] in ("path-text", "path-openapi.json")]


def test_a_request_body_in_pieces_and_an_incomplete_one(rig: Rig) -> None:
    connection = rig.connection()
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("x-tenant", "half")
    connection.putheader("content-length", "1000")
    connection.endheaders()
    connection.send(b'{"model": "plain"')
    connection.close()
    record = rig.record_of("half")
    assert record["outcome"] == "client_abort"
    assert record["status_code"] is None
    assert record["request"] is None, "it was never complete"


def test_all_reads_are_counted(rig: Rig) -> None:
    page = rig.agent.metrics()
    dropped = sum(value for name, value in page.items() if name.startswith("streamgauge_tap_reads_dropped_total"))
    assert dropped == 0
    wait_for(lambda: rig.agent.metrics()["streamgauge_tap_reads_waiting"] == 0, "an empty spool")
    page = rig.agent.metrics()
    assert page["streamgauge_tap_reads_seen_total"] == page["streamgauge_tap_reads_delivered_total"] > 0


def test_generated_text_and_keys_stay_in_the_server(rig: Rig) -> None:
    with rig.openai("secret") as client:
        list(client.chat.completions.create(model="plain", messages=ASK, stream=True))
    rig.record_of("secret")
    data_dir = rig.agent.data_dir
    kept = b"".join(path.read_bytes() for path in data_dir.rglob("*") if path.is_file() and path.name != "key")
    assert b"Hello" not in kept
    assert b"Bearer" not in kept
