"""The two upstreams of the contract: a raw server that writes a scenario's bytes, and an ASGI application."""

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

from streamgauge.taps.asgi import TapMiddleware
from tests.taps.contract.scenario import ATTRIBUTES, TENANT_HEADER, UPSTREAM, Scenario, heard
from tests.taps.contract.scenarios import BY_NAME
from tests.taps.proxy.rig import PATIENCE_S, receive_all, receive_request, reset

# Pause before an upstream breaks off, so that what it wrote has been read and is not lost with the connection (seconds).
SETTLE_S = 0.1
_CASE = re.compile(rb"[?&]case=([a-z0-9-]+)")


def scenario_of(target: bytes) -> Scenario:
    found = _CASE.search(target)
    assert found, target
    return BY_NAME[found[1].decode()]


def play(one: socket.socket) -> None:
    """A handler for RawUpstream: requests on one connection, each answered as its scenario defines."""
    while request := receive_request(one):
        scenario = scenario_of(request.partition(b"\r\n")[0])
        if not scenario.answers:
            heard.set()
        for write in scenario.wire():
            one.sendall(write)
            time.sleep(scenario.gap_s)
        if scenario.end == "client":
            receive_all(one)
        elif scenario.end != "complete":
            time.sleep(SETTLE_S)
        if scenario.end == "rst":
            reset(one)
        elif scenario.end != "complete" or scenario.framing == "close":
            one.close()
        else:
            continue
        return


class BreaksOff(RuntimeError):
    """What the application raises where an upstream would break off."""


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers as defined by the scenario that the request names."""
    scenario = scenario_of(b"?" + scope["query_string"])
    while (await receive()).get("more_body"):
        pass
    headers = [(name.lower().encode(), value.encode()) for name, value in scenario.all_headers]
    kept = [(name, value) for name, value in headers if name != b"transfer-encoding"]
    if not scenario.answers:
        heard.set()
    else:
        await send({"type": "http.response.start", "status": scenario.status, "headers": kept})
    for read in scenario.reads:
        await send({"type": "http.response.body", "body": read, "more_body": True})
        await asyncio.sleep(scenario.gap_s)
    if scenario.end == "client":
        while (await receive())["type"] != "http.disconnect":
            pass
    elif scenario.end == "complete":
        await send({"type": "http.response.body"})
    else:
        raise BreaksOff


@contextlib.contextmanager
def asgi_server(data_dir: str) -> Iterator[int]:
    """A uvicorn with the application and the tap in its own thread; gives its port."""
    named: Any = {"tenant_header": TENANT_HEADER, "attributes": {one.name: one.header for one in ATTRIBUTES}}
    app = TapMiddleware(application, upstream=UPSTREAM, data_dir=data_dir, **named)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
