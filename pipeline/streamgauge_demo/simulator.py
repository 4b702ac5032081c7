"""The provider simulator: an HTTP/1.1 server that plays scenarios, byte for byte and at their pace.

A request gets the scenario that its `model` names, on any path that ends in the scenario's endpoint, so the official
clients can be pointed at it, or at a tap before it, as they are. Besides, `GET /truth` tells what it did, as JSON: a list
of `truth.Told`, and `GET /scenarios` what it can play.
"""

import argparse
import asyncio
import contextlib
import itertools
import signal
import socket
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping

import msgspec
import uvloop

from streamgauge_demo.request import MAX_HEAD_BYTES, BadRequestError, Request, read_request
from streamgauge_demo.scenario import JSON, Answer, Endpoint, Finale, Framing, Piece, Scenario
from streamgauge_demo.scenarios import BY_MODEL
from streamgauge_demo.truth import Ended, Told, Wrote
from streamgauge_demo.wire import Write, plan

# Exchanges that are remembered: more than a demo makes, about 5 KiB each.
MAX_TOLD = 2_000

# A thousand streams may begin in one moment: a full queue would reset connections that the scenario does not.
BACKLOG = 2_048

# A silent server is given up after this long, if nobody gives up before (seconds).
SILENCE_S = 120.0

# Between the last bytes and a reset, so that they are read before it: a reset may overtake what nobody read (seconds).
RESET_LAG_S = 0.05

# SO_LINGER on with no time to linger: close sends a reset.
_RESET = struct.pack("ii", 1, 0)


class Simulator:
    """`time_scale` multiplies every delay of the scenarios: 1 is a realistic pace, tests run at a fraction."""

    def __init__(self, scenarios: Mapping[str, Scenario] = BY_MODEL, *, time_scale: float = 1.0) -> None:
        self._scenarios = scenarios
        self._time_scale = time_scale
        self._server: asyncio.Server | None = None
        self._numbers = itertools.count(1)
        self._connections: set[asyncio.Task[None]] = set()
        self.told: OrderedDict[str, Told] = OrderedDict()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listens. Raises OSError if it cannot."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=MAX_HEAD_BYTES, backlog=BACKLOG)

    @property
    def url(self) -> str:
        """Its base URL, without a slash behind it. Valid after `start`."""
        if self._server is None:
            raise RuntimeError("the simulator has not been started")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        """Closes the listening socket and every connection."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = Connection(reader, writer)
        try:
            await self._serve(connection)
        except (BadRequestError, ConnectionError):
            writer.transport.abort()
        except asyncio.CancelledError:  # `stop`: the server's own callback would log it as an error
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            connection.close()

    async def _serve(self, connection: "Connection") -> None:
        while request := await connection.next_request():
            if not await self._answer(request, connection):
                return

    async def _answer(self, request: Request, connection: "Connection") -> bool:
        """Whether the connection can be used again."""
        if request.method == "GET" and request.path == "/truth":
            body = msgspec.json.encode(list(self.told.values()))
            return await self._say(connection, 200, body)
        if request.method == "GET" and request.path == "/scenarios":
            return await self._say(connection, 200, msgspec.json.encode(sorted(self._scenarios)))
        scenario = self._scenarios.get(str(request.asked.get("model")))
        if scenario is None or request.method != "POST" or not request.path.endswith(scenario.endpoint):
            body = (
                b'{"error":{"message":"No such model on this path.","type":"not_found_error","code":"model_not_found"}}'
            )
            return await self._say(connection, 404, body)
        return await self._play(scenario, request, connection)

    async def _say(self, connection: "Connection", status: int, body: bytes) -> bool:
        answer = Answer(status=status, content_type=JSON, pieces=(Piece(0.0, body),), framing=Framing.LENGTH)
        for write in plan(answer, {}, gzip=False):
            await connection.write(write.data)
        return True

    async def _play(self, scenario: Scenario, request: Request, connection: "Connection") -> bool:
        told = self._begin(scenario, request)
        ids = {"x-request-id": told.request_id}
        if scenario.endpoint is Endpoint.MESSAGES:
            ids["request-id"] = told.request_id  # what this format's own client looks for
        last = request.headers.get("connection", "").lower() == "close"
        if last:
            ids["connection"] = "close"
        gzip = scenario.answer.gzip and "gzip" in request.headers.get("accept-encoding", "")
        try:
            left = await self._write_all(plan(scenario.answer, ids, gzip=gzip), connection, told)
            told.ended = Ended.CLIENT_LEFT if left else await self._end(scenario.answer, connection)
        except ConnectionError:
            told.ended = Ended.CLIENT_LEFT
        told.ended_ns = time.monotonic_ns()
        return told.ended is Ended.WHOLE and scenario.answer.framing is not Framing.CLOSE and not last

    def _begin(self, scenario: Scenario, request: Request) -> Told:
        told = Told(f"req_{next(self._numbers):06d}", scenario.model, request.path, request.at_ns)
        self.told[told.request_id] = told
        if len(self.told) > MAX_TOLD:
            self.told.popitem(last=False)
        return told

    async def _write_all(self, writes: list[Write], connection: "Connection", told: Told) -> bool:
        """Whether the other side left meanwhile."""
        for write in writes:
            if await connection.left_within(write.delay_s * self._time_scale):
                return True
            told.wrote.append(Wrote(time.monotonic_ns(), len(write.data), write.tokens))
            await connection.write(write.data)
        return False

    async def _end(self, answer: Answer, connection: "Connection") -> Ended:
        if answer.finale is Finale.SILENT and await connection.left_within(SILENCE_S):
            return Ended.CLIENT_LEFT
        if answer.finale in (Finale.RESET, Finale.SILENT):
            await connection.reset()
            return Ended.RESET
        if answer.finale is Finale.EARLY_FIN:
            return Ended.EARLY_FIN
        return Ended.WHOLE


class Connection:
    """One client's connection: reads requests, writes, and knows when the other side leaves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._watch: asyncio.Task[bytes] | None = None

    async def next_request(self) -> Request | None:
        """As `read_request`. A byte that came while the other side was watched is the first of the next request."""
        begun = b""
        if self._watch is not None:
            begun = await self._watch
            self._watch = None
            if not begun:
                return None
        return await read_request(self._reader, begun)

    async def left_within(self, seconds: float) -> bool:
        """Waits so long; True as soon as the other side is gone."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._reader.read(1))
        if not self._watch.done():
            await asyncio.wait({self._watch}, timeout=seconds)
        elif seconds:
            await asyncio.sleep(seconds)
        return self._watch.done() and (self._watch.exception() is not None or not self._watch.result())

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError where the other side is gone: uvloop raises something else to who writes all the same."""
        if self._writer.is_closing():
            raise ConnectionResetError("the client has closed the connection")
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """Sends what is pending, then closes."""
        if self._watch is not None and not self._watch.cancel() and not self._watch.cancelled():
            self._watch.exception()  # taken note of: the other side broke off
        self._writer.close()

    async def reset(self) -> None:
        await asyncio.sleep(RESET_LAG_S)
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()


async def serve(host: str, port: int, time_scale: float, *, until_stdin_ends: bool) -> None:
    """Runs a simulator alone until SIGTERM, SIGINT or, if asked for, the end of stdin; says on stdout where it listens."""
    simulator = Simulator(time_scale=time_scale)
    await simulator.start(host, port)
    sys.stdout.write(f"{simulator.url}\n")
    sys.stdout.flush()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_stop.set)
    if until_stdin_ends:
        asyncio.get_running_loop().add_reader(sys.stdin, asked_to_stop.set)
    await asked_to_stop.wait()
    await simulator.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulates LLM providers, with correct and broken streams.")
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="address; port 0 takes any free one"
    )
    parser.add_argument("--time-scale", type=float, default=1.0, help="factor for all delays")
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="stop when stdin is closed, for a parent process"
    )
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    with contextlib.suppress(KeyboardInterrupt):
        # uvloop: its stamps are what a tap's are held against, so it has to be quick
        uvloop.run(serve(host, int(port), arguments.time_scale, until_stdin_ends=arguments.until_stdin_ends))


if __name__ == "__main__":
    main()
