"""The provider simulator: an HTTP/1.1 server that plays scenarios, byte for byte and with their timing.

The `model` of a request selects the scenario, on any path that ends in the scenario's endpoint. So the unmodified official
clients can use it, directly or through a tap. `GET /truth` returns what it did, as a JSON list of `truth.Told`; `GET
/scenarios` returns what it can play.
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
from streamgauge_demo.wire import Write, comment, plan

# Limit of remembered exchanges: more than a demo makes, about 5 KiB each.
MAX_TOLD = 2_000

# A thousand streams may start at once: a full queue would reset connections, which no scenario asks for.
BACKLOG = 2_048

# A response that is silent, or has comments alone, is ended after this time (seconds), if the other side does not leave
# before.
SILENCE_S = 120.0

# Pause between the last bytes and a reset (seconds), so that they are read before it: a reset may discard unread bytes.
RESET_LAG_S = 0.05

# SO_LINGER with a time of 0: close sends a reset.
_RESET = struct.pack("ii", 1, 0)


class Simulator:
    """The server. `time_scale` multiplies every delay of the scenarios: 1 is realistic, tests use a fraction."""

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
        """The base URL, without a final slash. Valid after `start`."""
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
        except asyncio.CancelledError:  # `stop` was called: the server's own callback would log this as an error
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            connection.close()

    async def _serve(self, connection: "Connection") -> None:
        while request := await connection.next_request():
            if not await self._answer(request, connection):
                return

    async def _answer(self, request: Request, connection: "Connection") -> bool:
        """Answers a request. Returns whether the connection can be used again."""
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
            ids["request-id"] = told.request_id  # the header that this format's client reads
        last = request.headers.get("connection", "").lower() == "close"
        if last:
            ids["connection"] = "close"
        gzip = scenario.answer.gzip and "gzip" in request.headers.get("accept-encoding", "")
        try:
            left = await self._write_all(plan(scenario.answer, ids, gzip=gzip), connection, told)
            told.ended = Ended.CLIENT_LEFT if left else await self._end(scenario.answer, connection, told)
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
        """Sends the writes. Returns whether the other side left before the end."""
        for write in writes:
            if await connection.left_within(write.delay_s * self._time_scale):
                return True
            told.wrote.append(Wrote(time.monotonic_ns(), len(write.data), write.tokens))
            await connection.write(write.data)
        return False

    async def _end(self, answer: Answer, connection: "Connection", told: Told) -> Ended:
        if answer.finale is Finale.SILENT and await connection.left_within(SILENCE_S):
            return Ended.CLIENT_LEFT
        if answer.finale is Finale.COMMENTS and await self._comment(answer, connection, told):
            return Ended.CLIENT_LEFT
        if answer.finale is Finale.RESET or not answer.ends:
            await connection.reset()
            return Ended.RESET
        if answer.finale is Finale.EARLY_FIN:
            return Ended.EARLY_FIN
        return Ended.WHOLE

    async def _comment(self, answer: Answer, connection: "Connection", told: Told) -> bool:
        """Sends comments for SILENCE_S. Returns whether the other side left before the end. Their delay is not scaled: it is
        compared with a tap's timeout.
        """
        write = comment(answer)
        for _ in range(int(SILENCE_S / write.delay_s)):
            if await connection.left_within(write.delay_s):
                return True
            told.wrote.append(Wrote(time.monotonic_ns(), len(write.data), write.tokens))
            await connection.write(write.data)
        return False


class Connection:
    """One client's connection: reads requests, writes, and notices when the other side leaves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._watch: asyncio.Task[bytes] | None = None

    async def next_request(self) -> Request | None:
        """As `read_request`. A byte that arrived in `left_within` is the first of the next request."""
        begun = b""
        if self._watch is not None:
            begun = await self._watch
            self._watch = None
            if not begun:
                return None
        return await read_request(self._reader, begun)

    async def left_within(self, seconds: float) -> bool:
        """Waits for `seconds`; returns True as soon as the other side is gone."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._reader.read(1))
        if not self._watch.done():
            await asyncio.wait({self._watch}, timeout=seconds)
        elif seconds:
            await asyncio.sleep(seconds)
        return self._watch.done() and (self._watch.exception() is not None or not self._watch.result())

    async def write(self, data: bytes) -> None:
        """Writes bytes. Raises ConnectionError if the other side is gone: uvloop raises another error if the write is
        tried.
        """
        if self._writer.is_closing():
            raise ConnectionResetError("the client has closed the connection")
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """Sends pending bytes, then closes."""
        if self._watch is not None and not self._watch.cancel() and not self._watch.cancelled():
            self._watch.exception()  # marks the error as handled: the other side broke the connection
        self._writer.close()

    async def reset(self) -> None:
        """Sends RST, RESET_LAG_S after the last write, so that the client can read the bytes before it."""
        await asyncio.sleep(RESET_LAG_S)
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()


async def serve(host: str, port: int, time_scale: float, *, until_stdin_ends: bool) -> None:
    """Runs a simulator alone until SIGTERM, SIGINT or, if asked for, the end of stdin; prints its URL on stdout."""
    simulator = Simulator(time_scale=time_scale)
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_stop.set)
    if until_stdin_ends:
        asyncio.get_running_loop().add_reader(sys.stdin, asked_to_stop.set)
    await simulator.start(host, port)
    sys.stdout.write(f"{simulator.url}\n")  # last: a reader of this line may send a signal
    sys.stdout.flush()
    await asked_to_stop.wait()
    await simulator.stop()


def main() -> None:
    """Serve until Ctrl-C, or until stdin ends; the command line of the simulator."""
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
        # uvloop: it must be fast, since a tap's stamps are compared with its stamps
        uvloop.run(serve(host, int(port), arguments.time_scale, until_stdin_ends=arguments.until_stdin_ends))


if __name__ == "__main__":
    main()
