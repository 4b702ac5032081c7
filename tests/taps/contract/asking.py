"""The clients of the contract: a raw one whose responses h11 parses, and the libraries with the tap in them."""

import asyncio
import socket
from typing import Any, Literal, NamedTuple

import botocore.exceptions
import botocore.session
import h11
import urllib3.exceptions
from botocore.awsrequest import HeadersDict
from botocore.config import Config

from streamgauge.taps.boto3 import tap
from tests.taps.asking import Asker
from tests.taps.contract.scenario import Scenario, heard
from tests.taps.proxy.rig import PATIENCE_S

_BIG = 1024 * 1024


class Received(NamedTuple):
    """What a client got: the status, the body's bytes (still encoded), and how the response ended for it."""

    status: int | None
    body: bytes
    ended: Literal["complete", "broken", "left"]


def expected(scenario: Scenario) -> Received:
    """What each client must get, through any tap."""
    ended: dict[str, Any] = {"complete": "complete", "client": "left"}
    return Received(scenario.status, scenario.body, ended.get(scenario.end, "broken"))


class RawClient:
    """One connection that is used for one scenario after another."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = h11.Connection(h11.CLIENT)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, scenario: Scenario) -> Received:
        """Sends the request and reads the response to its end; a client that is to leave closes once it has all."""
        if self._reader.our_state is h11.DONE:
            self._reader.start_next_cycle()
        self._reader.send(h11.Request(method=scenario.method, target=scenario.path, headers=[("host", "up")]))
        self._reader.send(h11.EndOfMessage())
        heard.clear()
        self._socket.sendall(scenario.request())
        status, body = None, bytearray()
        if not scenario.answers:
            assert heard.wait(PATIENCE_S)
        while True:
            if scenario.end == "client" and len(body) >= len(scenario.body):
                self._socket.close()
                return Received(status, bytes(body), "left")
            try:
                event = self._next()
            except (h11.RemoteProtocolError, ConnectionError):
                return Received(status, bytes(body), "broken")
            if isinstance(event, h11.InformationalResponse):
                continue
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return Received(status, bytes(body), "complete")

    def _next(self) -> Any:
        while (event := self._reader.next_event()) is h11.NEED_DATA:
            self._reader.receive_data(self._socket.recv(_BIG))
        return event


def ask_raw(port: int, scenario: Scenario) -> Received:
    with RawClient(port) as client:
        return client.ask(scenario)


def ask_library(asker: Asker, port: int, scenario: Scenario) -> Received:
    """By httpx or httpx2, sync or async, as `asker` says."""
    given = {
        "method": scenario.method,
        "url": f"http://127.0.0.1:{port}{scenario.path}",
        "content": scenario.request_body,
        "headers": list(scenario.asked_headers),
    }
    leaves_at = len(scenario.body) if scenario.end == "client" else None
    if asker.kind == "sync":
        return _ask_sync(asker, given, leaves_at)
    return asyncio.run(_ask_async(asker, given, leaves_at))


def _ask_sync(asker: Asker, given: dict[str, Any], leaves_at: int | None) -> Received:
    status, body = None, bytearray()
    with asker.library.Client(transport=asker.transport(), timeout=PATIENCE_S) as client:
        try:
            with client.stream(**given) as response:
                status = response.status_code
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) == leaves_at:
                        return Received(status, bytes(body), "left")
        except asker.library.TransportError:
            return Received(status, bytes(body), "broken")
    return Received(status, bytes(body), "complete")


async def _ask_async(asker: Asker, given: dict[str, Any], leaves_at: int | None) -> Received:
    status, body = None, bytearray()
    async with asker.library.AsyncClient(transport=asker.transport(), timeout=PATIENCE_S) as client:
        try:
            async with client.stream(**given) as response:
                status = response.status_code
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) == leaves_at:
                        return Received(status, bytes(body), "left")
        except asker.library.TransportError:
            return Received(status, bytes(body), "broken")
    return Received(status, bytes(body), "complete")


def ask_boto3(settings: dict[str, Any], port: int, scenario: Scenario) -> Received:
    """By botocore: a call of ConverseStream whose signed request a handler before the tap's replaces by the scenario's.

    botocore reads the body of an error at once; the other bodies are read as its EventStream reads them.
    """
    read_at_once: list[bytes] = []
    status: list[int] = []

    def replace(request: Any, **_: Any) -> None:
        request.method = scenario.method
        request.url = f"http://127.0.0.1:{port}{scenario.path}"
        request.body = scenario.request_body or None
        headers = [
            *scenario.asked_headers,
            *([("Content-Length", str(len(scenario.request_body)))] * bool(request.body)),
        ]
        request.headers = HeadersDict()
        for name, value in headers:
            request.headers[name] = value

    def note(response_dict: Any, **_: Any) -> None:
        status.append(response_dict["status_code"])
        if isinstance(response_dict["body"], bytes):
            read_at_once.append(response_dict["body"])

    session = botocore.session.Session()
    session.set_credentials("AKIAIOSFODNN7EXAMPLE", "key")
    config = Config(retries={"total_max_attempts": 1}, proxies={}, read_timeout=PATIENCE_S)
    made: Any = session.create_client(
        "bedrock-runtime", "eu-central-1", endpoint_url=f"http://127.0.0.1:{port}", config=config
    )
    made.meta.events.register_first("before-send.bedrock-runtime", replace)
    tap(made, **settings)
    made.meta.events.register_last("before-parse.bedrock-runtime", note)
    body = bytearray()
    try:
        stream = made.converse_stream(modelId="m", messages=[])["stream"]._raw_stream
        for chunk in stream.stream():
            body += chunk
            if scenario.end == "client" and len(body) == len(scenario.body):
                stream.close()
                return Received(status[0], bytes(body), "left")
    except (botocore.exceptions.ClientError, botocore.parsers.ResponseParserError):
        return Received(status[0], read_at_once[0], "complete")
    except (botocore.exceptions.BotoCoreError, urllib3.exceptions.HTTPError):
        return Received(status[0] if status else None, bytes(body), "broken")
    finally:
        made.close()
    return Received(status[0], bytes(body), "complete")
